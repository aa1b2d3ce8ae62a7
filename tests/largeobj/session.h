/*
 * Sessions: which client connection has said HELLO, and with which fabric address. Main thread only.
 */
#ifndef LARGEOBJ_SESSION_H
#define LARGEOBJ_SESSION_H

#include <stdint.h>

struct peer;

/* Takes over the caller's reference of the peer. Returns 0, -EEXIST or -ENOMEM; on failure the reference stays with
 * the caller. */
int session_add(uint64_t client_id, struct peer *peer);

/* Returns the peer, borrowed, or NULL. */
struct peer *session_peer(uint64_t client_id);

/* For the end of a connection; there need not be a session. */
void session_drop(uint64_t client_id);

unsigned int session_count(void);

#endif
