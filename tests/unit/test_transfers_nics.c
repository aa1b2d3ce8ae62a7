/*
 * Transfers whose memory can be on some NICs only, because the budget has no room for it on others: they wait for, or
 * get, a connection on such a NIC, delay nobody for it, and none fails.
 */
#include <errno.h>

#include "tests/unit/transfers_rig.h"
#include "tests/unit/unit_main.h"

#define FOUND "*2\r\n:4096\r\n:7\r\n"

enum { FIRST = 1, SECOND = 2, BOTH = 3 };

static void all_done(unsigned count)
{
    WAIT(&rig.bench, transfers.open == 0);
    for (unsigned i = 0; i < count; i++) {
        ck_assert_msg(probes[i].outcome == OUTCOME_DONE, "%s: outcome %d", probes[i].key, probes[i].outcome);
    }
}

START_TEST(the_first_connection_is_made_where_it_is_needed)
{
    host_nics = 2;
    start(1, FOUND, 0);
    submit_on(0, "a", SECOND, 0);
    all_done(1);
    ck_assert_uint_eq(probes[0].nic, 1);
    ck_assert_uint_eq(fake_lanes.opens, 1);
    end();
}
END_TEST

/* The pool is full with an idle connection on the wrong NIC: it makes room. */
START_TEST(an_idle_connection_on_another_nic_makes_room)
{
    host_nics = 2;
    start(1, FOUND, 0);
    submit_on(0, "a", FIRST, 0);
    all_done(1);
    submit_on(0, "b", SECOND, 0);
    all_done(2);
    ck_assert_uint_eq(probes[0].nic, 0);
    ck_assert_uint_eq(probes[1].nic, 1);
    ck_assert_uint_eq(fake_lanes.opens, 2);
    ck_assert_uint_eq(fake_lanes.destroys, 1);
    end();
}
END_TEST

/* Who waits for a busy connection on its NIC gets it, and gives up no other; those that can go elsewhere go on. */
START_TEST(others_go_ahead_meanwhile)
{
    struct stub_peer *first;

    host_nics = 2;
    start(2, NULL, 0);
    submit_on(0, "a", FIRST, 0);
    WAIT(&rig.bench, sent == 1);
    first = carrying;
    submit_on(0, "b", SECOND, 0);
    WAIT(&rig.bench, sent == 2);
    rig.transfer = FOUND;
    stub_say(carrying, FOUND);
    WAIT(&rig.bench, probes[1].ended == 1);
    submit_on(0, "c", FIRST, 0);
    bench_idle(&rig.bench, 20);
    submit_on(2, "d", BOTH, 0);
    submit_on(2, "e", SECOND, 0);
    WAIT(&rig.bench, probes[3].ended == 1 && probes[4].ended == 1);
    ck_assert_int_eq(probes[2].ended, 0);
    stub_say(first, FOUND);
    all_done(5);
    ck_assert_uint_eq(probes[2].nic, 0);
    ck_assert_str_eq(order, "a b d e c");
    ck_assert_uint_eq(fake_lanes.opens, 2);
    ck_assert_uint_eq(fake_lanes.destroys, 0);
    end();
}
END_TEST

/* One connection, and two users whose memory is on different NICs: it goes to and fro, and all are served. */
START_TEST(nobody_starves)
{
    host_nics = 2;
    start(1, FOUND, 0);
    for (int i = 0; i < 5; i++) {
        submit_on(0, "a", FIRST, 0);
        submit_on(2, "b", SECOND, 0);
    }
    all_done(10);
    ck_assert_str_eq(order, "a b a b a b a b a b");
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    end();
}
END_TEST

/* The provider refuses to register more on a further NIC: the transfer is carried where the memory is. */
START_TEST(a_nic_that_refuses_fails_no_transfer)
{
    host_nics = 2;
    start(2, FOUND, 0);
    submit_on(0, "a", BOTH, FIRST);
    submit_on(0, "b", BOTH, 0);
    all_done(2);
    ck_assert_uint_eq(probes[0].nic, 1);
    ck_assert_uint_eq(probes[0].attempts, 1);
    end();
}
END_TEST

/* No session can be had on the NIC that is needed: those that wait for it are told, others are served. */
START_TEST(a_nic_without_a_session_is_told)
{
    host_nics = 2;
    start(1, FOUND, 0);
    submit_on(0, "a", FIRST, 0);
    all_done(1);
    rig.hello = "-ERR session create failed\r\n";
    submit_on(0, "b", SECOND, 0);
    WAIT(&rig.bench, probes[1].ended == 1);
    ck_assert_int_eq(probes[1].outcome, OUTCOME_UNAVAILABLE);
    end();
}
END_TEST

/*
 * At lanes_max a connection fails together with its NIC, on which another one works: those that wait for that NIC get
 * the other one in the end, and the place of the first, of no use to them any more, is not passed round for ever.
 */
START_TEST(a_place_is_not_passed_round)
{
    struct stub_peer *second;

    host_nics = 2;
    start(5, NULL, 0);
    rig.fabric_config.lanes_max = 2;
    submit_on(0, "a", FIRST, 0);
    submit_on(0, "b", FIRST, 0);
    WAIT(&rig.bench, sent == 2);
    submit_on(0, "c", SECOND, 0);
    WAIT(&rig.bench, sent == 3);
    second = carrying;
    rig.fabric.nic_lanes[0] = 2; /* the fake lanes do not count there */
    rig.fabric.nic_lanes[1] = 1;
    fake_lanes.hold_open = true;
    submit_on(0, "d", SECOND, 0);
    submit_on(0, "e", SECOND, 0);
    WAIT(&rig.bench, fake_lanes.opens == 4);
    rig.fabric.nic_states[1] = (struct fabric_nic_state){.failures = 1, .retry_at = UINT64_MAX};
    fake_lanes.opened_status = -EIO;
    fake_lanes_go();
    WAIT(&rig.bench, fake_lanes.alive == 3);
    rig.transfer = FOUND;
    stub_say(second, FOUND);
    WAIT(&rig.bench, probes[3].ended == 1 && probes[4].ended == 1);
    ck_assert_uint_eq(probes[3].nic, 1);
    ck_assert_uint_eq(probes[4].nic, 1);
    transfers_end_all(&transfers, TRANSFER_CANCELLED);
    WAIT(&rig.bench, transfers.open == 0);
    end();
}
END_TEST

UNIT_MAIN("transfers_nics", the_first_connection_is_made_where_it_is_needed,
          an_idle_connection_on_another_nic_makes_room, others_go_ahead_meanwhile, nobody_starves,
          a_nic_that_refuses_fails_no_transfer, a_nic_without_a_session_is_told, a_place_is_not_passed_round)
