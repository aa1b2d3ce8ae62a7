/*
 * What a cluster's nodes refuse without running it is sent again, elsewhere or later, sets too; within a bound, and
 * within the deadline; and what may have run is not.
 */
#include <stdio.h>
#include <string.h>

#include "tests/unit/cluster_rig.h"
#include "tests/unit/unit_main.h"

static unsigned refusals; /* that are still to come */
static const char *refusal;

static void check_trace(const char *expected)
{
    ck_assert_str_eq(cluster.trace, expected);
}

START_TEST(each_key_goes_to_its_node)
{
    char expected[128];
    const char *keys[3];

    cluster_start(3, 2);
    for (unsigned i = 0; i < 3; i++) {
        keys[i] = cluster_key(i, 0);
        struct probe *probe = submit(0, TRANSFER_SET, keys[i], 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(probe->attempts, 1);
    }
    snprintf(expected, sizeof(expected), "0:SET %s 1:SET %s 2:SET %s", keys[0], keys[1], keys[2]);
    check_trace(expected);
    ck_assert_uint_eq(cluster.maps, 1);
    cluster_end();
}
END_TEST

static const char *moved_from_0(unsigned node, const redisReply *words)
{
    return node == 0 ? cluster_redirect("MOVED", words, 1) : cluster_success(words);
}

START_TEST(moved_is_followed_and_learnt)
{
    char expected[128];
    const char *key;

    cluster_start(3, 2);
    cluster_wait_map();
    cluster.answer = moved_from_0;
    cluster_take_over(0, 1);
    key = cluster_key(0, 0);
    struct probe *probe = submit(0, TRANSFER_SET, key, 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(probe->attempts, 2);
    snprintf(expected, sizeof(expected), "0:SET %s 1:SET %s", key, key);
    check_trace(expected);
    /* The map is asked for, and node 0, which serves nothing any more, is let go. */
    WAIT(&rig.bench, cluster_members() == 2);
    ck_assert_uint_eq(cluster.maps, 2);
    WAIT(&rig.bench, cluster.nodes[0].stub.open == 0);
    probe = submit(0, TRANSFER_GET, key, 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_uint_eq(probe->attempts, 1);
    cluster_end();
}
END_TEST

static const char *moved_to_last(unsigned node, const redisReply *words)
{
    return node == 0 ? cluster_redirect("MOVED", words, cluster.count - 1) : cluster_success(words);
}

/* The map knows neither its address nor that it serves anything, before and after. */
START_TEST(moved_to_a_node_that_is_in_no_map)
{
    cluster_prepare(3, 2);
    cluster_take_over(2, 1);
    cluster.answer = moved_to_last;
    start_deployment();
    for (int i = 0; i < 2; i++) {
        struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(probe->attempts, 2);
        ck_assert_uint_eq(cluster.nodes[2].transfers, i + 1);
        WAIT(&rig.bench, cluster_members() == 2 && cluster.nodes[2].stub.open == 0);
    }
    cluster_end();
}
END_TEST

static const char *ask_from_0(unsigned node, const redisReply *words)
{
    bool asked = carrying == cluster.asked;

    if (node == 1 && slot_of_key(words->element[1]->str, words->element[1]->len) < SLOTS / 3 && !asked) {
        return cluster_redirect("MOVED", words, 0); /* as a node that is importing the slot */
    }
    cluster.asked = NULL;
    return node == 0 ? cluster_redirect("ASK", words, 1) : cluster_success(words);
}

START_TEST(ask_is_followed_once_and_not_learnt)
{
    char expected[256];
    const char *key;

    cluster_start(3, 2);
    cluster.answer = ask_from_0;
    key = cluster_key(0, 0);
    for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
        cluster.trace[0] = '\0';
        struct probe *probe = submit(0, kind, key, 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(probe->attempts, 2);
        const char *word = kind == TRANSFER_SET ? "SET" : "GET";
        snprintf(expected, sizeof(expected), "0:%s %s 1:ASKING 1:%s %s", word, key, word, key);
        check_trace(expected);
        /* In one write: nobody's command can come between, and HELLO was said before. */
        ck_assert_uint_eq(carrying->reads, cluster.asked_reads);
    }
    ck_assert_uint_eq(cluster.maps, 1);
    cluster_end();
}
END_TEST

/* ASKING holds for one command: the time to live needs one of its own. */
START_TEST(ask_and_a_time_to_live)
{
    char expected[256];
    const char *key;
    struct probe *probe = &probes[0];

    cluster_start(3, 2);
    cluster.answer = ask_from_0;
    key = cluster_key(0, 0);
    probe->transfer.ttl_ms = 5000;
    probe = submit(0, TRANSFER_SET, key, 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    snprintf(expected, sizeof(expected), "0:SET %s 0:PEXPIRE %s 1:ASKING 1:SET %s 1:ASKING 1:PEXPIRE %s", key, key, key,
             key);
    check_trace(expected);
    ck_assert_int_eq(probe->transfer.request.ttl, CARRIER_TTL_APPLIED);
    cluster_end();
}
END_TEST

static const char *refuse_some(unsigned node, const redisReply *words)
{
    if (refusals == 0) {
        return cluster_success(words);
    }
    refusals--;
    return refusal;
}

START_TEST(refusals_that_pass)
{
    static const char *const texts[] = {
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-LOADING Valkey is loading the dataset in memory\r\n",
        "-BUSY Valkey is busy running a script.\r\n",
        "-ERR disk staging buffer pool exhausted; retry later\r\n",
        "-MOVED nonsense\r\n",
    };

    cluster_start(2, 2);
    cluster.answer = refuse_some;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
            refusal = texts[i];
            refusals = 5; /* more than a transfer that failed would be tried */
            struct probe *probe = submit(0, kind, cluster_key(0, (unsigned)i), 0);
            WAIT(&rig.bench, probe->ended == 1);
            ck_assert_msg(probe->outcome == OUTCOME_DONE, "%s: %s", texts[i], probe->text);
            ck_assert_uint_eq(probe->attempts, 6);
        }
    }
    cluster_end();
}
END_TEST

START_TEST(refusals_that_are_answers)
{
    static const char *const texts[] = {"-OOM command not allowed\r\n", "-NOREPLICAS Not enough good replicas\r\n",
                                        "-MISCONF Errors writing to the AOF file\r\n", "-NOPERM no\r\n",
                                        "-CROSSSLOT Keys in request don't hash to the same slot\r\n"};

    cluster_start(2, 2);
    cluster.answer = refuse_some;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        refusal = texts[i];
        refusals = 1;
        struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, (unsigned)i), 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_REFUSED);
        ck_assert_uint_eq(probe->attempts, 1);
    }
    cluster_end();
}
END_TEST

static const char *ping_pong(unsigned node, const redisReply *words)
{
    return cluster_redirect("MOVED", words, node == 0 ? 1 : 0);
}

static const char *ask_for_ever(unsigned node, const redisReply *words)
{
    return cluster_redirect("ASK", words, node == 0 ? 1 : 0);
}

static const char *tryagain(unsigned node, const redisReply *words)
{
    return "-TRYAGAIN for ever\r\n";
}

static const char *further_and_further(unsigned node, const redisReply *words)
{
    static char text[64];
    static unsigned last = 1;

    last = last < 250 ? last + 1 : 2;
    snprintf(text, sizeof(text), "-MOVED 5 127.0.0.%u:%s\r\n", last, strrchr(cluster.nodes[0].stub.address, ':') + 1);
    return text;
}

/* Loops end with the bound on attempts, and the error says how often and the server's words. */
START_TEST(loops_end)
{
    static const struct {
        const char *(*answer)(unsigned node, const redisReply *words);
        const char *words;
    } loops[] = {{ping_pong, "MOVED"}, {ask_for_ever, "ASK"}, {tryagain, "TRYAGAIN for ever"}};

    cluster_start(2, 2);
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        cluster.answer = loops[i].answer;
        unsigned before = sent;
        struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_REFUSED);
        ck_assert(!probe->may_have_run);
        ck_assert_uint_eq(probe->attempts, REDIRECT_ATTEMPTS);
        ck_assert_uint_eq(sent - before, REDIRECT_ATTEMPTS);
        ck_assert_msg(strstr(probe->text, "refused 24 times") != NULL, "%s", probe->text);
        ck_assert_msg(strstr(probe->text, loops[i].words) != NULL, "%s", probe->text);
    }
    cluster_end();
}
END_TEST

/* Other loopback addresses have nobody at this port: each is tried, and forgotten. */
START_TEST(a_trail_of_addresses_ends)
{
    cluster_start(2, 2);
    cluster_wait_map();
    cluster.answer = further_and_further;
    struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert(probe->outcome == OUTCOME_REFUSED || probe->outcome == OUTCOME_UNAVAILABLE);
    ck_assert_uint_eq(probe->attempts, REDIRECT_ATTEMPTS);
    WAIT(&rig.bench, cluster_members() == 2);
    cluster_end();
}
END_TEST

START_TEST(the_deadline_ends_it)
{
    cluster_start(2, 2);
    cluster_wait_map();
    cluster.answer = tryagain;
    struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 5);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert(probe->outcome == OUTCOME_DEADLINE_WAITING || probe->outcome == OUTCOME_DEADLINE_RUNNING ||
              probe->outcome == OUTCOME_REFUSED);
    cluster_end();
}
END_TEST

static const char *silence(unsigned node, const redisReply *words)
{
    return NULL;
}

/* Rule 2, also in a cluster: the node that got it may have run it. */
START_TEST(a_set_that_was_lost_is_not_sent_again)
{
    cluster_start(2, 2);
    cluster.answer = silence;
    struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, sent == 1);
    stub_hang_up(carrying);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_LOST);
    ck_assert(probe->may_have_run);
    bench_idle(&rig.bench, 50);
    ck_assert_uint_eq(sent, 1);

    probe = submit(0, TRANSFER_GET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, sent == 2);
    cluster.answer = NULL;
    stub_hang_up(carrying);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(probe->attempts, 2);
    cluster_end();
}
END_TEST

/* A get that must not be run again follows redirections all the same: they are no failures. */
START_TEST(no_retry)
{
    cluster_start(2, 2);
    cluster_wait_map();
    cluster.answer = moved_from_0;
    struct probe *probe = submit_new(0, TRANSFER_GET, cluster_key(0, 0), 0, true);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    cluster.answer = tryagain;
    probe = submit_new(0, TRANSFER_GET, cluster_key(1, 0), 0, true);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_REFUSED);
    ck_assert_uint_eq(probe->attempts, 1);
    cluster_end();
}
END_TEST

/* Between two attempts a cancel counts at once, and the node that the next one was to go to is let go of. */
START_TEST(cancelled_between_attempts)
{
    cluster_start(3, 1);
    cluster_wait_map();
    cluster.answer = silence;
    struct probe *first = submit(0, TRANSFER_GET, cluster_key(1, 0), 0);
    WAIT(&rig.bench, sent == 1); /* the only connection of node 1 is taken */
    cluster.answer = ask_from_0;
    struct probe *probe = submit(0, TRANSFER_SET, cluster_key(0, 0), 0);
    WAIT(&rig.bench, sent == 2 && probe->transfer.state == TRANSFER_QUEUED && probe->transfer.redirected);
    transfer_end(&probe->transfer, TRANSFER_CANCELLED);
    ck_assert_int_eq(probe->ended, 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_CANCELLED_WAITING);
    transfer_end(&first->transfer, TRANSFER_CLIENT_GONE);
    WAIT(&rig.bench, first->ended == 1);
    cluster_end();
}
END_TEST

/* --- a single server --- */

static void single_script(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        stub_say(peer, rig.hello);
        return;
    }
    sent++;
    stub_say(peer, refuse_some(0, words));
}

/* A primary that became a replica: its connections go, and the name is looked up for new ones. */
START_TEST(a_single_server_that_is_no_primary_any_more)
{
    start(2, NULL, 0);
    rig.stub.command = single_script;
    struct probe *probe = submit(0, TRANSFER_SET, "a", 0);
    WAIT(&rig.bench, probe->ended == 1);
    unsigned connections = rig.stub.connections;
    ck_assert_uint_eq(connections, 2); /* one for commands on keys, one for transfers */
    refusal = "-READONLY You can't write against a read only replica.\r\n";
    refusals = 1;
    probe = submit(0, TRANSFER_SET, "a", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(probe->attempts, 2);
    WAIT(&rig.bench, rig.stub.connections == connections + 2);
    ck_assert_uint_eq(rig.stub.open, 2);
    end();
}
END_TEST

START_TEST(a_single_server_redirects_nobody)
{
    start(2, NULL, 0);
    rig.stub.command = single_script;
    refusal = "-MOVED 5 127.0.0.1:1\r\n";
    refusals = 100;
    struct probe *probe = submit(0, TRANSFER_SET, "a", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_REFUSED);
    ck_assert_uint_eq(sent, 1);
    ck_assert_ptr_nonnull(strstr(probe->text, "[valkey] seeds"));
    end();
}
END_TEST

UNIT_MAIN("cluster_redirects", each_key_goes_to_its_node, moved_is_followed_and_learnt,
          moved_to_a_node_that_is_in_no_map, ask_is_followed_once_and_not_learnt, ask_and_a_time_to_live,
          refusals_that_pass, refusals_that_are_answers, loops_end, a_trail_of_addresses_ends, the_deadline_ends_it,
          a_set_that_was_lost_is_not_sent_again, no_retry, cancelled_between_attempts,
          a_single_server_that_is_no_primary_any_more, a_single_server_redirects_nobody)
