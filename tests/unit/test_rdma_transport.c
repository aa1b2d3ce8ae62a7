/* A connection over RDMA on the loop: turns, sleep and waking, reading, holding, and its ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/rdma_rig.h"
#include "tests/unit/unit_main.h"

#define MUCH (1024 * 1024)

static uint8_t *make(size_t length)
{
    uint8_t *bytes = malloc(length);

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(i * 31 >> 3);
    }
    return bytes;
}

/* Nothing is taken before the end of the turn, and then all of it leaves in one message. */
START_TEST(one_message_a_turn)
{
    static const char words[] = "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n";

    rig_start();
    rig_connect();
    rig.put_piece = 14;
    rig_put(words, sizeof(words) - 1);
    ck_assert_uint_eq(rig.put_used, 0);
    RIG_WAIT(rig_pair()->peer.got_length == sizeof(words) - 1);
    ck_assert_uint_eq(rig_pair()->peer.payloads, 1);
    ck_assert_int_eq(rig.writable, 1);
    ck_assert_mem_eq(rig_pair()->peer.got, words, sizeof(words) - 1);
    rig_stop();
}
END_TEST

/* What counts as not taken has not left. */
START_TEST(an_end_before_the_end_of_the_turn)
{
    rig_start();
    rig_connect();
    RIG_WAIT(rig_pair()->peer.windows == 1);
    ck_assert_int_eq(rig_write("SET", 3), 0);
    ck_assert_uint_eq(rig_pair()->posted_count, 0);
    fake_rdma_disconnect(rig_pair());
    RIG_WAIT(rig.closed == 1);
    ck_assert_int_eq(rig.error, -ECONNABORTED);
    rig_stop();
}
END_TEST

/* Much in both directions at once, over small windows of the server. */
static void move_much(uint32_t window, size_t piece)
{
    uint8_t *bytes = make(MUCH);

    rig_start();
    fake_rdma_knobs.window = window;
    fake_rdma_knobs.varies = true;
    fake_rdma_knobs.piece = piece;
    rig_connect();
    fake_rdma_say(rig_pair(), bytes, MUCH);
    rig_put(bytes, MUCH);
    RIG_WAIT(rig.read_length == MUCH && rig_pair()->peer.got_length == MUCH);
    ck_assert_mem_eq(rig.read, bytes, MUCH);
    ck_assert_mem_eq(rig_pair()->peer.got, bytes, MUCH);
    ck_assert_int_eq(rig.closed, 0);
    rig_stop();
    free(bytes);
}

START_TEST(much_both_ways)
{
    move_much(1024 * 1024, 0);
    move_much(65536, 16384);
    move_much(4096, 1000);
}
END_TEST

/* More events at once than a turn takes, and bytes of which no descriptor tells any more. */
START_TEST(more_events_than_a_turn_takes)
{
    rig_start();
    rig_connect();
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 1000; i++) {
            fake_rdma_say(rig_pair(), "x", 1);
            fake_rdma_write(rig_pair(), 1);
        }
        RIG_WAIT(rig.read_length == (size_t)(round + 1) * 1000);
    }
    rig_stop();
}
END_TEST

/* The loop sleeps while nothing happens. */
START_TEST(an_idle_connection_sleeps)
{
    rig_start();
    rig_connect();
    RIG_WAIT(rig_pair()->peer.windows == 1 && rig_pair()->armed && rig_pair()->under_way == 0);
    rig.stopped = true;
    bench_idle(&rig.bench, 30);
    uint64_t turns = 0, end = uv_hrtime() + UINT64_C(50000000);
    while (uv_hrtime() < end) {
        bench_turn(&rig.bench); /* 5 ms each */
        turns++;
    }
    ck_assert_uint_le(turns, 12);
    rig_stop();
}
END_TEST

START_TEST(held)
{
    rig_start();
    rig_connect();
    rig.transport->class->hold(rig.transport, true);
    fake_rdma_say(rig_pair(), "+OK\r\n", 5);
    rig_put("x", 1); /* writing goes on */
    RIG_WAIT(rig_pair()->peer.got_length == 1);
    RIG_WAIT(rig_pair()->peer.said == 5 && rig_pair()->event_count == 0);
    ck_assert_int_eq(rig.readable, 0);
    fake_rdma_disconnect(rig_pair());
    for (int i = 0; i < 20; i++) {
        rig_turn();
        bench_turn(&rig.bench);
    }
    ck_assert_int_eq(rig.readable + rig.closed, 0); /* neither bytes nor the end behind them */
    rig.transport->class->hold(rig.transport, false);
    RIG_WAIT(rig.closed == 1);
    ck_assert_uint_eq(rig.read_length, 5);
    ck_assert_int_eq(rig.error, -ECONNRESET);
    rig_stop();
}
END_TEST

/* A server writes its last answer and disconnects at once: when the bytes made it, they are read before the end. */
START_TEST(the_last_answer_and_the_end)
{
    rig_start();
    rig_connect();
    rig.stopped = true;
    fake_rdma_turn();
    fake_rdma_say(rig_pair(), "+OK\r\n", 5);
    fake_rdma_write(rig_pair(), 1);
    fake_rdma_disconnect(rig_pair());
    RIG_WAIT(rig.closed == 1);
    ck_assert_uint_eq(rig.read_length, 5);
    ck_assert_int_eq(rig.error, -ECONNRESET);
    ck_assert_str_eq(rig.why, "rdma://192.0.2.1:6379 closed the connection");
    rig_stop();
}
END_TEST

/* The same when it did not: an end, and nothing is known of the request. */
START_TEST(a_lost_last_answer)
{
    rig_start();
    rig_connect();
    fake_rdma_say(rig_pair(), "+first\r\n", 8);
    RIG_WAIT(rig.read_length == 8);
    rig_put("QUIT\r\n", 6);
    RIG_WAIT(rig_pair()->peer.got_length == 6);
    fake_rdma_disconnect(rig_pair());
    RIG_WAIT(rig.closed == 1);
    ck_assert_uint_eq(rig.read_length, 8);
    rig_stop();
}
END_TEST

START_TEST(a_violation_ends_it)
{
    rig_start();
    rig_connect();
    fake_rdma_payload(rig_pair(), STREAM_WINDOW_BYTES + 1);
    RIG_WAIT(rig.closed == 1);
    ck_assert_int_eq(rig.error, -EPROTO);
    ck_assert_ptr_nonnull(strstr(rig.why, "announced 65537 bytes where 1 to 65536 have room"));
    rig_stop();
}
END_TEST

START_TEST(a_server_that_comes_back)
{
    rig_start();
    for (int i = 0; i < 3; i++) {
        rig_connect();
        rig_put("PING\r\n", 6);
        RIG_WAIT(rig_pair()->peer.got_length == 6);
        fake_rdma_fail(rig_pair(), 12);
        RIG_WAIT(rig.closed == 1);
        ck_assert_int_eq(rig.error, -EIO);
        RIG_WAIT(fake_rdma_open_count() == 0 && rig.charged == 0);
    }
    rig_stop();
}
END_TEST

START_TEST(closed_in_a_callback)
{
    rig_start();
    rig.close_in = CLOSE_IN_READABLE;
    rig_connect();
    fake_rdma_say(rig_pair(), "x", 1);
    RIG_WAIT(rig.readable == 1);
    ck_assert_ptr_null(rig.transport);
    rig_stop();

    rig_start();
    rig.close_in = CLOSE_IN_WRITABLE;
    rig_connect();
    rig_put("x", 1);
    RIG_WAIT(rig.writable == 1);
    ck_assert_ptr_null(rig.transport);
    rig_stop();
}
END_TEST

/* A server that does not look: no more than the limit is on its way, and all arrives once it does. */
START_TEST(a_server_that_sleeps)
{
    uint8_t *bytes = make(3000);

    rig_start();
    rig_connect();
    RIG_WAIT(rig_pair()->peer.windows == 1);
    rig_pair()->asleep = true;
    for (unsigned i = 0; i < 3000; i++) {
        rig_put(bytes + i, 1);
        for (int turns = 0; turns < 5 && rig.put_used == 0; turns++) {
            rig_turn();
            bench_turn(&rig.bench);
        }
        if (rig.put_used == 0) {
            break;
        }
    }
    ck_assert_uint_le(rig_pair()->most_unseen, STREAM_UNPROVEN + 2);
    ck_assert_uint_ge(rig_pair()->most_unseen, STREAM_UNPROVEN - 2);
    ck_assert_uint_eq(rig.put_used, 0); /* the last one waits */
    size_t arrived = rig_pair()->most_unseen;
    rig_pair()->asleep = false;
    RIG_WAIT(rig.put_used == 1);
    RIG_WAIT(rig_pair()->peer.got_length >= arrived - 1);
    ck_assert_mem_eq(rig_pair()->peer.got, bytes, rig_pair()->peer.got_length);
    rig_stop();
    free(bytes);
}
END_TEST

/* The tick of the loop: a server that says nothing gets a keepalive after a while. */
START_TEST(a_keepalive_by_itself)
{
    rig_start();
    rig_connect();
    RIG_WAIT(rig_pair()->peer.keepalives == 1);
    rig_stop();
}
END_TEST

UNIT_MAIN("RDMA transport", one_message_a_turn, an_end_before_the_end_of_the_turn, much_both_ways,
          more_events_than_a_turn_takes, an_idle_connection_sleeps, held, the_last_answer_and_the_end,
          a_lost_last_answer, a_violation_ends_it, a_server_that_comes_back, closed_in_a_callback,
          a_server_that_sleeps, a_keepalive_by_itself)
