#include "daemon/valkey/rdma/stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/valkey/rdma/control_message.h"

/* Of the slots, for advertisement, question and keepalive. */
#define CONTROL_SLOTS 3

void rdma_stream_init(struct rdma_stream *stream, const struct rdma_ops *ops, struct rdma_queue_pair *pair,
                      const struct rdma_memory *memory, const struct rdma_settings *settings, const char *server)
{
    *stream = (struct rdma_stream){
        .ops = ops,
        .pair = pair,
        .memory = *memory,
        .window_bytes = settings->window_bytes,
        .staging_bytes = settings->staging_bytes,
        .sends = settings->sends,
        .server = server,
        .advertise_due = true,
    };
}

bool rdma_stream_established(const struct rdma_stream *stream)
{
    return stream->connected && stream->peer_length > 0 && !stream->ended;
}

/* The first reason counts. */
__attribute__((format(printf, 3, 4))) static void end(struct rdma_stream *stream, int error, const char *format, ...)
{
    va_list arguments;

    if (!stream->ended) {
        va_start(arguments, format);
        vsnprintf(stream->why, sizeof(stream->why), format, arguments);
        va_end(arguments);
        stream->error = error;
        stream->ended = true;
    }
}

/*
 * Nothing more can be posted. Mostly the connection has ended and the event that says so is still to come, behind
 * answers that were written before: events are taken on. The next tick ends it, should there be none.
 */
static void posting_failed(struct rdma_stream *stream, int error)
{
    stream->posting_error = error;
    stream->ops->disconnect(stream->pair);
}

static bool can_post(const struct rdma_stream *stream)
{
    return stream->connected && !stream->ended && stream->posting_error == 0;
}

/* --- messages --- */

static unsigned unproven(const struct rdma_stream *stream)
{
    return (unsigned)(stream->posted - stream->proven);
}

static unsigned under_way(const struct rdma_stream *stream)
{
    return (unsigned)(stream->posted - stream->sent);
}

/* The server has looked at message `number`, and so at all before it. */
static void prove(struct rdma_stream *stream, uint64_t number)
{
    if (number > stream->proven) {
        stream->proven = number;
    }
}

static void note_posted(struct rdma_stream *stream, uint32_t bytes)
{
    stream->posted++;
    stream->written += bytes;
    stream->ends[stream->posted % RDMA_RECEIVES] = stream->written;
    stream->pieces[stream->posted % stream->sends] = bytes;
}

/* False: not now. */
static bool post_control(struct rdma_stream *stream, const struct control_message *message)
{
    uint8_t bytes[RDMA_CONTROL_BYTES];
    int status;

    if (!can_post(stream) || under_way(stream) >= stream->sends || unproven(stream) >= RDMA_RECEIVES - 1) {
        return false;
    }
    control_encode(message, bytes);
    status = stream->ops->send(stream->pair, bytes, stream->posted + 1);
    if (status == 0) {
        note_posted(stream, 0);
    } else if (status != -EAGAIN) {
        posting_failed(stream, status);
    }
    return status == 0;
}

static void advertise(struct rdma_stream *stream)
{
    const struct control_message message = {
        .opcode = CONTROL_WINDOW,
        .address = stream->memory.window_address,
        .length = (uint32_t)stream->window_bytes,
        .rkey = stream->memory.window_rkey,
    };

    if (stream->advertise_due && post_control(stream, &message)) {
        stream->advertise_due = false;
        stream->advertised = true;
        stream->advertisement = stream->posted;
    }
}

/* One question at a time: an answer says nothing of which it belongs to. */
static void ask_when_due(struct rdma_stream *stream)
{
    const struct control_message message = {.opcode = CONTROL_GET_SERVER_FEATURE};

    if (unproven(stream) >= STREAM_PROBE_AT && !stream->probing && post_control(stream, &message)) {
        stream->probing = true;
        stream->probe = stream->posted;
    }
}

/* --- what the server says --- */

/*
 * The window anew, from its begin. Before the last one is full that is safe only when the server has seen all that was
 * written into it: else it would take old bytes for new ones.
 */
static void take_window(struct rdma_stream *stream, const struct control_message *message)
{
    bool full = stream->peer_offset == stream->peer_length;

    if (message->length == 0 || message->length > STREAM_PEER_WINDOW_MAX ||
        message->address > UINT64_MAX - message->length) {
        end(stream, -EPROTO, "%.160s advertised a window of %u bytes at 0x%llx, which cannot be: 1 to %u are expected",
            stream->server, message->length, (unsigned long long)message->address, STREAM_PEER_WINDOW_MAX);
        return;
    }
    if (full) {
        prove(stream, stream->payload);
    } else if (stream->payload > stream->proven) {
        end(stream, -EPROTO, "%.160s advertised a window anew while bytes for the last one were under way",
            stream->server);
        return;
    }
    stream->peer_address = message->address;
    stream->peer_length = message->length;
    stream->peer_rkey = message->rkey;
    stream->peer_offset = 0;
}

/*
 * An opcode that is none, or that only clients send, ends the connection: we asked for no feature, so the sides do not
 * mean the same protocol, and there is no telling what would be missed.
 */
static void take_message(struct rdma_stream *stream, const struct rdma_event *event)
{
    struct control_message message;
    char why[CONTROL_WHY_BYTES];

    if (control_decode(event->message, event->length, &message, why) != 0) {
        end(stream, -EPROTO, "%.160s does not keep to the protocol of Valkey over RDMA: %s", stream->server, why);
        return;
    }
    switch (message.opcode) {
    case CONTROL_WINDOW:
        take_window(stream, &message);
        break;
    case CONTROL_GET_SERVER_FEATURE:
        if (stream->probing) { /* else nobody asked, and it says nothing */
            stream->probing = false;
            prove(stream, stream->probe);
        }
        break;
    case CONTROL_KEEPALIVE:
        break;
    case CONTROL_SET_CLIENT_FEATURE:
        end(stream, -EPROTO, "%.160s does not keep to the protocol of Valkey over RDMA: it sent opcode %d, which only "
            "clients send", stream->server, CONTROL_SET_CLIENT_FEATURE);
        break;
    }
}

static void take_payload(struct rdma_stream *stream, uint32_t bytes)
{
    size_t room = stream->window_bytes - stream->have;

    if (!stream->advertised) {
        end(stream, -EPROTO, "%.160s wrote %u bytes before a window was advertised to it", stream->server, bytes);
    } else if (bytes == 0 || bytes > room) {
        end(stream, -EPROTO, "%.160s announced %u bytes where 1 to %zu have room", stream->server, bytes, room);
    } else {
        stream->have += bytes;
        stream->heard_payload = true;
        prove(stream, stream->advertisement);
    }
}

/* Acknowledged: its bytes may be overwritten. They are not left to lie there, since a password may be among them. */
static void take_sent(struct rdma_stream *stream, uint64_t number)
{
    size_t piece, begin;

    if (number != stream->sent + 1 || number > stream->posted) {
        end(stream, -EIO, "the queue pair to %.160s acknowledged messages out of order", stream->server);
        return;
    }
    stream->sent = number;
    piece = stream->pieces[number % stream->sends];
    begin = (stream->at + stream->staging_bytes - stream->used) % stream->staging_bytes;
    explicit_bzero(stream->memory.staging + begin, piece);
    stream->used -= piece;
}

/* --- the end --- */

static const char *reject_hint(int reason)
{
    switch (reason) {
    case 8:
        return ": nobody listens there for RDMA (the server's rdma-port and rdma-bind)";
    case 28:
        return ": the server took it back: its limit of locked memory, protected mode, or maxclients is reached?";
    default:
        return "";
    }
}

/* Also when the server's core refused us: the close overtakes the end of the connecting, or words that say why. */
static void closed_without_a_word(struct rdma_stream *stream)
{
    end(stream, -ECONNABORTED, "%.160s closed the connection before any answer: protected mode, or maxclients is "
        "reached?", stream->server);
}

/* The connection manager adds the reason that the peer gave, an errno of its own, or nothing. */
static void refused(struct rdma_stream *stream, const struct rdma_event *event)
{
    int error = event->status < 0 ? event->status : -ECONNREFUSED;
    char more[160] = "";

    if (error == -ECONNABORTED) {
        closed_without_a_word(stream);
        return;
    }
    if (event->provider_status > 0) {
        snprintf(more, sizeof(more), " (CM status %d%s)", event->provider_status,
                 reject_hint(event->provider_status));
    } else if (event->provider_status < 0) {
        snprintf(more, sizeof(more), " (%s)", strerror(-event->provider_status));
    }
    end(stream, error, "cannot connect to %.160s: %.60s%s", stream->server, stream->ops->text(error), more);
}

static const char *completion_hint(int status)
{
    switch (status) {
    case 5:
        return ": ended by the other side";
    case 10:
        return ": the server's window is not where it said";
    case 12:
        return ": nothing there acknowledges";
    case 13:
        return ": the server did not come to take messages";
    default:
        return "";
    }
}

static void failed(struct rdma_stream *stream, const struct rdma_event *event)
{
    int error = event->status < 0 ? event->status : -EIO;

    if (error == -ECONNREFUSED && !stream->heard_payload) {
        closed_without_a_word(stream);
        return;
    }
    end(stream, error, "the connection to %.160s failed: %.120s (work completion status %d%s)", stream->server,
        stream->ops->text(error), event->provider_status, completion_hint(event->provider_status));
}

static void end_of_posting(struct rdma_stream *stream)
{
    end(stream, -EIO, "writing to %.160s failed: %.160s", stream->server, stream->ops->text(stream->posting_error));
}

/* By us when posting failed, unless that failed because the connection was over. */
static void disconnected(struct rdma_stream *stream)
{
    if (stream->posting_error != 0 && stream->posting_error != -ENOTCONN) {
        end_of_posting(stream);
    } else if (stream->heard_payload) {
        end(stream, -ECONNRESET, "%.160s closed the connection", stream->server);
    } else {
        closed_without_a_word(stream);
    }
}

void rdma_stream_take(struct rdma_stream *stream, const struct rdma_event *event)
{
    if (stream->ended) {
        return;
    }
    switch (event->kind) {
    case RDMA_CONNECTED:
        stream->connected = true;
        break;
    case RDMA_REFUSED:
        refused(stream, event);
        break;
    case RDMA_DISCONNECTED:
        disconnected(stream);
        break;
    case RDMA_FAILED:
        failed(stream, event);
        break;
    case RDMA_MESSAGE:
        stream->heard++;
        take_message(stream, event);
        break;
    case RDMA_PAYLOAD:
        stream->heard++;
        take_payload(stream, event->immediate);
        break;
    case RDMA_SENT:
        take_sent(stream, event->token);
        break;
    }
    advertise(stream);
}

/* --- reading --- */

size_t rdma_stream_readable(const struct rdma_stream *stream)
{
    return stream->have - stream->pos;
}

size_t rdma_stream_read(struct rdma_stream *stream, void *buffer, size_t capacity)
{
    size_t length = rdma_stream_readable(stream);

    length = length < capacity ? length : capacity;
    memcpy(buffer, stream->memory.window + stream->pos, length);
    stream->pos += length;
    if (stream->pos == stream->window_bytes) {
        stream->have = 0; /* before the server may write again */
        stream->pos = 0;
        stream->advertised = false;
        stream->advertise_due = true;
        advertise(stream);
    }
    return length;
}

/* --- writing --- */

/* The next message may be begun. Not for a few bytes that have become free: few large messages are wanted. */
static bool may_begin(const struct rdma_stream *stream)
{
    return can_post(stream) && unproven(stream) < STREAM_UNPROVEN &&
           under_way(stream) + CONTROL_SLOTS < stream->sends &&
           stream->staging_bytes - stream->used >= stream->staging_bytes / 4;
}

/* Bytes that can be copied to `at` now. */
static size_t room(const struct rdma_stream *stream)
{
    size_t bytes = stream->staging_bytes - stream->at;
    size_t unused = stream->staging_bytes - stream->used;
    size_t left = stream->peer_length - stream->peer_offset;

    if (!can_post(stream) || (stream->staged == 0 ? !may_begin(stream) : stream->at == 0) || left <= stream->staged) {
        return 0;
    }
    left -= stream->staged;
    bytes = bytes < unused ? bytes : unused;
    return bytes < left ? bytes : left;
}

bool rdma_stream_writable(const struct rdma_stream *stream)
{
    return room(stream) > 0;
}

/* What is staged is in one piece: it ends at `at`, or with the ring. */
static void post_staged(struct rdma_stream *stream)
{
    size_t begin = (stream->at + stream->staging_bytes - stream->staged) % stream->staging_bytes;
    size_t left = stream->peer_length - stream->peer_offset;
    size_t length = stream->staged < left ? stream->staged : left;
    int status;

    if (length == 0 || !can_post(stream) || under_way(stream) >= stream->sends) {
        return;
    }
    status = stream->ops->write(stream->pair, begin, length, stream->peer_address + stream->peer_offset,
                                stream->peer_rkey, stream->posted + 1);
    if (status == 0) {
        note_posted(stream, (uint32_t)length);
        stream->payload = stream->posted;
        stream->peer_offset += (uint32_t)length;
        stream->staged -= length;
    } else if (status != -EAGAIN) {
        posting_failed(stream, status);
    }
}

size_t rdma_stream_write(struct rdma_stream *stream, const void *bytes, size_t length)
{
    size_t taken = 0;

    while (taken < length) {
        size_t piece = room(stream);

        piece = piece < length - taken ? piece : length - taken;
        if (piece == 0) {
            break;
        }
        memcpy(stream->memory.staging + stream->at, (const uint8_t *)bytes + taken, piece);
        taken += piece;
        stream->used += piece;
        stream->staged += piece;
        stream->at = (stream->at + piece) % stream->staging_bytes;
        if (stream->at == 0) {
            post_staged(stream);
        }
    }
    return taken;
}

void rdma_stream_flush(struct rdma_stream *stream)
{
    advertise(stream);
    post_staged(stream);
    ask_when_due(stream);
}

void rdma_stream_answered(struct rdma_stream *stream, uint64_t bytes)
{
    uint64_t number = stream->proven;

    if (bytes > stream->written) {
        return; /* not answered, whatever was read */
    }
    while (number < stream->posted && stream->ends[number % RDMA_RECEIVES] < bytes) {
        number++;
    }
    prove(stream, number);
}

/* --- time --- */

void rdma_stream_tick(struct rdma_stream *stream)
{
    const struct control_message keepalive = {.opcode = CONTROL_KEEPALIVE};

    if (!stream->connected || stream->ended) {
        return;
    }
    if (under_way(stream) == 0 || stream->sent != stream->tick_sent) {
        stream->unacknowledged_ticks = 0;
    } else if (++stream->unacknowledged_ticks > STREAM_UNACKNOWLEDGED_TICKS) {
        end(stream, -ETIMEDOUT, "%.160s has acknowledged nothing for %d s", stream->server,
            STREAM_UNACKNOWLEDGED_TICKS * STREAM_TICK_MS / 1000);
    }
    if (stream->posting_error != 0) {
        end_of_posting(stream);
    }
    if (under_way(stream) == 0 && stream->heard == stream->tick_heard && unproven(stream) < STREAM_PROBE_AT) {
        post_control(stream, &keepalive); /* keepalives alone never use up what requests need */
    }
    rdma_stream_flush(stream);
    stream->tick_heard = stream->heard;
    stream->tick_sent = stream->sent;
}
