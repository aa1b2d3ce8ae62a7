/*
 * The pool of carriers: when one is made, when one is handed out, and when those who wait are told that there is none.
 */
#include "daemon/valkey/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/node_private.h"
#include "daemon/valkey/probe.h"
#include "daemon/valkey/renewal.h"
#include "proto/errors.h"

#define BACKOFF_BASE_MS 50
#define BACKOFF_LIMIT_MS 2000

unsigned node_carriers(const struct node *node)
{
    return node->making_count + node->idle_count + node->busy_count;
}

static struct carrier_list *list_of(struct node *node, enum carrier_state state, unsigned **count)
{
    switch (state) {
    case CARRIER_IDLE:
        *count = &node->idle_count;
        return &node->idle;
    case CARRIER_BUSY:
        *count = &node->busy_count;
        return &node->busy;
    case CARRIER_DYING:
        *count = &node->dying_count;
        return &node->dying;
    default:
        *count = &node->making_count;
        return &node->making;
    }
}

/* Whether a carrier is certain to serve one of `nics`. */
static bool serves(const struct carrier *carrier, uint32_t nics)
{
    unsigned count = carrier->node->fabric->nic_count;
    uint32_t all = count < 32 ? (UINT32_C(1) << count) - 1 : UINT32_MAX;

    return (carrier->nics & all & ~nics) == 0;
}

/* To the head: that which was used last is handed out first, its connection and lane being warm. */
void node_move(struct carrier *carrier, enum carrier_state state)
{
    struct node *node = carrier->node;
    unsigned *count;
    struct carrier_list *list = list_of(node, carrier->state, &count);

    if (carrier->state == CARRIER_IDLE && !carrier->laneless) {
        places_not_idle(carrier);
    }
    TAILQ_REMOVE(list, carrier, link);
    --*count;
    carrier->state = state;
    if (state == CARRIER_IDLE) {
        if (!carrier->laneless) {
            places_idle(carrier);
        }
        if (serves(carrier, node->nics)) {
            places_leave(node); /* whoever waits takes it, or asks for another */
        }
    }
    list = list_of(node, state, &count);
    TAILQ_INSERT_HEAD(list, carrier, link);
    ++*count;
}

/* --- making carriers --- */

static void remember(struct node *node, int code, bool later, const char *why)
{
    node->failure = code;
    node->failure_passes = later;
    snprintf(node->why, sizeof(node->why), "%s", why);
}

void node_attempt_failed(struct node *node, int code, bool later, const char *why, bool session)
{
    enum log_level level = node_carriers(node) > 0 ? LOG_LEVEL_INFO : LOG_LEVEL_WARN;

    log_write(strcmp(node->why, why) != 0 ? level : LOG_LEVEL_DEBUG, "valkey %s: no connection for transfers: %s",
              node->address->text, why);
    remember(node, code, later, why);
    if (session) {
        snprintf(node->session_why, sizeof(node->session_why), "%s", why);
    }
    /* Several that were begun together and fail together are one failure. */
    if (uv_now(node->loop) >= node->retry_at) {
        node->retry_at = uv_now(node->loop) + backoff_next(&node->backoff);
    }
}

/* Whoever waits takes it; else another node may have its place. */
static void tell_idle(struct node *node)
{
    struct places *places = node->places; /* the node may be stopped by the callback */

    node->events->carrier_idle(node->context);
    places_evict(places);
}

void node_carrier_made(struct node *node)
{
    node->backoff.failures = 0;
    node->retry_at = 0;
    node->session_why[0] = '\0';
    node->why[0] = '\0';
    tell_idle(node);
}

static bool may_try(struct node *node)
{
    if (!node->fabric->usable && !fallback_only(node)) {
        remember(node, PROTO_ERR_NOT_USABLE, false, node->fabric->why);
        return false;
    }
    return uv_now(node->loop) >= node->retry_at;
}

static struct carrier *first_that_serves(const struct carrier_list *list, uint32_t nics)
{
    struct carrier *carrier;

    TAILQ_FOREACH (carrier, list, link) {
        if (serves(carrier, nics)) {
            break;
        }
    }
    return carrier;
}

/* Whether one will come by itself that serves the first who waits. */
static bool one_comes(const struct node *node)
{
    return first_that_serves(&node->making, node->nics) != NULL || first_that_serves(&node->busy, node->nics) != NULL;
}

/* Whether anything is left to wait for. */
static bool at_work(struct node *node)
{
    return node->making_count + node->busy_count > 0 || first_that_serves(&node->idle, node->nics) != NULL;
}

uint32_t node_wish(const struct node *node)
{
    return one_comes(node) ? LANE_ANY_NIC : node->nics;
}

/* Makes carriers until `wanted` are being made, as far as pool, backoff and places for lanes allow. */
static void grow(struct node *node, unsigned wanted, bool wait)
{
    while (!node->stopping && node->making_count < wanted && node_carriers(node) < node->config->connections &&
           may_try(node)) {
        uint32_t nics = node_wish(node);
        bool laneless = fallback_without_lane(node);
        if (!laneless && !places_take(node, nics, wait)) {
            break;
        }
        if (carrier_begin(node, nics, laneless) != 0) {
            if (!laneless) {
                places_give(node->places, false);
            }
            break;
        }
    }
}

static void on_notify(uv_timer_t *timer)
{
    struct node *node = timer->data;

    if (node->waiting == 0 || at_work(node) || node->wants_place) {
        return;
    }
    node->waiting = 0; /* all are told */
    node->events->unavailable(node->context, node->failure, node->failure_passes, node->why);
}

/* Gives up the one that was idle for longest, on a NIC that the first who waits has no use for. */
static void make_room(struct node *node)
{
    if (node_carriers(node) >= node->config->connections && node->idle_count > 0 && !one_comes(node) && may_try(node)) {
        carrier_dispose(TAILQ_LAST(&node->idle, carrier_list), NULL, NULL);
    }
}

void node_settle(struct node *node)
{
    if (node->stopping) {
        return;
    }
    if (node->waiting == 0) {
        return;
    }
    if (first_that_serves(&node->idle, node->nics) == NULL) {
        make_room(node);
        grow(node, node->waiting, true);
    }
    if (!at_work(node) && !node->wants_place) {
        uv_timer_start(&node->notify, on_notify, 0, 0);
    }
}

void node_warm(struct node *node)
{
    if (node_carriers(node) < node->config->connections) {
        grow(node, node->config->connections - node->idle_count - node->busy_count, false);
    }
}

/* --- handing them out --- */

struct carrier *node_take_idle(struct node *node, uint32_t nics)
{
    struct carrier *carrier = node->stopping ? NULL : first_that_serves(&node->idle, nics);

    if (carrier != NULL) {
        node_move(carrier, CARRIER_BUSY);
        node->waiting -= node->waiting > 0 ? 1 : 0;
        if (node->waiting == 0) {
            places_leave(node);
        }
    }
    return carrier;
}

bool node_has_idle(const struct node *node)
{
    return node->idle_count > 0;
}

unsigned node_capacity(const struct node *node)
{
    const struct fabric *fabric = node->fabric;
    uint64_t lanes = (uint64_t)fabric->config->lanes_max * fabric->nic_count;

    if (node->over_tcp || fallback_only(node)) {
        return node->config->connections;
    }
    return node->config->connections < lanes ? node->config->connections : (unsigned)lanes;
}

unsigned node_free(const struct node *node)
{
    unsigned capacity = node_capacity(node);

    return capacity > node->busy_count ? capacity - node->busy_count : 0;
}

struct carrier *node_acquire(struct node *node, uint32_t nics, unsigned waiting)
{
    struct carrier *carrier;

    if (node->stopping) {
        return NULL;
    }
    node->waiting = waiting;
    node->nics = nics;
    probe_if_due(node);
    fallback_make_way(node);
    carrier = node_take_idle(node, nics);
    if (carrier != NULL) {
        return carrier;
    }
    node_settle(node);
    return NULL;
}

void carrier_release(struct carrier *carrier)
{
    struct node *node = carrier->node;

    if (carrier->tainted || carrier->request != NULL) {
        /* The memory is lost to us already, but the carrier must not serve another transfer. */
        log_error("valkey %s, %s: released with a transfer that may still run", node->address->text, carrier->name);
        carrier_revoke(carrier, NULL, NULL);
        return;
    }
    /* One that fails just now tells its last requests before `closed`. */
    if (carrier->resp == NULL || !resp_is_ready(carrier->resp) || carrier->spent) {
        log_info("valkey %s, %s: %s", node->address->text, carrier->name,
                 carrier->spent ? "given up, a new session is needed" : "the connection ended");
        carrier_dispose(carrier, NULL, NULL);
        node_settle(node);
        return;
    }
    if (carrier->laneless && fallback_is_due(node)) {
        carrier_dispose(carrier, NULL, NULL);
        node_settle(node);
        return;
    }
    if (!carrier->laneless && places_claim(carrier)) {
        log_info("valkey %s, %s: gives its lane to another node", node->address->text, carrier->name);
        carrier_dispose(carrier, NULL, NULL);
        node_settle(node);
        return;
    }
    node_move(carrier, CARRIER_IDLE);
    if (!node->stopping) {
        tell_idle(node);
    }
}

void node_reset(struct node *node, const char *why)
{
    struct carrier *carrier;

    log_notice("valkey %s: connecting anew: %s", node->address->text, why);
    TAILQ_FOREACH (carrier, &node->busy, link) {
        carrier->spent = true;
    }
    while ((carrier = TAILQ_FIRST(&node->idle)) != NULL) {
        carrier_dispose(carrier, NULL, NULL);
    }
    control_replace(node, why);
    node_settle(node);
}

void carrier_revoke(struct carrier *carrier, void (*done)(void *context, int status), void *context)
{
    struct node *node = carrier->node;

    node->revocations++;
    carrier_dispose(carrier, done, context);
    node_settle(node);
}

void node_health(const struct node *node, struct node_health *health)
{
    static const char *const states[] = {
        [CONTROL_CONNECTING] = "connecting", [CONTROL_UP] = "up", [CONTROL_DOWN] = "down"};

    *health = (struct node_health){
        .address = node->address->text,
        .state = states[node->control.state],
        .why = node->control.state == CONTROL_UP ? "" : node->control.why,
        .put_off = node->control.state == CONTROL_DOWN && node->control.put_off,
        .login_refused = node->control.state == CONTROL_DOWN && node->control.login_refused,
        .transport = node->control.resp != NULL ? resp_transport(node->control.resp) : dial_transport(&node->dial),
        .transport_why = node->dial.on_tcp ? node->dial.why : "",
        .rdma_address = node->dial.rdma.text != NULL ? node->dial.rdma.text : "",
        .rdma_auth_in_clear = node->dial.rdma.text != NULL && node->config->password_file != NULL,
        .carriers = node->idle_count + node->busy_count,
        .carriers_busy = node->busy_count,
        .reconnects = node->control.reconnects,
        .revocations = node->revocations,
        .value_bytes = node->control.value_bytes,
        .session_why = node->session_why,
    };
    health->path = fallback_path(node, &health->path_why);
}

/* --- life --- */

struct node *node_start(uv_loop_t *loop, struct workers *workers, struct fabric *fabric, struct places *places,
                        const struct valkey_config *config, const struct transport_address *address,
                        const struct node_events *events, void *context)
{
    struct node *node = calloc(1, sizeof(*node));

    if (node == NULL) {
        return NULL;
    }
    node->offload = offload_create(workers);
    if (node->offload == NULL || dial_init(&node->dial, config, address) != 0 || probe_init(node, config, address) != 0) {
        if (node->offload != NULL) {
            offload_unref(node->offload);
        }
        dial_end(&node->dial);
        free(node);
        return NULL;
    }
    node->loop = loop;
    node->workers = workers;
    node->fabric = fabric;
    node->places = places;
    node->config = config;
    node->address = address;
    node->events = events;
    node->nics = LANE_ANY_NIC;
    node->context = context;
    TAILQ_INIT(&node->making);
    TAILQ_INIT(&node->idle);
    TAILQ_INIT(&node->busy);
    TAILQ_INIT(&node->dying);
    backoff_init(&node->backoff, BACKOFF_BASE_MS, BACKOFF_LIMIT_MS);
    uv_timer_init(loop, &node->notify);
    node->notify.data = node;
    renewal_start(node);
    control_start(node);
    return node;
}

void node_part_gone(struct node *node, int status)
{
    if (!node->stopping) {
        return;
    }
    if (node->stop_status == 0) {
        node->stop_status = status;
    }
    if (node->handles > 0 || !TAILQ_EMPTY(&node->dying) || node_carriers(node) > 0) {
        return;
    }
    offload_unref(node->offload);
    dial_end(&node->dial);
    probe_end(node);
    void (*stopped)(void *, int) = node->stopped;
    void *context = node->stopped_context;
    int result = node->stop_status;
    free(node);
    stopped(context, result);
}

static void on_notify_closed(uv_handle_t *handle)
{
    struct node *node = handle->data;

    node->handles--;
    node_part_gone(node, 0);
}

static void dispose_all(struct carrier_list *list)
{
    struct carrier *carrier;

    while ((carrier = TAILQ_FIRST(list)) != NULL) {
        carrier_dispose(carrier, NULL, NULL);
    }
}

void node_stop(struct node *node, void (*done)(void *context, int status), void *context)
{
    node->stopping = true;
    node->stopped = done;
    node->stopped_context = context;
    node->handles++; /* holds the node until its timers are closed, so that `done` is never called from inside */
    uv_close((uv_handle_t *)&node->notify, on_notify_closed);
    renewal_stop(node);
    places_leave(node);
    probe_stop(node);
    control_stop(node);
    dispose_all(&node->making);
    dispose_all(&node->idle);
    dispose_all(&node->busy);
}

void node_reloaded(struct node *node)
{
    renewal_now(node);
    if (node->dial.on_tcp && !node->config->rdma_fallback) {
        dial_ask_again(&node->dial);
        node_reset(node, "rdma_fallback = tcp does not hold any more");
    }
}
