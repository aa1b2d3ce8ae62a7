/*
 * Over which transport the next connection to a node is made: TCP (with TLS or without) and Unix sockets, or RDMA and,
 * where [valkey] rdma_fallback = tcp says so, TCP while RDMA cannot be set up.
 *
 * Concepts. A dial is what a node remembers of that, for all its connections. A connection takes a dial_attempt; one
 * over RDMA that fails before it is connected (no library, no device, refused, no answer) goes on with the next, over
 * TCP. When that connects, the node is *on TCP*: its further connections do not try RDMA first. RDMA is tried again by
 * a connection that carries nothing (probe.h), at first after DIAL_AGAIN_MS, and at once when the connection was lost,
 * since the server may be another one. What fails once it is connected is told as ever, and leads nowhere else.
 *
 * Without the fallback nothing but RDMA is tried, and the node is down with the reason. Loop thread only.
 */
#ifndef GRD_VALKEY_DIAL_H
#define GRD_VALKEY_DIAL_H

#include "daemon/valkey/transport.h"

/* Doubled each time that RDMA came back for less than that, up to the limit: nothing flaps between the two for ever. */
#define DIAL_AGAIN_MS 30000
#define DIAL_AGAIN_LIMIT_MS 600000

struct valkey_config;

struct dial {
    const struct valkey_config *config;
    const struct transport_address *address; /* as the node is known, for log and status */
    struct transport_address plain;          /* private: the same for the transport that is not RDMA; borrowed texts */
    struct transport_address rdma;           /* of its RDMA listener; text NULL: not over RDMA */
    bool only_rdma;                          /* no fallback whatever is configured: of a probe */
    bool on_tcp;
    uint64_t again_at, again_ms, back_at;    /* uv_now; ms; uv_now when RDMA came back */
    char why[TRANSPORT_WHY_BYTES];           /* of the last RDMA set-up that failed, while on TCP */
};

struct dial_attempt {
    const struct transport_class *class;
    const struct transport_address *address;
    bool rdma;
    char rdma_why[TRANSPORT_WHY_BYTES]; /* over TCP because RDMA failed so in this connection; else "" */
};

/* 0 or -ENOMEM. `config` and `address` must outlive it. */
int dial_init(struct dial *dial, const struct valkey_config *config, const struct transport_address *address);
void dial_end(struct dial *dial);

/* The first attempt of a connection. 0, or -EPERM with `why`: RDMA, where the configuration forbids it
 * (dial_rdma_forbidden) since it was reloaded. */
int dial_first(const struct dial *dial, struct dial_attempt *attempt, char why[TRANSPORT_WHY_BYTES]);

/* `attempt` failed before it was connected. True: it is the next one now. False: that was all, and `why`, of
 * TRANSPORT_WHY_BYTES, tells of both where two were made. */
bool dial_next(const struct dial *dial, struct dial_attempt *attempt, char why[TRANSPORT_WHY_BYTES]);

/* `attempt` is connected, at `now` (uv_now): the node is on TCP from now on when it had failed over RDMA. */
void dial_connected(struct dial *dial, const struct dial_attempt *attempt, uint64_t now);

/* RDMA is to be tried now: by the next connection, or (due) by a probe, whose end is told. */
void dial_ask_again(struct dial *dial);
bool dial_is_due(const struct dial *dial, uint64_t now);
void dial_probe_failed(struct dial *dial, const char *why, uint64_t now);
void dial_back_on_rdma(struct dial *dial, uint64_t now);

/* What the next connection is made over ("tcp", "tls", "unix", "rdma"). */
const char *dial_transport(const struct dial *dial);

/* Why no connection over RDMA may be made: TLS was asked for, or a password would cross the network in clear. NULL: it
 * may. */
const char *dial_rdma_forbidden(const struct valkey_config *config);

#endif
