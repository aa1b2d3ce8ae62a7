/*
 * What resp.c and resp_auth.c share. Nobody else includes it.
 */
#ifndef GRD_VALKEY_RESP_PRIVATE_H
#define GRD_VALKEY_RESP_PRIVATE_H

#include "daemon/valkey/auth.h"
#include "daemon/valkey/patience.h"
#include "daemon/valkey/resp.h"

enum resp_state {
    RESP_CONNECTING,
    RESP_READING_PASSWORD,
    RESP_AUTHENTICATING,
    RESP_READY,
    RESP_FAILED, /* `closed` was called or is about to be */
    RESP_CLOSED, /* resp_close was called; freed when the last frame inside returns */
};

/* AUTH once more, on a connection that is ready. */
enum resp_renewal {
    RENEWAL_NONE,
    RENEWAL_WANTED,  /* until no request is in flight */
    RENEWAL_READING, /* the file */
    RENEWAL_HELD,    /* the command is there; as WANTED */
    RENEWAL_SENT,    /* until its reply */
};

struct resp_connection {
    struct offload *offload;
    const struct valkey_config *config;
    const struct resp_events *events;
    void *context;
    enum resp_state state;
    unsigned inside; /* frames of ours below a callback: they look at the connection after it */

    struct dial *dial;
    struct dial_attempt attempt;
    struct transport_settings settings;
    struct transport *transport;
    redisReader *reader;
    redisReplyObjectFunctions functions; /* hiredis' own, but for create_array */
    void *(*create_array)(const redisReadTask *, size_t);
    bool heard;            /* at least one byte came */
    bool put_off;          /* the server has no time for it now */
    size_t reply_bytes;    /* fed since the last complete reply */
    size_t reply_elements; /* announced since the last complete reply */

    uv_loop_t *loop;
    struct patience *patience; /* from connected to authenticated */
    struct auth_read *password;
    char *auth; /* the AUTH command until it is taken */
    size_t auth_length, auth_sent;
    uint64_t auth_answered; /* bytes of all AUTH commands that were answered */
    uint64_t authenticated_at; /* uv_now */
    enum resp_renewal renewal;
    bool renew_among; /* requests in flight do not matter */
    struct resp_request renewed;
    bool leaving; /* the login was refused or has ended: no more requests, and the end when the last has its reply */

    /* Commands wait in `out` until the transport takes them. Offsets count their bytes alone, without AUTH's. */
    char *out;
    size_t out_length, out_sent, out_capacity;
    unsigned long long queued, taken;
    TAILQ_HEAD(, resp_request) pending;
    size_t pending_count;
    uint64_t waits_since; /* uv_now */

    struct resp_request *payload_of; /* its payload is under way; NULL: none */
    uint64_t payload_left;           /* of it and its end, not taken yet */
    bool held;                       /* the transport does not tell of bytes */

    char why[TRANSPORT_WHY_BYTES];
};

/* --- resp.c --- */

/* The end, from a callback of the loop; nothing when it has come already. */
void resp_fail(struct resp_connection *connection, bool auth, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Connected, and authenticated where that is needed. */
void resp_become_ready(struct resp_connection *connection);

/* Gives what waits to the transport. */
void resp_flush(struct resp_connection *connection);

/* Appends a formatted command, or writes it at once; takes it over (hi_malloc). */
int resp_send_bytes(struct resp_connection *connection, char *command, size_t length);

/* A request whose command, of `length` bytes, was sent. */
void resp_expect(struct resp_connection *connection, struct resp_request *request, uint64_t length);

/* A reply is there: to its request, or the end. */
void resp_take_reply(struct resp_connection *connection, const redisReply *reply);

/* Everything that can be read, as after `readable`. */
void resp_read(struct resp_connection *connection);

/* --- resp_payload.c --- */

/* The end of a payload that has been taken, or nothing. False: what waits in `out` must wait on. */
bool payload_flush(struct resp_connection *connection);
/* Room in the transport: the sender of a payload goes on. */
void payload_writable(struct resp_connection *connection);
/* The next bytes belong to a sink. */
bool sink_reads(const struct resp_connection *connection);
/* Takes bytes that were read already; how many. */
size_t sink_feed(struct resp_connection *connection, const char *bytes, size_t length);
/* Whether the next bytes go straight to the sink; then sink_read reads them, as transport_class.read. */
bool sink_wants(const struct resp_connection *connection);
ssize_t sink_read(struct resp_connection *connection);

/* --- resp_auth.c --- */

/* The first AUTH of a connection, or ready at once without a password_file. */
void auth_begin(struct resp_connection *connection);
/* Forgets what is under way. */
void auth_end(struct resp_connection *connection);
/* A command of AUTH has begun to leave, and nothing else may before its end. */
bool auth_goes(const struct resp_connection *connection);
void auth_flush(struct resp_connection *connection);
/* The reply to the first AUTH. */
void auth_take_reply(struct resp_connection *connection, const redisReply *reply);
/* A renewal that waits goes on if it can now: whenever a request got its reply, or bytes have left. */
void auth_renewal_step(struct resp_connection *connection);
/* An answer says that the login does not hold any more. */
bool auth_is_gone(const struct resp_connection *connection, const redisReply *reply);

#endif
