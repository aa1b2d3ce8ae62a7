#include "daemon/valkey/resp.h"

#include <errno.h>
#include <hiredis/alloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/redirect.h"
#include "daemon/valkey/resp_private.h"
#include "proto/text.h"


static void release(struct resp_connection *connection)
{
    if (connection->reader != NULL) {
        redisReaderFree(connection->reader);
    }
    auth_wipe(connection->auth, connection->auth_length);
    hi_free(connection->out);
    free(connection);
}

static void leave(struct resp_connection *connection)
{
    connection->inside--;
    if (connection->inside == 0 && connection->state == RESP_CLOSED) {
        release(connection);
    }
}

static void hang_up(struct resp_connection *connection)
{
    auth_end(connection);
    if (connection->transport != NULL) {
        connection->transport->class->close(connection->transport);
        connection->transport = NULL;
    }
}

static struct resp_request *pop_request(struct resp_connection *connection)
{
    struct resp_request *request = TAILQ_FIRST(&connection->pending);

    if (request != NULL) {
        TAILQ_REMOVE(&connection->pending, request, link);
        connection->waits_since = uv_now(connection->loop);
        if (--connection->pending_count == 0 && connection->events->waits != NULL) {
            connection->events->waits(connection->context, false);
        }
    }
    return request;
}

/* Callbacks may call resp_close, which empties the same list. */
static void lose_requests(struct resp_connection *connection, const char *why)
{
    struct resp_request *request;

    connection->payload_of = NULL;
    while ((request = pop_request(connection)) != NULL) {
        request->lost(request, request->last_byte <= connection->taken, why);
    }
}

static void fail(struct resp_connection *connection, bool auth, const char *format, va_list arguments)
{
    char why[TRANSPORT_WHY_BYTES];

    if (connection->state >= RESP_FAILED) {
        return;
    }
    vsnprintf(why, sizeof(why), format, arguments);
    memcpy(connection->why, why, sizeof(connection->why));
    connection->state = RESP_FAILED;
    connection->inside++;
    hang_up(connection);
    lose_requests(connection, connection->why);
    if (connection->state == RESP_FAILED) {
        connection->events->closed(connection->context, auth, connection->why);
    }
    leave(connection);
}

/* The end, from a callback of the loop. */
void resp_fail(struct resp_connection *connection, bool auth, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fail(connection, auth, format, arguments);
    va_end(arguments);
}

void resp_abandon(struct resp_connection *connection, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fail(connection, false, format, arguments);
    va_end(arguments);
}

/* --- input --- */

static bool expects_large(const struct resp_connection *connection)
{
    const struct resp_request *request = TAILQ_FIRST(&connection->pending);

    return connection->state == RESP_READY && request != NULL && request->large;
}

static size_t elements_allowed(const struct resp_connection *connection)
{
    return expects_large(connection) ? RESP_LARGE_ELEMENTS : RESP_ELEMENTS;
}

static size_t bytes_allowed(const struct resp_connection *connection)
{
    return expects_large(connection) ? RESP_LARGE_INPUT_BYTES : RESP_INPUT_BYTES;
}

/* hiredis limits one array; nested ones could still ask for gigabytes with a few bytes. */
static void *create_array(const redisReadTask *task, size_t elements)
{
    struct resp_connection *connection = task->privdata;

    if (connection->reply_elements + elements > elements_allowed(connection)) {
        return NULL;
    }
    connection->reply_elements += elements;
    return connection->create_array(task, elements);
}

static bool is_resp2(const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
    case REDIS_REPLY_INTEGER:
    case REDIS_REPLY_NIL:
        return true;
    case REDIS_REPLY_ARRAY:
        break;
    default:
        return false;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        if (!is_resp2(reply->element[i])) {
            return false;
        }
    }
    return true;
}

void resp_become_ready(struct resp_connection *connection)
{
    connection->state = RESP_READY;
    connection->events->ready(connection->context);
    if (connection->state == RESP_READY) {
        resp_flush(connection);
    }
}

/* What a server says unasked ("-ERR max number of clients reached") is worth more than the fact. */
static void refuse_reply(struct resp_connection *connection, const redisReply *reply)
{
    char text[160];

    if (reply->type == REDIS_REPLY_ERROR) {
        connection->put_off = redirect_passes(reply->str, reply->len);
        resp_fail(connection, false, "the server ended the connection: %s",
                  proto_text_quote(text, sizeof(text), reply->str, reply->len));
    } else {
        resp_fail(connection, false, "protocol error: a reply came that nobody had asked for");
    }
}

static void end_when_quiet(struct resp_connection *connection)
{
    char why[TRANSPORT_WHY_BYTES];

    if (connection->leaving && connection->pending_count == 0) {
        snprintf(why, sizeof(why), "%s", connection->why);
        resp_fail(connection, true, "%s", why);
    }
}

void resp_leave(struct resp_connection *connection, const char *format, ...)
{
    va_list arguments;

    if (connection->state >= RESP_FAILED || connection->leaving) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(connection->why, sizeof(connection->why), format, arguments);
    va_end(arguments);
    connection->leaving = true;
    end_when_quiet(connection);
}

/* An error to a command that has not left as a whole; the server reads nothing more. */
static bool refuses_payload(const struct resp_connection *connection, const redisReply *reply)
{
    return connection->state == RESP_READY && connection->payload_of != NULL && reply->type == REDIS_REPLY_ERROR &&
           TAILQ_FIRST(&connection->pending) == connection->payload_of;
}

static void refuse_payload(struct resp_connection *connection, const redisReply *reply)
{
    struct resp_request *request = pop_request(connection);

    connection->payload_of = NULL;
    connection->leaving = true;
    request->reply(request, reply);
    resp_fail(connection, false, "the server refused a command before its end");
}

/*
 * `bytes` of commands, without AUTH's, end with the one that was answered. Answers come in order, so the AUTHs that
 * stand before it are those that were answered.
 */
static void tell_answered(struct resp_connection *connection, uint64_t bytes)
{
    const struct transport_class *class = connection->transport->class;

    if (class->answered != NULL) {
        class->answered(connection->transport, bytes + connection->auth_answered);
    }
}

void resp_take_reply(struct resp_connection *connection, const redisReply *reply)
{
    struct resp_request *request;
    char text[160];

    if (!is_resp2(reply)) {
        resp_fail(connection, false, "protocol error: a reply has a type that RESP2 does not have");
        return;
    }
    if (connection->state == RESP_AUTHENTICATING) {
        connection->auth_answered += connection->auth_length;
        tell_answered(connection, 0);
        auth_take_reply(connection, reply);
        return;
    }
    if (refuses_payload(connection, reply)) {
        refuse_payload(connection, reply);
        return;
    }
    request = TAILQ_FIRST(&connection->pending);
    if (connection->state != RESP_READY || request == NULL || request->last_byte > connection->taken ||
        (request == &connection->renewed && connection->auth != NULL)) {
        refuse_reply(connection, reply);
        return;
    }
    pop_request(connection);
    connection->auth_answered += request == &connection->renewed ? connection->auth_length : 0;
    tell_answered(connection, request->last_byte);
    auth_renewal_step(connection); /* before another request can follow from the reply */
    if (request != &connection->renewed && auth_is_gone(connection, reply)) {
        connection->leaving = true;
        snprintf(connection->why, sizeof(connection->why), "the server does not know this login any more: %s",
                 proto_text_quote(text, sizeof(text), reply->str, reply->len));
    }
    request->reply(request, reply);
    end_when_quiet(connection);
}

static bool without_tls(const struct resp_connection *connection)
{
    return connection->config->tls == NULL && !connection->attempt.rdma;
}

/* An alert of TLS begins with this byte. */
static const char *hint_for(const struct resp_connection *connection)
{
    bool alert = without_tls(connection) && strstr(connection->reader->errstr, "\"\\x15\"") != NULL;

    return alert ? "; this port seems to speak TLS: set [valkey] tls = yes" : "";
}

static void refuse_input(struct resp_connection *connection)
{
    if (connection->reader->err == REDIS_ERR_OOM) {
        resp_fail(connection, false, "a reply has more than %zu elements, or there is no memory for it",
                  elements_allowed(connection));
    } else {
        resp_fail(connection, false, "protocol error: %s%s", connection->reader->errstr, hint_for(connection));
    }
}

/* Whole replies, up to one that is a sink's. Returns the bytes behind them, which are the sink's. */
static size_t feed_reader(struct resp_connection *connection, const char *bytes, size_t length)
{
    redisReader *reader = connection->reader;
    size_t rest = 0;

    connection->reply_bytes += length;
    if (redisReaderFeed(reader, bytes, length) != REDIS_OK) {
        refuse_input(connection);
        return 0;
    }
    while (connection->state < RESP_FAILED) {
        void *reply = NULL;

        if (sink_reads(connection)) {
            rest = reader->len - reader->pos; /* of what was just fed: there was no whole reply before */
            reader->pos = reader->len;
            connection->reply_bytes = 0;
            break;
        }
        if (redisReaderGetReply(reader, &reply) != REDIS_OK) {
            refuse_input(connection);
            return 0;
        }
        if (reply == NULL) {
            break;
        }
        connection->reply_bytes = reader->len - reader->pos;
        connection->reply_elements = 0;
        resp_take_reply(connection, reply);
        freeReplyObject(reply);
    }
    if (connection->reply_bytes > bytes_allowed(connection)) {
        resp_fail(connection, false, "protocol error: a reply is larger than %zu bytes", bytes_allowed(connection));
    }
    return rest;
}

static void take_input(struct resp_connection *connection, const char *bytes, size_t length)
{
    const char *end = bytes + length;

    connection->heard = true;
    while (bytes < end && connection->state < RESP_FAILED) {
        if (sink_reads(connection)) {
            bytes += sink_feed(connection, bytes, (size_t)(end - bytes));
        } else {
            bytes = end - feed_reader(connection, bytes, (size_t)(end - bytes));
        }
    }
}

/* --- events of the transport --- */

static void on_connected(void *context)
{
    struct resp_connection *connection = context;

    dial_connected(connection->dial, &connection->attempt, uv_now(connection->loop));
    connection->inside++;
    auth_begin(connection);
    leave(connection);
}

void resp_read(struct resp_connection *connection)
{
    char bytes[RESP_READ_BYTES];
    ssize_t length = 1;

    connection->inside++;
    while (length > 0 && connection->state < RESP_FAILED) {
        if (sink_wants(connection)) {
            length = sink_read(connection);
            continue;
        }
        length = connection->transport->class->read(connection->transport, bytes, sizeof(bytes));
        if (length > 0) {
            take_input(connection, bytes, (size_t)length);
        }
    }
    leave(connection);
}

static void on_readable(void *context)
{
    resp_read(context);
}

static void on_writable(void *context)
{
    struct resp_connection *connection = context;

    connection->inside++;
    auth_flush(connection);
    resp_flush(connection);
    payload_writable(connection);
    auth_renewal_step(connection);
    leave(connection);
}

static int open_transport(struct resp_connection *connection, char why[TRANSPORT_WHY_BYTES]);

/* It was never connected: what else may be tried? */
static void try_next(struct resp_connection *connection, const char *reason)
{
    char why[TRANSPORT_WHY_BYTES];

    snprintf(why, sizeof(why), "%s", reason); /* of the transport */
    if (dial_next(connection->dial, &connection->attempt, why)) {
        hang_up(connection);
        if (open_transport(connection, why) == 0) {
            return;
        }
    }
    resp_fail(connection, false, "%s", why);
}

/* A port for TLS ends a connection that begins with something else, mostly without a word. */
static void on_closed(void *context, int error, const char *why)
{
    struct resp_connection *connection = context;
    bool wordless = error == -ECONNRESET && without_tls(connection) && connection->taken > 0 && !connection->heard;

    if (connection->state == RESP_CONNECTING) {
        try_next(connection, why);
        return;
    }

    resp_fail(connection, false, "%.400s%s", why, wordless ? "; if this port speaks TLS, set [valkey] tls = yes" : "");
}

static const struct transport_events transport_events = {
    .connected = on_connected,
    .readable = on_readable,
    .writable = on_writable,
    .closed = on_closed,
};

/* --- life --- */

/* The attempt, or one that may follow it. 0, or negative with `why` of all. */
static int open_transport(struct resp_connection *connection, char why[TRANSPORT_WHY_BYTES])
{
    const struct dial_attempt *attempt = &connection->attempt;
    int status;

    do {
        status = attempt->class->open(connection->loop, connection->offload, attempt->address, &connection->settings,
                                      &transport_events, connection, &connection->transport, why);
    } while (status != 0 && dial_next(connection->dial, &connection->attempt, why));
    return status;
}

static int create_reader(struct resp_connection *connection)
{
    redisReader *reader = redisReaderCreate();

    if (reader == NULL) {
        return -ENOMEM;
    }
    connection->functions = *reader->fn;
    connection->create_array = reader->fn->createArray;
    connection->functions.createArray = create_array;
    reader->fn = &connection->functions;
    reader->privdata = connection;
    reader->maxelements = RESP_ELEMENTS;
    connection->reader = reader;
    return 0;
}

int resp_open(uv_loop_t *loop, struct offload *offload, const struct valkey_config *config,
              struct dial *dial, const struct resp_events *events, void *context,
              struct resp_connection **connection, char why[TRANSPORT_WHY_BYTES])
{
    struct resp_connection *opened = calloc(1, sizeof(*opened));
    int status = -ENOMEM;

    *connection = NULL;
    snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
    if (opened == NULL) {
        return -ENOMEM;
    }
    opened->loop = loop;
    opened->offload = offload;
    opened->config = config;
    opened->dial = dial;
    opened->events = events;
    opened->context = context;
    TAILQ_INIT(&opened->pending);
    status = create_reader(opened);
    if (status == 0) {
        opened->settings.connect_timeout_ms = config->connect_timeout_ms;
        opened->settings.tls = config->tls;
        opened->settings.pins = config->pins;
        status = dial_first(dial, &opened->attempt, why);
    }
    if (status == 0) {
        status = open_transport(opened, why);
    }
    if (status != 0) {
        release(opened);
        return status;
    }
    *connection = opened;
    return 0;
}

bool resp_is_ready(const struct resp_connection *connection)
{
    return connection->state == RESP_READY && !connection->leaving;
}

bool resp_was_put_off(const struct resp_connection *connection)
{
    return connection->put_off;
}

uint64_t resp_waits_since(const struct resp_connection *connection)
{
    return connection->waits_since;
}

size_t resp_pending(const struct resp_connection *connection)
{
    return connection->pending_count;
}

const char *resp_transport(const struct resp_connection *connection)
{
    return connection->attempt.class->name;
}

int resp_local_address(const struct resp_connection *connection, char *text, size_t size)
{
    if (connection->transport == NULL) {
        return -ENOTCONN;
    }
    return connection->transport->class->local_address(connection->transport, text, size);
}

void resp_close(struct resp_connection *connection)
{
    if (connection->state == RESP_CLOSED) {
        return;
    }
    connection->state = RESP_CLOSED;
    connection->inside++;
    hang_up(connection);
    lose_requests(connection, "the connection was closed on this side");
    leave(connection);
}
