/*
 * A node: one Valkey server with a control connection for keys.* and a pool of carriers for transfers.
 *
 * Concepts. A carrier is one RESP connection, the lane bound to it and the BLOB session that names the lane: it carries
 * one transfer at a time. Carriers are made on demand (connect, AUTH, lane, HELLO, address vector), or at start with
 * `warm`; the pool has `connections` of them. The control connection is kept up with a backoff and is never blocked by
 * a transfer. Loop thread only; callbacks are never made from inside a call unless said otherwise.
 */
#ifndef GRD_VALKEY_NODE_H
#define GRD_VALKEY_NODE_H

#include "daemon/base/file_range.h"
#include "daemon/fabric/lane.h"
#include "daemon/valkey/blob.h"
#include "daemon/valkey/resp.h"

#define NODE_WHY_BYTES FABRIC_WHY_BYTES

struct node;
struct carrier;
struct places;

struct node_events {
    /* A carrier became idle: node_acquire may succeed now. */
    void (*carrier_idle)(void *context);
    /* No carrier could be made, and none that could serve the first who waits is left at work: whoever waits must be
     * told. `code` is a proto error
     * (PROTO_ERR_SERVER_DOWN, PROTO_ERR_NOT_USABLE); `later`: the server is there, and refused for now what it will do
     * later (redirect_passes), so whoever waits may ask again. */
    void (*unavailable)(void *context, int code, bool later, const char *why);
    /* The control connection came up or went down: see node_health. May be NULL. May come from inside node_command,
     * which makes a connection that is down again, and from inside node_reset. */
    void (*changed)(void *context, bool up);
};

/* Starts connecting at once; returns NULL when out of memory. `config`, `fabric`, `places`, `address` and `events`
 * must outlive it. */
struct node *node_start(uv_loop_t *loop, struct workers *workers, struct fabric *fabric, struct places *places,
                        const struct valkey_config *config, const struct transport_address *address,
                        const struct node_events *events, void *context);

/*
 * Destroys every lane and connection; `done` (never from inside) when all is closed: status as of lane_destroy, the
 * worst of all. Carriers that are acquired must have been released or revoked before; commands that wait get `lost`
 * from inside this call. No event comes any more. A name look-up that hangs is not waited for: see workers_outstanding.
 */
void node_stop(struct node *node, void (*done)(void *context, int status), void *context);

/*
 * An idle carrier on one of the NICs in `nics` (that which was released last), now the caller's until carrier_release
 * or carrier_revoke; or NULL. Then, as long as fewer than `waiting` carriers are being made and the pool has room,
 * another is begun, and carrier_idle or unavailable follows. Where the pool is full, and all that serve those NICs are
 * gone, an idle one on another NIC makes room: whoever asks again at each carrier_idle, before others do, gets one.
 * `waiting` counts the transfers that could be sent now, the caller's own too. The node remembers it, so that it makes
 * another carrier when one that was waited for is revoked or ends.
 *
 * After a failed attempt none is begun for min(50 ms << failures, 2 s), give or take; whoever asks meanwhile gets
 * `unavailable` with the last reason, unless other carriers are at work, for which he waits.
 */
struct carrier *node_acquire(struct node *node, uint32_t nics, unsigned waiting);

/* The same, for one that need not be helped to a carrier: only what is idle already. */
struct carrier *node_take_idle(struct node *node, uint32_t nics);
bool node_has_idle(const struct node *node);

/* How many carriers can be in use at once, as far as lanes_max allows; how many more than now. */
unsigned node_capacity(const struct node *node);
unsigned node_free(const struct node *node);

/*
 * Lets go of every connection that is there, because the server behind the address may be another one by now (a
 * failover): idle carriers go at once, those at work when they are released, the control connection is made anew. Each
 * new connection looks the name up again.
 */
void node_reset(struct node *node, const char *why);

/* NULL: the carrier is one over TCP (fallback.h), for carrier_tcp_set and carrier_tcp_get. */
struct lane *carrier_lane(struct carrier *carrier);

/* What became of the time to live that was asked for with a SET. */
enum carrier_ttl {
    CARRIER_TTL_NONE,    /* none was asked for, or the SET failed */
    CARRIER_TTL_APPLIED,
    CARRIER_TTL_REFUSED, /* the key was gone already, or the server refused PEXPIRE */
    CARRIER_TTL_UNKNOWN, /* the connection ended between the two answers */
};

/* Intrusive, for one transfer on a carrier. */
struct carrier_request {
    struct resp_request resp;  /* private */
    struct carrier *carrier;   /* private */
    enum blob_command command; /* private */
    uint64_t window;           /* private */
    struct resp_request expire; /* private: PEXPIRE, pipelined behind a SET */
    bool expire_pending;       /* private */
    bool replied;              /* private: the SET's reply is kept until PEXPIRE's has come */
    struct blob_reply reply;   /* private */
    struct resp_asking asked[2]; /* private: ASKING before the transfer, and before PEXPIRE */
    uint64_t ttl_ms;           /* set by the caller before carrier_set; 0: none */
    bool asking;               /* set by the caller: the node serves the key's slot only after ASKING */
    enum carrier_ttl ttl;      /* filled when `done` is called */
    /*
     * Exactly once. `reply` is borrowed, and `why` "" or what should be said of it. reply NULL: the answer was lost
     * (`why`); may_have_run false proves that the command never left as a whole, so nothing can run. Whenever the class
     * is LIVE, or reply is NULL, the caller must carrier_revoke the carrier before anybody gets the memory back; in the
     * other cases carrier_release it. (A reply NULL with may_have_run false, and the class MEMORY, need the revocation
     * too: the connection is of no use.)
     */
    void (*done)(struct carrier_request *request, const struct blob_reply *reply, bool may_have_run, const char *why);
};

/* Send the transfer, one at a time. 0, or nothing was sent and there is no callback: -ENOTCONN (the connection ended
 * since the acquisition; release or revoke), -EBUSY (one is under way), -EINVAL (no or too many triples), -ENOBUFS,
 * -ENOMEM. */
int carrier_set(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                uint64_t length, bool has_crc, uint32_t crc, const struct slice_triple *triples, size_t count);
int carrier_get(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                uint64_t window, const struct slice_triple *triples, size_t count);

/*
 * The same over TCP: value and command are on one connection, and workers move the bytes between its buffer and the
 * window, as jobs of the window's owner. `window` is borrowed until `done` was called or the revocation has ended.
 *
 * The connection is what a lane is otherwise: it is closed, and the last job awaited, before anybody gets the memory
 * back. After a SET with a checksum the server is asked for the one that it keeps: one that differs is FINISHED with
 * crc_mismatch and `stored`. A GET has the checksum only where the server told the same before and after it.
 */
int carrier_tcp_set(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                    bool has_crc, uint32_t crc, const struct file_range *window);
int carrier_tcp_get(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                    const struct file_range *window);

/* The transfer ended with proof, or was never sent: the carrier is idle again (carrier_idle may be called from inside).
 * One whose connection ended meanwhile, or whose answer said blob_reply.reconnect, is destroyed instead. */
void carrier_release(struct carrier *carrier);

/*
 * Takes the transfer back: drops the connection (a pending request gets no callback any more), then lane_destroy.
 * `done` is called once: 0 when no byte of this carrier's windows can move any more, negative as lane_destroy. The
 * carrier is gone; the pool makes a new one on demand.
 */
void carrier_revoke(struct carrier *carrier, void (*done)(void *context, int status), void *context);

/* Name for the log and status: "data 3". */
const char *carrier_name(const struct carrier *carrier);

/* A command on the control connection (EXISTS, DEL, BLOB.INFO, EXPIRE). Embed resp; set reply and lost. Waits for a
 * connection that is being made. 0, or -ENOTCONN (down: see node_health), -EAGAIN (it ends, and another follows),
 * -ENOBUFS (more than NODE_COMMANDS waiting, or RESP_OUTPUT_BYTES), -ENOMEM: no callback then. */
#define NODE_COMMANDS 4096
int node_command(struct node *node, struct resp_request *request, int argc, const char **argv, const size_t *lengths);

/* Somebody needs the control connection: while it is down the next attempt is made now, unless the last is as good as
 * just over. */
void node_wake(struct node *node);

/* As node_command, with ASKING before it in the same write. */
int node_command_asking(struct node *node, struct resp_asking *asking, struct resp_request *request, int argc,
                        const char **argv, const size_t *lengths);

/*
 * Asks the server for its largest value (CONFIG GET largeobj.max-object-size), in the background, behind the commands
 * that were sent before; node_health tells the answer. Managed services refuse CONFIG: then it stays unknown.
 */
void node_ask_limits(struct node *node);

struct node_health {
    const char *address;
    const char *state;       /* "up", "connecting", "down" */
    const char *why;         /* of the last failure while not up, else "" */
    bool put_off;            /* that failure: the server said that it would do later what it refused */
    bool login_refused;      /* that failure: the server did not accept user or password */
    const char *transport;   /* of the connection that is there, else of the next: "tcp", "tls", "unix", "rdma" */
    const char *transport_why; /* why it is not "rdma" though that was configured, else "" */
    const char *rdma_address; /* of its RDMA listener, "rdma://host:port"; "": not reached over RDMA */
    bool rdma_auth_in_clear; /* a password goes there, which RDMA does not encrypt */
    unsigned carriers;       /* with a session */
    unsigned carriers_busy;
    uint64_t reconnects;
    uint64_t revocations;    /* carrier_revoke */
    uint64_t value_bytes;    /* the server's largest value when it was asked last; 0: not known */
    const char *session_why; /* why the last BLOB session failed; "" after one that succeeded or none was tried */
    const char *path;        /* "rdma", or "tcp" by the configured fallback */
    const char *path_why;    /* why "tcp", else "" */
};
/* The configuration has changed. Its connections authenticate again, with user and password file as they are now: an
 * idle one at once, one that carries a transfer after it. Those over TCP in place of RDMA end as with node_reset where
 * that is not allowed any more. */
void node_reloaded(struct node *node);

void node_health(const struct node *node, struct node_health *health);

#endif
