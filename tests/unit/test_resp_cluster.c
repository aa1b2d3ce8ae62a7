/* What a RESP connection does for clusters: ASKING and a command in one write, and replies that may be large. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/resp.h"
#include "tests/unit/stub_valkey.h"
#include "tests/unit/unit_main.h"

struct probe {
    struct resp_request request;
    int replies, losses;
    bool may_have_run;
    char text[64];
    size_t elements;
};

static struct bench bench;
static struct stub stub;
static struct valkey_config config;
static struct transport_address address;
static struct dial dial;
static struct offload *offload;
static struct resp_connection *connection;
static int ready, closed;
static char why_closed[TRANSPORT_WHY_BYTES];
static const char *asking_answer;
static unsigned asking_reads, command_reads;

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct probe *probe = (struct probe *)request;

    probe->replies++;
    probe->elements = reply->elements;
    snprintf(probe->text, sizeof(probe->text), "%s", reply->str != NULL ? reply->str : "");
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct probe *probe = (struct probe *)request;

    probe->losses++;
    probe->may_have_run = may_have_run;
}

static void on_ready(void *context)
{
    ready++;
}

static void on_closed(void *context, bool auth, const char *why)
{
    closed++;
    snprintf(why_closed, sizeof(why_closed), "%s", why);
    resp_close(connection);
    connection = NULL;
}

static const struct resp_events events = {.ready = on_ready, .closed = on_closed};

static void script(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "ASKING")) {
        asking_reads = peer->reads;
        stub_say(peer, asking_answer);
    } else {
        command_reads = peer->reads;
        stub_say(peer, "+command\r\n");
    }
}

static void start(void)
{
    char why[TRANSPORT_WHY_BYTES];

    ready = closed = 0;
    asking_answer = "+OK\r\n";
    bench_start(&bench);
    stub_start(&stub, &bench, NULL);
    stub.command = script;
    offload = offload_create(bench.workers);
    config.connect_timeout_ms = 20000;
    ck_assert_int_eq(transport_address_parse(stub.address, &address, why), 0);
    ck_assert_int_eq(dial_init(&dial, &config, &address), 0);
    ck_assert_int_eq(resp_open(&bench.loop, offload, &config, &dial, &events, NULL, &connection, why), 0);
}

static void stop(void)
{
    if (connection != NULL) {
        resp_close(connection);
    }
    stub_stop(&stub);
    offload_unref(offload);
    dial_end(&dial);
    transport_address_free(&address);
    bench_stop(&bench);
}

static int ask(struct probe *probe, struct resp_asking *asking, const char *word, size_t length)
{
    *probe = (struct probe){.request = {.reply = on_reply, .lost = on_lost}};
    return resp_send_asking(connection, asking, &probe->request, 1, &word, &length);
}

START_TEST(asking_goes_with_its_command)
{
    static const char *const answers[] = {"+OK\r\n", "-ERR This instance has cluster support disabled\r\n", ":1\r\n"};
    struct probe probe;
    struct resp_asking asking;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        start();
        asking_answer = answers[i];
        /* Before the connection is ready, and after. */
        for (int round = 0; round < 2; round++) {
            ck_assert_int_eq(ask(&probe, &asking, "GET", 3), 0);
            WAIT(&bench, probe.replies == 1);
            ck_assert_str_eq(probe.text, "command");
            ck_assert_uint_eq(asking_reads, command_reads);
            ck_assert_uint_eq(resp_pending(connection), 0);
        }
        ck_assert_uint_eq(stub.commands, 4);
        stop();
    }
}
END_TEST

/* Both or none: what does not fit leaves nothing behind. */
START_TEST(both_or_none)
{
    struct probe probe, other = {.request = {.reply = on_reply, .lost = on_lost}};
    struct resp_asking asking;
    const char *words[] = {"PING"};
    const size_t lengths[] = {4};
    char *large = calloc(1, RESP_OUTPUT_BYTES);

    start();
    memset(large, 'x', RESP_OUTPUT_BYTES - 1);
    ck_assert_int_eq(ask(&probe, &asking, large, RESP_OUTPUT_BYTES - 1), -ENOBUFS); /* not connected yet: it waits */
    ck_assert_uint_eq(resp_pending(connection), 0);
    ck_assert_int_eq(resp_send(connection, &other.request, 1, words, lengths), 0);
    WAIT(&bench, other.replies == 1);
    ck_assert_uint_eq(stub.commands, 1);
    ck_assert_int_eq(probe.replies + probe.losses, 0);
    free(large);
    stop();
}
END_TEST

START_TEST(both_are_lost_together)
{
    struct probe probe;
    struct resp_asking asking;

    start();
    ck_assert_int_eq(ask(&probe, &asking, "SET", 3), 0);
    resp_close(connection);
    connection = NULL;
    ck_assert(probe.losses == 1 && !probe.may_have_run);
    stop();

    start();
    stub.command = NULL; /* says nothing */
    WAIT(&bench, ready == 1);
    ck_assert_int_eq(ask(&probe, &asking, "SET", 3), 0);
    WAIT(&bench, stub.commands == 2);
    stub_hang_up(stub_first(&stub));
    WAIT(&bench, closed == 1);
    ck_assert(probe.losses == 1 && probe.may_have_run);
    stop();
}
END_TEST

/* --- large replies --- */

static char *many_elements(size_t outer, size_t inner, size_t *length)
{
    size_t capacity = 32 + outer * (16 + 4 * inner);
    char *bytes = malloc(capacity);

    *length = (size_t)sprintf(bytes, "*%zu\r\n", outer);
    for (size_t i = 0; i < outer; i++) {
        *length += (size_t)sprintf(bytes + *length, "*%zu\r\n", inner);
        for (size_t j = 0; j < inner; j++) {
            memcpy(bytes + *length, ":1\r\n", 4);
            *length += 4;
        }
    }
    return bytes;
}

/* Returns whether it was answered; else the connection has ended. */
static bool answered(bool large, const char *bytes, size_t length)
{
    struct probe probe = {.request = {.reply = on_reply, .lost = on_lost, .large = large}};
    const char *words[] = {"CLUSTER", "SLOTS"};
    const size_t lengths[] = {7, 5};

    start();
    stub.command = NULL;
    WAIT(&bench, ready == 1);
    ck_assert_int_eq(resp_send(connection, &probe.request, 2, words, lengths), 0);
    WAIT(&bench, stub.commands == 1);
    stub_send(stub_first(&stub), bytes, length);
    WAIT(&bench, probe.replies + probe.losses == 1);
    WAIT(&bench, closed == probe.losses);
    stop();
    return probe.replies == 1;
}

START_TEST(large_where_it_was_asked_for)
{
    size_t length;
    char *bytes = many_elements(16384, 12, &length); /* as of a cluster whose slots are all apart */

    ck_assert(answered(true, bytes, length));
    ck_assert(!answered(false, bytes, length));
    ck_assert_ptr_nonnull(strstr(why_closed, "more than 65536 elements"));
    free(bytes);

    bytes = many_elements(32768, 8, &length);
    ck_assert(!answered(true, bytes, length));
    ck_assert_ptr_nonnull(strstr(why_closed, "more than 262144 elements"));
    free(bytes);

    length = RESP_LARGE_INPUT_BYTES + 100000;
    bytes = malloc(length);
    memset(bytes, 'x', length);
    memcpy(bytes, "$2147483647\r\n", 13);
    ck_assert(!answered(true, bytes, length));
    ck_assert_ptr_nonnull(strstr(why_closed, "larger than 16777216 bytes"));
    free(bytes);
}
END_TEST

UNIT_MAIN("resp_cluster", asking_goes_with_its_command, both_or_none, both_are_lost_together,
          large_where_it_was_asked_for)
