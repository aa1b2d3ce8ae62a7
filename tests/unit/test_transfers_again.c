/*
 * Which transfers are run again, when, and how often: never before the lane of the attempt before is gone, never a set
 * that may have run, never past the deadline or for nobody.
 */
#include <errno.h>
#include <string.h>

#include "daemon/transfer/again.h"
#include "tests/unit/transfers_rig.h"
#include "tests/unit/unit_main.h"

#define VALUE "*2\r\n:4096\r\n:7\r\n"

/* The wait before the next attempt; instead of the first, second and so on, if not 0: ld --wrap. */
static unsigned waits_ms[TRANSFER_ATTEMPTS], waited;
unsigned __real_again_wait_ms(struct transfer *transfer);
unsigned __wrap_again_wait_ms(struct transfer *transfer);

unsigned __wrap_again_wait_ms(struct transfer *transfer)
{
    unsigned wait_ms = __real_again_wait_ms(transfer), instead = waits_ms[waited++ % TRANSFER_ATTEMPTS];

    return instead != 0 ? instead : wait_ms;
}

static unsigned failures; /* attempts that fail before one succeeds */
static const char *failure; /* what the server answers then; NULL: it hangs up */

static void fail_some(void)
{
    if (failures == 0) {
        stub_say(carrying, rig.transfer);
    } else if (failures-- > 0 && failure != NULL) {
        stub_say(carrying, failure);
    } else {
        stub_hang_up(carrying);
    }
}

static void start_failing(unsigned count, const char *answer, const char *success)
{
    start(1, success, 0);
    failures = count;
    failure = answer;
    on_sent = fail_some;
}

/* --- what is run again --- */

START_TEST(a_get_goes_on_when_its_lane_is_gone)
{
    static const char *const answers[] = {NULL, "-ERR RDMA write failed\r\n", "-ERR who knows\r\n"};
    struct probe *probe;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        start_failing(1, answers[i], VALUE);
        fake_lanes.hold_destroy = true;
        probe = submit(0, TRANSFER_GET, "key", 0);
        WAIT(&rig.bench, fake_lanes.destroys == 1);
        bench_idle(&rig.bench, 5 * AGAIN_WAIT_MS);
        ck_assert_msg(sent == 1, "answer %zu: run again while its lane is there", i);
        ck_assert_int_eq(probe->windows_released, 0);
        fake_lanes_go();
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(probe->attempts, 2);
        ck_assert_uint_eq(sent, 2);
        ck_assert_uint_eq(transfers.run_again, 1);
        ck_assert_uint_eq(transfers.stats.ended[TRANSFER_GET][OUTCOME_DONE], 1);
        end();
    }
}
END_TEST

START_TEST(a_set_that_was_not_stored_is_sent_again)
{
    struct probe *probe;

    start_failing(2, "-ERR RDMA read failed\r\n", "+OK\r\n");
    probe = submit(0, TRANSFER_SET, "key", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(probe->attempts, 3);
    ck_assert_uint_eq(fake_lanes.destroys, 2);
    end();
}
END_TEST

START_TEST(a_set_that_may_have_run_is_not)
{
    static const char *const answers[] = {NULL, "-ERR RDMA write failed\r\n", "-ERR RDMA read failed.\r\n"};
    struct probe *probe;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        start_failing(1, answers[i], "+OK\r\n");
        probe = submit(0, TRANSFER_SET, "key", 0);
        WAIT(&rig.bench, probe->ended == 1);
        bench_idle(&rig.bench, 2 * AGAIN_WAIT_MS);
        ck_assert_int_eq(probe->outcome, answers[i] == NULL ? OUTCOME_LOST : OUTCOME_LIVE);
        ck_assert(probe->may_have_run && probe->attempts == 1);
        ck_assert_uint_eq(sent, 1);
        end();
    }
}
END_TEST

/* Nothing ran, and the lane, whose connection is given up, is not needed for a proof. */
START_TEST(a_login_that_is_gone_is_made_again)
{
    struct probe *probe;

    start_failing(1, "-NOAUTH Authentication required.\r\n", "+OK\r\n");
    probe = submit(0, TRANSFER_SET, "key", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(probe->attempts, 2);
    ck_assert_uint_eq(rig.stub.connections, 3); /* control, and two that carry */
    end();

    start_failing(99, "-NOAUTH Authentication required.\r\n", "+OK\r\n");
    probe = submit(0, TRANSFER_SET, "key", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_REFUSED);
    ck_assert(!probe->may_have_run);
    ck_assert_uint_eq(probe->attempts, TRANSFER_ATTEMPTS);
    end();
}
END_TEST

START_TEST(proofs_and_refusals_are_answers)
{
    static const char *const answers[] = {"$-1\r\n", "-ERR invalid rkey\r\n", "*2\r\n:4097\r\n:7\r\n",
                                          "-WRONGTYPE no\r\n"};
    struct probe *probe;

    start(1, NULL, 0);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        rig.transfer = answers[i];
        probe = submit(0, TRANSFER_GET, "key", 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_uint_eq(probe->attempts, 1);
    }
    ck_assert_uint_eq(sent, sizeof(answers) / sizeof(answers[0]));
    ck_assert_uint_eq(transfers.run_again, 0);
    end();
}
END_TEST

START_TEST(a_get_that_must_not_is_not)
{
    struct probe *probe;

    start_failing(1, NULL, VALUE);
    probe = submit_new(0, TRANSFER_GET, "key", 0, true);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_LOST);
    ck_assert_uint_eq(sent, 1);
    end();
}
END_TEST

START_TEST(attempts_are_bounded)
{
    struct probe *probe;
    uint64_t began;

    start_failing(100, "-ERR RDMA write failed\r\n", VALUE);
    began = uv_hrtime();
    probe = submit(0, TRANSFER_GET, "key", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_LIVE);
    ck_assert_uint_eq(probe->attempts, TRANSFER_ATTEMPTS);
    ck_assert_uint_eq(sent, TRANSFER_ATTEMPTS);
    ck_assert_uint_eq(fake_lanes.destroys, TRANSFER_ATTEMPTS);
    ck_assert_uint_eq(probe->lanes, 0);
    /* 50, 100 and 200 ms, each a quarter less at least */
    ck_assert_uint_ge((uv_hrtime() - began) / 1000000, 350 * 3 / 4);
    end();
}
END_TEST

/* The second attempt finds no server: that is the answer. */
START_TEST(a_server_that_is_gone_ends_it)
{
    struct probe *probe;

    start(1, NULL, 0);
    probe = submit(0, TRANSFER_GET, "key", 0);
    WAIT(&rig.bench, sent == 1);
    rig.hello = "nonsense\r\n"; /* something else is in its place */
    stub_hang_up(carrying);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_UNAVAILABLE);
    ck_assert_uint_eq(probe->attempts, 2);
    ck_assert_uint_eq(sent, 1);
    end();
}
END_TEST

/* The server is there and says "later" to the session: nothing has run, so sets wait as well as gets. */
START_TEST(a_session_that_is_refused_for_now_is_waited_for)
{
    static const char *const answers[] = {"-LOADING Valkey is loading the dataset in memory\r\n",
                                          "-MASTERDOWN Link with MASTER is down\r\n", "-BUSY a script runs\r\n",
                                          "-READONLY You can't write against a read only replica.\r\n"};
    const char *good;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        start(2, "+OK\r\n", 0);
        good = rig.hello;
        rig.hello = answers[i];
        struct probe *set = submit(0, TRANSFER_SET, "key", 0);
        struct probe *late = submit(0, TRANSFER_SET, "late", 100);
        struct probe *impatient = submit_new(0, TRANSFER_GET, "impatient", 0, true);
        WAIT(&rig.bench, late->ended == 1 && impatient->ended == 1 && set->transfer.refused >= 3);
        ck_assert_int_eq(late->outcome, OUTCOME_DEADLINE_WAITING);
        ck_assert_int_eq(impatient->outcome, OUTCOME_UNAVAILABLE);
        ck_assert_uint_eq(impatient->attempts, 1);
        ck_assert_int_eq(set->ended, 0);
        rig.hello = good;
        WAIT(&rig.bench, set->ended == 1);
        ck_assert_int_eq(set->outcome, OUTCOME_DONE);
        ck_assert_uint_eq(sent, 1);
        end();
    }
}
END_TEST

START_TEST(a_session_that_is_refused_for_good_is_not)
{
    start(1, "+OK\r\n", 0);
    rig.hello = "-LOADINGS of trouble\r\n";
    struct probe *set = submit(0, TRANSFER_SET, "key", 0);
    WAIT(&rig.bench, set->ended == 1);
    ck_assert_int_eq(set->outcome, OUTCOME_UNAVAILABLE);
    ck_assert_int_eq(set->transfer.unavailable_code, PROTO_ERR_NOT_USABLE);
    ck_assert_uint_eq(set->attempts, 1);
    end();
}
END_TEST

START_TEST(a_lane_that_is_not_gone_forbids_it)
{
    struct probe *probe;

    start_failing(1, NULL, VALUE);
    fake_lanes.destroy_status = -EBUSY;
    probe = submit(0, TRANSFER_GET, "key", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_LOST);
    ck_assert_int_eq(probe->quarantined, 1);
    ck_assert_uint_eq(sent, 1);
    end();
}
END_TEST

/* --- turns --- */

/* At the head of its own session's gets, behind the users whose turn it is. */
START_TEST(it_goes_first_in_its_session_only)
{
    start_failing(1, NULL, VALUE);
    waits_ms[0] = 1000; /* the connection is made, and taken, meanwhile */
    submit(0, TRANSFER_GET, "a1", 0);
    WAIT(&rig.bench, transfers.all.tqh_first->state == TRANSFER_WAITING);
    rig.transfer = NULL;
    submit(2, TRANSFER_GET, "b1", 0); /* takes the connection, and says nothing */
    submit(0, TRANSFER_GET, "a2", 0);
    submit(2, TRANSFER_GET, "b2", 0);
    on_sent = NULL;
    WAIT(&rig.bench, sent == 2 && probes[0].transfer.state == TRANSFER_QUEUED);
    rig.transfer = VALUE;
    stub_say(carrying, VALUE);
    WAIT(&rig.bench, transfers.open == 0);
    ck_assert_str_eq(order, "a1 b1 a1 b2 a2");
    end();
}
END_TEST

/* --- ends between two attempts --- */

static void cancelled(struct probe *probe)
{
    transfer_end(&probe->transfer, TRANSFER_CANCELLED);
}

static void client_gone(struct probe *probe)
{
    transfers_end_session(&sessions[0], TRANSFER_CLIENT_GONE);
}

static void stopping(struct probe *probe)
{
    transfers_end_all(&transfers, TRANSFER_STOPPING);
}

static const struct {
    void (*ends)(struct probe *probe);
    enum transfer_outcome outcome;
} waiting_ends[] = {
    {cancelled, OUTCOME_CANCELLED_WAITING},
    {client_gone, OUTCOME_GONE_WAITING},
    {stopping, OUTCOME_STOPPING_WAITING},
};

START_TEST(an_end_between_attempts_counts_at_once)
{
    struct probe *probe;

    for (size_t row = 0; row < sizeof(waiting_ends) / sizeof(waiting_ends[0]); row++) {
        start_failing(1, NULL, VALUE);
        probe = submit(0, TRANSFER_GET, "key", 0);
        WAIT(&rig.bench, probe->transfer.state == TRANSFER_WAITING);
        ck_assert(transfer_can_end(&probe->transfer));
        waiting_ends[row].ends(probe);
        ck_assert_int_eq(probe->ended, 1);
        ck_assert_int_eq(probe->outcome, waiting_ends[row].outcome);
        ck_assert_msg(strstr(probe->text, "the attempt before ended: lost") != NULL, "%s", probe->text);
        bench_idle(&rig.bench, 2 * AGAIN_WAIT_MS);
        ck_assert_uint_eq(sent, 1);
        end();
    }
}
END_TEST

/* While the lane of the last attempt is being destroyed: its end is waited for, and then there is no other attempt. */
START_TEST(an_end_while_the_lane_goes_counts_after_it)
{
    struct probe *probe;

    for (size_t row = 0; row < sizeof(waiting_ends) / sizeof(waiting_ends[0]); row++) {
        start_failing(1, NULL, VALUE);
        fake_lanes.hold_destroy = true;
        probe = submit(0, TRANSFER_GET, "key", 0);
        WAIT(&rig.bench, probe->transfer.state == TRANSFER_REVOKING);
        waiting_ends[row].ends(probe);
        ck_assert_int_eq(probe->ended, 0);
        ck_assert(!transfer_can_end(&probe->transfer));
        fake_lanes_go();
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, waiting_ends[row].outcome);
        ck_assert_uint_eq(probe->lanes, 0);
        ck_assert_uint_eq(sent, 1);
        end();
    }
}
END_TEST

START_TEST(the_deadline_runs_over_all_attempts)
{
    struct probe *probe;
    uint64_t began, took_ms;

    start_failing(100, NULL, VALUE);
    waits_ms[1] = 60000; /* before the third attempt: it passes meanwhile */
    began = uv_hrtime();
    probe = submit(0, TRANSFER_GET, "key", DEADLINE_MS);
    WAIT(&rig.bench, waited == 2);
    bench_skip(DEADLINE_MS * 9 / 10);
    WAIT(&rig.bench, probe->ended == 1);
    took_ms = (uv_hrtime() - began) / 1000000;
    ck_assert_int_eq(probe->outcome, OUTCOME_DEADLINE_WAITING);
    ck_assert_uint_ge(took_ms, DEADLINE_MS - 10); /* a timer counts from the time that its loop has seen */
    ck_assert_uint_eq(probe->attempts, 2);
    ck_assert(!probe->may_have_run);
    end();
}
END_TEST

START_TEST(the_deadline_passes_while_the_lane_goes)
{
    struct probe *probe;

    start_failing(1, NULL, VALUE);
    fake_lanes.hold_destroy = true;
    probe = submit(0, TRANSFER_GET, "key", DEADLINE_MS);
    WAIT(&rig.bench, probe->transfer.state == TRANSFER_REVOKING);
    bench_skip(DEADLINE_MS);
    WAIT(&rig.bench, !probe->transfer.runs_again);
    ck_assert_int_eq(probe->ended, 0);
    fake_lanes_go();
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DEADLINE_WAITING);
    ck_assert_uint_eq(sent, 1);
    end();
}
END_TEST

/* A cancel waits for the answer that is on its way; if that one is no proof, it does not start an attempt. */
START_TEST(what_is_being_taken_back_is_not_run_again)
{
    struct probe *probe;

    start(1, NULL, 5000);
    probe = submit(0, TRANSFER_GET, "key", 0);
    WAIT(&rig.bench, sent == 1);
    transfer_end(&probe->transfer, TRANSFER_CANCELLED);
    stub_say(carrying, "-ERR RDMA write failed\r\n");
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_CANCELLED_RUNNING);
    ck_assert_uint_eq(sent, 1);
    end();
}
END_TEST

UNIT_MAIN("transfers_again", a_get_goes_on_when_its_lane_is_gone, a_set_that_was_not_stored_is_sent_again,
          a_set_that_may_have_run_is_not, a_login_that_is_gone_is_made_again, proofs_and_refusals_are_answers,
          a_get_that_must_not_is_not, attempts_are_bounded, a_server_that_is_gone_ends_it,
          a_session_that_is_refused_for_now_is_waited_for,
          a_session_that_is_refused_for_good_is_not, a_lane_that_is_not_gone_forbids_it,
          it_goes_first_in_its_session_only, an_end_between_attempts_counts_at_once,
          an_end_while_the_lane_goes_counts_after_it, the_deadline_runs_over_all_attempts,
          the_deadline_passes_while_the_lane_goes, what_is_being_taken_back_is_not_run_again)
