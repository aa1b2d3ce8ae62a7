/* Commands on their way out: what waits for the transport, and how far each request has left. See resp.h. */
#include <errno.h>
#include <hiredis/alloc.h>
#include <string.h>

#include "daemon/valkey/resp_private.h"

#define KEEP_OUTPUT_BYTES 65536 /* a larger output buffer is given back when it is empty */

static ssize_t transport_write(struct resp_connection *connection, const char *bytes, size_t length)
{
    return connection->transport->class->write(connection->transport, bytes, length);
}

static void forget_output(struct resp_connection *connection)
{
    connection->out_length = 0;
    connection->out_sent = 0;
    if (connection->out_capacity > KEEP_OUTPUT_BYTES) {
        hi_free(connection->out);
        connection->out = NULL;
        connection->out_capacity = 0;
    }
}

void resp_flush(struct resp_connection *connection)
{
    ssize_t taken;

    if (connection->state != RESP_READY || auth_goes(connection) || !payload_flush(connection) ||
        connection->out_length == connection->out_sent) {
        return;
    }
    taken = transport_write(connection, connection->out + connection->out_sent,
                            connection->out_length - connection->out_sent);
    if (taken > 0) {
        connection->out_sent += (size_t)taken;
        connection->taken += (size_t)taken;
        if (connection->out_sent == connection->out_length) {
            forget_output(connection);
        }
    }
}

/* Room for `length` more bytes: 0, -ENOBUFS or -ENOMEM. */
static int reserve_output(struct resp_connection *connection, size_t length)
{
    size_t waiting = connection->out_length - connection->out_sent;
    size_t capacity = connection->out_capacity;
    char *out;

    if (length > RESP_OUTPUT_BYTES || waiting > RESP_OUTPUT_BYTES - length) {
        return -ENOBUFS;
    }
    if (connection->out_sent > 0) {
        memmove(connection->out, connection->out + connection->out_sent, waiting);
        connection->out_sent = 0;
        connection->out_length = waiting;
    }
    if (waiting + length <= capacity) {
        return 0;
    }
    while (capacity < waiting + length) {
        capacity = capacity == 0 ? 4096 : capacity * 2;
    }
    out = hi_realloc(connection->out, capacity);
    if (out == NULL) {
        return -ENOMEM;
    }
    connection->out = out;
    connection->out_capacity = capacity;
    return 0;
}

/* Appends behind what waits already; the command stays the caller's. */
static int append_command(struct resp_connection *connection, const char *command, size_t length)
{
    int status = reserve_output(connection, length);

    if (status == 0) {
        memcpy(connection->out + connection->out_length, command, length);
        connection->out_length += length;
    }
    return status;
}

/* Nothing waits: writes at once, and keeps hiredis' own buffer for what the transport did not take, so that nothing
 * can fail between the first byte and the last. Takes the command over. */
static void write_command(struct resp_connection *connection, char *command, size_t length)
{
    ssize_t taken = auth_goes(connection) ? 0 : transport_write(connection, command, length);
    size_t sent = taken > 0 ? (size_t)taken : 0;

    connection->taken += sent;
    if (sent == length) {
        hi_free(command);
        return;
    }
    hi_free(connection->out);
    connection->out = command;
    connection->out_capacity = length;
    connection->out_length = length;
    connection->out_sent = sent;
}

/* Takes the formatted bytes over. */
int resp_send_bytes(struct resp_connection *connection, char *command, size_t length)
{
    int status = 0;

    if (connection->state == RESP_READY && connection->out_length == connection->out_sent &&
        connection->payload_left == 0) {
        write_command(connection, command, length);
    } else {
        status = append_command(connection, command, length);
        hi_free(command);
    }
    return status;
}

/* A request whose command, of `length` bytes, was sent. */
void resp_expect(struct resp_connection *connection, struct resp_request *request, uint64_t length)
{
    connection->queued += length;
    request->last_byte = connection->queued;
    TAILQ_INSERT_TAIL(&connection->pending, request, link);
    if (++connection->pending_count == 1) {
        connection->waits_since = uv_now(connection->loop);
        if (connection->events->waits != NULL) {
            connection->events->waits(connection->context, true);
        }
    }
}

/* Makes the command's bytes, to be freed with hi_free: their number, or negative when nothing may be sent now. */
static long long format_command(const struct resp_connection *connection, char **command, int argc, const char **argv,
                                const size_t *lengths)
{
    long long length;

    if (connection->state >= RESP_FAILED || connection->leaving) {
        return -ENOTCONN;
    }
    if (connection->payload_of != NULL) {
        return -EBUSY;
    }
    length = redisFormatCommandArgv(command, argc, argv, lengths);
    return length < 0 ? -ENOMEM : length;
}

int resp_send(struct resp_connection *connection, struct resp_request *request, int argc, const char **argv,
              const size_t *lengths)
{
    char *command = NULL;
    long long length = format_command(connection, &command, argc, argv, lengths);
    int status;

    if (length < 0) {
        return (int)length;
    }
    status = resp_send_bytes(connection, command, (size_t)length);
    if (status == 0) {
        resp_expect(connection, request, (size_t)length);
    }
    return status;
}

static const char asking_words[] = "*1\r\n$6\r\nASKING\r\n";
#define ASKING_BYTES (sizeof(asking_words) - 1)

static void ignore_reply(struct resp_request *request, const redisReply *reply)
{
}

static void ignore_loss(struct resp_request *request, bool may_have_run, const char *why)
{
}

int resp_send_asking(struct resp_connection *connection, struct resp_asking *asking, struct resp_request *request,
                     int argc, const char **argv, const size_t *lengths)
{
    char *command = NULL, *both;
    long long length = format_command(connection, &command, argc, argv, lengths);
    int status;

    if (length < 0) {
        return (int)length;
    }
    both = hi_realloc(command, (size_t)length + ASKING_BYTES);
    if (both == NULL) {
        hi_free(command);
        return -ENOMEM;
    }
    memmove(both + ASKING_BYTES, both, (size_t)length);
    memcpy(both, asking_words, ASKING_BYTES);
    status = resp_send_bytes(connection, both, (size_t)length + ASKING_BYTES);
    if (status == 0) {
        asking->request = (struct resp_request){.reply = ignore_reply, .lost = ignore_loss};
        resp_expect(connection, &asking->request, ASKING_BYTES);
        resp_expect(connection, request, (size_t)length);
    }
    return status;
}
