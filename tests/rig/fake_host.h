/*
 * What the daemon asks of its host, in the target's hand: the monotonic clock, who is at the other end of a socket, the
 * log, and waits without jitter. Linked in place of daemon/local/peer.c, daemon/base/log.c and daemon/valkey/backoff.c.
 */
#ifndef GRD_TESTS_RIG_FAKE_HOST_H
#define GRD_TESTS_RIG_FAKE_HOST_H

#include <stdint.h>

#include "daemon/local/peer.h"

/* CLOCK_MONOTONIC stands still but for this. */
void fake_clock_advance(uint64_t ms);

/* The next peer_read says this, with a duplicate of its pidfd: one that is turned away before is not read. */
extern struct peer fake_peer;

#endif
