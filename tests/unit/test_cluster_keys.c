/* Commands on keys in a cluster: each to its node, sent again where nothing ran, and never where it may have run. */
#include <stdio.h>
#include <string.h>

#include "daemon/valkey/key_command.h"
#include "tests/unit/cluster_rig.h"
#include "tests/unit/unit_main.h"

#define COMMANDS 12

struct key_probe {
    struct key_command command;
    char key[16];
    int done, code;
    bool has_reply;
    char text[256];
};

static struct key_probe commands[COMMANDS];

static void on_done(struct key_command *command, const redisReply *reply, int code, const char *why)
{
    struct key_probe *probe = (struct key_probe *)command;

    probe->done++;
    probe->code = code;
    probe->has_reply = reply != NULL;
    snprintf(probe->text, sizeof(probe->text), "%s", reply == NULL ? why : reply->str != NULL ? reply->str : "");
}

static struct key_probe *run(unsigned index, const char *word, const char *key)
{
    struct key_probe *probe = &commands[index];

    memset(probe, 0, sizeof(*probe));
    snprintf(probe->key, sizeof(probe->key), "%s", key);
    probe->command = (struct key_command){
        .argc = 2, .argv = {word, probe->key}, .lengths = {strlen(word), strlen(key)}, .done = on_done};
    key_command_start(rig.deployment, &probe->command);
    return probe;
}

static bool is_up(unsigned index)
{
    const struct member *member = deployment_next(rig.deployment, NULL);
    struct node_health health;

    for (; member != NULL; member = deployment_next(rig.deployment, member)) {
        node_health(member->node, &health);
        if (strcmp(health.address, cluster.nodes[index].stub.address) == 0) {
            return strcmp(health.state, "up") == 0;
        }
    }
    return false;
}

static void start_up(unsigned nodes)
{
    cluster_start(nodes, 1);
    cluster_wait_map();
    for (unsigned i = 0; i < nodes; i++) {
        WAIT(&rig.bench, is_up(i));
    }
}

static const char *moved_from_0(unsigned node, const redisReply *words)
{
    return node == 0 ? cluster_redirect("MOVED", words, 1) : cluster_success(words);
}

static const char *ask_from_0(unsigned node, const redisReply *words)
{
    return node == 0 ? cluster_redirect("ASK", words, 1) : cluster_success(words);
}

static const char *tryagain(unsigned node, const redisReply *words)
{
    return "-TRYAGAIN for ever\r\n";
}

static const char *silence(unsigned node, const redisReply *words)
{
    return NULL;
}

START_TEST(each_to_its_node)
{
    start_up(3);
    for (unsigned i = 0; i < COMMANDS; i++) {
        run(i, "EXISTS", cluster_key(i % 3, i));
    }
    for (unsigned i = 0; i < COMMANDS; i++) {
        WAIT(&rig.bench, commands[i].done == 1);
        ck_assert(commands[i].has_reply);
    }
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(cluster.nodes[i].transfers, COMMANDS / 3);
    }
    cluster_end();
}
END_TEST

START_TEST(redirections_are_followed)
{
    char expected[256];
    const char *key;

    start_up(3);
    key = cluster_key(0, 0);
    cluster.answer = moved_from_0;
    struct key_probe *probe = run(0, "DEL", key);
    WAIT(&rig.bench, probe->done == 1);
    ck_assert(probe->has_reply);
    cluster.answer = ask_from_0;
    bench_idle(&rig.bench, 150); /* the map, which was asked for, says node 0 as before */
    probe = run(1, "DEL", key);
    WAIT(&rig.bench, probe->done == 1);
    snprintf(expected, sizeof(expected), "0:DEL %s 1:DEL %s 0:DEL %s 1:ASKING 1:DEL %s", key, key, key, key);
    ck_assert_str_eq(cluster.trace, expected);
    ck_assert_uint_eq(carrying->reads, cluster.asked_reads);
    cluster_end();
}
END_TEST

START_TEST(refusals_end)
{
    start_up(2);
    cluster.answer = tryagain;
    struct key_probe *probe = run(0, "DEL", cluster_key(0, 0)), *other = run(1, "DEL", cluster_key(1, 0));
    WAIT(&rig.bench, probe->done == 1 && other->done == 1);
    ck_assert(probe->has_reply);
    ck_assert_str_eq(probe->text, "TRYAGAIN for ever");
    ck_assert_uint_eq(sent, 2 * REDIRECT_ATTEMPTS);
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    cluster_end();
}
END_TEST

/* A DEL that was sent may have run. */
START_TEST(what_was_lost_is_not_sent_again)
{
    start_up(2);
    cluster.answer = silence;
    struct key_probe *probe = run(0, "DEL", cluster_key(0, 0));
    WAIT(&rig.bench, sent == 1);
    cluster.answer = NULL;
    stub_hang_up(carrying);
    WAIT(&rig.bench, probe->done == 1);
    ck_assert(!probe->has_reply);
    ck_assert_int_eq(probe->code, PROTO_ERR_LOST);
    bench_idle(&rig.bench, 50);
    ck_assert_uint_eq(sent, 1);
    cluster_end();
}
END_TEST

START_TEST(a_node_that_is_down)
{
    start_up(2);
    cluster_kill(0);
    struct key_probe *probe = run(0, "DEL", cluster_key(0, 0)), *other = run(1, "DEL", cluster_key(1, 0));
    WAIT(&rig.bench, probe->done == 1 && other->done == 1);
    ck_assert(other->has_reply && !probe->has_reply);
    ck_assert(probe->code == PROTO_ERR_SERVER_DOWN || probe->code == PROTO_ERR_LOST);
    /* Another takes its slots over: the next command is sent there. */
    cluster_take_over(0, 1);
    do {
        probe = run(0, "DEL", cluster_key(0, 0));
        WAIT(&rig.bench, probe->done == 1);
    } while (!probe->has_reply);
    ck_assert_uint_eq(cluster.nodes[1].transfers, 2);
    cluster_end();
}
END_TEST

START_TEST(without_a_map)
{
    cluster_prepare(2, 1);
    cluster_kill(0);
    cluster_kill(1);
    start_deployment();
    struct key_probe *probe = run(0, "EXISTS", cluster_key(0, 0));
    WAIT(&rig.bench, probe->done == 1);
    ck_assert_int_eq(probe->code, PROTO_ERR_SERVER_DOWN);
    ck_assert_msg(strstr(probe->text, "no node of the cluster can be reached") != NULL, "%s", probe->text);
    cluster_end();
}
END_TEST

/* The end of the deployment ends those that wait for their next attempt, and those that wait for an answer. */
START_TEST(stopping)
{
    start_up(2);
    cluster.answer = silence;
    struct key_probe *waiting = run(0, "DEL", cluster_key(0, 0));
    WAIT(&rig.bench, sent == 1);
    cluster.answer = tryagain;
    struct key_probe *again = run(1, "DEL", cluster_key(1, 0));
    WAIT(&rig.bench, sent >= 2);
    cluster_end();
    ck_assert_int_eq(waiting->done, 1);
    ck_assert_int_eq(waiting->code, PROTO_ERR_LOST);
    ck_assert_int_eq(again->done, 1);
}
END_TEST

UNIT_MAIN("cluster_keys", each_to_its_node, redirections_are_followed, refusals_end, what_was_lost_is_not_sent_again,
          a_node_that_is_down, without_a_map, stopping)
