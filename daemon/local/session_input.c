#include <errno.h>

#include "daemon/local/hang_up.h"
#include "daemon/local/session_private.h"
#include "proto/channel.h"
#include "proto/errors.h"

/* A client that sends nothing but malformed packets is disconnected after so many in a row. */
#define MALFORMED_PACKETS 64
/* Packets of a session read in one go, at most: the other sessions of its user have something, too. */
#define PACKETS_A_TURN 32

static void readable(uv_poll_t *handle, int status, int events);

/* --- what a session waits for ------------------------------------------------------------------------------------- */

static bool may_read(const struct session *session)
{
    uint64_t limit = session->service->config->limits.requests;
    return !session->ending && !session_output_full(session) &&
           session->outbound_count + session->request_count <= 2 * limit &&
           session->user->memory.closing < MEMORY_CLOSING_MAX;
}

void session_poll(struct session *session)
{
    int events = 0;
    if (uv_is_closing((uv_handle_t *)&session->poll))
        return;
    if (!session->waits && may_read(session))
        events |= UV_READABLE;
    if (!session->gone && !STAILQ_EMPTY(&session->outbound))
        events |= UV_WRITABLE;
    /* The client's end is noticed even while nothing is read; once the session ends it would be news for ever. */
    if (!session->waits && !session->ending)
        events |= UV_DISCONNECT;
    if (events == session->events)
        return;
    session->events = events;
    if (events == 0)
        uv_poll_stop(&session->poll);
    else
        uv_poll_start(&session->poll, events, readable);
}

void session_read_on(struct session *session)
{
    session_poll(session);
}

/* --- the end of the client ---------------------------------------------------------------------------------------- */

static void client_left(struct session *session)
{
    struct log_fields fields = session_fields(session);
    log_about(&fields, LOG_LEVEL_DEBUG, "session %llu: the client left", (unsigned long long)session->id);
    session_end(session, TRANSFER_CLIENT_GONE, PROTO_ERR_INTERRUPTED, "the client closed the connection", false);
}

/*
 * Nobody is there for answers: what the client had sent and is not read yet is dropped. Else one that opens sessions, fills
 * them and leaves would be served long after, and a turn would meet all that it has left behind.
 */
static void client_hung_up(struct session *session)
{
    log_debug("session %llu: the client hung up", (unsigned long long)session->id);
    session_end(session, TRANSFER_CLIENT_GONE, PROTO_ERR_INTERRUPTED, "the client closed the connection", true);
}

static void process_ended(struct session *session)
{
    session_end(session, TRANSFER_CLIENT_GONE, PROTO_ERR_INTERRUPTED, "the client's process ended", true);
}

/* --- packets ------------------------------------------------------------------------------------------------------ */

/* False when the session ended inside, or nothing is left. */
static bool read_packet(struct session *session)
{
    struct channel_packet packet;
    int status = channel_receive(session->fd, session->service->buffer, sizeof session->service->buffer, &packet);
    if (status == -EAGAIN)
        return false;
    if (status == 0) {
        client_left(session);
        return false;
    }
    if (status < 0) {
        session_end(session, TRANSFER_CLIENT_GONE, PROTO_ERR_INTERRUPTED, "the socket failed", true);
        return false;
    }
    dispatch_packet(session, session->service->buffer, &packet);
    if (session->malformed >= MALFORMED_PACKETS) {
        struct log_fields fields = session_fields(session);
        count_refused(&session->service->counters, PROTO_ERR_INVALID_REQUEST);
        log_limited_about(&session->service->log_limits.malformed, uv_now(session->service->loop), &fields,
                          LOG_LEVEL_WARN, "session %llu: uid %u sent %d malformed packets in a row: disconnected",
                          (unsigned long long)session->id, session->peer.uid, MALFORMED_PACKETS);
        session_end(session, TRANSFER_CANCELLED, PROTO_ERR_INVALID_REQUEST, "too many malformed packets", false);
        return false;
    }
    return !session->ending && !session->gone;
}

/* Since *begun, for its user; *begun becomes now. */
static void account(struct user *user, uint64_t *begun)
{
    uint64_t now = uv_hrtime();
    schedule_served(user, now - *begun);
    *begun = now;
}

/* True: there may be more, which is for its user's next turn. */
static bool read_packets(struct session *session, uint64_t *begun)
{
    struct user *user = session->user;
    bool more = true;
    for (int i = 0; more && i < PACKETS_A_TURN && may_read(session) && schedule_goes_on(user); i++) {
        more = read_packet(session);
        account(user, begun);
    }
    return more && may_read(session);
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* What follows from what was read, or could not be sent. */
static void settle(struct session *session)
{
    if (session->gone)
        session_end(session, TRANSFER_CLIENT_GONE, PROTO_ERR_INTERRUPTED, "the client left", true);
    else
        session_settle(session);
    session_poll(session);
}

/* `look`: the client may have hung up. */
static void serve(struct session *session, bool look)
{
    uint64_t begun = uv_hrtime();
    if (session->peer_ended)
        process_ended(session);
    else if (look && hung_up(session->fd))
        client_hung_up(session);
    else if (!may_read(session) && session->at_end)
        client_left(session);
    else if (read_packets(session, &begun))
        schedule_wait(session);
    settle(session);
    account(session->user, &begun);
}

void session_serve(struct session *session)
{
    serve(session, true);
}

static void readable(uv_poll_t *handle, int status, int events)
{
    struct session *session = handle->data;
    if (status < 0) {
        session_end(session, TRANSFER_CLIENT_GONE, PROTO_ERR_INTERRUPTED, "the socket failed", true);
        return;
    }
    if ((events & UV_WRITABLE) != 0)
        session_flush(session);
    session->at_end |= (events & UV_DISCONNECT) != 0;
    if ((events & (UV_READABLE | UV_DISCONNECT)) == 0 || session->waits || session->ending)
        settle(session);
    else if (schedule_admits(session->user))
        serve(session, session->at_end);
    else
        schedule_wait(session);
}

/* The process that connected has ended, whoever else may still hold its socket. */
static void peer_ended(uv_poll_t *handle, int status, int events)
{
    struct session *session = handle->data;
    (void)status;
    (void)events;
    uv_poll_stop(handle);
    session->peer_ended = true;
    if (session->ending)
        process_ended(session);
    else if (schedule_admits(session->user))
        serve(session, false);
    else
        schedule_wait(session); /* of a process with very many sessions */
}

/* --- handles ------------------------------------------------------------------------------------------------------ */

int session_watch(struct session *session)
{
    uv_loop_t *loop = session->service->loop;
    if (uv_poll_init(loop, &session->poll, session->fd) != 0)
        return -ENOMEM;
    session->poll.data = session;
    session->handles = 1;
    if (session->peer.pidfd >= 0 && uv_poll_init(loop, &session->peer_poll, session->peer.pidfd) == 0) {
        session->peer_poll.data = session;
        session->polled_peer = true;
        session->handles++;
        uv_poll_start(&session->peer_poll, UV_READABLE, peer_ended);
    }
    return 0;
}

void session_unwatch(struct session *session)
{
    if (uv_is_closing((uv_handle_t *)&session->poll))
        return;
    uv_close((uv_handle_t *)&session->poll, session_handle_closed);
    if (session->polled_peer)
        uv_close((uv_handle_t *)&session->peer_poll, session_handle_closed);
}
