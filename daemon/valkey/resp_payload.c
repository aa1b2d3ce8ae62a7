/*
 * Values on the RESP connection itself: the last word of a command, and the bulk string of a reply, piece by piece
 * through the buffer of whoever sends or takes them. See resp.h.
 */
#include <errno.h>
#include <hiredis/alloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/valkey/resp_private.h"

static const char word_end[] = {'\r', '\n'};
#define WORD_END_BYTES sizeof(word_end)

/* --- commands --- */

static size_t head_bytes(int argc, const size_t *lengths)
{
    size_t bytes = 64; /* the first and the last line */

    for (int i = 0; i < argc; i++) {
        bytes += 32 + lengths[i];
    }
    return bytes;
}

/* "*3 $12 BLOB.TCP_SET $1 k $100", in lines. */
static size_t format_head(char *head, size_t capacity, int argc, const char **argv, const size_t *lengths,
                          uint64_t payload)
{
    size_t at = (size_t)snprintf(head, capacity, "*%d\r\n", argc + 1);

    for (int i = 0; i < argc; i++) {
        at += (size_t)snprintf(head + at, capacity - at, "$%zu\r\n", lengths[i]);
        memcpy(head + at, argv[i], lengths[i]);
        at += lengths[i];
        memcpy(head + at, word_end, WORD_END_BYTES);
        at += WORD_END_BYTES;
    }
    return at + (size_t)snprintf(head + at, capacity - at, "$%" PRIu64 "\r\n", payload);
}

int resp_send_payload(struct resp_connection *connection, struct resp_request *request, int argc, const char **argv,
                      const size_t *lengths, uint64_t payload)
{
    size_t capacity = head_bytes(argc, lengths), length;
    char *head;
    int status;

    if (!resp_is_ready(connection)) {
        return -ENOTCONN;
    }
    if (connection->payload_left > 0) {
        return -EBUSY;
    }
    head = hi_malloc(capacity);
    if (head == NULL) {
        return -ENOMEM;
    }
    length = format_head(head, capacity, argc, argv, lengths, payload);
    status = resp_send_bytes(connection, head, length);
    if (status == 0) {
        connection->payload_of = request;
        connection->payload_left = payload + WORD_END_BYTES;
        resp_expect(connection, request, length + payload + WORD_END_BYTES);
    }
    return status;
}

static size_t write_bytes(struct resp_connection *connection, const char *bytes, size_t length)
{
    ssize_t taken = connection->transport->class->write(connection->transport, bytes, length);

    if (taken <= 0) {
        return 0; /* a failure is told by `closed` */
    }
    connection->taken += (uint64_t)taken;
    connection->payload_left -= (uint64_t)taken;
    return (size_t)taken;
}

bool payload_flush(struct resp_connection *connection)
{
    uint64_t left = connection->payload_left;

    if (left > 0 && left <= WORD_END_BYTES) {
        (void)write_bytes(connection, word_end + (WORD_END_BYTES - left), (size_t)left);
    }
    /* Before the payload there is its head in `out`, which may go. */
    return connection->payload_left == 0 || connection->payload_of != NULL;
}

size_t resp_write(struct resp_connection *connection, const void *bytes, size_t length)
{
    size_t taken;

    if (connection->state != RESP_READY || connection->payload_of == NULL || auth_goes(connection) ||
        connection->out_length != connection->out_sent) {
        return 0; /* `writable` comes when the head is gone */
    }
    taken = write_bytes(connection, bytes, length);
    if (connection->payload_left == WORD_END_BYTES) {
        connection->payload_of = NULL;
        (void)payload_flush(connection);
    }
    return taken;
}

void payload_writable(struct resp_connection *connection)
{
    struct resp_request *request = connection->payload_of;

    if (connection->state == RESP_READY && request != NULL && connection->out_length == connection->out_sent) {
        request->writable(request);
    }
}

/* --- replies --- */

static struct resp_sink *first_sink(const struct resp_connection *connection)
{
    const struct resp_request *request = TAILQ_FIRST(&connection->pending);

    return connection->state == RESP_READY && request != NULL ? request->sink : NULL;
}

bool sink_reads(const struct resp_connection *connection)
{
    return first_sink(connection) != NULL;
}

bool sink_wants(const struct resp_connection *connection)
{
    const struct resp_sink *sink = first_sink(connection);

    return sink != NULL && sink->bulk.state == BULK_PAYLOAD;
}

/* The reply as everybody else gets it. */
static void finish(struct resp_connection *connection, const struct bulk *bulk)
{
    static const int types[] = {
        [BULK_STRING] = REDIS_REPLY_STRING, [BULK_NULL] = REDIS_REPLY_NIL, [BULK_ERROR] = REDIS_REPLY_ERROR};
    char none[] = "";
    redisReply reply = {.type = types[bulk->kind], .integer = (long long)bulk->length, .str = none};
    char line[BULK_LINE_BYTES + 1];

    if (bulk->kind == BULK_ERROR) { /* the sink may be gone when the reply is still looked at */
        memcpy(line, bulk->line, bulk->line_length + 1);
        reply.str = line;
        reply.len = bulk->line_length;
    }
    resp_take_reply(connection, &reply);
}

/* Nobody reads the value: the request is answered, and the connection is of no use. */
static void leave_value(struct resp_connection *connection, const struct bulk *bulk)
{
    connection->leaving = true;
    finish(connection, bulk);
    resp_fail(connection, false, "a value is larger than what was to be read of it");
}

static void payload_begins(struct resp_connection *connection, struct resp_sink *sink)
{
    const struct resp_request *request = TAILQ_FIRST(&connection->pending);

    if (request->last_byte > connection->taken) {
        resp_fail(connection, false, "protocol error: a reply came that nobody had asked for");
    } else if (sink->begin(sink, sink->bulk.length) == RESP_SINK_LEAVE) {
        leave_value(connection, &sink->bulk);
    }
}

/* Bytes of the value that came with others: at most RESP_READ_BYTES, at its begin. */
static size_t copy_payload(struct resp_sink *sink, const char *bytes, size_t length)
{
    size_t capacity = 0;
    void *room = sink->room(sink, &capacity);

    if (room == NULL) {
        return 0;
    }
    capacity = capacity < length ? capacity : length;
    capacity = capacity < sink->bulk.left ? capacity : (size_t)sink->bulk.left;
    memcpy(room, bytes, capacity);
    bulk_took(&sink->bulk, capacity);
    sink->filled(sink, capacity);
    return capacity;
}

size_t sink_feed(struct resp_connection *connection, const char *bytes, size_t length)
{
    struct resp_sink *sink = first_sink(connection);
    struct bulk *bulk = sink != NULL ? &sink->bulk : NULL;
    size_t taken;
    bool begins;

    if (bulk == NULL) {
        return 0;
    }
    begins = bulk->state == BULK_HEAD;
    if (bulk->state == BULK_PAYLOAD) {
        taken = copy_payload(sink, bytes, length);
        if (taken == 0) {
            resp_fail(connection, false, "there is no room for a value that was said to fit");
        }
        return taken;
    }
    taken = bulk_feed(bulk, bytes, length);
    if (begins && bulk->state != BULK_HEAD && bulk->kind == BULK_STRING && bulk->state != BULK_BROKEN) {
        payload_begins(connection, sink);
    } else if (bulk->state == BULK_BROKEN) {
        resp_fail(connection, false, "protocol error: %s", bulk->why);
    } else if (bulk->state == BULK_DONE) {
        finish(connection, bulk);
    }
    return taken;
}

ssize_t sink_read(struct resp_connection *connection)
{
    struct resp_sink *sink = first_sink(connection);
    struct transport *transport = connection->transport;
    size_t capacity = 0;
    void *room = sink != NULL ? sink->room(sink, &capacity) : NULL;
    ssize_t length;

    if (room == NULL) {
        connection->held = true;
        transport->class->hold(transport, true);
        return 0;
    }
    capacity = capacity < sink->bulk.left ? capacity : (size_t)sink->bulk.left;
    length = transport->class->read(transport, room, capacity);
    if (length > 0) {
        bulk_took(&sink->bulk, (uint64_t)length);
        sink->filled(sink, (size_t)length);
    }
    return length;
}

void resp_resume(struct resp_connection *connection)
{
    if (connection->state != RESP_READY || !connection->held) {
        return;
    }
    connection->held = false;
    connection->transport->class->hold(connection->transport, false);
    resp_read(connection);
}
