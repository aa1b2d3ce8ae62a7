#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/local/methods.h"
#include "daemon/local/permission.h"
#include "proto/envelope.h"
#include "proto/errors.h"

static void (*const handlers[PROTO_METHOD_COUNT])(struct call *) = {
    [PROTO_METHOD_HELLO] = method_hello,
    [PROTO_METHOD_REGION_REGISTER] = method_region_register,
    [PROTO_METHOD_REGION_CLOSE] = method_region_close,
    [PROTO_METHOD_TRANSFER_SET] = method_transfer_set,
    [PROTO_METHOD_TRANSFER_GET] = method_transfer_get,
    [PROTO_METHOD_TRANSFER_CANCEL] = method_transfer_cancel,
    [PROTO_METHOD_KEYS_EXISTS] = method_keys,
    [PROTO_METHOD_KEYS_DELETE] = method_keys,
    [PROTO_METHOD_KEYS_INFO] = method_keys,
    [PROTO_METHOD_KEYS_EXPIRE] = method_keys,
    [PROTO_METHOD_STATUS] = method_status,
    [PROTO_METHOD_ADMIN_CLIENTS] = method_admin_clients,
    [PROTO_METHOD_ADMIN_NODES] = method_admin_nodes,
    [PROTO_METHOD_ADMIN_REGIONS] = method_admin_regions,
    [PROTO_METHOD_ADMIN_TRANSFERS] = method_admin_transfers,
    [PROTO_METHOD_ADMIN_USERS] = method_admin_users,
    [PROTO_METHOD_ADMIN_METRICS] = method_admin_metrics,
    [PROTO_METHOD_ADMIN_LOG_LEVEL] = method_admin_log_level,
    [PROTO_METHOD_ADMIN_RELOAD] = method_admin_reload,
    [PROTO_METHOD_ADMIN_DRAIN] = method_admin_drain,
};

/* Closing may block (a socket that lingers): it is a worker's work, charged to the sender. */
static void close_fds(struct session *session, struct channel_packet *packet, int from)
{
    for (int i = from; i < packet->fd_count; i++)
        memory_close_fd(&session->service->memory, &session->user->memory, packet->fds[i]);
}

static int check_fds(const struct proto_method *method, const struct channel_packet *packet, char *why, size_t size)
{
    int wanted = method->takes_fd ? 1 : 0;
    if (packet->fds_truncated) {
        snprintf(why, size, "the packet's descriptor did not arrive: the daemon is at its descriptor limit "
                            "(RLIMIT_NOFILE); try again, or raise LimitNOFILE");
        return PROTO_ERR_SYSTEM;
    }
    if (packet->fd_count != wanted) {
        snprintf(why, size, "%s takes %s; the packet carried %d", method->name,
                 wanted ? "one descriptor, the memory file" : "no descriptor", packet->fd_count);
        return PROTO_ERR_BAD_FD;
    }
    return 0;
}

static int check_method(const struct session *session, const struct proto_request *request, int id, char *why,
                        size_t size)
{
    unsigned here = session->admin ? PROTO_ON_ADMIN : PROTO_ON_CLIENT;
    if (id < 0 || (proto_methods[id].sockets & here) == 0) {
        snprintf(why, size, "no method \"%.64s\" on the %s socket", request->method,
                 session->admin ? "admin" : "client");
        return PROTO_ERR_NO_METHOD;
    }
    if (!session->hello_done && !session->admin && id != PROTO_METHOD_HELLO) {
        snprintf(why, size, "%s before hello: the first request of a session is hello", proto_methods[id].name);
        return PROTO_ERR_INVALID_REQUEST;
    }
    return 0;
}

/* Methods that are answered at once open no request, so a client at its limit can still cancel one. */
static bool opens_request(int method)
{
    return method != PROTO_METHOD_HELLO && method != PROTO_METHOD_TRANSFER_CANCEL && method != PROTO_METHOD_STATUS &&
           (proto_methods[method].sockets != PROTO_ON_ADMIN || method == PROTO_METHOD_ADMIN_RELOAD ||
            method == PROTO_METHOD_ADMIN_DRAIN);
}

static int check_id(struct session *session, const struct proto_request *parsed, int method, json_t **data, char *why,
                    size_t size)
{
    uint64_t most = session->service->config->limits.requests;
    struct request *open = NULL;
    uint64_t id = (uint64_t)parsed->id;
    HASH_FIND(hh, session->requests, &id, sizeof id, open);
    if (open != NULL) {
        snprintf(why, size, "id %llu belongs to a request that is not answered yet", (unsigned long long)id);
        return PROTO_ERR_INVALID_REQUEST;
    }
    if (opens_request(method) && session->request_count >= most) {
        snprintf(why, size, "%u requests of this session wait for their answer, as many as [limits] requests allows",
                 session->request_count);
        *data = json_pack("{s:I}", "limit", (json_int_t)most);
        return PROTO_ERR_BUSY;
    }
    return 0;
}

static int check_permission(const struct session *session, int id, json_t **data, char *why, size_t size)
{
    struct memory_error refusal = {0};
    if (permission_method(&session->policy, id, &refusal) != 0) {
        snprintf(why, size, "%s", refusal.text);
        *data = error_numbers(&refusal);
    }
    return refusal.code;
}

/* 0: the call is filled and the handler can be called. Else *data (may be NULL) is what the error tells. */
static int prepare(struct session *session, const struct proto_request *parsed, const struct channel_packet *packet,
                   struct call *call, json_t **data, char why[PROTO_WHY_BYTES])
{
    int id = proto_method_find(parsed->method);
    int status = check_method(session, parsed, id, why, PROTO_WHY_BYTES);
    if (status == 0)
        status = check_fds(&proto_methods[id], packet, why, PROTO_WHY_BYTES);
    if (status == 0)
        status = check_id(session, parsed, id, data, why, PROTO_WHY_BYTES);
    if (status == 0)
        status = check_permission(session, id, data, why, PROTO_WHY_BYTES);
    if (status == 0)
        status = proto_shape_decode(proto_methods[id].params, parsed->params, true, &call->params, why);
    if (status == 0) {
        call->session = session;
        call->id = (uint64_t)parsed->id;
        call->method = id;
        call->fd = packet->fd_count > 0 ? packet->fds[0] : -1;
    }
    return status;
}

void dispatch_packet(struct session *session, const char *text, struct channel_packet *packet)
{
    struct proto_request parsed = {0};
    struct call call;
    char why[PROTO_WHY_BYTES] = "";
    json_t *data = NULL;
    int status;
    memset(&call, 0, sizeof call);
    if (packet->truncated) {
        status = PROTO_ERR_TOO_LARGE;
        snprintf(why, sizeof why, "the packet is longer than %d bytes", PROTO_MESSAGE_BYTES);
    } else {
        status = proto_request_parse(text, packet->length, &parsed, why);
    }
    bool malformed = status != 0;
    if (status == 0)
        status = prepare(session, &parsed, packet, &call, &data, why);
    close_fds(session, packet, status == 0 && proto_methods[call.method].takes_fd ? 1 : 0);
    session->malformed = malformed ? session->malformed + 1 : 0;
    if (status == 0) {
        session->service->counters.requests[call.method]++;
        handlers[call.method](&call);
        proto_shape_free(proto_methods[call.method].params, &call.params);
    } else {
        if (packet->fds_truncated)
            data = json_pack("{s:i}", "errno", EMFILE);
        session_reply_error(session, parsed.id, status == PROTO_ERR_NO_MEMORY ? PROTO_ERR_SYSTEM : status, why, data);
    }
    json_decref(parsed.root);
}
