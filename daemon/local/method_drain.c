/*
 * drain: an operator stops new transfers and registrations, without ending the daemon, and waits for those there are.
 */
#include <stdlib.h>

#include "daemon/base/log.h"
#include "daemon/local/drain.h"
#include "daemon/local/methods.h"
#include "proto/errors.h"

struct drain_request {
    struct request base;
    struct service *service;
    uv_timer_t timer; /* until it is answered in any case */
    TAILQ_ENTRY(drain_request) link;
};

/* What is left, for the answer. */
static json_t *what_is_left(const struct service *service)
{
    return json_pack("{s:b,s:i,s:i,s:i,s:I}", "draining", service->draining, "transfers", (int)service->transfers.open,
                     "regions", (int)service->memory.regions, "sessions", (int)service->session_count, "drain_ms",
                     (json_int_t)service->config->drain_ms);
}

/* The struct stays until its timer is closed. */
static void answered(struct request *base)
{
    (void)base;
}

static void timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Takes it out of the list; the session may be gone. */
static void answer(struct drain_request *request)
{
    TAILQ_REMOVE(&request->service->drains, request, link);
    if (request->base.session != NULL) {
        session_answer(&request->base, what_is_left(request->service));
    }
    uv_close((uv_handle_t *)&request->timer, timer_closed);
}

static void answer_all(struct service *service)
{
    struct drain_request *request;

    while ((request = TAILQ_FIRST(&service->drains)) != NULL) {
        answer(request);
    }
}

static void waited_enough(uv_timer_t *timer)
{
    answer(timer->data);
}

static void nothing_left(struct transfers *transfers)
{
    answer_all((struct service *)((char *)transfers - offsetof(struct service, transfers)));
}

void drains_init(struct service *service)
{
    TAILQ_INIT(&service->drains);
}

void drains_close(struct service *service)
{
    answer_all(service);
}

/* To every client; `params` is consumed. */
static void notify_all(struct service *service, const char *method, json_t *params)
{
    struct session *session;

    TAILQ_FOREACH(session, &service->sessions, link)
    {
        if (!session->said_closed) { /* that was its last packet */
            session_notify(session, method, json_incref(params));
        }
    }
    json_decref(params);
}

void drain_announce(struct service *service)
{
    service->draining = true;
    notify_all(service, PROTO_NOTIFY_DAEMON_DRAINING,
               json_pack("{s:I}", "deadline_ms", (json_int_t)service->config->drain_ms));
}

static void begin(struct service *service)
{
    if (service->draining) {
        return;
    }
    log_about(LOG_EVENT(DRAINED), LOG_LEVEL_NOTICE, "drain: no new transfers and registrations; %u transfers in flight",
              service->transfers.open);
    drain_announce(service);
}

static void wait_for_transfers(struct call *call, uint64_t wait_ms)
{
    struct session *session = call->session;
    struct service *service = session->service;
    struct drain_request *request = calloc(1, sizeof(*request));

    if (request == NULL) {
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_SYSTEM, "the daemon is out of memory", NULL);
        return;
    }
    request->base = (struct request){.id = call->id, .method = call->method, .leaves = true, .free = answered};
    request->service = service;
    request->timer.data = request;
    uv_timer_init(service->loop, &request->timer);
    uv_timer_start(&request->timer, waited_enough, wait_ms, 0);
    TAILQ_INSERT_TAIL(&service->drains, request, link);
    service->transfers.idle = nothing_left;
    session_open_request(session, &request->base);
}

static void undo(struct call *call)
{
    struct session *session = call->session;
    struct service *service = session->service;

    if (service->stopping) {
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_DRAINING, "the daemon is stopping, and goes on so",
                            NULL);
        return;
    }
    if (service->draining) {
        log_notice("drain: undone; new transfers and registrations are taken again");
        service->draining = false;
        notify_all(service, PROTO_NOTIFY_DAEMON_RESUMED, NULL);
    }
    session_reply(session, (int64_t)call->id, what_is_left(service), -1);
    answer_all(service);
}

void method_admin_drain(struct call *call)
{
    const struct proto_drain_params *params = &call->params.drain;
    struct service *service = call->session->service;
    uint64_t wait_ms = params->has_wait_ms ? params->wait_ms : service->config->drain_ms;

    if (params->undo) {
        undo(call);
        return;
    }
    begin(service);
    if (service->transfers.open == 0 || wait_ms == 0) {
        session_reply(call->session, (int64_t)call->id, what_is_left(service), -1);
    } else {
        wait_for_transfers(call, wait_ms);
    }
}
