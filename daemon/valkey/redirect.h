/*
 * Errors with which a server says that a command did not run here, or not now, and will elsewhere or later: the command
 * may be sent again whatever it is (rule 2: it was refused before anything ran). Pure, thread safe.
 */
#ifndef GRD_VALKEY_REDIRECT_H
#define GRD_VALKEY_REDIRECT_H

#include <hiredis/hiredis.h>

#include "daemon/valkey/topology.h"

enum redirect_kind {
    REDIRECT_NONE,  /* anything else */
    REDIRECT_MOVED, /* the slot is served by another node */
    REDIRECT_ASK,   /* this one key is, for now, after ASKING */
    REDIRECT_LATER, /* the same node, later: TRYAGAIN, LOADING, BUSY, too many clients, staging memory used up */
    REDIRECT_LOST,  /* not this node any more, or the cluster is in disorder: CLUSTERDOWN, MASTERDOWN, READONLY */
};

struct redirect {
    enum redirect_kind kind;
    unsigned slot;                     /* MOVED, ASK */
    bool same_host;                    /* they name no host: that of the node which answered */
    struct topology_endpoint endpoint; /* MOVED, ASK */
};

/* MOVED and ASK. */
static inline bool redirect_names_node(const struct redirect *redirect)
{
    return redirect->kind == REDIRECT_MOVED || redirect->kind == REDIRECT_ASK;
}

/* Whether an error (bytes, no zero byte needed) says that the server does nothing for now: REDIRECT_LATER or _LOST. */
bool redirect_passes(const char *text, size_t length);

/* Whether an error says that the connection is not logged in, or not any more: nothing ran, and the next connection
 * logs in anew. */
bool redirect_wants_login(const char *text, size_t length);

/* A MOVED or ASK that cannot be understood is REDIRECT_LOST: where the slot is must be asked. */
void redirect_parse(const redisReply *reply, struct redirect *redirect);

/*
 * How often and when a command that was refused is sent again. One that is merely sent elsewhere goes at once the first
 * REDIRECT_AT_ONCE times. All attempts together take about 20 s: longer than a failover under a cluster's defaults.
 */
#define REDIRECT_ATTEMPTS 24
#define REDIRECT_AT_ONCE 3
#define REDIRECT_BASE_MS 20
#define REDIRECT_LIMIT_MS 1000

/* Milliseconds to wait before the attempt after the `attempts` that were made. */
unsigned redirect_delay_ms(const struct redirect *redirect, unsigned attempts);

#endif
