#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/version.h"
#include "daemon/local/drain.h"
#include "daemon/local/methods.h"
#include "daemon/local/quota.h"
#include "proto/errors.h"
#include "proto/shape.h"

bool service_usable(const struct service *service, char *why, size_t size)
{
    why[0] = '\0';
    if (!service->fabric->usable && !service->config->valkey.fallback_tcp) {
        snprintf(why, size, "%s", service->fabric->why);
        return false;
    }
    if (service->draining) {
        snprintf(why, size, "%s", drain_reason(service)); /* also when there is no deployment any more */
        return false;
    }
    return deployment_usable(service->deployment, why, size);
}

static json_t *interfaces(const struct fabric *fabric)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < fabric->nic_count; i++)
        json_array_append_new(list, proto_text_json(fabric->nics[i].name, strlen(fabric->nics[i].name)));
    return list;
}

void method_hello(struct call *call)
{
    struct session *session = call->session;
    const struct service *service = session->service;
    const struct config *config = service->config;
    struct proto_hello_params *params = &call->params.hello;
    if (session->hello_done) {
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_INVALID_REQUEST,
                            "hello was said already in this session", NULL);
        return;
    }
    if (params->protocol < PROTO_VERSION_MIN || params->protocol > PROTO_VERSION) {
        char text[160];
        snprintf(text, sizeof text, "protocol version %llu is not served here; versions %d to %d are",
                 (unsigned long long)params->protocol, PROTO_VERSION_MIN, PROTO_VERSION);
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_INVALID_PARAMS, text,
                            json_pack("{s:i,s:i}", "min", PROTO_VERSION_MIN, "max", PROTO_VERSION));
        return;
    }
    session->hello_done = true;
    session_spoke(session);
    session->client_name = params->client;
    params->client = NULL;
    char why[NODE_WHY_BYTES + 128];
    bool usable = service_usable(service, why, sizeof why);
    uint64_t regions = session->policy.values.regions;
    if (regions > config->limits.regions)
        regions = config->limits.regions;
    json_t *limits = json_pack("{s:i,s:I,s:I,s:I,s:I,s:o}", "message_bytes", PROTO_MESSAGE_BYTES, "regions",
                               (json_int_t)regions, "in_flight", (json_int_t)session->policy.values.queue,
                               "region_bytes", (json_int_t)config->limits.region_bytes, "requests",
                               (json_int_t)config->limits.requests, "quotas", quota_json(&session->policy));
    uint64_t value_bytes = deployment_value_bytes(service->deployment);
    if (value_bytes > 0)
        json_object_set_new(limits, "value_bytes", json_integer((json_int_t)value_bytes));
    deployment_ask_limits(service->deployment); /* for the next one: an operator may change it at any time */
    json_t *fabric = json_pack("{s:s,s:o,s:s}", "provider", config->fabric.provider, "interfaces",
                               interfaces(service->fabric), "libfabric", service->fabric->version);
    json_t *result = json_pack("{s:I,s:s,s:o,s:o,s:b}", "protocol", (json_int_t)params->protocol, "server",
                               "glide-rdmad " GRD_VERSION, "limits", limits, "fabric", fabric, "usable", usable);
    if (usable)
        json_object_set_new(result, "path", json_string(deployment_path(service->deployment, why, sizeof why)));
    if (why[0] != '\0')
        json_object_set_new(result, "why", proto_text_json(why, strlen(why)));
    session_reply(session, (int64_t)call->id, result, session->admin ? -1 : service->pidfd);
}
