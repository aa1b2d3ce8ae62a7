#include "daemon/valkey/probe.h"

#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/valkey/node_private.h"

static void end_connection(struct node *node)
{
    struct resp_connection *resp = node->probe;

    node->probe = NULL;
    if (resp != NULL) {
        resp_close(resp);
    }
}

static void failed(struct node *node, const char *why)
{
    log_info("valkey %s: RDMA still fails: %s", node->address->text, why);
    dial_probe_failed(&node->dial, why, uv_now(node->loop));
}

static void on_ready(void *context)
{
    struct node *node = context;

    end_connection(node);
    dial_back_on_rdma(&node->dial, uv_now(node->loop));
    node_reset(node, "over RDMA");
}

static void on_closed(void *context, bool auth, const char *why)
{
    struct node *node = context;

    failed(node, why);
    end_connection(node);
}

static const struct resp_events probe_events = {
    .ready = on_ready,
    .closed = on_closed,
};

int probe_init(struct node *node, const struct valkey_config *config, const struct transport_address *address)
{
    int status = dial_init(&node->probe_dial, config, address);

    node->probe_dial.only_rdma = true;
    return status;
}

void probe_if_due(struct node *node)
{
    char why[TRANSPORT_WHY_BYTES];

    if (node->stopping || node->probe != NULL || !dial_is_due(&node->dial, uv_now(node->loop))) {
        return;
    }
    if (resp_open(node->loop, node->offload, node->config, &node->probe_dial, &probe_events, node, &node->probe, why) !=
        0) {
        failed(node, why);
    }
}

void probe_stop(struct node *node)
{
    end_connection(node);
}

void probe_end(struct node *node)
{
    dial_end(&node->probe_dial);
}
