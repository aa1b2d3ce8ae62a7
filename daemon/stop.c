#include "daemon/stop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/local/drain.h"
#include "daemon/local/reload.h"
#include "daemon/local/session.h"
#include "proto/errors.h"

/* What the steps after draining may take, ms: destroying lanes and closing registrations takes milliseconds. */
#define CLOSE_MS 5000
/* How long a client that does not read its last packets, or a server that does not answer keys.*, can delay the end of
 * a session whose transfers have ended and whose regions are closed, ms. */
#define LAST_PACKETS_MS 1000

static void advance(struct stop *stop);

static struct stop *stop_of_timer(uv_timer_t *timer)
{
    return (struct stop *)((char *)timer - offsetof(struct stop, timer));
}

/* --- what is left when time is up --------------------------------------------------------------------------------- */

static void time_is_up(uv_timer_t *timer)
{
    struct stop *stop = stop_of_timer(timer);
    const struct service *service = stop->service;
    log_error("not everything closed in time: %u sessions, %u transfers, %u regions, %u arenas (%llu bytes), %u lanes, "
              "%u jobs of workers; the kernel closes the rest",
              service->session_count, service->transfers.open, service->memory.regions, service->memory.arenas,
              (unsigned long long)service->memory.budget.memlock.used, service->fabric->lanes,
              workers_outstanding(service->workers));
    stop->status = EXIT_STATUS_LEFT_OPEN;
    stop->stage = STOP_DONE;
    stop->done = true;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* A round for what the sessions wait for; those at rest are cut, others may come to rest until the last round. */
static void last_packets_over(uv_timer_t *timer)
{
    struct stop *stop = stop_of_timer(timer);
    struct session *session, *next;
    for (session = TAILQ_FIRST(&stop->service->sessions); session != NULL; session = next) {
        next = TAILQ_NEXT(session, link);
        bool at_rest = session->request_count == 0 && session->regions == NULL;
        session_end(session, TRANSFER_CANCELLED, PROTO_ERR_DRAINING, "the daemon is stopping", at_rest);
    }
    if (++stop->rounds > CLOSE_MS / LAST_PACKETS_MS)
        time_is_up(timer);
    else
        uv_timer_start(timer, last_packets_over, LAST_PACKETS_MS, 0);
}

static void end_sessions(struct stop *stop)
{
    struct session *session, *next;
    stop->stage = STOP_SESSIONS;
    uv_timer_start(&stop->timer, last_packets_over, LAST_PACKETS_MS, 0);
    for (session = TAILQ_FIRST(&stop->service->sessions); session != NULL; session = next) {
        next = TAILQ_NEXT(session, link);
        session_end(session, TRANSFER_STOPPING, PROTO_ERR_DRAINING, "the daemon is stopping", false);
    }
}

static void drain_over(uv_timer_t *timer)
{
    struct stop *stop = stop_of_timer(timer);
    log_warn("%u transfers did not end within drain_ms: their lanes are destroyed", stop->service->transfers.open);
    end_sessions(stop);
}

static void deployment_stopped(void *context, int status)
{
    struct stop *stop = context;
    /* It has freed itself; scrapers may still ask. */
    stop->service->deployment = NULL;
    stop->service->transfers.deployment = NULL;
    if (status != 0)
        log_error("a lane did not close: error %d", status);
    if (status != 0)
        stop->status = EXIT_STATUS_LEFT_OPEN;
    stop->stage = STOP_MEMORY;
    advance(stop);
}

static void finish(struct stop *stop)
{
    struct service *service = stop->service;
    stop->stage = STOP_DONE;
    if (service->memory.quarantined > 0) {
        log_error("%u arenas (%llu bytes) stayed registered until the end", service->memory.quarantined,
                  (unsigned long long)service->memory.budget.memlock.quarantined);
        stop->status = EXIT_STATUS_LEFT_OPEN;
    }
    sessions_stop(service);
    drains_close(service);
    if (service->reloader != NULL)
        reload_close(service->reloader);
    uv_close((uv_handle_t *)&stop->timer, NULL);
    uv_close((uv_handle_t *)&stop->check, NULL);
    uv_close((uv_handle_t *)&stop->restart, NULL);
    service->memory.quarantine_grew = NULL;
    for (size_t i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&stop->signals[i], NULL);
    stop->done = true;
}

/* Takes every step whose condition holds now. */
static void advance(struct stop *stop)
{
    struct service *service = stop->service;
    if (stop->stage == STOP_DRAINING && service->transfers.open == 0)
        end_sessions(stop);
    if (stop->stage == STOP_SESSIONS && service->session_count == 0) {
        stop->stage = STOP_DEPLOYMENT;
        uv_timer_start(&stop->timer, time_is_up, CLOSE_MS, 0);
        deployment_stop(service->deployment, deployment_stopped, stop);
    }
    if (stop->stage == STOP_MEMORY && service->memory.arenas == 0 && workers_outstanding(service->workers) == 0)
        finish(stop);
}

static void check(uv_check_t *handle)
{
    advance((struct stop *)((char *)handle - offsetof(struct stop, check)));
}

/* The unit's TimeoutStopSec need not know drain_ms. */
static void tell_manager(uint64_t drain_ms)
{
    char message[96];
    unsigned long long longest_us = (drain_ms + LAST_PACKETS_MS + 2 * CLOSE_MS) * 1000;
    snprintf(message, sizeof message, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\nSTATUS=draining", longest_us);
    notify_send(message);
}

void stop_begin(struct stop *stop)
{
    struct service *service = stop->service;
    uint64_t drain_ms = service->config->drain_ms;
    if (stop->stage != STOP_NOT)
        return;
    stop->stage = STOP_DRAINING;
    service->stopping = true;
    log_about(LOG_EVENT(STOPPING), LOG_LEVEL_NOTICE, "stopping: %u transfers in flight, up to %llu ms for them",
              service->transfers.open,
               (unsigned long long)drain_ms);
    tell_manager(drain_ms);
    listeners_close(stop->listeners);
    drain_announce(service);
    uv_timer_start(&stop->timer, drain_over, drain_ms, 0);
    uv_check_start(&stop->check, check);
    advance(stop);
}

static void signalled(uv_signal_t *handle, int number)
{
    struct stop *stop = handle->data;
    log_notice("%s", number == SIGTERM ? "SIGTERM" : "SIGINT");
    stop_begin(stop);
}

static void restart_due(uv_timer_t *timer)
{
    struct stop *stop = timer->data;
    const struct service *service = stop->service;
    log_error("%llu bytes of registered memory did not close, more than [memory] quarantine_restart_bytes = %llu: "
              "ending, to be started again",
              (unsigned long long)service->memory.budget.memlock.quarantined,
              (unsigned long long)service->config->quarantine_restart_bytes);
    stop_begin(stop);
}

/* Called from the middle of a transfer's or a region's end: stopping has to wait until that is over. */
static void quarantine_grew(struct memory *memory)
{
    struct service *service = (struct service *)((char *)memory - offsetof(struct service, memory));
    uint64_t limit = service->config->quarantine_restart_bytes;
    struct stop *stop = memory->quarantine_watcher;
    if (limit != 0 && memory->budget.memlock.quarantined > limit && stop->stage == STOP_NOT)
        uv_timer_start(&stop->restart, restart_due, 0, 0);
}

void stop_init(struct stop *stop, struct service *service, struct listeners *listeners)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    memset(stop, 0, sizeof *stop);
    stop->service = service;
    stop->listeners = listeners;
    uv_timer_init(service->loop, &stop->timer);
    uv_check_init(service->loop, &stop->check);
    uv_timer_init(service->loop, &stop->restart);
    stop->restart.data = stop;
    service->memory.quarantine_grew = quarantine_grew;
    service->memory.quarantine_watcher = stop;
    for (size_t i = 0; i < 2; i++) {
        uv_signal_init(service->loop, &stop->signals[i]);
        stop->signals[i].data = stop;
        uv_signal_start(&stop->signals[i], signalled, numbers[i]);
    }
}
