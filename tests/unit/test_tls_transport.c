/* The TLS transport over one that takes and gives bytes as the test says: nothing stalls, nothing is lost, and what
 * counts as unsent has not left. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/stub_valkey.h"
#include "tests/unit/tls_peer.h"
#include "tests/unit/unit_main.h"

#define RECORD 16384
#define TIMEOUT_MS 20000

static struct {
    struct bench bench;
    struct offload *offload;
    struct transport_address address;
    struct transport_settings settings;
    struct transport *transport;
    int connected, readable, writable, closed, error;
    bool inside;
    char why[TRANSPORT_WHY_BYTES];
    char read[1 << 20];
    size_t read_length, capacity;
} line;

static char ca[] = "/tmp/test_tls.XXXXXX";

static void hang_up(void)
{
    struct transport *transport = line.transport;

    line.transport = NULL;
    if (transport != NULL) {
        transport->class->close(transport);
    }
}

static void on_connected(void *context)
{
    ck_assert(!line.inside);
    line.connected++;
}

static void on_readable(void *context)
{
    ssize_t length = 1;

    ck_assert(!line.inside);
    line.readable++;
    line.inside = true;
    while (length > 0) {
        length = line.transport->class->read(line.transport, line.read + line.read_length, line.capacity);
        line.read_length += length > 0 ? (size_t)length : 0;
    }
    line.inside = false;
}

static void on_writable(void *context)
{
    ck_assert(!line.inside);
    line.writable++;
}

static void on_closed(void *context, int error, const char *why)
{
    ck_assert(!line.inside);
    line.closed++;
    line.error = error;
    snprintf(line.why, sizeof(line.why), "%s", why);
    hang_up();
}

static const struct transport_events events = {
    .connected = on_connected, .readable = on_readable, .writable = on_writable, .closed = on_closed};

/* Turns both sides until neither has anything to do. */
static void rest(void)
{
    bool happened = true;

    while (happened) {
        happened = tls_peer_turn();
        bench_turn(&line.bench);
    }
}

static void start(const char *names, int version)
{
    char why[TRANSPORT_WHY_BYTES];
    struct tls_settings settings = {.enabled = true, .ca = ca};

    memset(&line, 0, sizeof(line));
    bench_start(&line.bench);
    snprintf(ca, sizeof(ca), "/tmp/test_tls.XXXXXX");
    close(mkstemp(ca));
    tls_peer_start(ca, names, version);
    line.offload = offload_create(line.bench.workers);
    line.capacity = sizeof(line.read) / 2;
    line.settings.connect_timeout_ms = TIMEOUT_MS;
    line.settings.tls = tls_store_create(&settings);
    ck_assert_int_eq(transport_address_parse("valkey.example:6379", &line.address, why), 0);
    line.inside = true;
    ck_assert_int_eq(transport_tls.open(&line.bench.loop, line.offload, &line.address, &line.settings, &events, &line,
                                        &line.transport, why), 0);
    line.inside = false;
}

static void shake_hands(void)
{
    WAIT(&line.bench, (tls_peer_turn(), line.connected + line.closed > 0));
    rest();
}

static void start_open(int version)
{
    start("DNS:valkey.example", version);
    shake_hands();
    ck_assert_msg(line.connected == 1 && line.closed == 0, "%s", line.why);
}

static void stop(void)
{
    hang_up();
    WAIT(&line.bench, workers_outstanding(line.bench.workers) == 0);
    tls_peer_stop();
    tls_store_unref(line.settings.tls);
    offload_unref(line.offload);
    transport_address_free(&line.address);
    bench_stop(&line.bench);
    unlink(ca);
}

static ssize_t put(const void *bytes, size_t length)
{
    line.inside = true;
    ssize_t taken = line.transport->class->write(line.transport, bytes, length);
    line.inside = false;
    return taken;
}

static char *pattern(size_t length)
{
    char *bytes = malloc(length);

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (char)(i * 7 + i / 251);
    }
    return bytes;
}

START_TEST(byte_by_byte)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    char *bytes = pattern(40000);

    for (size_t i = 0; i < 2; i++) {
        size_t sent = 0;
        start("DNS:valkey.example", versions[i]);
        WAIT(&line.bench, tls_peer.ssl != NULL);
        tls_peer.piece = 1;
        shake_hands();
        ck_assert_msg(line.connected == 1, "%s", line.why);
        ck_assert_int_eq(SSL_version(tls_peer.ssl), versions[i]);
        while (sent < 40000) {
            ssize_t taken = put(bytes + sent, 40000 - sent);
            ck_assert_int_ge(taken, 0);
            sent += (size_t)taken;
            tls_peer_turn();
        }
        tls_peer_say(bytes, 40000);
        rest();
        ck_assert_uint_eq(tls_peer.plain_length, 40000);
        ck_assert_mem_eq(tls_peer.plain, bytes, 40000);
        ck_assert_uint_eq(line.read_length, 40000);
        ck_assert_mem_eq(line.read, bytes, 40000);
        stop();
    }
    free(bytes);
}
END_TEST

/* One event of the transport below, and then everything is inside OpenSSL. */
START_TEST(bytes_inside_openssl_do_not_stall)
{
    char *bytes = pattern(3 * RECORD);

    start_open(TLS1_3_VERSION);
    line.capacity = 3;
    line.readable = 0;
    tls_peer_say(bytes, 3 * RECORD);
    tls_peer_turn();
    ck_assert_int_eq(line.readable, 1);
    ck_assert_uint_eq(line.read_length, 3 * RECORD);
    ck_assert_mem_eq(line.read, bytes, 3 * RECORD);
    free(bytes);
    stop();
}
END_TEST

/* Data that comes with the end of the handshake is told although no event follows. */
START_TEST(data_with_the_handshake)
{
    start("DNS:valkey.example", TLS1_2_VERSION);
    WAIT(&line.bench, tls_peer.ssl != NULL);
    tls_peer.early = "early";
    while (line.connected == 0) {
        tls_peer_turn();
    }
    ck_assert_uint_eq(line.read_length, 5);
    stop();
}
END_TEST

START_TEST(what_counts_as_unsent_has_not_left)
{
    char *bytes = pattern(4 * RECORD);
    size_t before;

    /* Half of the second record leaves: it counts as taken, the third does not. */
    start_open(TLS1_3_VERSION);
    before = tls_peer.from_daemon;
    tls_peer.room = RECORD + RECORD / 2;
    ck_assert_int_eq(put(bytes, 4 * RECORD), 2 * RECORD);
    ck_assert_uint_eq(tls_peer.from_daemon - before, RECORD + RECORD / 2);
    ck_assert_int_eq(put(bytes + 2 * RECORD, 2 * RECORD), 0);
    ck_assert_int_eq(line.writable, 0);
    tls_peer.room = SIZE_MAX;
    rest();
    ck_assert_int_eq(line.writable, 1);
    ck_assert_uint_eq(tls_peer.plain_length, 2 * RECORD);
    ck_assert_int_eq(put(bytes + 2 * RECORD, 2 * RECORD), 2 * RECORD);
    rest();
    ck_assert_mem_eq(tls_peer.plain, bytes, 4 * RECORD);
    ck_assert_int_eq(line.writable, 1);
    stop();

    /* A write that fails at once: none has left. One that fails after a record: that one may have. */
    start_open(TLS1_3_VERSION);
    tls_peer.write_fails = true;
    before = tls_peer.from_daemon;
    ck_assert_int_lt(put(bytes, 100), 0);
    ck_assert_uint_eq(tls_peer.from_daemon, before);
    stop();
    free(bytes);
}
END_TEST

/* A failed write does not stand in the way of what had come before. */
START_TEST(replies_survive_a_failed_write)
{
    start_open(TLS1_3_VERSION);
    tls_peer_say("+proof\r\n", 8);
    tls_peer.write_fails = true;
    ck_assert_int_lt(put("x", 1), 0);
    tls_peer.ends = true;
    rest();
    ck_assert_uint_eq(line.read_length, 8);
    ck_assert_int_eq(line.closed, 1);
    stop();
}
END_TEST

START_TEST(ends)
{
    /* The server says that it ends. */
    start_open(TLS1_3_VERSION);
    tls_peer_say("last", 4);
    SSL_shutdown(tls_peer.ssl);
    rest();
    ck_assert_uint_eq(line.read_length, 4);
    ck_assert_int_eq(line.closed, 1);
    ck_assert_int_eq(line.error, -ECONNRESET);
    ck_assert_ptr_nonnull(strstr(line.why, "closed the connection"));
    stop();

    /* It is just gone. */
    start_open(TLS1_2_VERSION);
    tls_peer.ends = true;
    rest();
    ck_assert_int_eq(line.closed, 1);
    ck_assert_str_eq(line.why, "the other side is gone");
    stop();

    /* We end: the server is told. */
    start_open(TLS1_3_VERSION);
    hang_up();
    ck_assert((SSL_get_shutdown(tls_peer.ssl) & SSL_RECEIVED_SHUTDOWN) != 0);
    ck_assert_uint_eq(tls_peer.closes, 1);
    stop();

    /* In the middle of the handshake. */
    start("DNS:valkey.example", TLS1_3_VERSION);
    WAIT(&line.bench, tls_peer.ssl != NULL);
    tls_peer.silent = true;
    tls_peer_turn();
    tls_peer.ends = true;
    rest();
    ck_assert_int_eq(line.closed, 1);
    ck_assert_ptr_nonnull(strstr(line.why, "during the TLS handshake"));
    stop();
}
END_TEST

/* A record that was changed on its way ends the connection, and is not read. */
START_TEST(tampering)
{
    char *record;
    long length;

    start_open(TLS1_3_VERSION);
    tls_peer_say("+OK\r\n", 5);
    length = BIO_get_mem_data(SSL_get_wbio(tls_peer.ssl), &record);
    record[length - 1] ^= 1;
    rest();
    ck_assert_uint_eq(line.read_length, 0);
    ck_assert_int_eq(line.closed, 1);
    ck_assert_int_eq(line.error, -EPROTO);
    stop();
}
END_TEST

START_TEST(new_keys)
{
    start_open(TLS1_3_VERSION);
    tls_peer.room = 0; /* the answer to it must wait */
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(SSL_key_update(tls_peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        tls_peer_say("0123456789", 10);
    }
    rest();
    ck_assert_uint_eq(line.read_length, 200);
    ck_assert_int_eq(put("hello", 5), 0);
    tls_peer.room = SIZE_MAX;
    rest();
    ck_assert_int_eq(put("hello", 5), 5);
    rest();
    ck_assert_uint_eq(tls_peer.plain_length, 5);
    ck_assert_int_eq(line.closed, 0);
    stop();
}
END_TEST

/* Answers to new keys that nobody takes are bounded: reading stops, and goes on when there is room, although all that
 * is left to read lies inside OpenSSL. */
START_TEST(new_keys_without_end)
{
    static char record[RECORD];

    start_open(TLS1_3_VERSION);
    tls_peer.room = 1;
    ck_assert_int_eq(put(record, RECORD), RECORD);
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(SSL_key_update(tls_peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        tls_peer_say("0123456789", 10);
    }
    tls_peer.silent = true;
    for (int i = 0; i < 5; i++) {
        tls_peer_turn();
    }
    ck_assert_uint_gt(line.read_length, 0);
    ck_assert_uint_lt(line.read_length, 2000);
    tls_peer.silent = false;
    tls_peer.room = SIZE_MAX;
    rest();
    ck_assert_uint_eq(line.read_length, 2000);
    ck_assert_uint_eq(tls_peer.plain_length, RECORD);
    ck_assert_int_eq(line.closed, 0);
    stop();
}
END_TEST

START_TEST(no_renegotiation)
{
    start_open(TLS1_2_VERSION);
    SSL_renegotiate(tls_peer.ssl);
    SSL_do_handshake(tls_peer.ssl);
    rest();
    ck_assert_int_eq(SSL_session_reused(tls_peer.ssl), 0);
    ck_assert_msg(line.closed == 1 || SSL_num_renegotiations(tls_peer.ssl) == 0, "renegotiated");
    stop();
}
END_TEST

START_TEST(the_name_is_verified)
{
    start("DNS:elsewhere.example", TLS1_3_VERSION);
    shake_hands();
    ck_assert_int_eq(line.connected, 0);
    ck_assert_int_eq(line.closed, 1);
    ck_assert_int_eq(line.error, -EACCES);
    ck_assert_msg(strstr(line.why, "is not for 'valkey.example' but for: elsewhere.example") != NULL, "%s", line.why);
    stop();
}
END_TEST

static void end_of_share(void)
{
    tls_peer.silent = true;
    tls_peer.attempt_ends = uv_now(&line.bench.loop) + 100;
}

static void end_by_peer(void)
{
    tls_peer.ends = true;
}

/* A peer that says nothing, or hangs up: the address after it begins anew, and works. Without one, the end. */
START_TEST(the_next_address_is_tried)
{
    static void (*const failures[])(void) = {end_of_share, end_by_peer};
    char *bytes = pattern(40000);

    for (size_t i = 0; i < 4; i++) {
        start("DNS:valkey.example", i % 2 == 0 ? TLS1_2_VERSION : TLS1_3_VERSION);
        WAIT(&line.bench, tls_peer.ssl != NULL);
        failures[i / 2]();
        tls_peer.addresses = 1;
        WAIT(&line.bench, (tls_peer_turn(), tls_peer.refusals == 1));
        ck_assert_int_eq(line.connected + line.closed, 0);
        shake_hands();
        ck_assert_msg(line.connected == 1 && line.closed == 0, "%s", line.why);
        ck_assert_int_eq(put(bytes, 40000), 40000);
        tls_peer_say(bytes, 40000);
        rest();
        ck_assert_uint_eq(tls_peer.plain_length, 40000);
        ck_assert_uint_eq(line.read_length, 40000);
        ck_assert_mem_eq(line.read, bytes, 40000);
        ck_assert_uint_eq(bench_active_timers(&line.bench), 0);
        stop();
    }
    start("DNS:elsewhere.example", TLS1_3_VERSION);
    WAIT(&line.bench, tls_peer.ssl != NULL);
    tls_peer.addresses = 2;
    WAIT(&line.bench, (tls_peer_turn(), line.closed == 1));
    ck_assert_uint_eq(tls_peer.refusals, 3);
    ck_assert_int_eq(line.connected, 0);
    stop();
    free(bytes);
}
END_TEST

START_TEST(asleep)
{
    start_open(TLS1_3_VERSION);
    ck_assert_uint_eq(bench_active_timers(&line.bench), 0);
    stop();
}
END_TEST

START_TEST(timeout)
{
    start("DNS:valkey.example", TLS1_3_VERSION);
    hang_up();
    bench_idle(&line.bench, 20); /* the files are read for nobody */
    stop();

    start("DNS:valkey.example", TLS1_3_VERSION);
    WAIT(&line.bench, tls_peer.ssl != NULL);
    tls_peer.silent = true;
    tls_peer.attempt_ends = uv_now(&line.bench.loop) + TIMEOUT_MS;
    bench_skip(TIMEOUT_MS);
    WAIT(&line.bench, (tls_peer_turn(), line.closed == 1));
    ck_assert_int_eq(line.error, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(line.why, "did not finish the handshake"));
    stop();
}
END_TEST

UNIT_MAIN("tls", byte_by_byte, bytes_inside_openssl_do_not_stall, data_with_the_handshake,
          what_counts_as_unsent_has_not_left, replies_survive_a_failed_write, ends, tampering, new_keys,
          new_keys_without_end, no_renegotiation, the_name_is_verified, the_next_address_is_tried,
          asleep, timeout)
