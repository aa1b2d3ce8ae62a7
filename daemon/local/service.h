/*
 * What a session serves from: the parts of the daemon, wired together by main.c. Loop thread only.
 */
#ifndef GRD_LOCAL_SERVICE_H
#define GRD_LOCAL_SERVICE_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/base/loop_watch.h"
#include "daemon/config/config.h"
#include "daemon/local/counters.h"
#include "daemon/local/pace.h"
#include "daemon/local/schedule.h"
#include "daemon/memory/memory.h"
#include "daemon/transfer/transfer.h"
#include "proto/limits.h"

struct session;
struct session_region;
struct user;
struct reloader;
struct drain_request;

struct service {
    uv_loop_t *loop;
    struct loop_watch watch;
    const struct config *config;
    struct workers *workers;
    struct fabric *fabric;
    struct deployment *deployment;   /* NULL once it has stopped */
    struct memory memory;
    struct pin_account queue_account; /* of the deployment's connections, in that memory's budget */
    struct transfers transfers;
    struct user *users;              /* hash by (socket, uid), in order of id */
    struct schedule schedule;
    struct debtors debtors;
    TAILQ_HEAD(session_list, session) sessions; /* in order of id */
    unsigned session_count;
    TAILQ_HEAD(, session) silent;    /* those that have not said hello, longest first */
    uv_timer_t silence;              /* runs while there is one */
    uint64_t next_session;
    TAILQ_HEAD(, session_region) regions; /* of all sessions, in order of number */
    uint64_t next_region;
    uint64_t next_user;
    uid_t overflow_uid;              /* see peer_overflow_uid */
    struct {
        struct log_limit untaken, refused, malformed, silent, slow, memory, budget;
    } log_limits;                    /* of lines that clients can cause */
    struct counters counters;
    unsigned keys;                   /* commands of keys.* that wait for the server */
    unsigned closing_max;            /* descriptors of one user that may wait to be closed, see session_start */
    uint64_t started_ns;
    int pidfd;                       /* owned: of the daemon itself, sent with the answer to hello */
    bool draining;                   /* nothing new is taken: the daemon stops, or was drained */
    bool stopping;                   /* for good */
    TAILQ_HEAD(, drain_request) drains; /* that wait for their answer */
    struct reloader *reloader;       /* NULL: there is none */
    void (*session_ended)(struct service *service); /* a session is gone; may be NULL */
    char buffer[PROTO_MESSAGE_BYTES];               /* of the packet being read */
    char out[PROTO_MESSAGE_BYTES];                  /* of the packet being written */
};

/* Whether transfers can be carried now, and if not why ("" otherwise). */
bool service_usable(const struct service *service, char *why, size_t size);

#endif
