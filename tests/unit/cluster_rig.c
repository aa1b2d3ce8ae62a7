#include "tests/unit/cluster_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/redirect.h"

struct cluster_rig cluster;

static char seeds[NODES_MAX * 32];

/* Waits are for integration tests. */
unsigned __wrap_redirect_delay_ms(const struct redirect *redirect, unsigned attempts);
unsigned __wrap_redirect_delay_ms(const struct redirect *redirect, unsigned attempts)
{
    return cluster.resend_ms > 0 ? cluster.resend_ms : 1;
}

static unsigned node_of(const struct stub_peer *peer)
{
    const struct cluster_node *node = (const struct cluster_node *)((const char *)peer->stub -
                                                                    offsetof(struct cluster_node, stub));

    return (unsigned)(node - cluster.nodes);
}

const char *cluster_success(const redisReply *words)
{
    if (stub_is(words, "BLOB.RDMA_SET")) {
        return "+OK\r\n";
    }
    return stub_is(words, "BLOB.RDMA_GET") ? "*2\r\n:5\r\n:77\r\n" : ":1\r\n";
}

static unsigned port_of(const struct cluster_node *node)
{
    return (unsigned)atoi(strrchr(node->stub.address, ':') + 1);
}

/* --- the map --- */

static void say_map(struct stub_peer *peer)
{
    char ranges[NODES_MAX * 96] = "", text[NODES_MAX * 96 + 16];
    unsigned count = 0;

    for (unsigned i = 0; i < cluster.count; i++) {
        const struct cluster_node *node = &cluster.nodes[i];
        if (node->first > node->last) {
            continue;
        }
        snprintf(ranges + strlen(ranges), sizeof(ranges) - strlen(ranges),
                 "*3\r\n:%u\r\n:%u\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", node->first, node->last, port_of(node));
        count++;
    }
    snprintf(text, sizeof(text), "*%u\r\n%s", count, ranges);
    stub_say(peer, cluster.map != NULL ? cluster.map : text);
}

static void asked_for_map(struct stub_peer *peer)
{
    cluster.maps++;
    cluster.nodes[node_of(peer)].maps++;
    cluster.maps_open++;
    if (cluster.maps_open > cluster.maps_open_most) {
        cluster.maps_open_most = cluster.maps_open;
    }
    if (!cluster.map_is_held) {
        cluster.maps_open--;
        say_map(peer);
    }
}

/* --- commands --- */

static void note(unsigned node, const redisReply *words)
{
    size_t used = strlen(cluster.trace);
    const char *name = words->element[0]->str;

    name += strncmp(name, "BLOB.RDMA_", 10) == 0 ? 10 : 0;
    snprintf(cluster.trace + used, sizeof(cluster.trace) - used, "%s%u:%s%s%s", used > 0 ? " " : "", node, name,
             words->elements > 1 ? " " : "", words->elements > 1 ? words->element[1]->str : "");
}

static void script(struct stub_peer *peer, const redisReply *words)
{
    unsigned node = node_of(peer);
    const char *answer;

    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        rig.hello_twice += peer->commands > 1 ? 1 : 0;
        stub_say(peer, rig.hello);
    } else if (stub_is(words, "CLUSTER")) {
        asked_for_map(peer);
    } else if (stub_is(words, "ASKING")) {
        note(node, words);
        cluster.asked = peer;
        cluster.asked_reads = peer->reads;
        stub_say(peer, "+OK\r\n");
    } else {
        note(node, words);
        cluster.nodes[node].transfers++;
        carrying = peer;
        sent++;
        answer = cluster.answer != NULL ? cluster.answer(node, words) : cluster_success(words);
        if (answer != NULL) {
            stub_say(peer, answer);
        }
    }
}

const char *cluster_redirect(const char *word, const redisReply *words, unsigned target)
{
    static char text[64];
    const redisReply *key = words->element[1];

    snprintf(text, sizeof(text), "-%s %u 127.0.0.1:%u\r\n", word, slot_of_key(key->str, key->len),
             port_of(&cluster.nodes[target]));
    return text;
}

const char *cluster_key(unsigned node, unsigned number)
{
    static char keys[8][16];
    static unsigned next;
    char *key = keys[next++ % 8];
    unsigned first = SLOTS * node / cluster.count, end = SLOTS * (node + 1) / cluster.count;

    for (unsigned i = 0, found = 0;; i++) {
        snprintf(key, sizeof(keys[0]), "k%u", i);
        unsigned slot = slot_of_key(key, strlen(key));
        if (slot >= first && slot < end && found++ == number) {
            return key;
        }
    }
}

/* --- life --- */

void cluster_prepare(unsigned nodes, unsigned connections)
{
    start_rig(connections, NULL, 0);
    memset(&cluster, 0, sizeof(cluster));
    cluster.count = nodes;
    seeds[0] = '\0';
    for (unsigned i = 0; i < nodes; i++) {
        struct cluster_node *node = &cluster.nodes[i];
        stub_start(&node->stub, &rig.bench, NULL);
        node->stub.command = script;
        node->running = true;
        node->first = SLOTS * i / nodes;
        node->last = SLOTS * (i + 1) / nodes - 1;
        if (i < 2) {
            snprintf(seeds + strlen(seeds), sizeof(seeds) - strlen(seeds), "%s%s", i > 0 ? ", " : "",
                     node->stub.address);
        }
    }
    rig.config.address = NULL;
    rig.config.seeds = seeds;
}

void cluster_start(unsigned nodes, unsigned connections)
{
    cluster_prepare(nodes, connections);
    start_deployment();
}

void cluster_kill(unsigned node)
{
    cluster.nodes[node].running = false;
    stub_stop(&cluster.nodes[node].stub);
}

void cluster_revive(unsigned node)
{
    unsigned port = port_of(&cluster.nodes[node]);

    stub_start_at(&cluster.nodes[node].stub, &rig.bench, "127.0.0.1", port);
    cluster.nodes[node].stub.command = script;
    cluster.nodes[node].running = true;
}

void cluster_take_over(unsigned node, unsigned by)
{
    struct cluster_node *from = &cluster.nodes[node], *to = &cluster.nodes[by];

    if (to->first > to->last) {
        to->first = from->first;
        to->last = from->last;
    } else { /* neighbours */
        to->first = from->first < to->first ? from->first : to->first;
        to->last = from->last > to->last ? from->last : to->last;
    }
    from->first = 1;
    from->last = 0;
}

static unsigned open_connections(void)
{
    unsigned open = 0;

    for (unsigned i = 0; i < cluster.count; i++) {
        open += cluster.nodes[i].stub.open;
    }
    return open;
}

static void cluster_stopped(void *context, int status)
{
    rig.stopped++;
    rig.stop_status = status;
}

/* The deployment first, so that the servers see it go. */
void cluster_end(void)
{
    struct cluster_node *node;

    deployment_stop(rig.deployment, cluster_stopped, NULL);
    rig.deployment = NULL;
    WAIT(&rig.bench, rig.stopped == 1);
    WAIT(&rig.bench, open_connections() == 0);
    ck_assert_uint_eq(rig.hello_twice, 0);
    for (unsigned i = 0; i < cluster.count; i++) {
        node = &cluster.nodes[i];
        if (node->running) {
            stub_stop(&node->stub);
        }
    }
    end();
}

static bool has_map(void)
{
    const struct member *member = deployment_next(rig.deployment, NULL);

    for (; member != NULL; member = deployment_next(rig.deployment, member)) {
        if (member->in_map) {
            return true;
        }
    }
    return false;
}

void cluster_wait_map(void)
{
    WAIT(&rig.bench, has_map());
}

unsigned cluster_members(void)
{
    unsigned count = 0;
    const struct member *member = deployment_next(rig.deployment, NULL);

    for (; member != NULL; member = deployment_next(rig.deployment, member)) {
        count++;
    }
    return count;
}
