/*
 * The AUTH command, from the first line of a file. The password lives in memory only from here until the transport has
 * taken the command, and is wiped then; the memory it is in is left out of core files; it appears in no text. Loop
 * thread only.
 */
#ifndef GRD_VALKEY_AUTH_H
#define GRD_VALKEY_AUTH_H

#include <stddef.h>

#include "daemon/valkey/offload.h"

#define AUTH_PASSWORD_BYTES 8192 /* tokens of cloud services are long */

struct auth_read;

/* `command` (to be given to auth_wipe) is the formatted AUTH; or NULL, and `why` says what is wrong with the file. */
typedef void (*auth_read_done)(void *context, char *command, size_t length, const char *why);

/* Reads the file on a worker; `user` may be NULL; both are copied. NULL when out of memory. `done` is called once,
 * later. */
struct auth_read *auth_read_start(struct offload *offload, const char *user, const char *path, auth_read_done done,
                                  void *context);

/* Look away: `done` is not called any more. Not after `done`. */
void auth_read_cancel(struct auth_read *read);

/* Wipes and frees a command. NULL is allowed. */
void auth_wipe(char *command, size_t length);

#endif
