/*
 * The life of a transfer: queued, scheduled on a carrier, sent, classified, answered.
 *
 * Concepts. A transfer waits at the node that serves its key (route.h), in the queue of its session; sessions take
 * turns inside their user, users take turns among each other, counted in bytes; inside a session gets go before sets. A
 * session whose user has as many transfers in flight as its quota allows is out of turn until one of them ends, and a
 * user with its share of a node's connections leaves the last one to others (share.h). A carrier (Valkey connection,
 * lane, session) carries one transfer at a time. When it ends without proof that the server is done, its carrier is
 * revoked first and the answer is given after (outcome.h). Where the row allows it the transfer is run again instead of
 * answered (again.h): it waits a little, with its window taken and its deadline running, and goes to the head of its
 * session's queue. Every submitted transfer gets `ended` exactly once.
 *
 * Loop thread only. `ended` is never called from inside transfers_submit; it may be from the ending functions.
 */
#ifndef GRD_TRANSFER_TRANSFER_H
#define GRD_TRANSFER_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "daemon/base/log.h"
#include "daemon/memory/memory.h"
#include "daemon/transfer/outcome.h"
#include "daemon/transfer/stats.h"
#include "daemon/transfer/turns.h"
#include "daemon/valkey/backoff.h"
#include "daemon/valkey/deployment.h"

enum transfer_state {
    TRANSFER_QUEUED,
    TRANSFER_PREPARING,
    TRANSFER_SENT,
    TRANSFER_REVOKING,
    TRANSFER_WAITING, /* for its next attempt; nothing of the last one is left */
    TRANSFER_ENDED,
};

struct transfer;
TAILQ_HEAD(transfer_list, transfer);

struct transfers;

struct queue;
struct queue_user;
struct queue_session;
TAILQ_HEAD(queue_list, queue);

/* Transfers that wait for one member of the deployment (queue.h). */
struct queue {
    struct turns users; /* those with something that may be sent */
    TAILQ_HEAD(, queue_user) resting; /* those with nothing here, and ahead of their turns */
    unsigned length;
    unsigned waiting;               /* users with something here */
    unsigned wanted;                /* of these, as many as could be sent if there were connections */
    struct member *member;          /* NULL: those that wait for a map */
    struct queue_list *ready;
    TAILQ_ENTRY(queue) ready_link;
    bool is_ready;
};

/* The transfers of a user; embedded. */
struct transfer_user {
    LIST_HEAD(, queue_user) places; /* in the queues where it has something */
    uint64_t open;                  /* transfers queued or running */
    uint64_t queued;
    uint64_t in_flight;             /* taken out of a queue, and not ended */
    struct histogram queue_times;   /* of its transfers: the stage "queue" of stats.h */
    TAILQ_ENTRY(transfer_user) active_link; /* share.h */
    bool is_active;
    uint64_t active_at;             /* on the loop's clock, ms */
};

/* The transfers of a session; embedded. */
struct transfer_session {
    struct transfer_user *user;
    uint64_t id;                       /* for the log; set by whoever embeds it */
    uint64_t in_flight;                /* quota of its user's in_flight, at least 1; UINT64_MAX: none */
    LIST_HEAD(, queue_session) places; /* in the queues where it has something */
    LIST_HEAD(, transfer) all;         /* queued or running */
};

struct transfer_result {
    enum transfer_outcome outcome;
    int code;          /* proto error; 0: success, or missing */
    bool may_have_run; /* with an error of a SET */
    unsigned attempts; /* from 1 */
    uint64_t length;   /* GET */
    bool has_crc32c;   /* GET */
    uint32_t crc32c;
    enum carrier_ttl ttl; /* SET */
    uint64_t need;     /* window bytes needed, when the server said so */
    const char *text;  /* with an error: what happened, borrowed */
    const char *server_text; /* the server's words, or NULL */
    bool over_tcp;     /* what carried the value: the RESP connection, not RDMA */
    int os_error;      /* MEMORY: a negative errno; else 0 */
    bool memory_kept;  /* the lane could not be destroyed: the window may be reached until the daemon's process ends */
};

struct transfer {
    /* set by the submitter */
    enum transfer_kind kind;
    struct window window; /* taken; released before `ended` */
    const uint8_t *key;   /* borrowed until `ended` */
    size_t key_length;
    bool has_crc32c;
    uint32_t crc32c;
    uint64_t ttl_ms;      /* SET; 0: none */
    uint64_t deadline_ms; /* 0: none */
    bool no_retry;        /* GET: the first error is the answer */
    uint64_t id;          /* for the admin socket */
    /* Once. After it the struct is the submitter's again, who must free it in `released`, called later. */
    void (*ended)(struct transfer *transfer, const struct transfer_result *result);
    void (*released)(struct transfer *transfer);

    /* private */
    struct transfers *transfers;
    struct transfer_session *session;
    enum transfer_state state;
    enum transfer_outcome ending;   /* the row, as soon as one is decided */
    bool ending_decided;
    struct blob_reply reply;
    bool has_reply;
    bool memory_kept;
    char why[NODE_WHY_BYTES];
    int unavailable_code;
    bool unavailable_later; /* as node_events.unavailable */
    unsigned slot;                  /* of the key */
    struct queue_session *place;    /* while queued */
    struct queue_user *taken_at;    /* while in flight: where it was queued */
    struct member *member;          /* held: where it is queued, or runs; NULL: there is no map */
    struct member *target;          /* held: where the next attempt is to be made; NULL: wherever the slot is */
    bool redirected;                /* it is queued where a redirection named, and stays there when the map changes */
    struct carrier *carrier;
    unsigned nic;                   /* of the carrier's lane, the last one's too */
    bool over_tcp;                  /* the carrier has no lane; the last one's too */
    struct carrier_request request;
    uv_timer_t timer;               /* deadline, or what comes before it: the next attempt, the end of a grace */
    bool timer_used;
    uint64_t deadline_at;           /* on the loop's clock, ms */
    bool named;                     /* the carrier's server has been told of the window */
    unsigned attempts;              /* from 1 */
    unsigned collaterals;           /* attempts that failed because another transfer was taken back */
    bool collateral;                /* the last one is among them, once its end is decided */
    unsigned refused;               /* attempts that ended before anything ran on the server */
    bool runs_again;                /* the decided end is that of an attempt: another one follows */
    enum transfer_outcome last;     /* from the second attempt on: how the one before ended */
    struct backoff backoff;
    bool in_flight;                 /* counted in the user's */
    uint64_t accepted_ns, sent_ns;
    TAILQ_ENTRY(transfer) queue_link;
    LIST_ENTRY(transfer) session_link;
    TAILQ_ENTRY(transfer) all_link;
};

struct transfers {
    uv_loop_t *loop;
    struct deployment *deployment;
    uint64_t revoke_grace_ms, orphan_ms;
    struct queue_list ready;           /* queues to look at: something may be sent that could not before */
    bool sending;                      /* they are being looked at: a callback from inside need not */
    struct queue unmapped;             /* those that wait for the map of the cluster */
    TAILQ_HEAD(, transfer_user) active; /* users, those active last at the end (share.h) */
    unsigned active_count;
    TAILQ_HEAD(, transfer) all;        /* in order of id */
    uint64_t next_id;
    unsigned queued;
    unsigned open;                     /* queued or running */
    struct transfer_stats stats;
    uint64_t run_again;                /* attempts beyond the first */
    uint64_t collateral;               /* of them, because another transfer was taken back */
    void (*idle)(struct transfers *transfers); /* open came to 0; may be NULL */
};

/* `revoke_grace_ms`: how long an answer on its way is waited for at a deadline or cancel; `orphan_ms`: for that of a
 * set whose client has left, so that it may finish. */
void transfers_init(struct transfers *transfers, uv_loop_t *loop, uint64_t revoke_grace_ms, uint64_t orphan_ms);
/* Other times from now on. */
void transfers_set_times(struct transfers *transfers, uint64_t revoke_grace_ms, uint64_t orphan_ms);
void transfer_user_init(struct transfer_user *user);
void transfer_session_init(struct transfer_session *session, struct transfer_user *user);

/* Before their memory goes, sessions first. All their transfers have ended. */
void transfer_session_end(struct transfer_session *session);
void transfer_user_end(struct transfers *transfers, struct transfer_user *user);

/* Sets the quota of transfers in flight that the session's go by; none before the first call. At any time. */
void transfers_limit_session(struct transfers *transfers, struct transfer_session *session, uint64_t in_flight);

/* Accepts a transfer. The caller has checked its limits. */
void transfers_submit(struct transfers *transfers, struct transfer_session *session, struct transfer *transfer);

enum transfer_reason { TRANSFER_CANCELLED, TRANSFER_CLIENT_GONE, TRANSFER_STOPPING };

/* Whether transfer_end would still change anything: no end of it is decided, or one after which it would be run
 * again. */
bool transfer_can_end(const struct transfer *transfer);

/* Ends a transfer: at once while it waits; with its answer, or after its lane was destroyed, when it was sent. */
void transfer_end(struct transfer *transfer, enum transfer_reason reason);

/* Ends all of a session's, or everybody's. */
void transfers_end_session(struct transfer_session *session, enum transfer_reason reason);
void transfers_end_all(struct transfers *transfers, enum transfer_reason reason);

/* Of the deployment, with the struct transfers as context. */
extern const struct deployment_events transfers_events;

/* For lines of the log about the transfer. The node is borrowed as long as the transfer has a member. */
struct log_fields transfer_about(const struct transfer *transfer);

const char *transfer_state_name(enum transfer_state state);

#endif
