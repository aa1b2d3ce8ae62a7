/*
 * The map of a cluster: when it is asked for, what becomes of those who wait for it, what a change moves, and that
 * nobody waits behind a transfer for another node.
 */
#include <stdio.h>
#include <string.h>

#include "tests/unit/cluster_rig.h"
#include "tests/unit/unit_main.h"

static const char *silence_of_0(unsigned node, const redisReply *words)
{
    return node == 0 ? NULL : cluster_success(words);
}

static const char *moved_from_0(unsigned node, const redisReply *words)
{
    return node == 0 ? cluster_redirect("MOVED", words, 1) : cluster_success(words);
}

START_TEST(at_rest_nothing_wakes_up)
{
    char why[NODE_WHY_BYTES];

    cluster_start(3, 2);
    ck_assert(!deployment_usable(rig.deployment, why, sizeof(why)));
    ck_assert(why[0] != '\0');
    cluster_wait_map();
    WAIT(&rig.bench, deployment_usable(rig.deployment, why, sizeof(why)));
    for (unsigned i = 0; i < 3; i++) {
        struct probe *probe = submit(0, TRANSFER_GET, cluster_key(i, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
    }
    bench_idle(&rig.bench, 150);
    WAIT(&rig.bench, bench_active_timers(&rig.bench) == 0);
    bench_idle(&rig.bench, 150);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    ck_assert_uint_eq(cluster.maps, 1);
    /* To each node one connection for commands and one for its transfer. */
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(cluster.nodes[i].stub.open, 2);
    }
    cluster_end();
}
END_TEST

START_TEST(those_who_wait_for_the_map_are_sent_when_it_is_there)
{
    struct probe *waiting[3];

    cluster_prepare(3, 2);
    cluster.map_is_held = true;
    start_deployment();
    for (unsigned i = 0; i < 3; i++) {
        waiting[i] = submit(0, TRANSFER_GET, cluster_key(i, 0), 0);
    }
    struct probe *cancelled = submit(1, TRANSFER_GET, cluster_key(0, 1), 0);
    struct probe *late = submit(1, TRANSFER_GET, cluster_key(0, 2), 20);
    WAIT(&rig.bench, cluster.maps == 1);
    transfer_end(&cancelled->transfer, TRANSFER_CANCELLED);
    ck_assert_int_eq(cancelled->outcome, OUTCOME_CANCELLED_WAITING);
    WAIT(&rig.bench, late->ended == 1);
    ck_assert_int_eq(late->outcome, OUTCOME_DEADLINE_WAITING);
    ck_assert_uint_eq(sent, 0);
    /* The one that was asked says nothing: another one is asked. */
    cluster.map_is_held = false;
    WAIT(&rig.bench, waiting[0]->ended + waiting[1]->ended + waiting[2]->ended == 3);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(waiting[i]->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(cluster.nodes[i].transfers, 1);
    }
    cluster_end();
}
END_TEST

START_TEST(no_seed_can_be_reached)
{
    char why[NODE_WHY_BYTES];

    cluster_prepare(3, 2);
    cluster_kill(0);
    cluster_kill(1);
    start_deployment();
    for (int i = 0; i < 3; i++) {
        struct probe *probe = submit(0, TRANSFER_GET, cluster_key(2, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_UNAVAILABLE);
        ck_assert_msg(strstr(probe->text, "no node of the cluster can be reached") != NULL, "%s", probe->text);
    }
    ck_assert(!deployment_usable(rig.deployment, why, sizeof(why)));
    ck_assert_ptr_nonnull(strstr(why, "no node of the cluster can be reached"));
    /* One comes back: who asks then is served, whatever the pauses between attempts have grown to. */
    bench_idle(&rig.bench, 1500);
    cluster_revive(0);
    uint64_t since = uv_hrtime();
    struct probe *probe;
    do {
        probe = submit(0, TRANSFER_GET, cluster_key(2, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
        bench_idle(&rig.bench, 50);
    } while (probe->outcome != OUTCOME_DONE);
    ck_assert_uint_lt((uv_hrtime() - since) / 1000000, 2000);
    cluster_end();
}
END_TEST

START_TEST(what_answers_is_no_cluster)
{
    static const struct {
        const char *map, *why;
    } rows[] = {
        {"-ERR This instance has cluster support disabled\r\n", "[valkey] address instead of seeds"},
        {"-NOPERM User has no permissions to run the 'cluster|slots' command\r\n", "NOPERM"},
        {"*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\na\r\n:1\r\n", "the slots 0 to 99999"},
        {"*0\r\n", "no primary"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cluster_prepare(2, 2);
        cluster.map = rows[i].map;
        start_deployment();
        struct probe *probe = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_UNAVAILABLE);
        ck_assert_int_eq(probe->transfer.unavailable_code, PROTO_ERR_NOT_USABLE);
        ck_assert_msg(strstr(probe->text, rows[i].why) != NULL, "%s", probe->text);
        ck_assert_uint_eq(sent, 0);
        /* It may have been mended. */
        cluster.map = NULL;
        do {
            probe = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
            WAIT(&rig.bench, probe->ended == 1);
            bench_idle(&rig.bench, 50);
        } while (probe->outcome != OUTCOME_DONE);
        cluster_end();
    }
}
END_TEST

/* A node that is there and has no time for the question is asked again; who waits for the map waits on. */
START_TEST(the_question_is_refused_for_now)
{
    char why[NODE_WHY_BYTES];

    cluster_prepare(2, 2);
    cluster.resend_ms = 300; /* the pauses between the questions are real */
    cluster.map = "-BUSY Valkey is busy running a script\r\n";
    start_deployment();
    struct probe *set = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, set->transfer.refused >= 2);
    ck_assert_int_eq(set->ended, 0);
    ck_assert(!deployment_usable(rig.deployment, why, sizeof(why)));
    ck_assert_ptr_nonnull(strstr(why, "BUSY"));
    cluster.map = NULL;
    WAIT(&rig.bench, set->ended == 1);
    ck_assert_msg(set->outcome == OUTCOME_DONE, "%s", set->text);
    ck_assert_uint_eq(sent, 1);
    cluster_end();
}
END_TEST

/* Ten that are sent elsewhere together ask once, or twice: never while a question is open. */
START_TEST(one_question_at_a_time)
{
    struct probe *many[10];

    cluster_start(3, 10);
    cluster_wait_map();
    bench_idle(&rig.bench, 120); /* the rest after the first answer */
    cluster.answer = moved_from_0;
    cluster.map_is_held = true;
    for (unsigned i = 0; i < 10; i++) {
        many[i] = submit(0, TRANSFER_GET, cluster_key(0, i), 0);
    }
    for (unsigned i = 0; i < 10; i++) {
        WAIT(&rig.bench, many[i]->ended == 1);
        ck_assert_int_eq(many[i]->outcome, OUTCOME_DONE);
    }
    ck_assert_uint_eq(cluster.maps, 2);
    ck_assert_uint_eq(cluster.maps_open_most, 1);
    cluster_end();
}
END_TEST

START_TEST(a_node_that_hangs_holds_up_nobody_else)
{
    struct probe *stuck, *behind, *other;

    cluster_start(2, 1);
    cluster.answer = silence_of_0;
    stuck = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, sent == 1);
    behind = submit(0, TRANSFER_GET, cluster_key(0, 1), 0);
    /* Of the same session, submitted later. */
    for (unsigned i = 0; i < 5; i++) {
        other = submit(0, TRANSFER_SET, cluster_key(1, i), 0);
        WAIT(&rig.bench, other->ended == 1);
        ck_assert_int_eq(other->outcome, OUTCOME_DONE);
    }
    ck_assert_int_eq(stuck->ended + behind->ended, 0);
    cluster.answer = NULL;
    transfer_end(&stuck->transfer, TRANSFER_CLIENT_GONE);
    WAIT(&rig.bench, behind->ended == 1);
    ck_assert_int_eq(behind->outcome, OUTCOME_DONE);
    cluster_end();
}
END_TEST

/* The map changes while a transfer waits behind one that hangs: it is sent where its slot is now. */
START_TEST(those_who_wait_move_with_their_slot)
{
    struct probe *stuck, *waiting, *other;

    cluster_start(3, 1);
    cluster_wait_map();
    bench_idle(&rig.bench, 120);
    cluster.answer = silence_of_0;
    stuck = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, sent == 1);
    waiting = submit(0, TRANSFER_SET, cluster_key(0, 1), 0);
    cluster_take_over(0, 1);
    /* Another node tells that something has changed. */
    cluster.answer = NULL;
    deployment_redirect((struct member *)(uintptr_t)deployment_next(rig.deployment, NULL),
                        &(struct redirect){.kind = REDIRECT_LOST});
    WAIT(&rig.bench, waiting->ended == 1);
    ck_assert_int_eq(waiting->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(waiting->attempts, 1);
    ck_assert_uint_eq(cluster.nodes[1].transfers, 1);
    ck_assert_int_eq(stuck->ended, 0);
    /* Node 0 is no part of the map, but stays until its last transfer has ended. */
    other = submit(0, TRANSFER_GET, cluster_key(2, 0), 0);
    WAIT(&rig.bench, other->ended == 1);
    ck_assert_uint_eq(cluster_members(), 3);
    transfer_end(&stuck->transfer, TRANSFER_CLIENT_GONE);
    WAIT(&rig.bench, stuck->ended == 1);
    WAIT(&rig.bench, cluster_members() == 2 && cluster.nodes[0].stub.open == 0);
    cluster_end();
}
END_TEST

/* A primary dies and another takes over a while later: transfers go on by themselves, sets too. */
START_TEST(a_primary_dies_and_is_replaced)
{
    struct probe *probe;

    cluster_start(3, 2);
    cluster_wait_map();
    bench_idle(&rig.bench, 120);
    cluster_kill(0);
    WAIT(&rig.bench, cluster.maps == 2); /* the loss of a connection asks */
    cluster_take_over(0, 1);
    bench_idle(&rig.bench, 120);
    probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_msg(probe->outcome == OUTCOME_DONE, "%s", probe->text);
    ck_assert_uint_eq(cluster.nodes[1].transfers, 1);
    cluster_end();
}
END_TEST

/* Nobody replaces it: it ends as a server that is down does, after the bound on attempts. */
START_TEST(a_primary_dies_and_is_not_replaced)
{
    struct probe *probe;

    cluster_start(3, 2);
    cluster_wait_map();
    cluster_kill(0);
    probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_UNAVAILABLE);
    ck_assert_int_eq(probe->transfer.unavailable_code, PROTO_ERR_SERVER_DOWN);
    ck_assert_uint_eq(probe->attempts, REDIRECT_ATTEMPTS);
    ck_assert_msg(strstr(probe->text, "tried 24 times") != NULL, "%s", probe->text);
    probe = submit(0, TRANSFER_SET, cluster_key(1, 0), 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    cluster_end();
}
END_TEST

/* All nodes of the map are gone, and other ones have come under a seed's address: the seeds are asked again. */
START_TEST(the_seeds_are_turned_to_again)
{
    struct probe *probe;

    cluster_prepare(3, 2);
    cluster_take_over(0, 2);
    cluster_take_over(1, 2);
    start_deployment();
    probe = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, probe->ended == 1);
    WAIT(&rig.bench, cluster_members() == 1); /* the seeds serve nothing */
    bench_idle(&rig.bench, 120);
    cluster_kill(2);
    cluster_take_over(2, 0);
    do {
        probe = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
    } while (probe->outcome != OUTCOME_DONE);
    ck_assert_uint_eq(cluster.nodes[0].transfers, 1);
    cluster_end();
}
END_TEST

/* A slot that nobody serves is some node's to refuse. */
START_TEST(a_slot_without_a_node)
{
    cluster_prepare(2, 2);
    cluster.nodes[0].last = 100;
    start_deployment();
    struct probe *probe = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    cluster_end();
}
END_TEST

START_TEST(stopping_in_the_middle)
{
    for (int i = 0; i < 3; i++) {
        cluster_prepare(3, 2);
        cluster.map_is_held = i == 1;
        start_deployment();
        if (i > 0) {
            WAIT(&rig.bench, cluster.maps == 1);
        }
        cluster_end();
    }
}
END_TEST

UNIT_MAIN("cluster_map", at_rest_nothing_wakes_up, those_who_wait_for_the_map_are_sent_when_it_is_there,
          no_seed_can_be_reached, what_answers_is_no_cluster, the_question_is_refused_for_now,
          one_question_at_a_time,
          a_node_that_hangs_holds_up_nobody_else, those_who_wait_move_with_their_slot, a_primary_dies_and_is_replaced,
          a_primary_dies_and_is_not_replaced, the_seeds_are_turned_to_again, a_slot_without_a_node,
          stopping_in_the_middle)
