#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/drain.h"
#include "daemon/local/methods.h"
#include "daemon/local/quota.h"
#include "proto/errors.h"
#include "proto/shape.h"

static void free_request(struct request *request)
{
    free(request);
}

/* Left out where there is none, or nobody knows it. */
static void set_limit(json_t *data, const char *member, uint64_t limit)
{
    if (limit != UINT64_MAX)
        json_object_set_new(data, member, json_integer((json_int_t)limit));
}

json_t *error_numbers(const struct memory_error *error)
{
    if (error->quota != NULL)
        return json_pack("{s:s,s:I,s:I,s:I}", "quota", error->quota, "used", (json_int_t)error->used, "limit",
                         (json_int_t)error->limit, "asked", (json_int_t)error->asked);
    if (error->rule != NULL && error->limit == 0)
        return json_pack("{s:s}", "rule", error->rule);
    if (error->rule != NULL)
        return json_pack("{s:s,s:I,s:I}", "rule", error->rule, "limit", (json_int_t)error->limit, "asked",
                         (json_int_t)error->asked);
    if (error->capacity > 0)
        return json_pack("{s:I}", "capacity", (json_int_t)error->capacity);
    if (error->os_errno != 0)
        return json_pack("{s:i}", "errno", error->os_errno);
    if (error->pages > 0)
        return json_pack("{s:I,s:I}", "missing_pages", (json_int_t)error->missing_pages, "pages",
                         (json_int_t)error->pages);
    if (error->limit == 0)
        return NULL;
    json_t *data = json_pack("{s:I}", "asked", (json_int_t)error->asked);
    set_limit(data, "limit", error->limit);
    if (error->budget != NULL) {
        json_object_set_new(data, "budget", json_string(error->budget));
        json_object_set_new(data, "used", json_integer((json_int_t)error->used));
    }
    if (error->both) {
        json_object_set_new(data, "memlock_used", json_integer((json_int_t)error->memlock_used));
        set_limit(data, "memlock_limit", error->memlock_limit);
        json_object_set_new(data, "device_used", json_integer((json_int_t)error->device_used));
        set_limit(data, "device_limit", error->device_limit);
    }
    return data;
}

/* --- region.register ---------------------------------------------------------------------------------------------- */

/* Operators size the budget by it; clients can cause it at will. */
static void log_refusal(const struct session *session, uint64_t request, const char *why)
{
    struct log_fields fields = {.event = LOG_EVENT_BUDGET_REFUSED,
                                .session = session->id,
                                .request = request,
                                .has_uid = true,
                                .uid = session->peer.uid};
    log_limited_about(&session->service->log_limits.budget, uv_now(session->service->loop), &fields, LOG_LEVEL_WARN,
                      "session %llu: a region of uid %u was refused: %s", (unsigned long long)session->id,
                      session->peer.uid, why);
}

static void opened(struct region *inner, const struct memory_error *error)
{
    struct session_region *region = (struct session_region *)((char *)inner - offsetof(struct session_region, region));
    struct session *session = region->session;
    uint64_t id = region->registering;
    struct request *request = NULL;
    HASH_FIND(hh, session->requests, &id, sizeof id, request);
    region->registering = 0;
    if (error != NULL) {
        struct memory_error refusal = *error;
        pace_charge(session->user);
        if (error->code == PROTO_ERR_OVER_QUOTA) /* memory/ does not know whose quota it was */
            quota_error(&refusal, &session->policy, POLICY_PINNED_BYTES, error->used, error->asked);
        session_region_free(region);
        if (error->code == PROTO_ERR_OVER_BUDGET)
            log_refusal(session, id, refusal.text);
        session_answer_error(request, refusal.code, refusal.text, error_numbers(&refusal));
        return;
    }
    region->open = true;
    session_answer(request, json_pack("{s:I,s:I,s:I,s:b}", "region", (json_int_t)region->id, "capacity",
                                      (json_int_t)inner->size, "page_size", (json_int_t)inner->page_size, "shared",
                                      inner->shared));
}

/* error->code 0: it may be registered. */
static void check_register(struct call *call, struct memory_error *error)
{
    const struct proto_register_params *params = &call->params.region_register;
    const struct service *service = call->session->service;
    const struct config_limits *limits = &service->config->limits;
    const struct policy *policy = &call->session->policy;
    unsigned regions = HASH_COUNT(call->session->regions);
    if (params->size > limits->region_bytes) {
        memory_error_set(error, PROTO_ERR_OVER_LIMIT,
                         "a region of %llu bytes is larger than [limits] region_bytes = %llu allows",
                         (unsigned long long)params->size, (unsigned long long)limits->region_bytes);
        error->limit = limits->region_bytes;
        error->asked = params->size;
    } else if (regions >= limits->regions) {
        memory_error_set(error, PROTO_ERR_OVER_LIMIT,
                         "this session has %u regions, as many as [limits] regions allows", regions);
        error->limit = limits->regions;
        error->asked = regions + 1;
    } else if (quota_check(error, policy, POLICY_REGIONS, call->session->user->memory.regions, 1) != 0) {
        /* error says it */
    } else if (params->populate && !limits->populate) {
        memory_error_set(error, PROTO_ERR_DENIED,
                         "the daemon allocates no pages for clients ([limits] populate = no): touch them in the program, "
                         "and register without populate");
    } else if (service->draining) {
        memory_error_set(error, PROTO_ERR_DRAINING, "%s; no new regions are registered",
                         drain_reason(service));
    } else if (!service->fabric->usable && !service->config->valkey.fallback_tcp) {
        memory_error_set(error, PROTO_ERR_NOT_USABLE, "%s", service->fabric->why);
    }
}

void method_region_register(struct call *call)
{
    struct session *session = call->session;
    struct service *service = session->service;
    struct proto_register_params *params = &call->params.region_register;
    struct memory_error error = {0};
    struct session_region *region = calloc(1, sizeof *region);
    struct request *request = calloc(1, sizeof *request);
    if (region == NULL || request == NULL)
        memory_error_set(&error, PROTO_ERR_SYSTEM, "the daemon is out of memory");
    else
        check_register(call, &error);
    if (error.code != 0) {
        free(region);
        free(request);
        memory_close_fd(&service->memory, &session->user->memory, call->fd);
        session_reply_error(session, (int64_t)call->id, error.code, error.text, error_numbers(&error));
        return;
    }
    request->id = call->id;
    request->method = call->method;
    request->free = free_request;
    session_open_request(session, request);
    region->registering = call->id;
    region->label = params->label;
    params->label = NULL;
    session_region_add(session, region);
    struct region_request asked = {.fd = call->fd,
                                   .offset = params->offset,
                                   .size = params->size,
                                   .writable = strcmp(params->access, "rw") == 0,
                                   .populate = params->populate,
                                   .quota = session->policy.values.pinned_bytes};
    region_open(&region->region, &service->memory, &session->user->memory, &asked, opened);
}

/* --- region.close ------------------------------------------------------------------------------------------------- */

/* Cancels what uses the region; the last of them to end closes it. */
static void cancel_transfers(struct session_region *region)
{
    struct transfer *next;
    region->closing = true;
    region->region.windows++; /* so that none of them closes it under our feet */
    for (struct transfer *at = LIST_FIRST(&region->session->transfers.all); at != NULL; at = next) {
        next = LIST_NEXT(at, session_link);
        if (at->window.region == &region->region)
            transfer_end(at, TRANSFER_CANCELLED);
    }
    region->region.windows--;
    session_region_transfer_ended(region->session, region->id);
}

void method_region_close(struct call *call)
{
    struct session *session = call->session;
    const struct proto_close_params *params = &call->params.region_close;
    struct session_region *region = session_region_find(session, params->region);
    char why[PROTO_WHY_BYTES];
    int status = 0;
    struct request *request = NULL;
    if (region == NULL) {
        status = PROTO_ERR_NO_REGION;
        snprintf(why, sizeof why, "this session has no open region %llu", (unsigned long long)params->region);
    } else if (region->region.windows > 0 && !params->force) {
        status = PROTO_ERR_BUSY;
        snprintf(why, sizeof why, "%u transfers use region %llu; wait for them, or close with force to cancel them",
                 region->region.windows, (unsigned long long)params->region);
    } else if ((request = calloc(1, sizeof *request)) == NULL) {
        status = PROTO_ERR_SYSTEM;
        snprintf(why, sizeof why, "the daemon is out of memory");
    }
    if (status != 0) {
        session_reply_error(session, (int64_t)call->id, status, why, NULL);
        return;
    }
    request->id = call->id;
    request->method = call->method;
    request->free = free_request;
    session_open_request(session, request);
    region->close_request = request;
    if (region->region.windows == 0) {
        session_region_close(region);
        return;
    }
    cancel_transfers(region);
}
