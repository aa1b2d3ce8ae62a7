/* How many messages may be on their way, what proves that the server has looked at one, and what a silence leads to. */
#include <errno.h>
#include <string.h>

#include "tests/unit/rdma_line.h"
#include "tests/unit/unit_main.h"

static struct rdma_line line;

static void begin(void)
{
    line_open(&line, 4096, 65536, STREAM_SENDS);
    line_connect(&line);
}

/* Messages of one byte, each acknowledged by the NIC, until no more may be sent; their number. */
static unsigned send_all(void)
{
    unsigned count = 0;

    while (rdma_stream_writable(&line.stream) && count < 5000) {
        line_put(&line, "x", 1);
        count++;
        line_settle(&line);
    }
    return count;
}

/* The trap of this protocol: the 1025th message kills the connection of a server that does not look. */
START_TEST(a_server_that_sleeps)
{
    begin();
    line.pair->asleep = true;
    ck_assert_uint_eq(send_all(), STREAM_UNPROVEN - 2); /* our window, and a question */
    for (int i = 0; i < 2000; i++) {
        rdma_stream_tick(&line.stream); /* keepalives, too, take receives */
        line_settle(&line);
    }
    ck_assert(!line.stream.ended);
    ck_assert_uint_eq(line.pair->most_unseen, STREAM_UNPROVEN - 1);
    line.pair->asleep = false;
    line_settle(&line);
    ck_assert(rdma_stream_writable(&line.stream)); /* the question was answered */
    line_close(&line);
}
END_TEST

START_TEST(an_answer_proves_what_it_answers)
{
    fake_rdma_knobs.no_features = true;
    begin();
    line.pair->asleep = true;
    unsigned sent = send_all();
    rdma_stream_answered(&line.stream, sent + 1); /* was not sent */
    ck_assert(!rdma_stream_writable(&line.stream));
    rdma_stream_answered(&line.stream, 0);
    ck_assert_uint_eq(line.stream.proven, 0);
    rdma_stream_answered(&line.stream, 1);
    ck_assert_uint_eq(line.stream.proven, 2); /* with our window */
    ck_assert_uint_eq(send_all(), 2);
    rdma_stream_answered(&line.stream, 100);
    ck_assert_uint_eq(line.stream.proven, 101);
    rdma_stream_answered(&line.stream, 50);
    ck_assert_uint_eq(line.stream.proven, 101);
    ck_assert_uint_eq(send_all(), 99);
    rdma_stream_answered(&line.stream, sent + 101);
    ck_assert_uint_eq(line.stream.proven, line.stream.posted);
    line_close(&line);
}
END_TEST

/* An answer to a request that ends in the middle of a message proves that message, and nothing behind it. */
START_TEST(messages_of_many_bytes)
{
    begin();
    line_put(&line, "abcdefghij", 10);
    line_put(&line, "klmnopqrst", 10);
    rdma_stream_answered(&line.stream, 10);
    ck_assert_uint_eq(line.stream.proven, 2);
    rdma_stream_answered(&line.stream, 11);
    ck_assert_uint_eq(line.stream.proven, 3);
    line_close(&line);
}
END_TEST

/* The NIC of a server that sleeps acknowledges, and its last keepalives arrive. */
START_TEST(neither_keepalives_nor_acknowledgements_prove)
{
    fake_rdma_knobs.no_features = true;
    begin();
    line.pair->asleep = true;
    send_all();
    uint64_t proven = line.stream.proven;
    for (int i = 0; i < 100; i++) {
        fake_rdma_keepalive(line.pair);
        line_settle(&line);
    }
    ck_assert_uint_eq(line.stream.sent, line.stream.posted);
    ck_assert_uint_eq(line.stream.proven, proven);
    ck_assert(!rdma_stream_writable(&line.stream));
    line_close(&line);
}
END_TEST

/* A reply without end: each window of ours that is filled proves that the one before was seen. */
START_TEST(payload_proves_our_window)
{
    char bytes[4096] = {0};

    fake_rdma_knobs.no_features = true;
    begin();
    line_put(&line, "x", 1);
    for (int i = 0; i < 2000; i++) {
        fake_rdma_say(line.pair, bytes, sizeof(bytes));
        line_settle(&line);
        ck_assert_uint_eq(rdma_stream_read(&line.stream, bytes, sizeof(bytes)), sizeof(bytes));
    }
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.windows, 2001);
    ck_assert_uint_le(line.stream.posted - line.stream.proven, 2);
    line_close(&line);
}
END_TEST

/* A value without end, in whose midst nothing is answered: each window of the server proves the last one. */
START_TEST(the_servers_window_proves_what_filled_it)
{
    fake_rdma_knobs.no_features = true;
    fake_rdma_knobs.window = 100;
    begin();
    for (int i = 0; i < 5000; i++) {
        ck_assert(rdma_stream_writable(&line.stream));
        line_put(&line, "x", 1);
        line_settle(&line);
    }
    ck_assert_uint_eq(line.pair->peer.got_length, 5000);
    line_close(&line);
}
END_TEST

/* Messages of one byte into a large window, and no answer: the question, asked at half of the limit, is the proof. */
START_TEST(a_question_where_nothing_else_proves)
{
    begin();
    for (int i = 0; i < 5000; i++) {
        ck_assert(rdma_stream_writable(&line.stream));
        line_put(&line, "x", 1);
        line_settle(&line);
    }
    ck_assert_uint_eq(line.pair->peer.got_length, 5000);
    ck_assert_uint_ge(line.pair->peer.features, 15);
    ck_assert_uint_le(line.pair->peer.features, 25);
    line_close(&line);
}
END_TEST

/* In ordinary use there is none: answers are the proof. */
START_TEST(no_question_while_requests_are_answered)
{
    begin();
    for (unsigned i = 1; i <= 5000; i++) {
        line_put(&line, "x", 1);
        line_settle(&line);
        rdma_stream_answered(&line.stream, i);
    }
    ck_assert_uint_eq(line.pair->peer.features, 0);
    line_close(&line);
}
END_TEST

/* --- silence --- */

START_TEST(a_keepalive_only_into_silence)
{
    begin();
    for (int i = 0; i < 10; i++) {
        fake_rdma_keepalive(line.pair);
        line_settle(&line);
        rdma_stream_tick(&line.stream);
    }
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.keepalives, 0); /* we hear that it is there */
    rdma_stream_tick(&line.stream);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.keepalives, 1);
    line_close(&line);
}
END_TEST

/* A server that never says anything: keepalives leave room for requests, however long it lasts. */
START_TEST(hours_of_silence)
{
    fake_rdma_knobs.no_features = true;
    begin();
    for (int i = 0; i < 2000; i++) {
        rdma_stream_tick(&line.stream);
        line_settle(&line);
    }
    ck_assert(!line.stream.ended);
    ck_assert_uint_gt(line.pair->peer.keepalives, 200);
    ck_assert_uint_lt(line.pair->peer.keepalives, STREAM_PROBE_AT);
    ck_assert_uint_ge(send_all(), STREAM_UNPROVEN - STREAM_PROBE_AT - 1);
    line_close(&line);
}
END_TEST

/* No NIC acknowledges: after 30 s that is the end, whether a request or a keepalive was under way. */
START_TEST(a_server_gone_without_a_word)
{
    for (int with_request = 0; with_request < 2; with_request++) {
        int ticks = 0;

        begin();
        if (with_request) {
            line_put(&line, "x", 1);
        }
        rdma_stream_tick(&line.stream); /* the server's window was heard */
        while (!line.stream.ended && ticks < 100) {
            ticks++;
            rdma_stream_tick(&line.stream); /* nothing moves */
        }
        ck_assert_int_ge(ticks * STREAM_TICK_MS, 30000);
        ck_assert_int_le(ticks * STREAM_TICK_MS, 36000);
        line_expect_end(&line, -ETIMEDOUT, "has acknowledged nothing for 30 s");
        line_close(&line);
    }
}
END_TEST

UNIT_MAIN("RDMA proof", a_server_that_sleeps, an_answer_proves_what_it_answers, messages_of_many_bytes,
          neither_keepalives_nor_acknowledgements_prove, payload_proves_our_window,
          the_servers_window_proves_what_filled_it, a_question_where_nothing_else_proves,
          no_question_while_requests_are_answered, a_keepalive_only_into_silence, hours_of_silence,
          a_server_gone_without_a_word)
