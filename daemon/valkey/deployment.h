/*
 * The deployment: the one server, or the nodes of the one cluster, that the daemon serves values of.
 *
 * Concepts. A *member* is a node and what the deployment knows of it. Standalone ([valkey] address) there is one, and
 * it serves every slot. Of a cluster ([valkey] seeds) the members are the primaries of the map, the seeds as long as
 * there is no map, and nodes that a redirection named; whoever is no part of the map goes when nobody holds it any
 * more.
 *
 * The map is asked for (CLUSTER SLOTS, on a control connection) at the start, after a redirection, after the loss of a
 * connection, and by the next use once it is MAP_AGE_MS old: one question at a time, with a backoff after failures, and
 * none while nobody uses the deployment.
 *
 * Ownership: the deployment owns members, nodes, addresses and the map. A member lives as long as it is held or part of
 * the map; pointers to it are good until the event `member_gone`. Loop thread only; events are never made from inside a
 * call unless said otherwise.
 */
#ifndef GRD_VALKEY_DEPLOYMENT_H
#define GRD_VALKEY_DEPLOYMENT_H

#include "daemon/valkey/node.h"
#include "daemon/valkey/redirect.h"
#include "daemon/valkey/topology.h"

#define MAP_AGE_MS 60000

struct deployment;

struct member {
    TAILQ_ENTRY(member) link; /* private */
    struct deployment *deployment;
    struct node *node;
    struct transport_address address;  /* private */
    struct topology_endpoint endpoint; /* of a cluster */
    uint64_t number;                   /* ascending, never used twice */
    bool in_map;                       /* a primary that serves slots; always true standalone */
    unsigned slots, replicas;          /* as the map says; standalone: all and 0 */
    unsigned holds;                    /* private */
    void *data;                        /* the user's; NULL at first */
};

struct deployment_events {
    /* As those of the node; `member` NULL with `unavailable`: there is no map, so nobody can be told apart. */
    void (*carrier_idle)(void *context, struct member *member);
    void (*unavailable)(void *context, struct member *member, int code, bool later, const char *why);
    /* Slots are served by other members than before, or for the first time: deployment_member_of answers anew. */
    void (*map_changed)(void *context);
    /* The member is about to be freed, and nobody holds it: `data` must be let go. Also from inside deployment_let_go
     * and deployment_stop. */
    void (*member_gone)(void *context, struct member *member);
};

/* Starts connecting at once; NULL when out of memory. The configuration was checked (config.c). `config`, `fabric` and
 * `events` must outlive it. */
struct deployment *deployment_start(uv_loop_t *loop, struct workers *workers, struct fabric *fabric,
                                    const struct valkey_config *config, const struct deployment_events *events,
                                    void *context);

/* Ends every member as node_stop does; nobody may hold one. `done` (never from inside): the worst status of all. */
void deployment_stop(struct deployment *deployment, void (*done)(void *context, int status), void *context);

/* 0 where slots do not matter (standalone): a key's slot need not be computed then. */
bool deployment_is_cluster(const struct deployment *deployment);
unsigned deployment_slot(const struct deployment *deployment, const void *key, size_t length);

/* Who serves the slot; NULL: there is no map yet, and map_changed or unavailable (member NULL) follows. A slot that
 * nobody serves is some member's, who will say so in its own words. Counts as use. */
struct member *deployment_member_of(struct deployment *deployment, unsigned slot);

/* While held a member stays, also after it left the map. */
void deployment_hold(struct member *member);
void deployment_let_go(struct member *member);

/*
 * What `from` answered, when it sent a command elsewhere or refused it for now, and what follows for the map. The
 * member that the command should be sent to next: that which a MOVED or ASK names, else NULL: whoever serves the slot
 * then.
 */
struct member *deployment_redirect(struct member *from, const struct redirect *redirect);

/* Whether values can be carried: a node is up, and its last session did not fail; else why not. */
bool deployment_usable(const struct deployment *deployment, char *why, size_t size);

/* What carries values: "rdma", "tcp" by the configured fallback, or "mixed": some nodes one, some the other. `why` says
 * why it is not "rdma", of the first node that is meant, else "". */
const char *deployment_path(const struct deployment *deployment, char *why, size_t size);

/* The server's largest value in bytes, as the node asked last said, or 0; deployment_ask_limits asks again. */
uint64_t deployment_value_bytes(const struct deployment *deployment);
void deployment_ask_limits(struct deployment *deployment);

/* node_reloaded for every node. */
void deployment_reloaded(struct deployment *deployment);

/* In order of their numbers: the first (NULL), the one after. */
const struct member *deployment_next(const struct deployment *deployment, const struct member *after);
/* "primary", or "none" of a node that serves no slots. */
const char *member_role(const struct member *member);

#endif
