/* Values on a RESP connection: what is known of a payload that has left in part, and replies that go to a sink. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/resp.h"
#include "tests/unit/stub_valkey.h"
#include "tests/unit/unit_main.h"

#define VALUE_BYTES 300000

struct asked {
    struct resp_request request;
    int replies, losses, writable;
    bool may_have_run;
    int type;
    long long integer;
    char text[128];
};

static struct {
    struct bench bench;
    struct stub stub;
    struct offload *offload;
    struct valkey_config config;
    struct transport_address address;
    struct dial dial;
    struct resp_connection *connection;
    int ready, closed;
    struct asked value, before, behind;
    struct resp_sink sink;
    char room[RESP_READ_BYTES], got[VALUE_BYTES];
    size_t got_length, stored;
    bool full, hold, leave;
    int begun;
} it;

static char value[VALUE_BYTES];

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct asked *asked = (struct asked *)request;

    asked->replies++;
    asked->type = reply->type;
    asked->integer = reply->integer;
    snprintf(asked->text, sizeof(asked->text), "%s", reply->str != NULL ? reply->str : "");
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct asked *asked = (struct asked *)request;

    asked->losses++;
    asked->may_have_run = may_have_run;
}

static void on_writable(struct resp_request *request)
{
    ((struct asked *)request)->writable++;
}

static void on_ready(void *context)
{
    it.ready++;
}

static void end(void)
{
    struct resp_connection *connection = it.connection;

    it.connection = NULL;
    if (connection != NULL) {
        resp_close(connection);
    }
}

static void on_closed(void *context, bool auth, const char *why)
{
    it.closed++;
    end();
}

static const struct resp_events events = {.ready = on_ready, .closed = on_closed};

static void on_command(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "STORE")) {
        it.stored = words->element[2]->len;
        ck_assert_uint_eq(words->elements, 3);
        ck_assert_mem_eq(words->element[2]->str, value, it.stored);
        stub_say(peer, "+OK\r\n");
    } else if (stub_is(words, "PING")) {
        stub_say(peer, "+PONG\r\n");
    }
}

static void start(void)
{
    char why[TRANSPORT_WHY_BYTES];

    memset(&it, 0, sizeof(it));
    for (size_t i = 0; i < sizeof(value); i++) {
        value[i] = (char)(i * 7 + i / 251);
    }
    bench_start(&it.bench);
    stub_start(&it.stub, &it.bench, NULL);
    it.stub.command = on_command;
    it.offload = offload_create(it.bench.workers);
    it.config.connect_timeout_ms = 20000;
    ck_assert_int_eq(transport_address_parse(it.stub.address, &it.address, why), 0);
    ck_assert_int_eq(dial_init(&it.dial, &it.config, &it.address), 0);
    ck_assert_int_eq(resp_open(&it.bench.loop, it.offload, &it.config, &it.dial, &events, NULL, &it.connection, why),
                     0);
    WAIT(&it.bench, it.ready == 1);
}

static void stop(void)
{
    end();
    stub_stop(&it.stub);
    offload_unref(it.offload);
    dial_end(&it.dial);
    transport_address_free(&it.address);
    bench_stop(&it.bench);
}

static void init(struct asked *asked)
{
    memset(asked, 0, sizeof(*asked));
    asked->request.reply = on_reply;
    asked->request.lost = on_lost;
    asked->request.writable = on_writable;
}

static void send_head(uint64_t length)
{
    const char *words[] = {"STORE", "key"};
    const size_t lengths[] = {5, 3};

    init(&it.value);
    ck_assert_int_eq(resp_send_payload(it.connection, &it.value.request, 2, words, lengths, length), 0);
}

static int send_word(struct asked *asked, const char *word)
{
    const size_t length = strlen(word);

    init(asked);
    return resp_send(it.connection, &asked->request, 1, &word, &length);
}

/* --- payloads --- */

START_TEST(a_payload_in_pieces)
{
    size_t given = 0;

    start();
    send_head(VALUE_BYTES);
    ck_assert_int_eq(send_word(&it.behind, "PING"), -EBUSY);
    while (given < VALUE_BYTES) {
        size_t piece = VALUE_BYTES - given < 7001 ? VALUE_BYTES - given : 7001;
        given += resp_write(it.connection, value + given, piece);
        bench_turn(&it.bench);
    }
    ck_assert_uint_eq(resp_write(it.connection, "x", 1), 0);
    ck_assert_int_eq(send_word(&it.behind, "PING"), 0);
    WAIT(&it.bench, it.behind.replies == 1);
    ck_assert_int_eq(it.value.replies, 1);
    ck_assert_str_eq(it.value.text, "OK");
    ck_assert_uint_eq(it.stored, VALUE_BYTES);
    stop();
}
END_TEST

/* A server that does not read: what the transport does not take is not lost, and `writable` says when to go on. */
START_TEST(a_transport_that_is_full)
{
    size_t given = 0;

    start();
    it.stub.paused = true;
    uv_read_stop(&stub_first(&it.stub)->handle.stream);
    send_head(64 * VALUE_BYTES);
    for (size_t taken = 1; taken > 0 && given < 63 * VALUE_BYTES; given += taken) {
        taken = resp_write(it.connection, value, sizeof(value));
    }
    ck_assert_uint_lt(given, 63 * VALUE_BYTES);
    ck_assert_int_eq(it.value.writable, 0);
    stub_reset(stub_first(&it.stub));
    WAIT(&it.bench, it.closed == 1);
    ck_assert(it.value.losses == 1 && !it.value.may_have_run);
    stop();
}
END_TEST

START_TEST(the_last_byte_decides)
{
    for (int whole = 0; whole < 2; whole++) {
        start();
        it.stub.command = NULL;
        send_head(100);
        ck_assert_uint_eq(resp_write(it.connection, value, 99), 99);
        bench_idle(&it.bench, 10);
        if (whole == 1) {
            ck_assert_uint_eq(resp_write(it.connection, value + 99, 1), 1);
        }
        end();
        ck_assert_int_eq(it.value.losses, 1);
        ck_assert_int_eq(it.value.may_have_run, whole);
        stop();
    }
}
END_TEST

START_TEST(an_error_before_the_end)
{
    start();
    send_head(1000);
    ck_assert_uint_eq(resp_write(it.connection, value, 10), 10);
    stub_say(stub_first(&it.stub), "-ERR Protocol error: invalid bulk length\r\n");
    WAIT(&it.bench, it.closed == 1);
    ck_assert(it.value.replies == 1 && it.value.losses == 0);
    ck_assert_int_eq(it.value.type, REDIS_REPLY_ERROR);
    stop();
}
END_TEST

START_TEST(success_before_the_end)
{
    start();
    send_head(1000);
    ck_assert_uint_eq(resp_write(it.connection, value, 10), 10);
    stub_say(stub_first(&it.stub), "+OK\r\n");
    WAIT(&it.bench, it.closed == 1);
    ck_assert(it.value.replies == 0 && it.value.losses == 1 && !it.value.may_have_run);
    stop();
}
END_TEST

/* --- sinks --- */

static enum resp_sink_choice on_begin(struct resp_sink *sink, uint64_t length)
{
    it.begun++;
    return it.leave ? RESP_SINK_LEAVE : RESP_SINK_TAKE;
}

static void *on_room(struct resp_sink *sink, size_t *capacity)
{
    *capacity = sizeof(it.room);
    return it.full ? NULL : it.room;
}

static void on_filled(struct resp_sink *sink, size_t length)
{
    memcpy(it.got + it.got_length, it.room, length);
    it.got_length += length;
    it.full = it.hold;
}

static void ask_for_value(void)
{
    ck_assert_int_eq(send_word(&it.before, "FIRST"), 0);
    init(&it.value);
    it.sink = (struct resp_sink){.begin = on_begin, .room = on_room, .filled = on_filled};
    bulk_init(&it.sink.bulk);
    it.value.request.sink = &it.sink;
    ck_assert_int_eq(resp_send(it.connection, &it.value.request, 1, (const char *[]){"FETCH"}, (const size_t[]){5}), 0);
    ck_assert_int_eq(send_word(&it.behind, "LAST"), 0);
    WAIT(&it.bench, it.stub.commands == 3);
}

static void say_value(size_t length)
{
    char *reply = malloc(length + 64);
    int head = snprintf(reply, 64, ":1\r\n$%zu\r\n", length);

    memcpy(reply + head, value, length);
    memcpy(reply + head + length, "\r\n:2\r\n", 6);
    stub_send(stub_first(&it.stub), reply, (size_t)head + length + 6);
    free(reply);
}

START_TEST(a_value_between_other_replies)
{
    static const size_t lengths[] = {0, 1, 999, 1000, 1001, 16384, VALUE_BYTES};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        start();
        ask_for_value();
        say_value(lengths[i]);
        WAIT(&it.bench, it.behind.replies == 1);
        ck_assert(it.before.replies == 1 && it.before.integer == 1 && it.behind.integer == 2);
        ck_assert_int_eq(it.value.type, REDIS_REPLY_STRING);
        ck_assert_int_eq(it.value.integer, (long long)lengths[i]);
        ck_assert_uint_eq(it.got_length, lengths[i]);
        ck_assert_mem_eq(it.got, value, lengths[i]);
        stop();
    }
}
END_TEST

/* Nothing is read without room, and nobody spins meanwhile. */
START_TEST(no_room)
{
    unsigned resumed = 0;

    start();
    it.hold = true;
    ask_for_value();
    say_value(100000);
    while (it.behind.replies == 0) {
        size_t before;
        WAIT(&it.bench, it.full || it.behind.replies == 1);
        before = it.got_length;
        bench_idle(&it.bench, 3);
        ck_assert(it.got_length == before || it.behind.replies == 1);
        it.full = false;
        resp_resume(it.connection);
        resumed++;
    }
    ck_assert_uint_ge(resumed, 4);
    ck_assert_mem_eq(it.got, value, 100000);
    stop();
}
END_TEST

START_TEST(a_value_that_nobody_wants)
{
    start();
    it.leave = true;
    ask_for_value();
    say_value(VALUE_BYTES);
    WAIT(&it.bench, it.closed == 1);
    ck_assert(it.value.replies == 1 && it.value.integer == VALUE_BYTES && it.got_length == 0);
    ck_assert(it.behind.losses == 1 && it.before.replies == 1);
    stop();
}
END_TEST

START_TEST(half_a_value)
{
    start();
    ask_for_value();
    stub_say(stub_first(&it.stub), ":1\r\n$1000\r\nabc");
    WAIT(&it.bench, it.got_length == 3);
    stub_hang_up(stub_first(&it.stub));
    WAIT(&it.bench, it.closed == 1);
    ck_assert(it.value.losses == 1 && it.value.may_have_run && it.value.replies == 0 && it.begun == 1);
    stop();
}
END_TEST

UNIT_MAIN("resp_payload", a_payload_in_pieces, a_transport_that_is_full, the_last_byte_decides, an_error_before_the_end,
          success_before_the_end, a_value_between_other_replies, no_room, a_value_that_nobody_wants, half_a_value)
