/*
 * A RESP connection: hiredis' formatter and reader over a transport, AUTH, and pipelined requests of which it is known
 * exactly whether their last byte may have left. Loop thread only.
 *
 * RESP2 only. Whatever a server may not send ends the connection: a reply without a request, a type of RESP3, a reply
 * beyond the bounds below. The way to a connection and AUTH have connect_timeout_ms each; from then on there is no
 * timer here: who waits for a reply owns the deadline.
 */
#ifndef GRD_VALKEY_RESP_H
#define GRD_VALKEY_RESP_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "daemon/valkey/bulk.h"
#include "daemon/valkey/dial.h"
#include "daemon/valkey/transport.h"

struct reach;

/* Bytes of one reply, and elements of all its arrays together: more is a protocol error and ends the connection. */
#define RESP_INPUT_BYTES (1024 * 1024)
#define RESP_ELEMENTS 65536

/* The same for a request whose `large` is set (CLUSTER SLOTS). One array has at most RESP_ELEMENTS in any case. */
#define RESP_LARGE_INPUT_BYTES (16 * 1024 * 1024)
#define RESP_LARGE_ELEMENTS 262144

/* Bytes of commands that the transport has not taken yet. */
#define RESP_OUTPUT_BYTES (4 * 1024 * 1024)

struct valkey_config {
    char *address;       /* standalone */
    char *seeds;         /* of a cluster: "host:port, host:port"; then there is no address. NULL: standalone */
    char *user;          /* NULL: the default user */
    char *password_file; /* NULL: no AUTH; the file's first line, read on a worker for each AUTH */
    unsigned auth_max_age_ms; /* AUTH is renewed before it is older; 0: never */
    unsigned connections;
    bool warm;
    char *fallback_word; /* "none" or "tcp" */
    bool fallback_tcp;   /* values may move over this connection where there is no RDMA (fallback.h) */
    unsigned fallback_retry_ms; /* RDMA is tried again so long after the last attempt */
    char *transport_word;        /* "tcp", "rdma"; NULL: not said */
    unsigned rdma_port;          /* 0: the same number as over TCP */
    char *rdma_address;          /* of the one server at `address`: host, or host:port; NULL: none */
    char *rdma_nodes;            /* reach.h; NULL: none */
    char *rdma_fallback_word;    /* "none" or "tcp" */
    bool rdma_fallback;          /* where RDMA cannot be set up the connection itself is made over TCP (dial.h) */
    bool rdma_auth_in_clear;     /* a password may be sent over RDMA, where there is no TLS */
    struct reach *reach;         /* made of these; NULL: addresses that name no transport are reached over TCP */
    unsigned connect_timeout_ms; /* of the way to a connection, of AUTH, and of HELLO (carrier.c) */
    unsigned command_timeout_ms; /* of an answer on the control connection (control.c); 0: none */
    const struct pin_account *pins; /* of what connections over RDMA register for themselves; NULL: not counted */
    struct tls_settings tls_settings;
    struct tls_store *tls; /* made of tls_settings; NULL: without TLS */
};

/* Bytes that are read from a connection at once: room that a sink must have when its value begins. */
#define RESP_READ_BYTES 16384

enum resp_sink_choice {
    RESP_SINK_TAKE,
    RESP_SINK_LEAVE, /* nothing of it is wanted, and it is too much to read: `reply` comes now, then the end */
};

/*
 * Where the one reply goes that may be a bulk string of any size (bulk.h). Embedded by the sender of a request.
 * `begin` once, when its length is known; then its bytes by `room` and `filled` in turn. `reply` of the request comes
 * after the last byte, with the length in `integer` and no bytes; errors and null come there as ever. Nothing is read
 * from the connection while there is no room: call resp_resume then.
 */
struct resp_sink {
    struct bulk bulk; /* private */
    enum resp_sink_choice (*begin)(struct resp_sink *sink, uint64_t length);
    void *(*room)(struct resp_sink *sink, size_t *capacity); /* for the next bytes, at least 1; NULL: not now */
    void (*filled)(struct resp_sink *sink, size_t length);
};

/* Intrusive: embed it; it is the connection's from resp_send until `reply` or `lost` was called (exactly one is). */
struct resp_request {
    TAILQ_ENTRY(resp_request) link;
    unsigned long long last_byte; /* private: stream offset behind the command */
    bool large;                   /* set by the sender: the reply may be large */
    struct resp_sink *sink;       /* set by the sender: takes a bulk string, the only success; NULL: none */
    void (*writable)(struct resp_request *request); /* with resp_send_payload: resp_write may take bytes again */
    /* `reply` is borrowed for the call. */
    void (*reply)(struct resp_request *request, const redisReply *reply);
    /* No reply will come. may_have_run false: the whole command never left, so the server cannot have run it. */
    void (*lost)(struct resp_request *request, bool may_have_run, const char *why);
};

struct resp_events {
    void (*ready)(void *context);                            /* connected and authenticated */
    /* The connection failed or ended; every request had its `lost` before. Then call resp_close. `auth`: the server
     * refused our credentials, or the password file cannot be used. */
    void (*closed)(void *context, bool auth, const char *why);
    /* Requests, or a renewal of AUTH, wait for a reply from now on; or none does any more. From inside calls, too. May
     * be NULL. */
    void (*waits)(void *context, bool any);
};

struct resp_connection;

/* Opens and authenticates. 0 and the connection, or negative with `why`. No callback from inside. `config` and `dial`
 * must live until resp_close. */
int resp_open(uv_loop_t *loop, struct offload *offload, const struct valkey_config *config,
              struct dial *dial, const struct resp_events *events, void *context,
              struct resp_connection **connection, char why[TRANSPORT_WHY_BYTES]);

/* It takes requests, and gives them to the transport. */
bool resp_is_ready(const struct resp_connection *connection);

/* Inside `closed`: the server ended the connection, or refused AUTH, with words that pass (redirect_passes). */
bool resp_was_put_off(const struct resp_connection *connection);

/* Requests sent, or waiting for the connection to be ready, without a reply. */
size_t resp_pending(const struct resp_connection *connection);

/* uv_now since when the server has answered nothing although something waited for a reply; while something does. */
uint64_t resp_waits_since(const struct resp_connection *connection);

/* Ends it as if the server had: what waits is lost, then `closed`. From a callback of the loop, not one of its own. */
void resp_abandon(struct resp_connection *connection, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Sends one command; written at once as far as the transport takes it, or when the connection is ready. 0, -ENOMEM,
 * -ENOBUFS (more than RESP_OUTPUT_BYTES not taken yet) or -ENOTCONN (ended). After an error nothing of it was sent, the
 * request is the caller's again and has no callback. Allowed inside any callback.
 */
int resp_send(struct resp_connection *connection, struct resp_request *request, int argc, const char **argv,
              const size_t *lengths);

/* The ASKING before a command, whose answer nobody needs: what matters is what the command itself is answered.
 * Intrusive as a request; it is the connection's as long as the request that it was sent with. */
struct resp_asking {
    struct resp_request request; /* private */
};

/* As resp_send, with ASKING before the command: in one write, both or none. */
int resp_send_asking(struct resp_connection *connection, struct resp_asking *asking, struct resp_request *request,
                     int argc, const char **argv, const size_t *lengths);

/*
 * As resp_send, for a command with one more word of `payload` bytes, at least 1, which the caller gives to resp_write.
 * Until it has, resp_send fails with -EBUSY. An error may be the reply before that: the server refuses a command that
 * it has not got as a whole, and cannot have run it; the connection ends then.
 */
int resp_send_payload(struct resp_connection *connection, struct resp_request *request, int argc, const char **argv,
                      const size_t *lengths, uint64_t payload);
/* Gives away bytes of the payload. Those taken; fewer than given: `writable` of the request will be called. 0 also when
 * the connection has failed, which is told as ever. */
size_t resp_write(struct resp_connection *connection, const void *bytes, size_t length);

/* There is room again for the sink of the first request. From a callback of the loop, not one of the connection. */
void resp_resume(struct resp_connection *connection);

/*
 * AUTH again with the password file as it is then; nothing without one, before the connection is ready, or when it is
 * under way. `among_requests`: between any two commands; otherwise only while no request is in flight. When it fails,
 * the requests in flight get their replies, no more are taken, and then `closed` is called.
 */
void resp_renew(struct resp_connection *connection, bool among_requests);

/* uv_now of the last successful AUTH; 0 before, or without a password file. */
uint64_t resp_authenticated_at(const struct resp_connection *connection);

/* "tcp", "tls", "unix" or "rdma": what it is made over at this moment. */
const char *resp_transport(const struct resp_connection *connection);

int resp_local_address(const struct resp_connection *connection, char *text, size_t size);

/* No more requests; `closed` is called when the last one in flight has its reply, from inside when there is none. From
 * a callback of the loop. */
void resp_leave(struct resp_connection *connection, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends it: pending requests get `lost` from inside this call, `closed` is not called. The connection is freed. Allowed
 * inside any callback. */
void resp_close(struct resp_connection *connection);

#endif
