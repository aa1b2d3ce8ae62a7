#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/drain.h"
#include "daemon/local/methods.h"
#include "daemon/local/permission.h"
#include "daemon/local/quota.h"
#include "proto/errors.h"
#include "proto/shape.h"

/* Which way carried the value. */
static const char *path_of(const struct transfer_result *result)
{
    return result->over_tcp ? "tcp" : "rdma";
}

struct transfer_request {
    struct request base;
    struct transfer transfer;
    uint64_t region; /* its id: the region may be closed by the answer of its last transfer */
    uint8_t *key;    /* owned */
};

/* The request is over with the answer, but the struct belongs to the transfer until `released`. */
static void answered(struct request *request)
{
    (void)request;
}

static void released(struct transfer *transfer)
{
    struct transfer_request *request =
        (struct transfer_request *)((char *)transfer - offsetof(struct transfer_request, transfer));
    free(request->key);
    free(request);
}

/* NULL: out of memory. */
static json_t *error_data(const struct transfer *transfer, const struct transfer_result *result)
{
    json_t *data = json_pack("{s:s}", "outcome", outcome_table[result->outcome].name);
    if ((transfer->kind == TRANSFER_SET &&
         json_object_set_new(data, "may_have_run", json_boolean(result->may_have_run)) != 0) ||
        (result->memory_kept && json_object_set_new(data, "memory_released", json_false()) != 0)) {
        json_decref(data);
        return NULL;
    }
    if (result->attempts > 1)
        json_object_set_new(data, "attempts", json_integer((json_int_t)result->attempts));
    if (result->need > 0)
        json_object_set_new(data, "need", json_integer((json_int_t)result->need));
    if (result->os_error != 0)
        json_object_set_new(data, "errno", json_integer(-result->os_error));
    if (result->server_text != NULL)
        json_object_set_new(data, "server_text", proto_text_json(result->server_text, strlen(result->server_text)));
    return data;
}

static json_t *success(const struct transfer *transfer, const struct transfer_result *result)
{
    if (transfer->kind == TRANSFER_SET) {
        static const enum proto_tristate ttl_words[] = {[CARRIER_TTL_NONE] = PROTO_ABSENT,
                                                        [CARRIER_TTL_APPLIED] = PROTO_TRUE,
                                                        [CARRIER_TTL_REFUSED] = PROTO_FALSE,
                                                        [CARRIER_TTL_UNKNOWN] = PROTO_UNKNOWN};
        char path[8];
        snprintf(path, sizeof path, "%s", path_of(result));
        struct proto_set_result set = {.path = path, .ttl_applied = ttl_words[result->ttl]};
        return proto_shape_encode(proto_methods[PROTO_METHOD_TRANSFER_SET].result, &set);
    }
    if (result->outcome == OUTCOME_MISSING)
        return json_pack("{s:b,s:i}", "found", 0, "length", 0);
    json_t *success = json_pack("{s:b,s:I,s:s}", "found", 1, "length", (json_int_t)result->length, "path",
                                path_of(result));
    if (result->has_crc32c)
        json_object_set_new(success, "crc32c", json_integer((json_int_t)result->crc32c));
    return success;
}

static void ended(struct transfer *transfer, const struct transfer_result *result)
{
    struct transfer_request *request =
        (struct transfer_request *)((char *)transfer - offsetof(struct transfer_request, transfer));
    struct session *session = request->base.session;
    uint64_t region = request->region;
    json_t *data = NULL;
    if (result->code == 0) {
        session_answer(&request->base, success(transfer, result));
    } else if ((data = error_data(transfer, result)) == NULL) {
        session_answer(&request->base, NULL); /* without its data it would say too little: that nothing was stored */
    } else {
        char text[NODE_WHY_BYTES + 128];
        snprintf(text, sizeof text, "%s of %llu bytes: %s", transfer->kind == TRANSFER_SET ? "set" : "get",
                 (unsigned long long)transfer->window.length, result->text);
        session_answer_error(&request->base, result->code, text, data);
    }
    session_region_transfer_ended(session, region);
}

/* What set and get have in common. */
struct asked {
    enum transfer_kind kind;
    uint64_t region, offset, length, ttl_ms, deadline_ms;
    struct proto_key *key;
    bool has_crc32c, no_retry;
    uint32_t crc32c;
};

/* The limit for everybody answers `busy`, as the bounds of the daemon do; a policy's is a quota of the user. */
static int check_queue(const struct session *session, struct memory_error *error)
{
    uint64_t open = session->user->transfers.open, limit = session->policy.values.queue;
    if (open < limit)
        return 0;
    if (session->policy.title[POLICY_QUEUE] != NULL)
        return quota_check(error, &session->policy, POLICY_QUEUE, open, 1);
    memory_error_set(error, PROTO_ERR_BUSY,
                     "%llu transfers of this user are queued or running, as many as [limits] queue allows",
                     (unsigned long long)open);
    error->limit = limit;
    error->asked = open + 1;
    return error->code;
}

/* Whether the policy lets the session move this value, under this key. */
static int check_permission(const struct session *session, const struct asked *asked, struct memory_error *error)
{
    const struct policy *policy = &session->policy;
    int status = permission_key(policy, asked->key, error);
    if (status == 0 && asked->kind == TRANSFER_SET)
        status = permission_value(policy, asked->length, error);
    if (status == 0 && asked->ttl_ms > 0)
        status = permission_ttl(policy, asked->ttl_ms, error);
    return status;
}

/* 0: the window is taken. */
static int admit(struct session *session, const struct asked *asked, struct window *window,
                 struct memory_error *error)
{
    struct session_region *region = session_region_find(session, asked->region);
    if (session->service->draining) {
        memory_error_set(error, PROTO_ERR_DRAINING, "%s; no new transfers are taken",
                         drain_reason(session->service));
    } else if (region == NULL) {
        memory_error_set(error, PROTO_ERR_NO_REGION, "this session has no open region %llu",
                         (unsigned long long)asked->region);
    } else if (check_permission(session, asked, error) == 0 && check_queue(session, error) == 0) {
        return window_take(window, &region->region, asked->offset, asked->length, asked->kind == TRANSFER_GET,
                           error);
    }
    return error->code;
}

static void start(struct call *call, const struct asked *asked)
{
    struct session *session = call->session;
    struct transfer_request *request = calloc(1, sizeof *request);
    struct memory_error error = {0};
    int status;
    if (request == NULL) {
        status = PROTO_ERR_SYSTEM;
        memory_error_set(&error, status, "the daemon is out of memory");
    } else {
        status = admit(session, asked, &request->transfer.window, &error);
    }
    if (status != 0) {
        free(request);
        session_reply_error(session, (int64_t)call->id, status, error.text, error_numbers(&error));
        return;
    }
    request->base.id = call->id;
    request->base.method = call->method;
    request->base.free = answered;
    request->region = asked->region;
    request->key = asked->key->data;
    struct transfer *transfer = &request->transfer;
    transfer->kind = asked->kind;
    transfer->key = request->key;
    transfer->key_length = asked->key->length;
    transfer->has_crc32c = asked->has_crc32c;
    transfer->crc32c = asked->crc32c;
    transfer->ttl_ms = asked->ttl_ms;
    transfer->deadline_ms = asked->deadline_ms;
    transfer->no_retry = asked->no_retry;
    transfer->ended = ended;
    transfer->released = released;
    asked->key->data = NULL; /* taken out of the call */
    asked->key->length = 0;
    session_open_request(session, &request->base);
    transfers_submit(&session->service->transfers, &session->transfers, transfer);
}

void method_transfer_set(struct call *call)
{
    struct proto_set_params *params = &call->params.set;
    struct asked asked = {.kind = TRANSFER_SET,
                          .region = params->region,
                          .offset = params->offset,
                          .length = params->length,
                          .ttl_ms = params->has_ttl_ms ? params->ttl_ms
                                                       : permission_default_ttl(&call->session->policy),
                          .deadline_ms = params->has_deadline_ms ? params->deadline_ms : 0,
                          .key = &params->key,
                          .has_crc32c = params->has_crc32c,
                          .crc32c = (uint32_t)params->crc32c};
    start(call, &asked);
}

void method_transfer_get(struct call *call)
{
    struct proto_get_params *params = &call->params.get;
    struct asked asked = {.kind = TRANSFER_GET,
                          .region = params->region,
                          .offset = params->offset,
                          .length = params->length,
                          .deadline_ms = params->has_deadline_ms ? params->deadline_ms : 0,
                          .no_retry = !params->retry,
                          .key = &params->key};
    start(call, &asked);
}

/* The request to take back is answered as it ends, perhaps before this one. */
void method_transfer_cancel(struct call *call)
{
    struct session *session = call->session;
    uint64_t id = call->params.cancel.id;
    struct request *request = NULL;
    bool cancelled = false;
    HASH_FIND(hh, session->requests, &id, sizeof id, request);
    if (request != NULL &&
        (request->method == PROTO_METHOD_TRANSFER_SET || request->method == PROTO_METHOD_TRANSFER_GET)) {
        struct transfer *transfer = &((struct transfer_request *)request)->transfer;
        cancelled = transfer_can_end(transfer);
        if (cancelled)
            transfer_end(transfer, TRANSFER_CANCELLED);
    }
    session_reply(session, (int64_t)call->id, json_pack("{s:b}", "cancelled", cancelled), -1);
}
