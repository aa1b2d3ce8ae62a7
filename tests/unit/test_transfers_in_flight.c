/*
 * The quota of transfers in flight, with connections to spare: whatever way one ends, the next of its user is sent, and
 * none before.
 */
#include <string.h>

#include "tests/unit/transfers_rig.h"
#include "tests/unit/unit_main.h"

#define MISSING "$-1\r\n"

static void start_limited(const char *reply, uint64_t grace_ms)
{
    start(4, reply, grace_ms);
    for (int i = 0; i < 3; i++) {
        transfers_limit_session(&transfers, &sessions[i], 1);
    }
}

START_TEST(a_user_at_its_quota_leaves_the_connections_to_others)
{
    start_limited(NULL, 0);
    submit(0, TRANSFER_GET, "a1", 0);
    submit(0, TRANSFER_GET, "a2", 0);
    submit(1, TRANSFER_GET, "b1", 0);
    WAIT(&rig.bench, sent == 1);
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(sent, 1);
    ck_assert_uint_eq(fake_lanes.opens, 1); /* what may not be sent asks for no connection */
    submit(2, TRANSFER_GET, "c1", 0);
    WAIT(&rig.bench, sent == 2);
    ck_assert_str_eq(order, "a1 c1");
    ck_assert_uint_eq(users[0].in_flight, 1);
    ck_assert_uint_eq(users[0].queued, 2);
    rig.transfer = MISSING;
    stub_say(carrying, MISSING); /* to c1 */
    bench_idle(&rig.bench, 20);
    ck_assert_str_eq(order, "a1 c1");
    transfer_end(&probes[0].transfer, TRANSFER_CANCELLED);
    WAIT(&rig.bench, transfers.open == 0);
    ck_assert_str_eq(order, "a1 c1 b1 a2");
    end();
}
END_TEST

/* --- each way of ending ------------------------------------------------------------------------------------------- */

static void answered(struct probe *probe)
{
    stub_say(carrying, MISSING);
}

static void answered_live(struct probe *probe)
{
    stub_say(carrying, "-ERR RDMA write failed\r\n");
}

static void connection_lost(struct probe *probe)
{
    stub_hang_up(carrying);
}

static void cancelled(struct probe *probe)
{
    transfer_end(&probe->transfer, TRANSFER_CANCELLED);
}

static void client_gone(struct probe *probe)
{
    transfers_end_session(&sessions[0], TRANSFER_CLIENT_GONE);
}

static void time_passes(struct probe *probe)
{
    bench_skip(DEADLINE_MS);
}

static const struct {
    void (*ends)(struct probe *probe);
    uint64_t deadline_ms, grace_ms;
} ways[] = {
    {answered, 0, 0},      {answered_live, 0, 0}, {connection_lost, 0, 0}, {cancelled, 0, 0},
    {cancelled, 0, 20},    {client_gone, 0, 0},   {time_passes, DEADLINE_MS, 0},
    {time_passes, DEADLINE_MS, 20},
};

START_TEST(the_next_goes_when_one_has_ended)
{
    struct probe *first, *next;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        start_limited(NULL, ways[i].grace_ms);
        first = submit_new(0, TRANSFER_GET, "first", ways[i].deadline_ms, true);
        next = submit(1, TRANSFER_GET, "next", 0);
        WAIT(&rig.bench, sent == 1);
        bench_idle(&rig.bench, 20);
        ck_assert_msg(sent == 1, "way %zu: two in flight", i);
        rig.transfer = MISSING;
        ways[i].ends(first);
        WAIT(&rig.bench, next->ended == 1);
        ck_assert_int_eq(first->ended, 1);
        ck_assert_int_eq(next->outcome, OUTCOME_MISSING);
        ck_assert_uint_eq(users[0].in_flight + users[0].queued + transfers.queued, 0);
        ck_assert(LIST_EMPTY(&users[0].places));
        end();
    }
}
END_TEST

/* A lane that is being destroyed may still be written through: its transfer is in flight until it is gone. */
START_TEST(one_that_is_taken_back_is_in_flight_until_its_lane_is_gone)
{
    struct probe *next;

    start_limited(NULL, 0);
    fake_lanes.hold_destroy = true;
    submit(0, TRANSFER_GET, "first", 0);
    next = submit(0, TRANSFER_GET, "next", 0);
    WAIT(&rig.bench, sent == 1);
    rig.transfer = MISSING;
    transfer_end(&probes[0].transfer, TRANSFER_CANCELLED);
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(sent, 1);
    fake_lanes_go();
    WAIT(&rig.bench, next->ended == 1);
    end();
}
END_TEST

/* One that waits to be run again has no place: the next one goes on meanwhile. */
START_TEST(one_that_waits_for_its_next_attempt_is_not_in_flight)
{
    struct probe *first, *next;

    start_limited(NULL, 0);
    first = submit(0, TRANSFER_GET, "first", 0);
    next = submit(0, TRANSFER_GET, "next", 0);
    WAIT(&rig.bench, sent == 1);
    rig.transfer = MISSING;
    stub_hang_up(carrying);
    WAIT(&rig.bench, first->ended == 1 && next->ended == 1);
    ck_assert_str_eq(order, "first next first");
    ck_assert_uint_eq(first->attempts, 2);
    end();
}
END_TEST

START_TEST(without_a_session_all_are_told)
{
    start_limited(NULL, 0);
    rig.hello = "-ERR unknown command\r\n";
    for (int i = 0; i < 4; i++) {
        submit(i % 3, TRANSFER_SET, "x", 0);
    }
    WAIT(&rig.bench, transfers.open == 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(probes[i].outcome, OUTCOME_UNAVAILABLE);
    }
    end();
}
END_TEST

/* A quota that is raised counts at once. */
START_TEST(a_raised_quota_sends_what_waits)
{
    start_limited(NULL, 0);
    submit(0, TRANSFER_GET, "a1", 0);
    submit(0, TRANSFER_GET, "a2", 0);
    submit(0, TRANSFER_GET, "a3", 0);
    WAIT(&rig.bench, sent == 1);
    bench_idle(&rig.bench, 20);
    transfers_limit_session(&transfers, &sessions[0], 2);
    WAIT(&rig.bench, sent == 2);
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(sent, 2);
    transfers_end_all(&transfers, TRANSFER_CANCELLED);
    WAIT(&rig.bench, transfers.open == 0);
    end();
}
END_TEST

UNIT_MAIN("transfers_in_flight", a_user_at_its_quota_leaves_the_connections_to_others, the_next_goes_when_one_has_ended,
          one_that_is_taken_back_is_in_flight_until_its_lane_is_gone,
          one_that_waits_for_its_next_attempt_is_not_in_flight, without_a_session_all_are_told,
          a_raised_quota_sends_what_waits)
