#include "daemon/local/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/local/admission.h"
#include "daemon/local/drain.h"
#include "daemon/local/hang_up.h"
#include "daemon/local/session_private.h"
#include "proto/envelope.h"
#include "proto/errors.h"
#include "proto/shape.h"

struct log_fields session_fields(const struct session *session)
{
    return (struct log_fields){.session = session->id, .has_uid = true, .uid = session->peer.uid};
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

void session_open_request(struct session *session, struct request *request)
{
    request->session = session;
    HASH_ADD(hh, session->requests, id, sizeof request->id, request);
    session->request_count++;
}

static void close_request(struct request *request)
{
    struct session *session = request->session;
    HASH_DEL(session->requests, request);
    session->request_count--;
    request->free(request);
    if (session->ending)
        session_settle(session);
    else
        session_poll(session);
}

void session_answer(struct request *request, json_t *result)
{
    session_reply(request->session, (int64_t)request->id, result, -1);
    close_request(request);
}

void session_answer_error(struct request *request, int code, const char *message, json_t *data)
{
    session_send_error(request->session, (int64_t)request->id, code, message, data);
    close_request(request);
}

/* --- regions ------------------------------------------------------------------------------------------------------ */

struct session_region *session_region_find(struct session *session, uint64_t id)
{
    struct session_region *region = NULL;
    HASH_FIND(hh, session->regions, &id, sizeof id, region);
    return region != NULL && region->open && !region->closing ? region : NULL;
}

void session_region_add(struct session *session, struct session_region *region)
{
    struct service *service = session->service;
    region->session = session;
    region->id = session->next_region++;
    region->number = service->next_region++;
    HASH_ADD(hh, session->regions, id, sizeof region->id, region);
    TAILQ_INSERT_TAIL(&service->regions, region, all_link);
}

void session_region_free(struct session_region *region)
{
    HASH_DEL(region->session->regions, region);
    TAILQ_REMOVE(&region->session->service->regions, region, all_link);
    free(region->label);
    free(region);
}

static void region_closed(struct region *inner, bool memory_released)
{
    struct session_region *region = (struct session_region *)((char *)inner - offsetof(struct session_region, region));
    struct session *session = region->session;
    struct request *request = region->close_request;
    session_region_free(region);
    if (request != NULL)
        session_answer(request, json_pack("{s:b}", "memory_released", memory_released));
    session_settle(session);
}

void session_region_close(struct session_region *region)
{
    region->closing = true;
    region->close_started = true;
    region_close(&region->region, region_closed);
}

void session_region_transfer_ended(struct session *session, uint64_t id)
{
    struct session_region *region = NULL;
    HASH_FIND(hh, session->regions, &id, sizeof id, region);
    if (region != NULL && region->closing && !region->close_started && region->region.windows == 0)
        session_region_close(region);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* On a worker only where it may block: jobs of a user may hang, and connections that end must not pile up behind
 * them. */
static void close_socket(struct service *service, struct user *user, int fd)
{
    if (!hang_up(fd))
        memory_close_fd(&service->memory, &user->memory, fd);
}

void session_handle_closed(uv_handle_t *handle)
{
    struct session *session = handle->data;
    struct service *service = session->service;
    if (--session->handles > 0)
        return;
    close_socket(service, session->user, session->fd);
    peer_release(&session->peer);
    TAILQ_REMOVE(&service->sessions, session, link);
    service->session_count--;
    transfer_session_end(&session->transfers);
    user_leave(session->user);
    free(session->client_name);
    free(session);
    if (service->session_ended != NULL)
        service->session_ended(service);
}

void session_settle(struct session *session)
{
    if (!session->ending || session->settling)
        return;
    /* Regions whose transfers have ended; one that is being registered closes itself when that is done. Closing may
     * end at once and come back here. */
    struct session_region *region, *next;
    session->settling = true;
    HASH_ITER(hh, session->regions, region, next) {
        if (region->open && !region->close_started && region->region.windows == 0)
            session_region_close(region);
    }
    session->settling = false;
    if (session->request_count > 0 || session->regions != NULL)
        return;
    if (!session->said_closed) {
        session->said_closed = true;
        session_notify(session, PROTO_NOTIFY_SESSION_CLOSED,
                       json_pack("{s:i,s:s}", "code", session->end_code, "reason", session->end_reason));
    }
    session_flush(session);
    /* Without session.closed a client must take its calls for running until the daemon's process ends, so the socket
     * stays open until that packet is delivered. One that never said hello has no calls: it is not waited for. */
    session->gone |= !session->hello_done && !session->admin;
    if (session->gone || STAILQ_EMPTY(&session->outbound)) {
        session_flush(session);
        session_unwatch(session);
    } else {
        session_poll(session);
    }
}

/* What touches no memory does not hold up the end: a server that hangs would keep the sessions of dead clients. */
static void let_requests_leave(struct session *session)
{
    struct request *request, *next;
    HASH_ITER(hh, session->requests, request, next) {
        if (!request->leaves)
            continue;
        HASH_DEL(session->requests, request);
        session->request_count--;
        request->session = NULL;
    }
}

void session_end(struct session *session, enum transfer_reason reason, int code, const char *why, bool gone)
{
    session->gone |= gone;
    if (session->gone || reason != TRANSFER_STOPPING)
        let_requests_leave(session);
    if (!session->ending) {
        session->ending = true;
        session->end_code = code;
        session->end_reason = why;
        session_spoke(session); /* nothing is expected of it any more */
        schedule_forget(session);
        transfers_end_session(&session->transfers, reason);
    }
    session_poll(session);
    session_settle(session);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

void sessions_init(struct service *service)
{
    TAILQ_INIT(&service->sessions);
    silence_init(service);
    schedule_init(service);
    debtors_init(&service->debtors);
    drains_init(service);
    service->overflow_uid = peer_overflow_uid();
    service->closing_max = MEMORY_CLOSING_MAX;
}

void sessions_stop(struct service *service)
{
    silence_stop(service);
    schedule_stop(service);
    debtors_free(&service->debtors);
}

static void say_closed(int fd, int code, const char *why)
{
    char text[1024];
    json_t *params = json_pack("{s:i,s:o}", "code", code, "reason", proto_text_json(why, strlen(why)));
    int length = proto_write_notification(text, sizeof text, PROTO_NOTIFY_SESSION_CLOSED, params);
    json_decref(params);
    if (length > 0)
        (void)channel_send(fd, text, (size_t)length, -1);
}

static void refuse(struct service *service, struct user *user, int fd, int code, const char *why)
{
    say_closed(fd, code, why);
    if (user != NULL)
        close_socket(service, user, fd);
    else
        close(fd);
}

/* False: it was refused, and told so. */
static bool admit(struct service *service, const struct admission *admission, struct user *user, int fd)
{
    char why[256];
    int code = admission_check(service, admission, why, sizeof why);
    if (code == 0) {
        service->counters.sessions++;
        return true;
    }
    count_refused(&service->counters, code);
    struct log_fields fields = {.event = LOG_EVENT_CLIENT_REFUSED, .has_uid = true, .uid = admission->peer->uid};
    log_limited_about(&service->log_limits.refused, uv_now(service->loop), &fields, LOG_LEVEL_WARN,
                      "a connection of uid %u on [%s] was refused: %s", admission->peer->uid, admission->socket->name,
                      why);
    refuse(service, user, fd, code, why);
    if (user != NULL)
        user_leave(user);
    return false;
}

static void untaken(struct service *service, const struct config_socket *socket, int fd, int status)
{
    count_refused(&service->counters, PROTO_ERR_SYSTEM);
    log_limited(&service->log_limits.untaken, uv_now(service->loop), LOG_LEVEL_WARN,
                "a connection on [%s] could not be taken: %s", socket->name, strerror(-status));
    close(fd);
}

static struct session *new_session(struct service *service, const struct config_socket *socket, bool admin, int fd)
{
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->service = service;
    session->socket = socket;
    session->admin = admin;
    session->fd = fd;
    session->next_region = 1;
    STAILQ_INIT(&session->outbound);
    return session;
}

/* It is admitted: enters it, and begins to listen to it. Its user, if slow, has its turn later. */
static void begin(struct session *session)
{
    struct service *service = session->service;
    struct log_fields fields;
    session->id = service->next_session++;
    transfer_session_init(&session->transfers, &session->user->transfers);
    session->transfers.id = session->id;
    quota_apply(session);
    TAILQ_INSERT_TAIL(&service->sessions, session, link);
    service->session_count++;
    if (session_watch(session) != 0) {
        log_error("session %llu: cannot be polled", (unsigned long long)session->id);
        session->handles = 1;
        session->poll.data = session;
        session_handle_closed((uv_handle_t *)&session->poll);
        return;
    }
    fields = session_fields(session);
    log_about(&fields, LOG_LEVEL_DEBUG, "session %llu: pid %d uid %u on [%s]", (unsigned long long)session->id,
              session->peer.pid, session->peer.uid, session->socket->name);
    if (!session->admin)
        silence_watch(session);
    if (schedule_admits(session->user))
        session_poll(session);
    else
        schedule_wait(session);
}

/* The daemon keeps the socket. Its user, who is counted, goes where it cannot become a session. */
static void take(struct service *service, const struct config_socket *socket, bool admin, struct user *user, int fd)
{
    struct peer peer;
    int status = channel_prepare(fd);
    if (status != 0 || (status = peer_read(fd, &peer)) != 0) {
        untaken(service, socket, fd, status);
        if (user != NULL)
            user_leave(user);
        return;
    }
    struct session *session = user != NULL ? new_session(service, socket, admin, fd) : NULL;
    const struct admission admission = {
        .socket = socket, .admin = admin, .peer = &peer, .user = session != NULL ? user : NULL};
    if (!admit(service, &admission, user, fd)) {
        peer_release(&peer);
        free(session);
        return;
    }
    session->user = user;
    session->peer = peer;
    begin(session);
}

/*
 * So many descriptors of the user wait to be closed, behind some that hang, that there must not be more. Without any in it
 * the connection can be closed at once.
 */
static enum session_taken turn_away(struct service *service, struct user *user, int fd)
{
    char why[256];
    bool closed;
    struct log_fields fields = {.event = LOG_EVENT_CLIENT_REFUSED, .has_uid = true, .uid = user->key.uid};
    snprintf(why, sizeof why, "%u descriptors of uid %u cannot be closed yet, as many as the daemon holds for one user",
             user->memory.closing, user->key.uid);
    say_closed(fd, PROTO_ERR_BUSY, why);
    closed = hang_up(fd);
    if (closed)
        count_refused(&service->counters, PROTO_ERR_BUSY);
    log_limited_about(&service->log_limits.refused, uv_now(service->loop), &fields, LOG_LEVEL_ERROR,
                      "a connection on [%s] was refused: %s%s", user->key.socket->name, why,
                      closed ? "" : "; it has more of them, and no others are taken on this socket until it can be closed");
    user_leave(user);
    return closed ? SESSION_FLOOD : SESSION_HELD;
}

enum session_taken session_start(struct service *service, const struct config_socket *socket, bool admin, int fd)
{
    uid_t uid;
    int status = peer_uid(fd, &uid);
    if (status != 0) {
        untaken(service, socket, fd, status);
        return SESSION_TAKEN;
    }
    struct user *user = user_enter(service, socket, uid);
    bool slow = false;
    if (user != NULL) {
        pace_charge(user);
        slow = pace_slow(user);
    }
    if (user != NULL && user->memory.closing >= service->closing_max)
        return turn_away(service, user, fd);
    if (slow && hung_up(fd)) { /* of a flood, most have left before they are taken: that must cost little */
        close_socket(service, user, fd);
        user_leave(user);
    } else {
        take(service, socket, admin, user, fd);
    }
    return slow ? SESSION_FLOOD : SESSION_TAKEN;
}
