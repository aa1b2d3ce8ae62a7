/*
 * Places for lanes are shared by the nodes: at lanes_max transfers wait, idle connections give up theirs, and a busy
 * node cannot keep another from the fabric.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cluster_rig.h"
#include "tests/unit/unit_main.h"

static unsigned most_lanes;

static const char *answer(unsigned node, const redisReply *words)
{
    most_lanes = fake_lanes.alive > most_lanes ? fake_lanes.alive : most_lanes;
    return cluster_success(words);
}

static void start_lanes(unsigned nodes, unsigned connections, unsigned lanes)
{
    cluster_prepare(nodes, connections);
    rig.fabric_config.lanes_max = lanes;
    cluster.answer = answer;
    most_lanes = 0;
    start_deployment();
}

START_TEST(six_nodes_and_two_lanes)
{
    struct probe *many[36];

    start_lanes(6, 4, 2);
    for (unsigned i = 0; i < 36; i++) {
        many[i] = submit((int)(i % 3), i % 2 == 0 ? TRANSFER_SET : TRANSFER_GET, cluster_key(i % 6, i / 6), 0);
    }
    for (unsigned i = 0; i < 36; i++) {
        WAIT(&rig.bench, many[i]->ended == 1);
        ck_assert_int_eq(many[i]->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(many[i]->attempts, 1);
    }
    ck_assert_uint_eq(most_lanes, 2);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_uint_eq(cluster.nodes[i].transfers, 6);
    }
    cluster_end();
}
END_TEST

/* The connection that was idle for longest goes, whichever node's it is, and none of those that are used. */
START_TEST(the_one_idle_for_longest_gives_way)
{
    start_lanes(4, 4, 3);
    for (unsigned i = 0; i < 3; i++) {
        struct probe *probe = submit(0, TRANSFER_GET, cluster_key(i, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
    }
    struct probe *again = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, again->ended == 1);
    ck_assert_uint_eq(fake_lanes.opens, 3);
    struct probe *fourth = submit(0, TRANSFER_GET, cluster_key(3, 0), 0);
    WAIT(&rig.bench, fourth->ended == 1);
    ck_assert_uint_eq(fake_lanes.opens, 4);
    ck_assert_uint_eq(most_lanes, 3);
    ck_assert_uint_eq(cluster.nodes[0].stub.open, 2);
    WAIT(&rig.bench, cluster.nodes[1].stub.open == 1); /* only the one for commands is left */
    ck_assert_uint_eq(cluster.nodes[2].stub.open, 2);
    cluster_end();
}
END_TEST

/* Node 0 takes its time, and always has more to do. Node 1 gets its turn all the same. */
static void free_timer(uv_handle_t *handle)
{
    free(handle);
}

static void slow_answer(uv_timer_t *timer)
{
    struct stub_peer *peer = timer->data;

    stub_say(peer, "*2\r\n:5\r\n:77\r\n");
    uv_close((uv_handle_t *)timer, free_timer);
}

static const char *slowly(unsigned node, const redisReply *words)
{
    if (node != 0) {
        return answer(node, words);
    }
    uv_timer_t *timer = calloc(1, sizeof(*timer));
    uv_timer_init(&rig.bench.loop, timer);
    timer->data = carrying;
    uv_timer_start(timer, slow_answer, 10, 0);
    return NULL;
}

START_TEST(a_busy_node_keeps_nobody_out)
{
    struct probe *busy[40];
    unsigned before = 0;

    start_lanes(2, 1, 1);
    cluster.answer = slowly;
    for (unsigned i = 0; i < 40; i++) {
        busy[i] = submit(0, TRANSFER_GET, cluster_key(0, i), 0);
    }
    WAIT(&rig.bench, sent >= 1);
    struct probe *other = submit(2, TRANSFER_GET, cluster_key(1, 0), 0);
    WAIT(&rig.bench, other->ended == 1);
    ck_assert_int_eq(other->outcome, OUTCOME_DONE);
    for (unsigned i = 0; i < 40; i++) {
        before += (unsigned)busy[i]->ended;
    }
    ck_assert_msg(before < 30, "%u of 40 of the busy node went first", before);
    for (unsigned i = 0; i < 40; i++) {
        WAIT(&rig.bench, busy[i]->ended == 1);
        ck_assert_int_eq(busy[i]->outcome, OUTCOME_DONE);
    }
    ck_assert_uint_eq(most_lanes, 1);
    cluster_end();
}
END_TEST

/* Who waits for a place and is cancelled passes it on. */
START_TEST(a_place_that_nobody_wants_any_more_goes_to_the_next)
{
    start_lanes(3, 1, 1);
    fake_lanes.hold_destroy = true;
    struct probe *first = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, first->ended == 1);
    struct probe *second = submit(0, TRANSFER_GET, cluster_key(1, 0), 0);
    struct probe *third = submit(0, TRANSFER_GET, cluster_key(2, 0), 0);
    WAIT(&rig.bench, fake_lanes.destroys == 1); /* the idle one of node 0 */
    transfer_end(&second->transfer, TRANSFER_CANCELLED);
    fake_lanes_go();
    WAIT(&rig.bench, third->ended == 1);
    ck_assert_int_eq(third->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(most_lanes, 1);
    cluster_end();
}
END_TEST

/* A node dies while it waits for a place, or holds one. */
START_TEST(a_node_that_dies_frees_its_place)
{
    start_lanes(3, 1, 1);
    struct probe *first = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, first->ended == 1);
    cluster_kill(0);
    struct probe *second = submit(0, TRANSFER_GET, cluster_key(1, 0), 0);
    WAIT(&rig.bench, second->ended == 1);
    ck_assert_int_eq(second->outcome, OUTCOME_DONE);
    cluster_end();
}
END_TEST

/* A NIC that is left out has no place: no carrier is made, over and over, for a lane that is then refused. */
START_TEST(no_place_on_what_is_left_out)
{
    struct probe *many[8];

    cluster_prepare(1, 4);
    rig.fabric_config.lanes_max = 1;
    rig.fabric.nic_count = 2;
    rig.fabric.nic_states[1] = (struct fabric_nic_state){.failures = 1, .retry_at = UINT64_MAX};
    fake_lanes.limit = 1;
    cluster.answer = slowly;
    start_deployment();
    for (unsigned i = 0; i < 8; i++) {
        many[i] = submit(0, TRANSFER_GET, cluster_key(0, i), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        WAIT(&rig.bench, many[i]->ended == 1);
        ck_assert_int_eq(many[i]->outcome, OUTCOME_DONE);
    }
    ck_assert_uint_eq(cluster.nodes[0].stub.connections, 2); /* for commands, and the carrier's */
    cluster_end();
}
END_TEST

UNIT_MAIN("cluster_lanes", six_nodes_and_two_lanes, the_one_idle_for_longest_gives_way, a_busy_node_keeps_nobody_out,
          a_place_that_nobody_wants_any_more_goes_to_the_next,
          a_node_that_dies_frees_its_place, no_place_on_what_is_left_out)
