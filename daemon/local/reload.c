#include "daemon/local/reload.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/config/changes.h"
#include "daemon/local/methods.h"
#include "daemon/local/quota.h"
#include "proto/errors.h"
#include "proto/shape.h"

struct reload_request {
    struct request base;
    TAILQ_ENTRY(reload_request) link;
};

static void run(struct reloader *reloader);

/* --- what the service manager is told ----------------------------------------------------------------------------- */

static void tell_begin(void)
{
    struct timespec now;
    char message[96];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
    notify_send(message);
}

/* Ready also after a failure: the daemon serves on with what it had. */
static void tell_end(const struct reloader *reloader)
{
    char message[CONFIG_WHY_BYTES + 64];

    if (reloader->service->stopping) {
        return; /* it was told that, and is not ready any more */
    }
    snprintf(message, sizeof(message), "READY=1%s%s", reloader->status != 0 ? "\nSTATUS=not reloaded: " : "",
             reloader->status != 0 ? reloader->why : "");
    notify_send(message);
}

/* --- the change --------------------------------------------------------------------------------------------------- */

static void resolve_policies(struct service *service)
{
    struct session *session;

    /* Those without a session would go on with names that are about to be freed. */
    for (struct user *user = service->users; user != NULL; user = user->hh.next) {
        policy_without_sections(service->config, &user->policy);
    }
    TAILQ_FOREACH(session, &service->sessions, link)
    {
        quota_apply(session);
    }
}

static void apply(struct reloader *reloader, struct config_changes *changes)
{
    struct service *service = reloader->service;
    struct config *config = reloader->config;
    struct budget_settings budget = {.limit = reloader->limit};

    config_take(config, &reloader->next, changes);
    budget.device_limit = config->device_limit;
    log_set_level(config->log_level);
    budget_set_limits(&service->memory.budget, &budget);
    transfers_set_times(&service->transfers, config->revoke_grace_ms, config->drain_ms);
    resolve_policies(service);
    deployment_reloaded(service->deployment);
}

/* Names of those that need a restart, or of the others. */
static json_t *names(const struct config_changes *changes, bool needs_restart)
{
    json_t *list = json_array();

    for (size_t i = 0; i < changes->count; i++) {
        const char *name = changes->items[i].name;
        if (changes->items[i].needs_restart == needs_restart) {
            json_array_append_new(list, proto_text_json(name, strlen(name)));
        }
    }
    return list;
}

static void log_changes(const struct config_changes *changes)
{
    unsigned taken = 0;

    for (size_t i = 0; i < changes->count; i++) {
        if (changes->items[i].needs_restart) {
            log_warn("reload: %s has changed; it needs a restart", changes->items[i].name);
        } else {
            log_info("reload: %s has changed", changes->items[i].name);
            taken++;
        }
    }
    log_about(LOG_EVENT(RELOADED), LOG_LEVEL_NOTICE, "reloaded: %u changes taken over, %zu need a restart", taken,
              changes->count - taken);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void free_request(struct request *base)
{
    free(base);
}

static void answer_one(struct reload_request *request, const struct reloader *reloader,
                       const struct config_changes *changes)
{
    json_t *result;

    if (request->base.session == NULL) { /* its session has ended */
        free(request);
        return;
    }
    result = json_pack("{s:b,s:o,s:o}", "reloaded", reloader->status == 0, "changed", names(changes, false),
                       "needs_restart", names(changes, true));
    if (reloader->status != 0) {
        json_object_set_new(result, "why", proto_text_json(reloader->why, strlen(reloader->why)));
    }
    session_answer(&request->base, result);
}

static void answer(struct reloader *reloader, const struct config_changes *changes)
{
    struct reload_request *request;

    while ((request = TAILQ_FIRST(&reloader->waiting)) != NULL) {
        TAILQ_REMOVE(&reloader->waiting, request, link);
        answer_one(request, reloader, changes);
    }
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

static void read_files(struct worker_job *job)
{
    struct reloader *reloader = (struct reloader *)((char *)job - offsetof(struct reloader, job));
    struct pin_facts facts = {.pins = reloader->pins};
    char why[PIN_WHY_BYTES];

    reloader->status = config_load(&reloader->next, reloader->path, reloader->why);
    if (reloader->status != 0) {
        return;
    }
    facts.configured = reloader->next.pinned_limit;
    pin_facts_read(&facts, "");
    reloader->status = pin_limit_decide(&facts, &reloader->limit, why);
    if (reloader->status != 0) {
        snprintf(reloader->why, sizeof(reloader->why), "%s", why);
    }
}

static void files_were_read(struct worker_job *job)
{
    struct reloader *reloader = (struct reloader *)((char *)job - offsetof(struct reloader, job));
    struct config_changes changes = {.count = 0};

    if (reloader->status == 0 && reloader->service->stopping) {
        reloader->status = -ECANCELED; /* parts that would be told are gone, or on their way */
        snprintf(reloader->why, sizeof(reloader->why), "the daemon is stopping");
    }
    if (reloader->status == 0) {
        reloader->status = config_can_take(reloader->config, &reloader->next, reloader->why);
    }
    if (reloader->status == 0) {
        apply(reloader, &changes);
        log_changes(&changes);
    } else {
        log_about(LOG_EVENT(NOT_RELOADED), LOG_LEVEL_ERROR, "not reloaded, the configuration stays as it was: %s",
                  reloader->why);
    }
    config_free(&reloader->next);
    tell_end(reloader);
    answer(reloader, &changes);
    reloader->running = false;
    if (reloader->again && !reloader->service->stopping) {
        run(reloader);
    }
}

static void run(struct reloader *reloader)
{
    reloader->running = true;
    reloader->again = false;
    reloader->pins = reloader->service->fabric->pins;
    TAILQ_CONCAT(&reloader->waiting, &reloader->later, link);
    tell_begin();
    workers_submit(reloader->service->workers, &reloader->owner, &reloader->job, read_files, files_were_read);
}

void reload_begin(struct reloader *reloader, struct reload_request *request)
{
    if (request != NULL) {
        TAILQ_INSERT_TAIL(&reloader->later, request, link);
    }
    if (reloader->running) {
        reloader->again = true;
    } else {
        run(reloader);
    }
}

static void hung_up(uv_signal_t *handle, int number)
{
    const struct reloader *reloader = handle->data;

    (void)number;
    if (reloader->service->stopping) {
        log_notice("SIGHUP: not reloaded, the daemon is stopping");
        return;
    }
    log_notice("SIGHUP");
    reload_begin(handle->data, NULL);
}

/* Of the loop's thread; the daemon's others are started while it is blocked. */
static void mask_signal(int how)
{
    sigset_t hangup;

    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    pthread_sigmask(how, &hangup, NULL);
}

void reload_hold_signal(void)
{
    mask_signal(SIG_BLOCK);
}

void reload_init(struct reloader *reloader, struct service *service, struct config *config, const char *path)
{
    *reloader = (struct reloader){.service = service, .config = config, .path = path};
    TAILQ_INIT(&reloader->waiting);
    TAILQ_INIT(&reloader->later);
    worker_owner_init(&reloader->owner);
    uv_signal_init(service->loop, &reloader->hangup);
    reloader->hangup.data = reloader;
    uv_signal_start(&reloader->hangup, hung_up, SIGHUP);
    mask_signal(SIG_UNBLOCK);
    service->reloader = reloader;
}

void reload_close(struct reloader *reloader)
{
    mask_signal(SIG_BLOCK); /* libuv puts back what ends the process */
    uv_close((uv_handle_t *)&reloader->hangup, NULL);
    signal(SIGHUP, SIG_IGN);
}

void method_admin_reload(struct call *call)
{
    struct session *session = call->session;
    struct reloader *reloader = session->service->reloader;
    struct reload_request *request;

    if (session->service->stopping) {
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_DRAINING, "the daemon is stopping, and goes on so",
                            NULL);
        return;
    }
    request = reloader != NULL ? calloc(1, sizeof(*request)) : NULL;
    if (request == NULL) {
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_SYSTEM, "the daemon is out of memory", NULL);
        return;
    }
    request->base = (struct request){.id = call->id, .method = call->method, .leaves = true, .free = free_request};
    session_open_request(session, &request->base);
    reload_begin(reloader, request);
}
