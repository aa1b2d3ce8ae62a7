/*
 * What deployment.c and deployment_map.c share. Nobody else includes it.
 *
 * A member is on `members` from its start until it is let go, then on `leaving` until its node has stopped.
 */
#ifndef GRD_VALKEY_DEPLOYMENT_PRIVATE_H
#define GRD_VALKEY_DEPLOYMENT_PRIVATE_H

#include "daemon/valkey/backoff.h"
#include "daemon/valkey/deployment.h"
#include "daemon/valkey/key_command.h"
#include "daemon/valkey/places.h"

TAILQ_HEAD(member_list, member);

/* CLUSTER SLOTS on its way. It outlives its use: an answer that comes too late is nobody's. */
struct map_question {
    struct resp_request request;
    struct deployment *deployment; /* NULL: nobody waits for the answer any more */
    struct member *asked;          /* held until the answer, or the end of the wait */
};

struct deployment {
    uv_loop_t *loop;
    struct workers *workers;
    struct fabric *fabric;
    const struct valkey_config *config;
    const struct deployment_events *events;
    void *context;
    struct places places;

    struct member_list members, leaving; /* in order of number */
    unsigned member_count;
    uint64_t next_number;

    /* of a cluster */
    struct topology *map; /* NULL: none yet */
    struct member *owners[TOPOLOGY_NODES]; /* the members of the map's nodes; NULL: there was no memory for one */
    struct map_question *question;
    bool wanted;         /* the map is to be asked for, as soon as it may be */
    uint64_t not_before; /* uv_now; standalone: of the next reset of the node */
    uint64_t rest_until; /* the same, when it is only for the rest after an answer */
    uint64_t fresh_at;   /* uv_now when the map was answered last */
    struct backoff backoff;
    unsigned asked_in_vain; /* nodes in a row */
    uint64_t asked_last; /* number of the member */
    char why[NODE_WHY_BYTES]; /* why there is no map */
    int failure;         /* proto error */
    bool failure_passes; /* a node refused the question for now */
    uv_timer_t timer;    /* the question's time; else the end of a rest, or, at once, telling that there is no map */

    struct key_commands key_commands;

    bool stopping;
    unsigned parts; /* members and timers that are not gone, while stopping */
    int stop_status;
    void (*stopped)(void *context, int status);
    void *stopped_context;
};

/* --- deployment.c --- */

/* The member at an endpoint, made if there is none; NULL: out of memory, or too many. */
struct member *deployment_member_at(struct deployment *deployment, const struct topology_endpoint *endpoint);
/* Makes members of the seeds that are none. */
void deployment_add_seeds(struct deployment *deployment);
/* Lets go of it if it is not part of the map and nobody holds it. */
void deployment_drop_unneeded(struct member *member);

/* --- deployment_map.c --- */

void map_start(struct deployment *deployment);
void map_stop(struct deployment *deployment);
/* The map may be wrong: asks for it, now or with the next use. */
void map_doubt(struct deployment *deployment);
/* Asks if that is wanted and possible. */
void map_pursue(struct deployment *deployment);
/* The same for somebody who needs it: nodes that are down are tried without their pauses. */
void map_use(struct deployment *deployment);
/* Why there is no map: its proto error, the reason as text, and whether a node will answer `later`, as
 * node_events.unavailable. */
int map_describe_lack(const struct deployment *deployment, bool *later, char *why, size_t size);
/* Whether one may come without anybody's doing: a question is under way, or a node being connected to. */
bool map_is_coming(const struct deployment *deployment);
/* Somebody waits for the map: it is asked for, or he is told soon why it cannot be. */
void map_await(struct deployment *deployment);

#endif
