/*
 * The members of a deployment: who is one, who serves a slot, and when one may go.
 */
#include "daemon/valkey/deployment.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/deployment_private.h"
#include "daemon/valkey/seeds.h"

/* A server that sends from one address to the next makes no more members than this. */
#define MEMBERS_MAX (2 * TOPOLOGY_NODES)

/* Transfers that are refused together mean one failover. */
#define RESET_REST_MS 500

bool deployment_is_cluster(const struct deployment *deployment)
{
    return deployment->config->seeds != NULL;
}

unsigned deployment_slot(const struct deployment *deployment, const void *key, size_t length)
{
    return deployment_is_cluster(deployment) ? slot_of_key(key, length) : 0;
}

/* --- events of nodes --- */

static void on_idle(void *context)
{
    struct member *member = context;
    struct deployment *deployment = member->deployment;

    deployment->events->carrier_idle(deployment->context, member);
}

static void on_unavailable(void *context, int code, bool later, const char *why)
{
    struct member *member = context;
    struct deployment *deployment = member->deployment;

    map_doubt(deployment);
    deployment->events->unavailable(deployment->context, member, code, later, why);
}

static void on_changed(void *context, bool up)
{
    struct member *member = context;
    struct deployment *deployment = member->deployment;

    if (!deployment_is_cluster(deployment) || deployment->stopping || member->node == NULL) {
        return; /* the last: from inside node_start */
    }
    if (!up && member->in_map) {
        deployment->wanted = true; /* it may have been replaced */
    }
    map_pursue(deployment);
    if (!up && deployment->map == NULL) {
        map_await(deployment);
    }
}

static const struct node_events node_events = {
    .carrier_idle = on_idle,
    .unavailable = on_unavailable,
    .changed = on_changed,
};

/* --- members --- */

static void part_gone(struct deployment *deployment, int status)
{
    if (deployment->stop_status == 0) {
        deployment->stop_status = status;
    }
    if (!deployment->stopping || --deployment->parts > 0) {
        return;
    }
    void (*stopped)(void *, int) = deployment->stopped;
    void *context = deployment->stopped_context;
    int result = deployment->stop_status;
    free(deployment->map);
    free(deployment);
    stopped(context, result);
}

static void on_node_stopped(void *context, int status)
{
    struct member *member = context;
    struct deployment *deployment = member->deployment;

    TAILQ_REMOVE(&deployment->leaving, member, link);
    transport_address_free(&member->address);
    free(member);
    part_gone(deployment, status);
}

/* `kind`: of an address that says nothing of its transport. */
static struct member *add_member(struct deployment *deployment, const char *text, enum transport_kind kind)
{
    struct member *member;
    char why[TRANSPORT_WHY_BYTES];

    if (deployment->member_count == MEMBERS_MAX || (member = calloc(1, sizeof(*member))) == NULL) {
        return NULL;
    }
    if (transport_address_parse(text, &member->address, why) != 0) {
        log_error("valkey: %s", why);
        free(member);
        return NULL;
    }
    if (member->address.kind == TRANSPORT_UNSAID) {
        member->address.kind = kind;
    }
    if (member->address.port != NULL) {
        snprintf(member->endpoint.host, sizeof(member->endpoint.host), "%s", member->address.host);
        snprintf(member->endpoint.port, sizeof(member->endpoint.port), "%s", member->address.port);
    }
    member->deployment = deployment;
    member->number = deployment->next_number++;
    member->node = node_start(deployment->loop, deployment->workers, deployment->fabric, &deployment->places,
                              deployment->config, &member->address, &node_events, member);
    if (member->node == NULL) {
        transport_address_free(&member->address);
        free(member);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&deployment->members, member, link);
    deployment->member_count++;
    return member;
}

struct member *deployment_member_at(struct deployment *deployment, const struct topology_endpoint *endpoint)
{
    char text[TOPOLOGY_TEXT_BYTES];
    struct member *member;

    TAILQ_FOREACH (member, &deployment->members, link) {
        if (topology_endpoint_same(&member->endpoint, endpoint)) {
            return member;
        }
    }
    topology_endpoint_text(endpoint, text);
    return add_member(deployment, text, seeds_kind(deployment->config->seeds, endpoint));
}

void deployment_add_seeds(struct deployment *deployment)
{
    struct seed *seeds;
    char why[TRANSPORT_WHY_BYTES];
    size_t count;

    if (seeds_parse(deployment->config->seeds, &seeds, &count, why) != 0) {
        log_error("valkey: seeds: %s", why);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        deployment_member_at(deployment, &seeds[i].endpoint);
    }
    free(seeds);
}

static void remove_member(struct member *member)
{
    struct deployment *deployment = member->deployment;

    for (size_t i = 0; deployment->map != NULL && i < deployment->map->count; i++) {
        if (deployment->owners[i] == member) {
            deployment->owners[i] = NULL;
        }
    }
    TAILQ_REMOVE(&deployment->members, member, link);
    deployment->member_count--;
    TAILQ_INSERT_TAIL(&deployment->leaving, member, link);
    deployment->events->member_gone(deployment->context, member);
    node_stop(member->node, on_node_stopped, member);
}

void deployment_drop_unneeded(struct member *member)
{
    struct deployment *deployment = member->deployment;

    if (member->holds == 0 && !member->in_map && deployment->map != NULL && !deployment->stopping) {
        log_info("valkey %s serves no slots any more", member->address.text);
        remove_member(member);
    }
}

void deployment_hold(struct member *member)
{
    member->holds++;
}

void deployment_let_go(struct member *member)
{
    member->holds--;
    deployment_drop_unneeded(member);
}

/* --- who serves what --- */

/* Somebody to ask, where the map names nobody: he will say what is wrong. */
static struct member *anybody(struct deployment *deployment)
{
    struct member *member;

    TAILQ_FOREACH (member, &deployment->members, link) {
        if (member->in_map) {
            return member;
        }
    }
    return NULL;
}

struct member *deployment_member_of(struct deployment *deployment, unsigned slot)
{
    struct member *member;
    unsigned owner;

    if (!deployment_is_cluster(deployment)) {
        return TAILQ_FIRST(&deployment->members);
    }
    if (deployment->map == NULL) {
        map_await(deployment);
        map_use(deployment);
        return NULL;
    }
    if (uv_now(deployment->loop) - deployment->fresh_at >= MAP_AGE_MS) {
        deployment->wanted = true;
    }
    map_use(deployment);
    owner = deployment->map->owners[slot];
    member = owner < deployment->map->count ? deployment->owners[owner] : NULL;
    return member != NULL ? member : anybody(deployment);
}

/* Of a primary that the map knows. Others are entered when the map is answered anew: a server that sends from one
 * address to the next must not fill the map. */
static void move_slot(struct deployment *deployment, unsigned slot, struct member *member)
{
    struct topology *map = deployment->map;

    for (size_t i = 0; map != NULL && member->in_map && i < map->count; i++) {
        if (deployment->owners[i] == member) {
            topology_move(map, slot, &map->nodes[i].endpoint);
            return;
        }
    }
}

struct member *deployment_redirect(struct member *from, const struct redirect *redirect)
{
    struct deployment *deployment = from->deployment;
    struct topology_endpoint endpoint = redirect->endpoint;
    struct member *member = NULL;

    if (redirect->kind == REDIRECT_LATER || redirect->kind == REDIRECT_NONE) {
        return NULL;
    }
    if (!deployment_is_cluster(deployment)) {
        if (redirect->kind == REDIRECT_LOST && uv_now(deployment->loop) >= deployment->not_before) {
            deployment->not_before = uv_now(deployment->loop) + RESET_REST_MS;
            node_reset(from->node, "the server is no primary any more");
        }
        return NULL;
    }
    if (redirect->kind != REDIRECT_LOST) {
        if (redirect->same_host) {
            memcpy(endpoint.host, from->endpoint.host, sizeof(endpoint.host));
        }
        member = deployment_member_at(deployment, &endpoint);
    }
    if (redirect->kind == REDIRECT_MOVED && member != NULL) {
        move_slot(deployment, redirect->slot, member);
    }
    if (redirect->kind != REDIRECT_ASK) {
        map_doubt(deployment);
    }
    return member;
}

/* --- health --- */

bool deployment_usable(const struct deployment *deployment, char *why, size_t size)
{
    const struct member *member;

    why[0] = '\0';
    if (deployment_is_cluster(deployment) && deployment->map == NULL) {
        bool later;
        map_describe_lack(deployment, &later, why, size);
        return false;
    }
    TAILQ_FOREACH (member, &deployment->members, link) {
        struct node_health health;
        node_health(member->node, &health);
        if (strcmp(health.state, "up") == 0 && health.session_why[0] == '\0') {
            if (member->in_map) {
                why[0] = '\0';
                return true;
            }
        } else if (why[0] == '\0' && strcmp(health.state, "up") != 0) {
            snprintf(why, size, "the Valkey server %s is %s%s%s", health.address, health.state,
                     health.why[0] != '\0' ? ": " : "", health.why);
        } else if (why[0] == '\0') {
            snprintf(why, size, "%s", health.session_why);
        }
    }
    return false;
}

const char *deployment_path(const struct deployment *deployment, char *why, size_t size)
{
    const struct member *member;
    unsigned rdma = 0, tcp = 0;

    why[0] = '\0';
    TAILQ_FOREACH (member, &deployment->members, link) {
        struct node_health health;
        node_health(member->node, &health);
        if (!member->in_map) {
            continue;
        }
        if (health.path_why[0] == '\0') {
            rdma++;
        } else if (tcp++ == 0) {
            snprintf(why, size, "%s: values move over TCP: %s", health.address, health.path_why);
        }
    }
    return tcp == 0 ? "rdma" : rdma == 0 ? "tcp" : "mixed";
}

/* The one that is asked about limits: they are the same on all, or the operator's to know. */
static const struct member *spokesman(const struct deployment *deployment)
{
    const struct member *member;

    TAILQ_FOREACH (member, &deployment->members, link) {
        struct node_health health;
        node_health(member->node, &health);
        if (member->in_map && strcmp(health.state, "up") == 0) {
            return member;
        }
    }
    return TAILQ_FIRST(&deployment->members);
}

uint64_t deployment_value_bytes(const struct deployment *deployment)
{
    const struct member *member = spokesman(deployment);
    struct node_health health = {0};

    if (member != NULL) {
        node_health(member->node, &health);
    }
    return health.value_bytes;
}

void deployment_ask_limits(struct deployment *deployment)
{
    const struct member *member = spokesman(deployment);

    if (member != NULL) {
        node_ask_limits(member->node);
    }
}

const struct member *deployment_next(const struct deployment *deployment, const struct member *after)
{
    return after == NULL ? TAILQ_FIRST(&deployment->members) : TAILQ_NEXT(after, link);
}

const char *member_role(const struct member *member)
{
    return member->in_map ? "primary" : "none";
}

/* --- life --- */

struct deployment *deployment_start(uv_loop_t *loop, struct workers *workers, struct fabric *fabric,
                                    const struct valkey_config *config, const struct deployment_events *events,
                                    void *context)
{
    struct deployment *deployment = calloc(1, sizeof(*deployment));
    struct member *member = NULL;

    if (deployment == NULL) {
        return NULL;
    }
    deployment->loop = loop;
    deployment->workers = workers;
    deployment->fabric = fabric;
    deployment->config = config;
    deployment->events = events;
    deployment->context = context;
    deployment->next_number = 1;
    TAILQ_INIT(&deployment->members);
    TAILQ_INIT(&deployment->leaving);
    places_init(&deployment->places, fabric);
    if (deployment_is_cluster(deployment)) {
        deployment_add_seeds(deployment);
    } else if ((member = add_member(deployment, config->address, TRANSPORT_UNSAID)) != NULL) {
        member->in_map = true;
        member->slots = SLOTS;
    }
    if (TAILQ_EMPTY(&deployment->members)) {
        free(deployment);
        return NULL;
    }
    map_start(deployment);
    key_commands_init(&deployment->key_commands, loop);
    return deployment;
}

static void on_timer_closed(uv_handle_t *handle)
{
    part_gone(handle->data, 0);
}

static void on_key_timer_closed(uv_handle_t *handle)
{
    struct key_commands *commands = handle->data;

    part_gone((struct deployment *)((char *)commands - offsetof(struct deployment, key_commands)), 0);
}

void deployment_stop(struct deployment *deployment, void (*done)(void *context, int status), void *context)
{
    struct member *member;

    deployment->stopping = true;
    deployment->stopped = done;
    deployment->stopped_context = context;
    deployment->parts = 2; /* the timers */
    map_stop(deployment);
    key_commands_stop(&deployment->key_commands);
    uv_close((uv_handle_t *)&deployment->timer, on_timer_closed);
    uv_close((uv_handle_t *)&deployment->key_commands.timer, on_key_timer_closed);
    TAILQ_FOREACH (member, &deployment->leaving, link) {
        deployment->parts++;
    }
    while ((member = TAILQ_FIRST(&deployment->members)) != NULL) {
        deployment->parts++;
        remove_member(member);
    }
}

void deployment_reloaded(struct deployment *deployment)
{
    struct member *member;

    TAILQ_FOREACH (member, &deployment->members, link) {
        node_reloaded(member->node);
    }
}
