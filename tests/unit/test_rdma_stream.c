/* The windows of both sides: what is read and written, in which order, and what ends a connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/rdma_line.h"
#include "tests/unit/unit_main.h"

#define SENDS 32

static struct rdma_line line;

static void fill(char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (char)('a' + i * 7 % 26);
    }
}

/* --- reading --- */

/* A reply of every length over windows of every length, read in small pieces, arrives whole. */
START_TEST(a_reply_is_cut_at_every_end_of_a_window)
{
    static const size_t windows[] = {64, 65, 100, 1000, 4096};
    char expected[9000], got[9000];

    fill(expected, sizeof(expected));
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
        size_t window = windows[w];

        line_open(&line, window, 4096, SENDS);
        line_connect(&line);
        for (size_t length = 1; length <= 2 * window + 1; length += window > 100 ? 61 : 1) {
            size_t read = 0, turns = 0;

            fake_rdma_say(line.pair, expected, length);
            while (read < length) {
                line_settle(&line);
                ck_assert_uint_gt(rdma_stream_readable(&line.stream), 0);
                read += rdma_stream_read(&line.stream, got + read, 1 + turns++ % 97);
            }
            ck_assert_mem_eq(got, expected, length);
            ck_assert_uint_eq(rdma_stream_read(&line.stream, got, sizeof(got)), 0);
        }
        ck_assert_msg(!line.stream.ended, "%s", line.stream.why);
        line_close(&line);
    }
}
END_TEST

/* The window is advertised anew when its last byte was read, and only then; until then nothing more can come. */
START_TEST(a_window_is_advertised_when_it_was_filled_and_read)
{
    char bytes[200];

    fill(bytes, sizeof(bytes));
    line_open(&line, 64, 4096, SENDS);
    line_connect(&line);
    ck_assert_uint_eq(line.pair->peer.windows, 1);
    fake_rdma_say(line.pair, bytes, 63);
    line_settle(&line);
    ck_assert_uint_eq(rdma_stream_read(&line.stream, bytes, 63), 63);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.windows, 1);
    fake_rdma_say(line.pair, bytes, 10);
    line_settle(&line);
    ck_assert_uint_eq(rdma_stream_readable(&line.stream), 1);
    ck_assert_uint_eq(line.pair->peer.windows, 1);
    ck_assert_uint_eq(rdma_stream_read(&line.stream, bytes, 1), 1);
    ck_assert_uint_eq(rdma_stream_readable(&line.stream), 0);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.windows, 2);
    ck_assert_uint_eq(rdma_stream_readable(&line.stream), 9);
    line_close(&line);
}
END_TEST

/* Without a free slot the advertisement waits for one, and is not lost. */
START_TEST(an_advertisement_waits_for_a_slot)
{
    char bytes[64];

    line_open(&line, 64, 4096, 4);
    line_connect(&line);
    line.pair->hold_sent = true;
    line_put(&line, "x", 1);
    rdma_stream_tick(&line.stream); /* nothing: a message is under way */
    fake_rdma_say(line.pair, bytes, 64);
    fake_rdma_turn();
    line_poll(&line);
    line.pair->under_way = 4; /* as if there were others */
    ck_assert_uint_eq(rdma_stream_read(&line.stream, bytes, 64), 64);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.windows, 1);
    line.pair->under_way = 1;
    fake_rdma_release(line.pair);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.windows, 2);
    line_close(&line);
}
END_TEST

/* --- writing --- */

START_TEST(writing_stops_at_the_end_of_the_servers_window)
{
    char bytes[300];

    fill(bytes, sizeof(bytes));
    fake_rdma_knobs.window = 100;
    fake_rdma_knobs.no_again = true;
    line_open(&line, 4096, 4096, SENDS);
    ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes, 1), 0); /* not connected */
    line_connect(&line);
    ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes, sizeof(bytes)), 100);
    ck_assert(!rdma_stream_writable(&line.stream));
    ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes, sizeof(bytes)), 0);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.got_length, 100);
    ck_assert_uint_eq(line.pair->peer.payloads, 1);
    ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes + 100, 200), 0);
    fake_rdma_advertise(line.pair);
    line_settle(&line);
    line_put(&line, bytes + 100, 100);
    line_settle(&line);
    fake_rdma_advertise(line.pair);
    line_settle(&line);
    line_put(&line, bytes + 200, 100);
    line_settle(&line);
    ck_assert_mem_eq(line.pair->peer.got, bytes, 300);
    line_close(&line);
}
END_TEST

/* All that is written between two flushes is one message, or two where the ring ends. */
START_TEST(what_a_turn_brings_leaves_as_one_message)
{
    char bytes[64];

    fill(bytes, sizeof(bytes));
    line_open(&line, 4096, 1024, SENDS);
    line_connect(&line);
    for (unsigned turn = 0; turn < 100; turn++) {
        unsigned before = line.pair->peer.payloads;

        for (int i = 0; i < 5; i++) {
            ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes, 30), 30);
        }
        ck_assert_uint_eq(line.pair->peer.payloads, before);
        rdma_stream_flush(&line.stream);
        line_settle(&line);
        ck_assert_uint_eq(line.pair->peer.payloads - before, (turn + 1) * 150 / 1024 > turn * 150 / 1024 &&
                                                                     (turn + 1) * 150 % 1024 != 0 ? 2 : 1);
    }
    line_close(&line);
}
END_TEST

/* What was posted lies untouched until it is acknowledged, and then nothing of it is left. */
START_TEST(bytes_stay_until_they_are_acknowledged)
{
    char bytes[1024];

    fill(bytes, sizeof(bytes));
    line_open(&line, 4096, 1024, SENDS);
    line_connect(&line);
    line.pair->hold_sent = true;
    line_put(&line, bytes, 800);
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.got_length, 800);
    ck_assert_mem_eq(line.pair->staging, bytes, 800);
    ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes, 1024), 0); /* less than a quarter is free */
    fake_rdma_release(line.pair);
    line_settle(&line);
    for (size_t i = 0; i < 800; i++) {
        ck_assert_int_eq(line.pair->staging[i], 0);
    }
    ck_assert_uint_eq(rdma_stream_write(&line.stream, bytes, 1024), 1024);
    line_close(&line);
}
END_TEST

/* Address, length and key are other ones in every advertisement. */
START_TEST(the_servers_window_moves)
{
    char *bytes = malloc(100000);
    size_t written = 0;

    fill(bytes, 100000);
    fake_rdma_knobs.window = 500;
    fake_rdma_knobs.varies = true;
    line_open(&line, 4096, 4096, SENDS);
    line_connect(&line);
    while (written < 100000) {
        size_t taken = rdma_stream_write(&line.stream, bytes + written, 100000 - written);

        ck_assert_uint_gt(taken, 0);
        written += taken;
        rdma_stream_flush(&line.stream);
        line_settle(&line);
        rdma_stream_answered(&line.stream, written);
    }
    ck_assert_uint_eq(line.pair->peer.got_length, 100000);
    ck_assert_mem_eq(line.pair->peer.got, bytes, 100000);
    free(bytes);
    line_close(&line);
}
END_TEST

/* The queue pair says that it has no room although we counted: the bytes wait, and leave later in order. */
START_TEST(a_queue_that_is_full_against_its_word)
{
    line_open(&line, 4096, 1024, SENDS);
    line_connect(&line);
    line.pair->under_way = SENDS;
    line_put(&line, "first ", 6);
    line_put(&line, "second", 6);
    line.pair->under_way = 0;
    line_settle(&line);
    ck_assert_uint_eq(line.pair->peer.got_length, 12);
    ck_assert_mem_eq(line.pair->peer.got, "first second", 12);
    line_close(&line);
}
END_TEST

/* An advertisement before the last window is full is right only when all that was written has been seen. */
START_TEST(a_window_before_its_time)
{
    line_open(&line, 4096, 1024, SENDS);
    line_connect(&line);
    fake_rdma_advertise(line.pair); /* nothing was written */
    line_settle(&line);
    line_put(&line, "hello", 5);
    line_settle(&line);
    rdma_stream_answered(&line.stream, 5);
    fake_rdma_advertise(line.pair);
    line_settle(&line);
    line_put(&line, "again", 5);
    line_settle(&line);
    ck_assert_mem_eq(line.pair->peer.got, "helloagain", 10);
    fake_rdma_advertise(line.pair);
    line_poll(&line);
    line_expect_end(&line, -EPROTO, "anew while bytes for the last one were under way");
    line_close(&line);
}
END_TEST

/* --- violations --- */

static void begin(void)
{
    line_open(&line, 100, 1024, SENDS);
    line_connect(&line);
}

static void expect(int error, const char *words)
{
    line_poll(&line);
    line_expect_end(&line, error, words);
    ck_assert_uint_eq(rdma_stream_write(&line.stream, "x", 1), 0);
    line_close(&line);
}

START_TEST(what_the_server_announces_wrongly)
{
    begin();
    fake_rdma_payload(line.pair, 101);
    expect(-EPROTO, "announced 101 bytes where 1 to 100 have room");
    begin();
    fake_rdma_payload(line.pair, 60);
    fake_rdma_payload(line.pair, 41);
    expect(-EPROTO, "announced 41 bytes where 1 to 40 have room");
    begin();
    fake_rdma_payload(line.pair, UINT32_MAX);
    expect(-EPROTO, "announced 4294967295 bytes");
    begin();
    fake_rdma_payload(line.pair, 0);
    expect(-EPROTO, "announced 0 bytes");
    begin();
    fake_rdma_payload(line.pair, 100);
    fake_rdma_payload(line.pair, 1);
    expect(-EPROTO, "announced 1 bytes where 1 to 0 have room");
    line_open(&line, 100, 1024, SENDS);
    fake_rdma_payload(line.pair, 1);
    expect(-EPROTO, "wrote 1 bytes before a window was advertised");
}
END_TEST

/* The bytes that were announced in order before can be read. */
START_TEST(what_came_before_a_violation_can_be_read)
{
    char bytes[100];

    begin();
    fake_rdma_say(line.pair, "+OK\r\n", 5);
    line_settle(&line);
    fake_rdma_payload(line.pair, 0);
    fake_rdma_payload(line.pair, 5);
    line_poll(&line);
    ck_assert_uint_eq(rdma_stream_read(&line.stream, bytes, sizeof(bytes)), 5);
    ck_assert_mem_eq(bytes, "+OK\r\n", 5);
    expect(-EPROTO, "announced 0 bytes");
}
END_TEST

START_TEST(messages_of_another_form)
{
    uint8_t bytes[64] = {0};

    begin();
    fake_rdma_message(line.pair, bytes, 31);
    expect(-EPROTO, "a control message has 31 bytes");
    begin();
    fake_rdma_message(line.pair, bytes, 64);
    expect(-EPROTO, "a control message has 64 bytes");
    begin();
    fake_rdma_message(line.pair, bytes, 0);
    expect(-EPROTO, "a control message has 0 bytes");
    begin();
    bytes[1] = 4;
    fake_rdma_message(line.pair, bytes, 32);
    expect(-EPROTO, "unknown opcode 4");
    begin();
    bytes[1] = 1;
    fake_rdma_message(line.pair, bytes, 32);
    expect(-EPROTO, "opcode 1, which only clients send");
    begin();
    bytes[1] = 0; /* an answer that nobody asked for */
    fake_rdma_message(line.pair, bytes, 32);
    fake_rdma_keepalive(line.pair);
    line_poll(&line);
    ck_assert(!line.stream.ended);
    line_close(&line);
}
END_TEST

START_TEST(windows_that_cannot_be)
{
    begin();
    fake_rdma_advertise_as(line.pair, 0x7000, 0, 1);
    expect(-EPROTO, "a window of 0 bytes");
    begin();
    fake_rdma_advertise_as(line.pair, 0x7000, STREAM_PEER_WINDOW_MAX + 1, 1);
    expect(-EPROTO, "a window of 1073741825 bytes");
    begin();
    fake_rdma_advertise_as(line.pair, UINT64_MAX - 10, 100, 1);
    expect(-EPROTO, "at 0xfffffffffffffff5, which cannot be");
}
END_TEST

/* --- ends --- */

START_TEST(ends_and_their_reasons)
{
    begin();
    fake_rdma_disconnect(line.pair);
    expect(-ECONNABORTED, "before any answer: protected mode, or maxclients");
    begin();
    fake_rdma_fail_with(line.pair, -ECONNREFUSED, 28); /* a real server's protected mode, as it is seen now and then */
    expect(-ECONNABORTED, "before any answer: protected mode, or maxclients");
    begin();
    fake_rdma_say(line.pair, "x", 1);
    line_settle(&line);
    fake_rdma_disconnect(line.pair);
    expect(-ECONNRESET, "closed the connection");
    begin();
    fake_rdma_fail(line.pair, 13);
    expect(-EIO, "work completion status 13: the server did not come to take messages");
    begin();
    fake_rdma_fail(line.pair, 12);
    expect(-EIO, "work completion status 12: nothing there acknowledges");
}
END_TEST

/* What the connection manager says of a refusal: a reason of the peer, an errno of its own, nothing. */
START_TEST(refusals)
{
    static const struct {
        int provider_status;
        const char *words;
    } cases[] = {
        {8, ": Connection refused (CM status 8: nobody listens there for RDMA (the server's rdma-port and rdma-bind))"},
        {28, "(CM status 28: the server took it back: its limit of locked memory, protected mode, or maxclients"},
        {5, ": Connection refused (CM status 5)"},
        {-ETIMEDOUT, ": Connection refused (Connection timed out)"},
        {0, "cannot connect to rdma://192.0.2.1:6379: Connection refused"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        line_open(&line, 100, 1024, SENDS);
        line.pair->knobs.refuse = -ECONNREFUSED;
        line.pair->knobs.refuse_provider = cases[i].provider_status;
        ck_assert_int_eq(fake_rdma_ops.connect(line.pair), 0);
        fake_rdma_turn();
        expect(-ECONNREFUSED, cases[i].words);
    }
}
END_TEST

/* Completions that are in the queue when the connection ends are taken before the end. */
START_TEST(answers_before_the_end)
{
    char bytes[100];

    begin();
    line_put(&line, "QUIT\r\n", 6);
    fake_rdma_turn();
    fake_rdma_say(line.pair, "+OK\r\n", 5);
    fake_rdma_write(line.pair, 1);
    fake_rdma_disconnect(line.pair);
    ck_assert_int_eq(fake_rdma_ops.send(line.pair, (const uint8_t[RDMA_CONTROL_BYTES]){0}, 9), -ENOTCONN);
    line_put(&line, "PING\r\n", 6); /* cannot be posted: no reason to overlook what came */
    ck_assert(!line.stream.ended);
    line_poll(&line);
    ck_assert_uint_eq(rdma_stream_read(&line.stream, bytes, sizeof(bytes)), 5);
    expect(-ECONNRESET, "closed the connection");
}
END_TEST

/* A queue pair that posts nothing any more and does not say why. */
START_TEST(posting_fails)
{
    begin();
    line.pair->over = true;
    line_put(&line, "PING\r\n", 6);
    ck_assert(!line.stream.ended);
    ck_assert(!rdma_stream_writable(&line.stream));
    rdma_stream_tick(&line.stream);
    expect(-EIO, "writing to rdma://192.0.2.1:6379 failed");
    begin(); /* or says that it is over, since we have ended it */
    line.stream.posting_error = -EINVAL;
    fake_rdma_disconnect(line.pair);
    expect(-EIO, "writing to rdma://192.0.2.1:6379 failed: Invalid argument");
}
END_TEST

UNIT_MAIN("RDMA stream", a_reply_is_cut_at_every_end_of_a_window, a_window_is_advertised_when_it_was_filled_and_read,
          an_advertisement_waits_for_a_slot, writing_stops_at_the_end_of_the_servers_window,
          what_a_turn_brings_leaves_as_one_message, bytes_stay_until_they_are_acknowledged, the_servers_window_moves,
          a_queue_that_is_full_against_its_word, a_window_before_its_time, what_the_server_announces_wrongly,
          what_came_before_a_violation_can_be_read, messages_of_another_form, windows_that_cannot_be,
          ends_and_their_reasons, refusals, answers_before_the_end, posting_fails)
