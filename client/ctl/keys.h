/*
 * Keys as they come from the command line and go to people and programs; and the connection for them.
 */
#ifndef GRD_CTL_KEYS_H
#define GRD_CTL_KEYS_H

#include <glide-rdmad.h>
#include <jansson.h>

#include "client/ctl/options.h"

/* A key of the command line; `key.data` is the caller's, who calls key_free. */
enum ctl_exit key_parse(const struct options *options, const char *word, struct grd_key *key);
void key_free(struct grd_key *key);

/* New object with the member "key" or, where the key is no text, "key_b64". */
json_t *key_json(const struct grd_key *key);

/* For people: safe to print. The caller frees it. */
char *key_text(const struct grd_key *key);

/* Prints a JSON value and gives it back. */
void print_json(json_t *value);

/* Connects to the daemon; says what is wrong, which group is needed for instance. Release with grd_close(). */
enum ctl_exit connect_client(const struct options *options, grd_client **client);

#endif
