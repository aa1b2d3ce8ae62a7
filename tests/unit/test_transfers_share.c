/*
 * Shares of connections: one is kept from a user that holds its share, while another was active in the last second. The
 * server answers no transfer here unless told to; rig.transfer NULL.
 */
#include <string.h>

#include "daemon/transfer/share.h"
#include "tests/unit/transfers_rig.h"
#include "tests/unit/unit_main.h"

#define MISSING "$-1\r\n"

/* Runs the loop's clock past the time that a submission counts. */
static void after_a_second(void)
{
    bench_idle(&rig.bench, SHARE_ACTIVE_MS + 50);
}

static void settle(void)
{
    bench_idle(&rig.bench, 30);
}

/* The other user has asked for something, and has its answer. */
static void other_is_active(void)
{
    struct probe *probe = submit(2, TRANSFER_GET, "o", 0);

    rig.transfer = MISSING;
    WAIT(&rig.bench, probe->ended == 1);
    rig.transfer = NULL;
}

static void finish(void)
{
    for (unsigned i = 0; i < MANY; i++) {
        if (probes[i].transfer.transfers != NULL && probes[i].ended == 0) {
            transfer_end(&probes[i].transfer, TRANSFER_STOPPING);
        }
    }
    WAIT(&rig.bench, transfers.open == 0);
    end();
}

START_TEST(a_user_alone_has_all)
{
    start(4, NULL, 0);
    for (int i = 0; i < 5; i++) {
        submit(0, TRANSFER_GET, "a", 0);
    }
    WAIT(&rig.bench, sent == 4);
    settle();
    ck_assert_uint_eq(sent, 4);
    finish();
}
END_TEST

START_TEST(the_last_one_is_kept_for_another)
{
    start(4, NULL, 0);
    other_is_active();
    for (int i = 0; i < 6; i++) {
        submit(0, TRANSFER_GET, "a", 0);
    }
    WAIT(&rig.bench, sent == 1 + 3);
    settle();
    ck_assert_str_eq(order, "o a a a");
    submit(2, TRANSFER_GET, "b", 0);
    WAIT(&rig.bench, sent == 1 + 4);
    ck_assert_str_eq(order, "o a a a b");
    finish();
}
END_TEST

/* No timer: it is looked at again when one of the user's own ends. */
START_TEST(it_is_kept_for_a_second_only)
{
    start(2, NULL, 0);
    other_is_active();
    for (int i = 0; i < 4; i++) {
        submit(0, TRANSFER_GET, "a", 0);
    }
    WAIT(&rig.bench, sent == 1 + 1);
    after_a_second();
    ck_assert_uint_eq(sent, 1 + 1);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    stub_say(carrying, MISSING);
    WAIT(&rig.bench, sent == 1 + 3);
    finish();
}
END_TEST

/* Both have more waiting than there are connections: none is left unused. */
START_TEST(nothing_is_kept_where_all_wait)
{
    start(4, NULL, 0);
    for (int i = 0; i < 5; i++) {
        submit(0, TRANSFER_GET, "a", 0);
        submit(2, TRANSFER_GET, "b", 0);
    }
    WAIT(&rig.bench, sent == 4);
    ck_assert_str_eq(order, "a b a b");
    finish();
}
END_TEST

/* With fewer connections than users everybody's share is one. */
START_TEST(a_single_connection_is_everybodys)
{
    start(1, MISSING, 0);
    for (int i = 0; i < 3; i++) {
        submit(0, TRANSFER_GET, "a", 0);
        submit(2, TRANSFER_GET, "b", 0);
    }
    WAIT(&rig.bench, transfers.open == 0);
    ck_assert_str_eq(order, "a b a b a b");
    end();
}
END_TEST

/* Where lanes_max allows fewer than `connections`, the last of these is kept. */
START_TEST(lanes_are_what_counts)
{
    start(8, NULL, 0);
    rig.fabric_config.lanes_max = 3;
    other_is_active();
    for (int i = 0; i < 4; i++) {
        submit(0, TRANSFER_GET, "a", 0);
    }
    WAIT(&rig.bench, sent == 1 + 2);
    settle();
    ck_assert_uint_eq(sent, 1 + 2);
    submit(2, TRANSFER_GET, "b", 0);
    WAIT(&rig.bench, sent == 1 + 3);
    ck_assert_str_eq(order, "o a a b");
    finish();
}
END_TEST

/* The kept one is idle on a NIC that the first user's memory cannot be on: it does not make room for him either. */
START_TEST(it_is_not_given_up_for_another_nic)
{
    host_nics = 2;
    start(2, NULL, 0);
    probes[0].nics = 1;
    other_is_active();
    submit_on(0, "a", 2, 0);
    WAIT(&rig.bench, sent == 2);
    submit_on(0, "a", 2, 0);
    settle();
    ck_assert_str_eq(order, "o a");
    submit_on(2, "b", 1, 0);
    WAIT(&rig.bench, sent == 3);
    ck_assert_str_eq(order, "o a b");
    ck_assert_uint_eq(fake_lanes.opens, 2);
    ck_assert_uint_eq(fake_lanes.destroys, 0);
    finish();
    host_nics = 1;
}
END_TEST

/* A quota of transfers in flight and the share are two limits: the lower one holds, and who is held delays nobody. */
START_TEST(beside_a_quota)
{
    start(4, NULL, 0);
    transfers_limit_session(&transfers, &sessions[0], 2);
    transfers_limit_session(&transfers, &sessions[1], 2);
    other_is_active();
    for (int i = 0; i < 3; i++) {
        submit(0, TRANSFER_GET, "a", 0);
    }
    WAIT(&rig.bench, sent == 1 + 2);
    submit(2, TRANSFER_GET, "b", 0);
    submit(2, TRANSFER_GET, "b", 0);
    submit(2, TRANSFER_GET, "b", 0);
    WAIT(&rig.bench, sent == 1 + 4);
    settle();
    ck_assert_str_eq(order, "o a a b b");
    finish();
}
END_TEST

UNIT_MAIN("transfers_share", a_user_alone_has_all, the_last_one_is_kept_for_another, it_is_kept_for_a_second_only,
          nothing_is_kept_where_all_wait, a_single_connection_is_everybodys, lanes_are_what_counts,
          it_is_not_given_up_for_another_nic, beside_a_quota)
