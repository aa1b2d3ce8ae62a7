/*
 * A connection that asks one question at a time: for status and the admin socket, which the library does not know.
 */
#ifndef GRD_CTL_CONTROL_H
#define GRD_CTL_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/exit.h"

struct control;

/* Connects; `hello`: says hello. timeout_ms is for each answer. Says what is wrong. */
enum ctl_exit control_open(const char *path, bool hello, uint64_t timeout_ms, struct control **control);

/* Asks and waits; `params` is borrowed and may be NULL. *result becomes the caller's. Says what is wrong. */
enum ctl_exit control_call(struct control *control, const char *method, json_t *params, json_t **result);

/* The same for an answer that brings a descriptor, which becomes the caller's; -1 where it brought none. */
enum ctl_exit control_call_fd(struct control *control, const char *method, json_t *params, json_t **result, int *fd);

void control_close(struct control *control);

#endif
