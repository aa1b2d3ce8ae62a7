/*
 * Messages on standard error, and what they mean for the exit status.
 */
#ifndef GRD_CTL_REPORT_H
#define GRD_CTL_REPORT_H

#include <glide-rdmad.h>
#include <stddef.h>

#include "client/ctl/exit.h"

/* One line on standard error, with bytes that a terminal would obey made visible. Takes a progress bar away first. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * From now on report() writes its line into `line` instead, without the program's name, until it is called with NULL.
 * Borrowed. For commands that tell what happened in an order and form of their own.
 */
void report_collect(char *line, size_t size);

/* Exit status for an error code of the library or the protocol. Thread safe. */
enum ctl_exit report_status(int code);

/* The same where it kept a connection from being made, or ended it. Thread safe. */
enum ctl_exit report_connect_status(int code);

/* Says that `what` failed with the error, and whether it may have been executed. Returns the exit status. */
enum ctl_exit report_error(const char *what, const struct grd_error *error);

/* Says who may connect to the socket: which group is needed, or that nobody but its owner may. Returns the status. */
enum ctl_exit report_no_access(const char *socket_path);

/* Ends the program where an allocation failed; otherwise returns it. */
void *need_memory(void *memory);

#endif
