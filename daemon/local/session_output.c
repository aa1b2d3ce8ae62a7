#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/local/session_private.h"
#include "proto/envelope.h"
#include "proto/errors.h"

/* Answers that wait for the client may hold so many bytes before it is not read any more. */
#define OUTBOUND_BYTES (1024 * 1024)

struct outbound {
    STAILQ_ENTRY(outbound) link;
    int pass_fd;
    bool owned; /* pass_fd is; else it is the daemon's pidfd */
    size_t length;
    char bytes[];
};

bool session_output_full(const struct session *session)
{
    return session->outbound_count >= session->service->config->limits.requests ||
           session->outbound_bytes >= OUTBOUND_BYTES;
}

/*
 * Nothing can be sent to the client any more: the poll, which then sees the end of the socket, ends the session. A
 * client that shut its receiving side only would otherwise go unnoticed.
 */
static void give_up(struct session *session)
{
    shutdown(session->fd, SHUT_RDWR);
    session->gone = true;
}

/* An answer that cannot be made or kept must not be dropped in silence: the client learns it from the session's end. */
static void out_of_memory(struct session *session)
{
    struct log_fields fields = session_fields(session);
    log_limited_about(&session->service->log_limits.memory, uv_now(session->service->loop), &fields, LOG_LEVEL_ERROR,
                      "session %llu: out of memory for an answer: the session ends", (unsigned long long)session->id);
    give_up(session);
}

/* Of memory that the daemon made itself: closing it does not block. */
static void close_owned(int fd, bool owned)
{
    if (owned)
        close(fd);
}

static void enqueue(struct session *session, size_t length, int pass_fd, bool owned)
{
    struct outbound *packet = malloc(sizeof *packet + length);
    if (packet == NULL) {
        close_owned(pass_fd, owned);
        out_of_memory(session);
        return;
    }
    packet->pass_fd = pass_fd;
    packet->owned = owned;
    packet->length = length;
    memcpy(packet->bytes, session->service->out, length);
    STAILQ_INSERT_TAIL(&session->outbound, packet, link);
    session->outbound_count++;
    session->outbound_bytes += length;
    session_poll(session);
}

/* False: it has to wait for its turn. True: it is sent, or there is nobody to send to. */
static bool send_now(struct session *session, int length, int pass_fd)
{
    if (session->gone)
        return true;
    if (length < 0) {
        out_of_memory(session);
        return true;
    }
    if (!STAILQ_EMPTY(&session->outbound))
        return false;
    int status = channel_send(session->fd, session->service->out, (size_t)length, pass_fd);
    if (status == -EAGAIN || status == -ENOBUFS)
        return false;
    if (status != 0)
        give_up(session);
    return true;
}

/* Sends what stands in service->out. */
static void send_out(struct session *session, int length, int pass_fd, bool owned)
{
    if (send_now(session, length, pass_fd))
        close_owned(pass_fd, owned);
    else
        enqueue(session, (size_t)length, pass_fd, owned);
}

void session_flush(struct session *session)
{
    struct outbound *packet;
    while ((packet = STAILQ_FIRST(&session->outbound)) != NULL) {
        int status = session->gone ? 0 : channel_send(session->fd, packet->bytes, packet->length, packet->pass_fd);
        if (status == -EAGAIN || status == -ENOBUFS)
            break;
        if (status != 0)
            give_up(session);
        STAILQ_REMOVE_HEAD(&session->outbound, link);
        session->outbound_count--;
        session->outbound_bytes -= packet->length;
        close_owned(packet->pass_fd, packet->owned);
        free(packet);
    }
}

static void reply(struct session *session, int64_t id, json_t *result, int pass_fd, bool owned)
{
    /* Without a result it would be {}, which says something else. */
    int length = result == NULL ? PROTO_ERR_NO_MEMORY
                                : proto_write_result(session->service->out, sizeof session->service->out, id, result);
    json_decref(result);
    if (length == PROTO_ERR_TOO_LARGE) {
        close_owned(pass_fd, owned);
        session_send_error(session, id, PROTO_ERR_TOO_LARGE,
                           "the answer would not fit a packet; ask for fewer entries", NULL);
        return;
    }
    send_out(session, length, pass_fd, owned);
}

void session_reply(struct session *session, int64_t id, json_t *result, int pass_fd)
{
    reply(session, id, result, pass_fd, false);
}

void session_reply_with(struct session *session, int64_t id, json_t *result, int fd)
{
    reply(session, id, result, fd, true);
}

void session_send_error(struct session *session, int64_t id, int code, const char *message, json_t *data)
{
    count_refused(&session->service->counters, code);
    int length = proto_write_error(session->service->out, sizeof session->service->out, id, code, message, data);
    json_decref(data);
    send_out(session, length, -1, false);
}

void session_reply_error(struct session *session, int64_t id, int code, const char *message, json_t *data)
{
    pace_charge(session->user);
    session_send_error(session, id, code, message, data);
}

void session_notify(struct session *session, const char *method, json_t *params)
{
    int length = proto_write_notification(session->service->out, sizeof session->service->out, method, params);
    json_decref(params);
    send_out(session, length, -1, false);
}
