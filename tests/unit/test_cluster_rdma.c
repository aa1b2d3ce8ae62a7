/*
 * A cluster whose nodes are reached over RDMA: its map, MOVED and ASK name them by address and port of TCP, and the
 * daemon finds their RDMA listeners by its own rules; some nodes over RDMA and others over TCP.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/reach.h"
#include "tests/unit/cluster_rig.h"
#include "tests/unit/rdma_stand_in.h"
#include "tests/unit/unit_main.h"

static unsigned port(unsigned node)
{
    return (unsigned)atoi(strrchr(cluster.nodes[node].stub.address, ':') + 1);
}

static void rules(bool rdma, const char *nodes)
{
    char why[TRANSPORT_WHY_BYTES];

    rdma_stand_in.does = RDMA_WORKS;
    ck_assert_msg(reach_create(rdma, 0, nodes, &rig.config.reach, why) == 0, "%s", why);
}

static void finish(void)
{
    cluster_end();
    free(rig.config.reach);
}

/* The member at a node of the rig is up, over `transport`; `at`: the host of its RDMA listener, or NULL. */
static void expect(unsigned node, const char *transport, const char *at)
{
    const struct member *member = deployment_next(rig.deployment, NULL);
    struct node_health health;
    char wanted[64] = "";

    while (member != NULL && strcmp(member->address.text, cluster.nodes[node].stub.address) != 0) {
        member = deployment_next(rig.deployment, member);
    }
    ck_assert_ptr_nonnull(member);
    WAIT(&rig.bench, (node_health(member->node, &health), strcmp(health.state, "up") == 0));
    ck_assert_str_eq(health.transport, transport);
    if (at != NULL) {
        snprintf(wanted, sizeof(wanted), "rdma://%s:%u", at, port(node));
    }
    ck_assert_str_eq(health.rdma_address, wanted);
}

static void store(const char *key, unsigned attempts)
{
    struct probe *probe = submit(0, TRANSFER_SET, key, 0);

    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_msg(probe->outcome == OUTCOME_DONE, "%s", probe->text);
    ck_assert_uint_eq(probe->attempts, attempts);
}

START_TEST(nodes_of_the_map_are_found_by_the_rules)
{
    cluster_prepare(3, 2);
    rules(true, "127.0.0.1=192.0.2.9");
    start_deployment();
    cluster_wait_map();
    for (unsigned i = 0; i < 3; i++) {
        store(cluster_key(i, 0), 1);
        expect(i, "rdma", "192.0.2.9");
    }
    finish();
}
END_TEST

static const char *redirection;

static const char *redirected(unsigned node, const redisReply *words)
{
    return node == 0 ? cluster_redirect(redirection, words, 2) : cluster_success(words);
}

/* To a node that is in no map. */
static void follow(const char *word)
{
    char expected[32];

    cluster_prepare(3, 2);
    rules(true, "127.0.0.1=192.0.2.9");
    cluster_take_over(2, 1);
    redirection = word;
    cluster.answer = redirected;
    start_deployment();
    cluster_wait_map();
    store(cluster_key(0, 0), 2);
    snprintf(expected, sizeof(expected), "rdma://192.0.2.9:%u", port(2));
    ck_assert_str_eq(rdma_stand_in.address, expected);
    ck_assert_uint_eq(cluster.nodes[2].transfers, 1);
    finish();
}

START_TEST(a_node_that_moved_names_is_found_by_the_rules)
{
    follow("MOVED");
}
END_TEST

START_TEST(a_node_that_ask_names_is_found_by_the_rules)
{
    follow("ASK");
}
END_TEST

START_TEST(some_nodes_over_rdma_and_others_over_tcp)
{
    char nodes[64];

    cluster_prepare(3, 2);
    snprintf(nodes, sizeof(nodes), "127.0.0.1:%u=192.0.2.1, 127.0.0.1:%u", port(0), port(1));
    rules(false, nodes);
    start_deployment();
    cluster_wait_map();
    expect(0, "rdma", "192.0.2.1");
    expect(1, "rdma", "127.0.0.1");
    expect(2, "tcp", NULL);
    finish();
    cluster_prepare(3, 2);
    snprintf(nodes, sizeof(nodes), "127.0.0.1:%u=tcp", port(2));
    rules(true, nodes);
    start_deployment();
    cluster_wait_map();
    expect(0, "rdma", "127.0.0.1");
    expect(1, "rdma", "127.0.0.1");
    expect(2, "tcp", NULL);
    finish();
}
END_TEST

/* What a seed says holds for the node that the map names so; it stays the same member. */
START_TEST(a_seed_says_its_transport)
{
    static char seeds[300];

    cluster_prepare(3, 2);
    snprintf(seeds, sizeof(seeds), "rdma://%s, %s", cluster.nodes[0].stub.address, cluster.nodes[1].stub.address);
    rig.config.seeds = seeds;
    rules(false, NULL);
    start_deployment();
    cluster_wait_map();
    expect(0, "rdma", "127.0.0.1");
    expect(1, "tcp", NULL);
    expect(2, "tcp", NULL);
    ck_assert_uint_eq(cluster_members(), 3);
    finish();
    cluster_prepare(3, 2);
    snprintf(seeds, sizeof(seeds), "tcp://%s", cluster.nodes[0].stub.address);
    rig.config.seeds = seeds;
    rules(true, NULL);
    start_deployment();
    cluster_wait_map();
    expect(0, "tcp", NULL);
    expect(1, "rdma", "127.0.0.1");
    finish();
}
END_TEST

UNIT_MAIN("cluster_rdma", nodes_of_the_map_are_found_by_the_rules, a_node_that_moved_names_is_found_by_the_rules,
          a_node_that_ask_names_is_found_by_the_rules, some_nodes_over_rdma_and_others_over_tcp,
          a_seed_says_its_transport)
