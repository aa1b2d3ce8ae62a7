#include "daemon/valkey/fallback.h"

#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/valkey/node_private.h"

bool fallback_only(const struct node *node)
{
    return node->config->fallback_tcp && !node->fabric->usable;
}

static void switch_to_tcp(struct node *node, const char *why)
{
    if (!node->over_tcp) {
        node->over_tcp = true;
        snprintf(node->tcp_why, sizeof(node->tcp_why), "%s", why);
        log_warn("valkey %s: values move over TCP ([valkey] fallback = tcp): %s", node->address->text, why);
    }
    node->rdma_at = uv_now(node->loop) + node->config->fallback_retry_ms;
}

bool fallback_is_due(const struct node *node)
{
    return node->over_tcp && !fallback_only(node) && uv_now(node->loop) >= node->rdma_at;
}

bool fallback_without_lane(struct node *node)
{
    if (fallback_only(node)) {
        switch_to_tcp(node, node->fabric->why);
        return true;
    }
    if (fallback_is_due(node)) {
        node->rdma_at = uv_now(node->loop) + node->config->fallback_retry_ms;
        return false;
    }
    return node->over_tcp;
}

bool fallback_after_refusal(struct node *node, const char *text)
{
    if (!node->config->fallback_tcp || !blob_is_without_fabric(text)) {
        return false;
    }
    switch_to_tcp(node, "the server has no fabric of its own (it refused BLOB.RDMA_HELLO); see its log");
    node->session_why[0] = '\0';
    return true;
}

static void give_up_idle(struct node *node)
{
    struct carrier *carrier, *next;

    for (carrier = TAILQ_FIRST(&node->idle); carrier != NULL; carrier = next) {
        next = TAILQ_NEXT(carrier, link);
        if (carrier->laneless) {
            carrier_dispose(carrier, NULL, NULL);
        }
    }
}

void fallback_ends(struct node *node)
{
    struct carrier *carrier;

    if (!node->over_tcp) {
        return;
    }
    node->over_tcp = false;
    log_notice("valkey %s: values move by RDMA again", node->address->text);
    TAILQ_FOREACH (carrier, &node->busy, link) {
        carrier->spent |= carrier->laneless; /* the end comes with that of its transfer */
    }
    give_up_idle(node);
}

void fallback_make_way(struct node *node)
{
    if (fallback_is_due(node)) {
        give_up_idle(node);
    }
}

void fallback_ask_again(struct node *node)
{
    node->rdma_at = 0;
}

const char *fallback_path(const struct node *node, const char **why)
{
    bool tcp = node->over_tcp || fallback_only(node);

    *why = node->over_tcp ? node->tcp_why : tcp ? node->fabric->why : "";
    return tcp ? "tcp" : "rdma";
}
