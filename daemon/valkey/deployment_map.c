/*
 * The map of a cluster: when it is asked for, whom, and what becomes of the answer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/deployment_private.h"
#include "proto/errors.h"

#define BACKOFF_BASE_MS 50
#define BACKOFF_LIMIT_MS 2000
#define REST_MS 100 /* between two answers, whatever happens */
#define ANSWER_MS 2000

static bool is_up(const struct member *member)
{
    struct node_health health;

    node_health(member->node, &health);
    return strcmp(health.state, "up") == 0;
}

/* In turn, so that one that answers nonsense is not asked again while another is there. */
static struct member *next_to_ask(struct deployment *deployment)
{
    struct member *member, *first = NULL;

    TAILQ_FOREACH (member, &deployment->members, link) {
        if (!is_up(member)) {
            continue;
        }
        if (member->number > deployment->asked_last) {
            return member;
        }
        first = first == NULL ? member : first;
    }
    return first;
}

static unsigned count_up(const struct deployment *deployment)
{
    const struct member *member;
    unsigned count = 0;

    TAILQ_FOREACH (member, &deployment->members, link) {
        count += is_up(member) ? 1 : 0;
    }
    return count;
}

static void failed(struct deployment *deployment, int code, bool later, const char *why)
{
    log_write(strcmp(deployment->why, why) != 0 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "no new map of the cluster: %s",
              why);
    deployment->failure = code;
    deployment->failure_passes = later;
    snprintf(deployment->why, sizeof(deployment->why), "%s", why);
    /* The others may know better: each is asked before there is a pause. */
    if (++deployment->asked_in_vain < count_up(deployment)) {
        return;
    }
    deployment->asked_in_vain = 0;
    deployment->not_before = uv_now(deployment->loop) + backoff_next(&deployment->backoff);
}

/* --- those who wait for a map --- */

bool map_is_coming(const struct deployment *deployment)
{
    const struct member *member;

    if (deployment->question != NULL) {
        return true;
    }
    TAILQ_FOREACH (member, &deployment->members, link) {
        struct node_health health;
        node_health(member->node, &health);
        if (strcmp(health.state, "connecting") == 0) {
            return true;
        }
    }
    return false;
}

int map_describe_lack(const struct deployment *deployment, bool *later, char *why, size_t size)
{
    const struct member *member;
    struct node_health health = {.address = "", .state = "down", .why = ""};

    *later = false;
    TAILQ_FOREACH (member, &deployment->members, link) {
        if (is_up(member)) {
            snprintf(why, size, "there is no map of the cluster%s%s",
                     deployment->why[0] != '\0' ? ": " : " yet", deployment->why);
            *later = deployment->why[0] != '\0' && deployment->failure_passes;
            return deployment->why[0] != '\0' ? deployment->failure : PROTO_ERR_SERVER_DOWN;
        }
    }
    member = TAILQ_FIRST(&deployment->members);
    if (member != NULL) {
        node_health(member->node, &health);
    }
    snprintf(why, size, "no node of the cluster can be reached: %s is %s%s%s", health.address, health.state,
             health.why[0] != '\0' ? ": " : "", health.why);
    return PROTO_ERR_SERVER_DOWN;
}

static void on_timer(uv_timer_t *timer);

static void tell_soon(struct deployment *deployment)
{
    if (deployment->map == NULL && !deployment->stopping && !map_is_coming(deployment)) {
        uv_timer_start(&deployment->timer, on_timer, 0, 0);
    }
}

static void tell_those_who_wait(struct deployment *deployment)
{
    char why[NODE_WHY_BYTES];
    bool later;
    int code;

    if (deployment->map != NULL || map_is_coming(deployment)) {
        return;
    }
    code = map_describe_lack(deployment, &later, why, sizeof(why));
    deployment->events->unavailable(deployment->context, NULL, code, later, why);
}

/* --- the answer --- */

static struct member *taken_over(struct deployment *deployment, const struct topology *map, size_t index,
                                 struct member *const *before)
{
    /* Nodes keep their order from one answer to the next, mostly. */
    struct member *member = deployment->map != NULL && index < deployment->map->count ? before[index] : NULL;

    if (member == NULL || !topology_endpoint_same(&member->endpoint, &map->nodes[index].endpoint)) {
        member = deployment_member_at(deployment, &map->nodes[index].endpoint);
    }
    return member;
}

static void take_map(struct deployment *deployment, struct topology *map)
{
    bool changed = deployment->map == NULL || !topology_same(deployment->map, map);
    struct member *before[TOPOLOGY_NODES], *member, *next;

    memcpy(before, deployment->owners, sizeof(before));
    TAILQ_FOREACH (member, &deployment->members, link) {
        member->in_map = false;
        member->slots = member->replicas = 0;
    }
    for (size_t i = 0; i < map->count; i++) {
        member = taken_over(deployment, map, i, before);
        deployment->owners[i] = member;
        if (member != NULL) {
            member->in_map = true;
            member->slots = map->nodes[i].slots;
            member->replicas = map->nodes[i].replicas;
        }
    }
    free(deployment->map);
    deployment->map = map;
    if (changed) {
        log_info("cluster: %zu primaries serve %u of %d slots", map->count, map->covered, SLOTS);
        deployment->events->map_changed(deployment->context);
    }
    for (member = TAILQ_FIRST(&deployment->members); member != NULL; member = next) {
        next = TAILQ_NEXT(member, link);
        deployment_drop_unneeded(member);
    }
}

static void answered(struct deployment *deployment, struct member *asked, const redisReply *reply)
{
    struct topology *map;
    char why[TOPOLOGY_WHY_BYTES], text[NODE_WHY_BYTES];
    int status = topology_parse(reply, &asked->endpoint, &map, why);

    if (status != 0) {
        bool single = strstr(why, "cluster support disabled") != NULL;
        snprintf(text, sizeof(text), "node %s: %s%s", asked->address.text, why,
                 single ? "; give its address as [valkey] address instead of seeds" : "");
        bool passes = status == -EREMOTEIO && redirect_passes(reply->str, reply->len);
        int code = passes ? PROTO_ERR_SERVER_DOWN : status == -ENOMEM ? PROTO_ERR_SYSTEM : PROTO_ERR_NOT_USABLE;
        failed(deployment, code, passes, text);
        return;
    }
    deployment->wanted = false;
    deployment->asked_in_vain = 0;
    deployment->why[0] = '\0';
    deployment->backoff.failures = 0;
    deployment->fresh_at = uv_now(deployment->loop);
    deployment->not_before = deployment->rest_until = deployment->fresh_at + REST_MS;
    take_map(deployment, map);
}

/* The question is over: whoever was asked is held no more. */
static void end_question(struct deployment *deployment)
{
    struct map_question *question = deployment->question;
    struct member *asked = question->asked;

    question->deployment = NULL;
    question->asked = NULL;
    deployment->question = NULL;
    uv_timer_stop(&deployment->timer);
    deployment_let_go(asked);
}

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct map_question *question = (struct map_question *)request;
    struct deployment *deployment = question->deployment;

    if (deployment != NULL) {
        struct member *asked = question->asked;
        deployment_hold(asked);
        end_question(deployment);
        answered(deployment, asked, reply);
        deployment_let_go(asked);
        map_pursue(deployment);
        tell_soon(deployment);
    }
    free(question);
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct map_question *question = (struct map_question *)request;
    struct deployment *deployment = question->deployment;

    if (deployment != NULL) {
        char text[NODE_WHY_BYTES];
        snprintf(text, sizeof(text), "node %s: %s", question->asked->address.text, why);
        failed(deployment, PROTO_ERR_SERVER_DOWN, false, text);
        end_question(deployment);
        map_pursue(deployment);
        tell_soon(deployment);
    }
    free(question);
}

static void on_timer(uv_timer_t *timer)
{
    struct deployment *deployment = timer->data;

    if (deployment->question == NULL) {
        map_pursue(deployment);
        tell_those_who_wait(deployment);
        return;
    }
    char why[NODE_WHY_BYTES];
    snprintf(why, sizeof(why), "node %s did not answer CLUSTER SLOTS within %d ms",
             deployment->question->asked->address.text, ANSWER_MS);
    failed(deployment, PROTO_ERR_SERVER_DOWN, false, why);
    end_question(deployment);
    map_pursue(deployment);
    tell_those_who_wait(deployment);
}

/* --- asking --- */

static int ask(struct deployment *deployment, struct member *member)
{
    static const char *argv[] = {"CLUSTER", "SLOTS"};
    static const size_t lengths[] = {7, 5};
    struct map_question *question = calloc(1, sizeof(*question));
    int status = -ENOMEM;

    if (question != NULL) {
        question->deployment = deployment;
        question->asked = member;
        question->request.large = true;
        question->request.reply = on_reply;
        question->request.lost = on_lost;
        status = node_command(member->node, &question->request, 2, argv, lengths);
    }
    if (status != 0) {
        free(question);
        return status;
    }
    deployment_hold(member);
    deployment->question = question;
    deployment->asked_last = member->number;
    uv_timer_start(&deployment->timer, on_timer, ANSWER_MS, 0);
    return 0;
}

void map_pursue(struct deployment *deployment)
{
    struct member *member;

    uint64_t now = uv_now(deployment->loop);

    if (!deployment->wanted || deployment->question != NULL || deployment->stopping) {
        return;
    }
    if (now < deployment->not_before) {
        /* A rest ends by itself; after a failure the next use asks again, so that nothing goes on for nobody. */
        if (deployment->not_before == deployment->rest_until && deployment->map != NULL) {
            uv_timer_start(&deployment->timer, on_timer, deployment->not_before - now, 0);
        }
        return;
    }
    member = next_to_ask(deployment);
    if (member == NULL) {
        deployment_add_seeds(deployment); /* none of those that the map names is there */
    } else if (ask(deployment, member) != 0) {
        failed(deployment, PROTO_ERR_SYSTEM, false, "the question could not be sent");
    }
}

void map_doubt(struct deployment *deployment)
{
    if (deployment_is_cluster(deployment)) {
        deployment->wanted = true;
        map_pursue(deployment);
    }
}

/* Nobody is there: whoever uses the deployment need not wait for the pauses between attempts to connect. */
static void wake_all(struct deployment *deployment)
{
    struct member *member;

    TAILQ_FOREACH (member, &deployment->members, link) {
        node_wake(member->node);
    }
}

void map_use(struct deployment *deployment)
{
    map_pursue(deployment);
    if (deployment->wanted && deployment->question == NULL && next_to_ask(deployment) == NULL) {
        wake_all(deployment);
    }
}

void map_await(struct deployment *deployment)
{
    map_doubt(deployment);
    tell_soon(deployment);
}

void map_start(struct deployment *deployment)
{
    uv_timer_init(deployment->loop, &deployment->timer);
    deployment->timer.data = deployment;
    backoff_init(&deployment->backoff, BACKOFF_BASE_MS, BACKOFF_LIMIT_MS);
    deployment->wanted = deployment_is_cluster(deployment);
}

void map_stop(struct deployment *deployment)
{
    if (deployment->question != NULL) {
        end_question(deployment);
    }
}
