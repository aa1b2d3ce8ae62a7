/*
 * The life of a transfer, against a scripted server and a fake of the lane functions: what ends without proof is
 * answered when its lane is gone, users and sessions take turns, nothing is sent twice. What is run again:
 * test_transfers_again.c.
 */
#include <errno.h>

#include "tests/unit/transfers_rig.h"
#include "tests/unit/unit_main.h"

/* --- rule 1 --- */

static void answered_live(struct probe *probe)
{
    stub_say(carrying, "-ERR RDMA write failed\r\n");
}

static void connection_lost(struct probe *probe)
{
    stub_hang_up(carrying);
}

static void client_gone(struct probe *probe)
{
    transfers_end_session(&sessions[0], TRANSFER_CLIENT_GONE);
}

static void cancelled(struct probe *probe)
{
    transfer_end(&probe->transfer, TRANSFER_CANCELLED);
}

static void stopping(struct probe *probe)
{
    transfers_end_all(&transfers, TRANSFER_STOPPING);
}

static void time_passes(struct probe *probe)
{
    bench_skip(DEADLINE_MS);
}

static const struct {
    void (*ends)(struct probe *probe);
    enum transfer_outcome outcome;
    uint64_t deadline_ms, grace_ms;
} unproved[] = {
    {answered_live, OUTCOME_LIVE, 0, 0},
    {connection_lost, OUTCOME_LOST, 0, 0},
    {client_gone, OUTCOME_GONE_RUNNING, 0, 0},
    {client_gone, OUTCOME_GONE_RUNNING, 0, 60000}, /* nobody waits for the answer: no grace */
    {cancelled, OUTCOME_CANCELLED_RUNNING, 0, 0},
    {cancelled, OUTCOME_CANCELLED_RUNNING, 0, 20},
    {stopping, OUTCOME_STOPPING_RUNNING, 0, 60000},
    {time_passes, OUTCOME_DEADLINE_RUNNING, DEADLINE_MS, 0},
    {time_passes, OUTCOME_DEADLINE_RUNNING, DEADLINE_MS, 20},
};

static void check_unproved(size_t row, int kind)
{
    struct probe *probe;

    start(1, NULL, unproved[row].grace_ms);
    probe = submit_new(0, kind, "key", unproved[row].deadline_ms, true);
    WAIT(&rig.bench, sent == 1);
    fake_lanes.hold_destroy = true;
    unproved[row].ends(probe);
    WAIT(&rig.bench, fake_lanes.destroys == 1);
    bench_idle(&rig.bench, 20);
    ck_assert_msg(probe->ended == 0 && probe->windows_released == 0, "row %zu: answered while its lane is there", row);
    /* Further ends change nothing. */
    transfers_end_all(&transfers, TRANSFER_CLIENT_GONE);
    ck_assert_int_eq(probe->ended, 0);
    fake_lanes_go();
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_msg(probe->outcome == unproved[row].outcome, "row %zu: outcome %d", row, probe->outcome);
    ck_assert_uint_eq(probe->lanes, 0);
    ck_assert_int_eq(probe->may_have_run, kind == TRANSFER_SET);
    ck_assert_int_eq(probe->quarantined, 0);
    ck_assert(!probe->memory_kept);
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(sent, 1); /* rule 2 */
    end();
}

START_TEST(without_proof_the_lane_goes_first)
{
    for (size_t row = 0; row < sizeof(unproved) / sizeof(unproved[0]); row++) {
        check_unproved(row, TRANSFER_GET);
        check_unproved(row, TRANSFER_SET);
    }
}
END_TEST

START_TEST(a_lane_that_cannot_be_destroyed_quarantines)
{
    struct probe *probe;

    start(1, "-ERR RDMA write failed\r\n", 0);
    fake_lanes.destroy_status = -EBUSY;
    probe = submit(0, TRANSFER_GET, "key", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->quarantined, 1);
    ck_assert(probe->memory_kept);
    ck_assert_int_eq(probe->outcome, OUTCOME_LIVE);
    end();
}
END_TEST

START_TEST(a_proof_keeps_the_lane)
{
    static const struct {
        const char *reply;
        enum transfer_outcome outcome;
    } proofs[] = {
        {"*2\r\n:4096\r\n:7\r\n", OUTCOME_DONE},
        {"$-1\r\n", OUTCOME_MISSING},
        {"-ERR invalid rkey\r\n", OUTCOME_REFUSED},
        {"*2\r\n:4097\r\n:7\r\n", OUTCOME_FINISHED},
    };
    struct probe *probe;

    start(1, NULL, 0);
    for (size_t i = 0; i < sizeof(proofs) / sizeof(proofs[0]); i++) {
        rig.transfer = proofs[i].reply;
        probe = submit(0, TRANSFER_GET, "key", 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, proofs[i].outcome);
    }
    ck_assert_uint_eq(fake_lanes.opens, 1);
    ck_assert_uint_eq(fake_lanes.destroys, 0);
    end();
}
END_TEST

/* Within the grace of a deadline the answer may still come: then it counts, and the lane stays. */
START_TEST(a_proof_within_the_grace_counts)
{
    struct probe *probe;

    start(1, NULL, 5000);
    probe = submit(0, TRANSFER_GET, "key", DEADLINE_MS);
    WAIT(&rig.bench, sent == 1);
    bench_skip(DEADLINE_MS);
    WAIT(&rig.bench, probe->transfer.ending_decided);
    stub_say(carrying, "*2\r\n:4096\r\n:7\r\n");
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(fake_lanes.destroys, 0);
    end();
}
END_TEST

/* --- the end of a session --- */

START_TEST(a_session_ends_alone)
{
    struct probe *running, *waiting, *other;

    start(1, NULL, 0);
    running = submit(0, TRANSFER_SET, "a", 0);
    WAIT(&rig.bench, sent == 1);
    waiting = submit(0, TRANSFER_SET, "b", 0);
    other = submit(2, TRANSFER_GET, "c", 0);
    fake_lanes.hold_destroy = true;
    transfers_end_session(&sessions[0], TRANSFER_CLIENT_GONE);
    ck_assert_int_eq(waiting->outcome, OUTCOME_GONE_WAITING);
    ck_assert(waiting->ended == 1 && !waiting->may_have_run);
    ck_assert_int_eq(running->ended, 0);
    ck_assert_uint_eq(fake_lanes.destroys, 1);
    rig.transfer = "$-1\r\n";
    fake_lanes_go();
    WAIT(&rig.bench, other->ended == 1);
    ck_assert_int_eq(other->outcome, OUTCOME_MISSING);
    ck_assert_int_eq(running->outcome, OUTCOME_GONE_RUNNING);
    ck_assert_str_eq(order, "a c");
    end();
}
END_TEST

/* A set whose client has left may finish: then its lane stays. A get is of use to nobody: its lane goes at once. */
START_TEST(a_set_may_finish_without_its_client)
{
    struct probe *set, *get;

    start(2, NULL, 0);
    transfers.orphan_ms = 60000;
    set = submit(0, TRANSFER_SET, "a", 0);
    WAIT(&rig.bench, sent == 1);
    struct stub_peer *carries_set = carrying;
    get = submit(0, TRANSFER_GET, "b", 0);
    WAIT(&rig.bench, sent == 2);
    transfers_end_session(&sessions[0], TRANSFER_CLIENT_GONE);
    WAIT(&rig.bench, get->ended == 1);
    ck_assert_int_eq(get->outcome, OUTCOME_GONE_RUNNING);
    ck_assert_uint_eq(fake_lanes.destroys, 1);
    ck_assert_int_eq(set->ended, 0);
    stub_say(carries_set, "+OK\r\n");
    WAIT(&rig.bench, set->ended == 1);
    ck_assert_int_eq(set->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(fake_lanes.destroys, 1);
    end();
}
END_TEST

/* Not for ever, not beyond its deadline, and not at the daemon's end. */
START_TEST(a_set_without_its_client_is_limited)
{
    struct probe *probe;

    for (int i = 0; i < 3; i++) {
        start(1, NULL, 0);
        transfers.orphan_ms = i == 0 ? 50 : 60000;
        probe = submit(0, TRANSFER_SET, "a", i == 1 ? DEADLINE_MS : 0);
        WAIT(&rig.bench, sent == 1);
        transfers_end_session(&sessions[0], TRANSFER_CLIENT_GONE);
        ck_assert_uint_eq(fake_lanes.destroys, 0);
        if (i == 1) {
            bench_skip(DEADLINE_MS);
        } else if (i == 2) {
            transfers_end_all(&transfers, TRANSFER_STOPPING);
        }
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_int_eq(probe->outcome, OUTCOME_GONE_RUNNING);
        ck_assert(probe->may_have_run);
        ck_assert_uint_eq(probe->lanes, 0);
        end();
    }
}
END_TEST

/* --- turns --- */

START_TEST(users_and_sessions_take_turns)
{
    start(1, "+OK\r\n", 0);
    submit(0, TRANSFER_SET, "a1", 0);
    submit(0, TRANSFER_SET, "a2", 0);
    submit(0, TRANSFER_SET, "a3", 0);
    submit(0, TRANSFER_SET, "a4", 0);
    submit(1, TRANSFER_SET, "b1", 0);
    submit(1, TRANSFER_SET, "b2", 0);
    submit(2, TRANSFER_SET, "c1", 0);
    submit(2, TRANSFER_SET, "c2", 0);
    WAIT(&rig.bench, transfers.open == 0);
    ck_assert_str_eq(order, "a1 c1 b1 c2 a2 b2 a3 a4");
    end();
}
END_TEST

START_TEST(gets_go_before_sets)
{
    start(1, NULL, 0);
    submit(0, TRANSFER_SET, "s1", 0);
    WAIT(&rig.bench, sent == 1);
    submit(0, TRANSFER_SET, "s2", 0);
    submit(0, TRANSFER_GET, "g1", 0);
    submit(0, TRANSFER_GET, "g2", 0);
    rig.transfer = "-OOM no room\r\n";
    stub_say(carrying, "+OK\r\n");
    WAIT(&rig.bench, transfers.open == 0);
    ck_assert_str_eq(order, "s1 g1 g2 s2");
    end();
}
END_TEST

UNIT_MAIN("transfers", without_proof_the_lane_goes_first, a_lane_that_cannot_be_destroyed_quarantines,
          a_proof_keeps_the_lane, a_proof_within_the_grace_counts, a_session_ends_alone,
          a_set_may_finish_without_its_client, a_set_without_its_client_is_limited,
          users_and_sessions_take_turns, gets_go_before_sets)
