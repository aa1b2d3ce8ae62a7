/*
 * What node.c, carrier.c and control.c share. Nobody else includes it.
 *
 * A node owns its control connection and its carriers; a carrier owns its RESP connection and its lane. A carrier is on
 * exactly one of the node's lists: making -> idle <-> busy -> dying. One that is dying has no connection any more and
 * does not count for the pool; it is freed when its lane is gone.
 */
#ifndef GRD_VALKEY_NODE_PRIVATE_H
#define GRD_VALKEY_NODE_PRIVATE_H

#include "daemon/base/log.h"
#include "daemon/valkey/backoff.h"
#include "daemon/valkey/dial.h"
#include "daemon/valkey/fallback.h"
#include "daemon/valkey/node.h"
#include "daemon/valkey/places.h"

enum carrier_state {
    CARRIER_CONNECTING,   /* TCP or Unix, AUTH */
    CARRIER_OPENING_LANE,
    CARRIER_HELLO,
    CARRIER_ADDING_PEERS,
    CARRIER_IDLE,
    CARRIER_BUSY, /* acquired */
    CARRIER_DYING,
};

TAILQ_HEAD(carrier_list, carrier);

struct tcp_value;

struct carrier {
    TAILQ_ENTRY(carrier) link;
    TAILQ_ENTRY(carrier) idle_link; /* while idle: among those of all nodes */
    struct node *node;
    enum carrier_state state;
    uint32_t nics; /* that its lane may be on; from OPENING_LANE on its NIC */
    unsigned number;
    char name[24];
    struct resp_connection *resp; /* NULL: ended */
    struct lane *lane;            /* from lane_open on */
    bool laneless;                /* over TCP: there is no lane, and no BLOB session */
    struct tcp_value *value;      /* laneless: made with the first transfer */
    struct resp_request hello;
    struct patience *patience;    /* while HELLO waits for its answer */
    struct carrier_request *request; /* in flight */
    bool tainted;                    /* a transfer ended without proof: only a revocation will do */
    bool spent;                      /* not for another transfer, though this one ended well */
    bool reached;                    /* a transfer has moved its bytes: the server can reach this host */
    lane_done gone;                  /* of carrier_revoke, called when the lane is gone; may be NULL */
    void *gone_context;
};

enum control_state { CONTROL_CONNECTING, CONTROL_UP, CONTROL_DOWN };

struct control {
    enum control_state state;
    struct resp_connection *resp; /* NULL while down */
    uv_timer_t timer;             /* until the next attempt, while down */
    uv_timer_t answers;           /* runs while something waits for an answer of the server */
    struct backoff backoff;
    uint64_t up_since, down_since; /* uv_now */
    bool was_up;
    bool login_refused; /* by the last attempt */
    bool put_off;       /* the last one: the server had no time for it */
    bool replaced; /* it takes no more commands, and a new connection follows */
    uint64_t reconnects;
    char why[TRANSPORT_WHY_BYTES];
    struct resp_request limits; /* CONFIG GET */
    bool asking;                /* it is under way */
    uint64_t value_bytes;
};

struct node {
    uv_loop_t *loop;
    struct log_limit unreached; /* of the line about first transfers that fail */
    struct workers *workers;
    struct offload *offload;
    struct fabric *fabric;
    struct places *places;
    const struct valkey_config *config;
    const struct transport_address *address;
    const struct node_events *events;
    void *context;

    struct dial dial;             /* of all its connections */
    struct dial probe_dial;       /* over RDMA and nothing else */
    struct resp_connection *probe; /* probe.h; NULL: none is under way */

    struct control control;

    struct carrier_list making, idle, busy, dying;
    unsigned making_count, idle_count, busy_count, dying_count;
    unsigned waiting;        /* transfers that wait for a carrier, as far as we were told */
    uint32_t nics;           /* that the first of them can be carried on */
    uv_timer_t renewal;      /* until a login is to be renewed */
    uv_timer_t notify;       /* runs out at once: `unavailable` from outside of node_acquire */
    struct backoff backoff;  /* of attempts to make a carrier */
    uint64_t retry_at;       /* uv_now before which none is made */
    TAILQ_ENTRY(node) place_link;
    bool wants_place;        /* all lanes are taken: among those that wait for a place */
    enum places_want want;
    uint64_t wants_since;    /* uv_now */
    int failure;             /* proto error of the last failed attempt */
    bool failure_passes;     /* the server refused it for now */
    char why[NODE_WHY_BYTES];
    char session_why[NODE_WHY_BYTES];
    bool over_tcp;           /* fallback.h */
    uint64_t rdma_at;        /* uv_now from which RDMA is tried again */
    char tcp_why[NODE_WHY_BYTES];
    uint64_t revocations;
    struct blob_words words; /* scratch: commands are built and sent in one go */

    bool stopping;
    unsigned handles; /* timers not yet closed, while stopping */
    int stop_status;
    void (*stopped)(void *context, int status);
    void *stopped_context;
};

/* --- carrier.c --- */

/* Begins to make a carrier with a lane on one of `nics`, or without. 0, or negative: the failure was recorded, nothing
 * follows. */
int carrier_begin(struct node *node, uint32_t nics, bool laneless);

/* Its connection is closed and its lane, if it had one, is gone: the end. */
void carrier_gone(struct carrier *carrier, int status);

/* Ends the carrier: connection first, then the lane, then `gone` (may be NULL). */
void carrier_dispose(struct carrier *carrier, lane_done gone, void *context);

/* --- carrier_tcp.c --- */

/* Nothing of the client's memory is in use by the carrier; else carrier_gone follows when that has come true. */
bool tcp_value_ends(struct carrier *carrier);
void tcp_value_free(struct tcp_value *value);

/* 0, or why a carrier takes no transfer now. */
int carrier_can_send(const struct carrier *carrier);

/* --- node.c --- */

void node_move(struct carrier *carrier, enum carrier_state state);
/* An attempt failed; `session`: after the connection was ready; `later` as node_events.unavailable. */
void node_attempt_failed(struct node *node, int code, bool later, const char *why, bool session);
/* A carrier got its session. */
void node_carrier_made(struct node *node);
/* After a carrier went away: replaces it while transfers wait, or tells them that there is none. */
void node_settle(struct node *node);
/* With `warm`: makes all the carriers that the pool has room for. */
void node_warm(struct node *node);
/* Carriers that are made, idle or at work. */
unsigned node_carriers(const struct node *node);
/* The NICs that the next carrier may be on: one for the first who waits; the others where there are the fewest. */
uint32_t node_wish(const struct node *node);
/* A dying carrier is gone, or a timer is closed. */
void node_part_gone(struct node *node, int status);

/* --- control.c --- */

void control_start(struct node *node);
void control_stop(struct node *node);
/* Ends the connection as soon as what was sent on it is answered, and makes a new one then. */
void control_replace(struct node *node, const char *why);

#endif
