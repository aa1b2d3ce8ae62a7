/*
 * The addresses behind the name of a server, to be tried in turn within one limit of time: for transports, which embed
 * it. Loop thread only.
 */
#ifndef GRD_VALKEY_RESOLVE_H
#define GRD_VALKEY_RESOLVE_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/valkey/offload.h"
#include "daemon/valkey/transport.h"

struct resolve_lookup;

struct resolve {
    const struct transport_address *address;
    unsigned limit_ms;
    uint64_t deadline; /* uv_now: connected by then */
    struct resolve_lookup *lookup; /* under way */
    struct addrinfo *found;
    const struct addrinfo *next, *current;
    unsigned count;                      /* addresses */
    char failures[TRANSPORT_WHY_BYTES]; /* of those that were of no use */
    /* The look-up is over: 0, or negative with `why`, borrowed for the call. */
    void (*done)(struct resolve *resolve, int error, const char *why);
};

/*
 * Begins. 0: the host is a numeric address, ask resolve_next; 1: a worker looks the name up, and `done` follows unless
 * resolve_end or resolve_give_up comes before; -ENOMEM. `address` must live until resolve_end, which is also to be
 * called after an error.
 */
int resolve_start(struct resolve *resolve, uv_loop_t *loop, struct offload *offload,
                  const struct transport_address *address, unsigned limit_ms,
                  void (*done)(struct resolve *resolve, int error, const char *why));

/* Instead of resolve_start, with one address that is known; it must live until resolve_end. */
void resolve_given(struct resolve *resolve, uv_loop_t *loop, const struct transport_address *address,
                   unsigned limit_ms, const struct addrinfo *given);

/* The next address, which lives until resolve_end; NULL: none is left. */
const struct addrinfo *resolve_next(struct resolve *resolve);

/* Milliseconds for the address that was given last: an equal share of what is left, so that one dead address leaves
 * time for the others. */
uint64_t resolve_share_ms(const struct resolve *resolve, uint64_t now);

/* The address that was given last was of no use, for this reason. What can be said of the name then: the reason, or, of
 * a name with several addresses, "127.0.0.2: reason; [::1]: reason", each shortened to its part of the room. */
const char *resolve_failed(struct resolve *resolve, const char *reason);

/* Whether there are several addresses. */
bool resolve_several(const struct resolve *resolve);

bool resolve_is_looking(const struct resolve *resolve);

/* The look-up took too long and is left alone; `why` says so. -ETIMEDOUT. */
int resolve_give_up(struct resolve *resolve, char why[TRANSPORT_WHY_BYTES]);

/* Frees what it holds; accepts a zeroed one. */
void resolve_end(struct resolve *resolve);

#endif
