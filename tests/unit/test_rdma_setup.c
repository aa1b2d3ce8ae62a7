/* The way to a connection over RDMA: names, workers, the budget, refusals, and an end at each step of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/rdma_rig.h"
#include "tests/unit/unit_main.h"

/* Waits for the end of an attempt, which has these words. */
static void expect_closed(int error, const char *words)
{
    RIG_WAIT(rig.closed == 1);
    ck_assert_int_eq(rig.connected, 0);
    ck_assert_msg(strstr(rig.why, words) != NULL, "%s", rig.why);
    ck_assert_int_eq(rig.error, error);
    ck_assert_ptr_null(rig.transport);
    rig_stop();
}

START_TEST(a_connection)
{
    char text[64];

    rig_start();
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    ck_assert_int_eq(rig_write("x", 1), -ENOTCONN);
    ck_assert_int_lt(rig.transport->class->local_address(rig.transport, text, sizeof(text)), 0);
    RIG_WAIT(rig.connected == 1);
    ck_assert_str_eq(rig_pair()->host, "192.0.2.1");
    ck_assert_str_eq(rig.transport->class->name, "rdma");
    ck_assert_int_eq(rig.transport->class->local_address(rig.transport, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "192.0.2.7");
    RIG_WAIT(rig_pair()->peer.windows == 1);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 1); /* the tick */
    ck_assert_uint_eq(rig.charged, STREAM_WINDOW_BYTES + STREAM_STAGING_BYTES);
    rig_stop();
}
END_TEST

/* The two queues of a queue pair are not ordered against each other. */
START_TEST(the_window_before_the_connection)
{
    rig_start();
    fake_rdma_knobs.window_first = true;
    rig_connect();
    rig_stop();
}
END_TEST

START_TEST(every_address_of_a_name)
{
    rig_start();
    ck_assert_int_eq(rig_open("rdma://both.example:6379"), 0);
    fake_rdma_knobs.refuse = -ECONNREFUSED;
    RIG_WAIT(fake_rdma_ever() == 1);
    ck_assert_int_eq(rig.connected + rig.closed, 0);
    fake_rdma_knobs.refuse = 0;
    RIG_WAIT(rig.connected + rig.closed == 1);
    ck_assert_msg(rig.connected == 1, "%s", rig.why);
    ck_assert_uint_eq(rig_pair()->number, 2);
    ck_assert_str_eq(rig_pair()->host, "192.0.2.2");
    RIG_WAIT(fake_rdma_open_count() == 1);
    rig_stop();
}
END_TEST

START_TEST(no_such_name)
{
    rig_start();
    ck_assert_int_eq(rig_open("rdma://nowhere.example:6379"), 0);
    expect_closed(-EHOSTUNREACH, "cannot look up 'nowhere.example'");
}
END_TEST

START_TEST(port_closed)
{
    rig_start();
    fake_rdma_knobs.refuse = -ECONNREFUSED;
    fake_rdma_knobs.refuse_provider = 8;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    expect_closed(-ECONNREFUSED, "cannot connect to rdma://192.0.2.1:6379: Connection refused (CM status 8: nobody "
                                 "listens there for RDMA (the server's rdma-port and rdma-bind))");
}
END_TEST

START_TEST(no_library)
{
    rig_start();
    rig.no_object = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    expect_closed(-ENOENT, "cannot connect to rdma://192.0.2.1:6379: RDMA to Valkey is not available: no library");
}
END_TEST

START_TEST(no_device)
{
    rig_start();
    fake_rdma_knobs.open_error = -ENODEV;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    expect_closed(-ENODEV, "no device has a route to 192.0.2.1");
}
END_TEST

/* --- the budget --- */

START_TEST(no_room_in_the_budget)
{
    rig_start();
    rig.budget = 100;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), -ENOSPC);
    ck_assert_ptr_nonnull(strstr(rig.why, "the budget is full"));
    ck_assert_uint_eq(fake_rdma_ever(), 0);
    rig_stop();
}
END_TEST

/* What was charged before is what we know; the queue pair knows more. */
START_TEST(more_is_registered_than_was_expected)
{
    rig_start();
    fake_rdma_knobs.pinned = 1000000;
    rig_connect();
    ck_assert_uint_eq(rig.charged, 1000000);
    rig_stop();

    rig_start();
    fake_rdma_knobs.pinned = 1000000;
    rig.budget = 999999;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    expect_closed(-ENOSPC, "the budget is full");
}
END_TEST

/* --- time --- */

START_TEST(a_name_server_that_does_not_answer)
{
    rig_start();
    rig.settings.connect_timeout_ms = 50;
    ck_assert_int_eq(rig_open("rdma://hung.example:6379"), 0);
    RIG_WAIT(rig.closed == 1);
    rig_release();
    expect_closed(-ETIMEDOUT, "looking up 'hung.example' took longer than connect_timeout_ms = 50 ms");
}
END_TEST

/* A worker that hangs in the opening is left alone; what it opens in the end is closed. */
START_TEST(an_opening_that_hangs)
{
    rig_start();
    fake_rdma_before_open = rig_hang;
    rig.settings.connect_timeout_ms = 20000;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(workers_running(rig.bench.workers) == 1);
    bench_skip(20000);
    RIG_WAIT(rig.closed == 1);
    ck_assert_uint_gt(rig.charged, 0); /* it may be registered by now */
    rig_release();
    WAIT(&rig.bench, workers_outstanding(rig.bench.workers) == 0);
    ck_assert_uint_eq(fake_rdma_ever(), 1);
    ck_assert_uint_eq(fake_rdma_open_count(), 0);
    expect_closed(-ETIMEDOUT, "no device and route were found within connect_timeout_ms = 20000 ms");
}
END_TEST

/*
 * The limit of time is met in a certain phase, which these words tell of. On a machine so slow that it is met earlier
 * there is another attempt with more time.
 */
static void expect_late(const char *address, const struct fake_rdma_knobs *knobs, unsigned attempts, const char *words)
{
    bool met = false;
    char text[128];

    for (unsigned ms = 50; !met; ms *= 4) {
        rig_start();
        fake_rdma_knobs = *knobs;
        rig.settings.connect_timeout_ms = ms;
        ck_assert_int_eq(rig_open(address), 0);
        RIG_WAIT(rig.closed == 1);
        WAIT(&rig.bench, workers_outstanding(rig.bench.workers) == 0);
        ck_assert_int_eq(rig.error, -ETIMEDOUT);
        snprintf(text, sizeof(text), "%s within connect_timeout_ms = %u ms", words, ms);
        met = strstr(rig.why, text) != NULL;
        ck_assert_msg(met ? fake_rdma_ever() == attempts : ms < 10000, "%u attempts: %s", fake_rdma_ever(), rig.why);
        rig_stop();
    }
}

START_TEST(nobody_answers)
{
    expect_late("rdma://192.0.2.1:6379", &(struct fake_rdma_knobs){.no_answer = true}, 1, "no answer");
}
END_TEST

/* Each of two addresses gets its share of the time. */
START_TEST(nobody_answers_at_either_address)
{
    expect_late("rdma://both.example:6379", &(struct fake_rdma_knobs){.no_answer = true}, 2, "no answer");
}
END_TEST

START_TEST(a_server_that_never_advertises)
{
    expect_late("rdma://192.0.2.1:6379", &(struct fake_rdma_knobs){.mute = true}, 1,
                "it is connected, but no Valkey server advertised a window");
}
END_TEST

/* --- an end at each step --- */

START_TEST(refused_by_the_core)
{
    rig_start();
    fake_rdma_knobs.mute = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(fake_rdma_last() != NULL && fake_rdma_last()->connected);
    fake_rdma_disconnect(rig_pair());
    expect_closed(-ECONNABORTED, "closed the connection before any answer: protected mode, or maxclients");

    rig_start(); /* after its window, and all in one go */
    rig.stopped = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(fake_rdma_last() != NULL && fake_rdma_last()->connecting);
    fake_rdma_turn();
    fake_rdma_disconnect(rig_pair());
    expect_closed(-ECONNABORTED, "closed the connection before any answer: protected mode, or maxclients");

    rig_start(); /* before the connection was established */
    fake_rdma_knobs.refuse = -ECONNABORTED;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    expect_closed(-ECONNABORTED, "closed the connection before any answer: protected mode, or maxclients");
}
END_TEST

START_TEST(a_failure_while_connecting)
{
    rig_start();
    fake_rdma_knobs.no_answer = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(fake_rdma_last() != NULL && fake_rdma_last()->connecting);
    fake_rdma_fail(rig_pair(), 12);
    expect_closed(-EIO, "work completion status 12");
}
END_TEST

START_TEST(nonsense_instead_of_a_window)
{
    rig_start();
    fake_rdma_knobs.mute = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(fake_rdma_last() != NULL && fake_rdma_last()->connected);
    fake_rdma_message(rig_pair(), "HTTP/1.1 400 Bad Request", 24);
    expect_closed(-EPROTO, "a control message has 24 bytes instead of 32");
}
END_TEST

/* The owner closes at each step; nothing is left and nothing is called. */
START_TEST(closed_by_us_at_each_step)
{
    rig_start();
    ck_assert_int_eq(rig_open("rdma://both.example:6379"), 0); /* looking up */
    rig_stop();

    rig_start();
    ck_assert_int_eq(rig_open("rdma://hung.example:6379"), 0);
    rig_hang_up();
    rig_release();
    rig_stop();

    rig_start();
    fake_rdma_before_open = rig_hang;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0); /* opening */
    rig_hang_up();
    rig_release();
    WAIT(&rig.bench, workers_outstanding(rig.bench.workers) == 0);
    ck_assert_uint_eq(fake_rdma_ever(), 1);
    rig_stop();

    rig_start();
    fake_rdma_knobs.no_answer = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0); /* connecting */
    RIG_WAIT(fake_rdma_last() != NULL && fake_rdma_last()->connecting);
    rig_stop();

    rig_start();
    fake_rdma_knobs.mute = true;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0); /* without a window */
    RIG_WAIT(fake_rdma_last() != NULL && fake_rdma_last()->peer.windows == 1);
    rig_stop();

    rig_start();
    rig.close_in = CLOSE_IN_CONNECTED;
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(rig.connected == 1);
    ck_assert_int_eq(rig.closed, 0);
    rig_stop();
}
END_TEST

UNIT_MAIN("RDMA set-up", a_connection, the_window_before_the_connection, every_address_of_a_name, no_such_name,
          port_closed, no_library, no_device, no_room_in_the_budget, more_is_registered_than_was_expected,
          a_name_server_that_does_not_answer, an_opening_that_hangs, nobody_answers, nobody_answers_at_either_address,
          a_server_that_never_advertises, refused_by_the_core, a_failure_while_connecting,
          nonsense_instead_of_a_window, closed_by_us_at_each_step)
