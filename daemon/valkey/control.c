/*
 * The control connection of a node: kept up in the background, for the commands that no transfer may block.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/node_private.h"
#include "daemon/valkey/probe.h"
#include "daemon/valkey/renewal.h"
#include "proto/limits.h"

#define BACKOFF_BASE_MS 50
#define BACKOFF_LIMIT_MS 5000
#define RETRY_AT_ONCE_MS 250 /* a command that comes this long after the last failure need not wait for the timer */
#define REPLACED_MS 1000     /* longest wait for answers on a connection that is to be replaced */
#define STABLE_MS 5000       /* a connection that lasted is a success; one that is dropped at once is another failure */

static void try_connect(struct node *node);

static void on_timer(uv_timer_t *timer)
{
    try_connect(timer->data);
}

/* The operator hears of a loss and of each new reason, but not of every attempt. */
static void log_down(const struct node *node, const char *why)
{
    const struct control *control = &node->control;
    enum log_level level = LOG_LEVEL_DEBUG;

    if (control->state == CONTROL_UP || strcmp(control->why, why) != 0) {
        level = LOG_LEVEL_WARN;
    }
    struct log_fields fields = {.event = LOG_EVENT_NODE_DOWN, .node = node->address->text};
    log_about(&fields, level, "valkey %s is down: %s", node->address->text, why);
}

static void tell(struct node *node, bool up)
{
    if (node->events->changed != NULL && !node->stopping) {
        node->events->changed(node->context, up);
    }
}

static void go_down(struct node *node, const char *why)
{
    struct control *control = &node->control;

    if (control->state == CONTROL_UP && uv_now(node->loop) - control->up_since >= STABLE_MS) {
        control->backoff.failures = 0;
    }
    log_down(node, why);
    control->state = CONTROL_DOWN;
    dial_ask_again(&node->dial);
    control->down_since = uv_now(node->loop);
    snprintf(control->why, sizeof(control->why), "%s", why);
    uv_timer_start(&control->timer, on_timer, backoff_next(&control->backoff), 0);
    tell(node, false);
}

static void on_ready(void *context)
{
    struct node *node = context;
    struct control *control = &node->control;

    control->state = CONTROL_UP;
    fallback_ask_again(node);
    control->up_since = uv_now(node->loop);
    control->reconnects += control->was_up ? 1 : 0;
    struct log_fields fields = {.event = LOG_EVENT_NODE_UP, .node = node->address->text};
    log_about(&fields, control->was_up ? LOG_LEVEL_NOTICE : LOG_LEVEL_INFO, "valkey %s is up", node->address->text);
    control->was_up = true;
    renewal_note(node);
    if (node->config->warm) {
        node_warm(node);
    }
    tell(node, true);
}

static void on_closed(void *context, bool auth, const char *why)
{
    struct node *node = context;
    struct control *control = &node->control;
    struct resp_connection *resp = control->resp;
    bool replaced = control->replaced;
    char reason[TRANSPORT_WHY_BYTES]; /* `why` is the connection's */

    snprintf(reason, sizeof(reason), "%s", why);
    control->put_off = resp_was_put_off(resp);
    control->login_refused = auth && control->state == CONTROL_CONNECTING;
    control->resp = NULL;
    control->replaced = false;
    resp_close(resp);
    go_down(node, reason);
    if (replaced && !node->stopping) {
        try_connect(node); /* nothing has failed that a pause would be for */
    }
}

/* TCP acknowledges for a server that hangs: no end of the connection tells of it. */
static void on_answers_late(uv_timer_t *timer)
{
    struct node *node = timer->data;
    struct control *control = &node->control;
    uint64_t limit = node->config->command_timeout_ms, now = uv_now(node->loop), since = now;

    if (control->resp == NULL || resp_pending(control->resp) == 0 || limit == 0) {
        return;
    }
    if (control->state == CONTROL_UP) { /* else connecting has limits of its own */
        since = resp_waits_since(control->resp);
        since = since > control->up_since ? since : control->up_since;
    }
    if (since + limit > now) {
        uv_timer_start(timer, on_answers_late, since + limit - now, 0);
        return;
    }
    resp_abandon(control->resp, "the server answered no command within [valkey] command_timeout_ms = %u ms",
                 node->config->command_timeout_ms);
}

static void on_waits(void *context, bool any)
{
    struct node *node = context;

    if (!any) {
        uv_timer_stop(&node->control.answers);
    } else if (!node->stopping && node->config->command_timeout_ms > 0) {
        uv_timer_start(&node->control.answers, on_answers_late, node->config->command_timeout_ms, 0);
    }
}

static const struct resp_events control_events = {
    .ready = on_ready,
    .closed = on_closed,
    .waits = on_waits,
};

static void try_connect(struct node *node)
{
    struct control *control = &node->control;
    char why[TRANSPORT_WHY_BYTES];

    uv_timer_stop(&control->timer);
    if (resp_open(node->loop, node->offload, node->config, &node->dial, &control_events, node, &control->resp,
                  why) != 0) {
        go_down(node, why);
        return;
    }
    control->state = CONTROL_CONNECTING;
}

void control_start(struct node *node)
{
    struct control *control = &node->control;

    uv_timer_init(node->loop, &control->timer);
    control->timer.data = node;
    uv_timer_init(node->loop, &control->answers);
    control->answers.data = node;
    backoff_init(&control->backoff, BACKOFF_BASE_MS, BACKOFF_LIMIT_MS);
    try_connect(node);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct node *node = handle->data;

    node->handles--;
    node_part_gone(node, 0);
}

void control_stop(struct node *node)
{
    struct control *control = &node->control;
    struct resp_connection *resp = control->resp;

    node->handles += 2;
    uv_close((uv_handle_t *)&control->timer, on_timer_closed);
    uv_close((uv_handle_t *)&control->answers, on_timer_closed);
    control->state = CONTROL_DOWN;
    control->resp = NULL;
    if (resp != NULL) {
        resp_close(resp);
    }
}

/* A server that does not answer what it got before. */
static void on_replaced_late(uv_timer_t *timer)
{
    on_closed(timer->data, false, "commands were not answered before the connection was replaced");
}

void control_replace(struct node *node, const char *why)
{
    struct control *control = &node->control;

    if (control->state != CONTROL_UP || control->replaced) {
        return; /* it is being made anew already */
    }
    control->replaced = true;
    uv_timer_start(&control->timer, on_replaced_late, REPLACED_MS, 0);
    resp_leave(control->resp, "%s", why);
}

void node_wake(struct node *node)
{
    struct control *control = &node->control;

    if (control->state == CONTROL_DOWN && !node->stopping &&
        uv_now(node->loop) - control->down_since > RETRY_AT_ONCE_MS) {
        try_connect(node);
    }
}

/* 0: the connection takes a command. -EAGAIN: the next one will. */
static int can_command(struct node *node)
{
    struct control *control = &node->control;

    node_wake(node);
    probe_if_due(node);
    if (control->resp == NULL) {
        return -ENOTCONN;
    }
    if (control->state == CONTROL_UP && !resp_is_ready(control->resp)) {
        return -EAGAIN;
    }
    return resp_pending(control->resp) >= NODE_COMMANDS ? -ENOBUFS : 0;
}

int node_command(struct node *node, struct resp_request *request, int argc, const char **argv, const size_t *lengths)
{
    int status = can_command(node);

    return status == 0 ? resp_send(node->control.resp, request, argc, argv, lengths) : status;
}

int node_command_asking(struct node *node, struct resp_asking *asking, struct resp_request *request, int argc,
                        const char **argv, const size_t *lengths)
{
    int status = can_command(node);

    return status == 0 ? resp_send_asking(node->control.resp, asking, request, argc, argv, lengths) : status;
}

/* --- the server's largest value --- */

static struct node *of_limits(struct resp_request *request)
{
    return (struct node *)((char *)request - offsetof(struct node, control.limits));
}

/* Cut to what a message can say; 0 for what is no number. */
static uint64_t read_bytes(const redisReply *reply)
{
    const redisReply *value;
    unsigned long long bytes;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[1]->type != REDIS_REPLY_STRING) {
        return 0;
    }
    value = reply->element[1];
    if (value->len == 0 || strspn(value->str, "0123456789") != value->len) {
        return 0;
    }
    bytes = strtoull(value->str, NULL, 10); /* the largest there is when it is beyond */
    return bytes < PROTO_SIZE_MAX ? bytes : PROTO_SIZE_MAX;
}

static void on_limits(struct resp_request *request, const redisReply *reply)
{
    struct control *control = &of_limits(request)->control;

    control->asking = false;
    control->value_bytes = read_bytes(reply);
}

static void on_limits_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    of_limits(request)->control.asking = false;
}

void node_ask_limits(struct node *node)
{
    static const char *argv[] = {"CONFIG", "GET", "largeobj.max-object-size"};
    struct control *control = &node->control;
    size_t lengths[] = {strlen(argv[0]), strlen(argv[1]), strlen(argv[2])};

    if (control->asking || control->state != CONTROL_UP) {
        return;
    }
    control->limits.reply = on_limits;
    control->limits.lost = on_limits_lost;
    control->asking = node_command(node, &control->limits, 3, argv, lengths) == 0;
}
