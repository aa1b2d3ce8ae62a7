#include "daemon/local/session_private.h"
#include "proto/errors.h"

/* Everybody has the same time, so the list is in the order of its ends and one timer serves all. */
static void set_timer(struct service *service);

static void silence_over(uv_timer_t *timer)
{
    struct service *service = timer->data;
    struct session *session;
    while ((session = TAILQ_FIRST(&service->silent)) != NULL && session->silent_until <= uv_now(service->loop) &&
           !loop_watch_late(&service->watch)) { /* very many at once: the rest in the next turn */
        struct log_fields fields = session_fields(session);
        count_refused(&service->counters, PROTO_ERR_OVER_LIMIT);
        log_limited_about(&service->log_limits.silent, uv_now(service->loop), &fields, LOG_LEVEL_INFO,
                          "session %llu: uid %u has not said hello in time: disconnected",
                          (unsigned long long)session->id, session->peer.uid);
        session_end(session, TRANSFER_CANCELLED, PROTO_ERR_OVER_LIMIT, "no hello within [limits] hello_ms", false);
    }
    set_timer(service);
}

static void set_timer(struct service *service)
{
    const struct session *first = TAILQ_FIRST(&service->silent);
    uint64_t now = uv_now(service->loop);
    if (first == NULL)
        uv_timer_stop(&service->silence);
    else if (!uv_is_active((uv_handle_t *)&service->silence))
        uv_timer_start(&service->silence, silence_over, first->silent_until > now ? first->silent_until - now : 0, 0);
}

void session_spoke(struct session *session)
{
    if (!session->silent)
        return;
    session->silent = false;
    TAILQ_REMOVE(&session->service->silent, session, silent_link);
    set_timer(session->service);
}

void silence_watch(struct session *session)
{
    struct service *service = session->service;
    uv_update_time(service->loop);
    session->silent = true;
    session->silent_until = uv_now(service->loop) + service->config->limits.hello_ms;
    TAILQ_INSERT_TAIL(&service->silent, session, silent_link);
    set_timer(service);
}

void silence_init(struct service *service)
{
    TAILQ_INIT(&service->silent);
    uv_timer_init(service->loop, &service->silence);
    service->silence.data = service;
}

void silence_stop(struct service *service)
{
    uv_close((uv_handle_t *)&service->silence, NULL);
}
