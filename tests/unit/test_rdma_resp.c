/* RESP connections over RDMA: AUTH, commands in a row, large replies and values, and what is known after an end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/valkey/rdma/object.h"
#include "daemon/valkey/rdma/stream.h"
#include "daemon/valkey/resp.h"
#include "tests/unit/fake_rdma.h"
#include "tests/unit/stub_valkey.h"
#include "tests/unit/unit_main.h"

#define PROBES 4000

struct probe {
    struct resp_request request;
    int replies, losses;
    bool may_have_run;
    int type;
    size_t length;
    long long integer;
};

static struct {
    struct bench bench;
    struct offload *offload;
    struct valkey_config config;
    struct transport_address address;
    struct dial dial;
    struct resp_connection *connection;
    int ready, closed;
    char why[TRANSPORT_WHY_BYTES];
    struct probe probes[PROBES];
    unsigned used;
    /* of the server */
    redisReader *reader;
    unsigned commands, auths;
    char auth_words[128];
    bool silent;
    /* of a value that is sent in pieces */
    size_t value_left;
} client;

static char directory[64];

/* --- the server --- */

const struct rdma_ops *__wrap_rdma_object_find(char why[RDMA_WHY_BYTES]);
int __real_getaddrinfo(const char *host, const char *port, const void *hints, void *found);
int __wrap_getaddrinfo(const char *host, const char *port, const void *hints, void *found);

const struct rdma_ops *__wrap_rdma_object_find(char why[RDMA_WHY_BYTES])
{
    return &fake_rdma_ops;
}

int __wrap_getaddrinfo(const char *host, const char *port, const void *hints, void *found)
{
    return __real_getaddrinfo(host, port, hints, found);
}

static void answer(struct rdma_queue_pair *pair, const redisReply *words)
{
    char line[64];
    size_t length;
    char *value;

    client.commands++;
    if (strcmp(words->element[0]->str, "AUTH") == 0) {
        client.auths++;
        snprintf(client.auth_words, sizeof(client.auth_words), "%s", words->element[1]->str);
        fake_rdma_say(pair, "+OK\r\n", 5);
    } else if (strcmp(words->element[0]->str, "BIG") == 0) {
        length = strtoul(words->element[1]->str, NULL, 10);
        value = malloc(length + 2);
        memset(value, 'b', length);
        memcpy(value + length, "\r\n", 2);
        fake_rdma_say(pair, line, (size_t)snprintf(line, sizeof(line), "$%zu\r\n", length));
        fake_rdma_say(pair, value, length + 2);
        free(value);
    } else if (strcmp(words->element[0]->str, "QUIT") == 0) {
        fake_rdma_say(pair, "+OK\r\n", 5);
        fake_rdma_write(pair, 1);
        fake_rdma_disconnect(pair);
    } else if (!client.silent) {
        fake_rdma_say(pair, line, (size_t)snprintf(line, sizeof(line), ":%u\r\n", client.commands));
    }
}

static void on_bytes(struct rdma_queue_pair *pair)
{
    struct fake_rdma_peer *peer = &pair->peer;

    ck_assert_int_eq(redisReaderFeed(client.reader, (char *)peer->got + peer->got_used,
                                     peer->got_length - peer->got_used), REDIS_OK);
    peer->got_used = peer->got_length;
    for (;;) {
        void *words = NULL;

        ck_assert_int_eq(redisReaderGetReply(client.reader, &words), REDIS_OK);
        if (words == NULL) {
            break;
        }
        answer(pair, words);
        freeReplyObject(words);
    }
}

/* --- the client --- */

#define TURN_UNTIL(condition)                                                                                         \
    do {                                                                                                              \
        uint64_t turn_end = uv_hrtime() + UINT64_C(60000000000);                                                      \
        while (fake_rdma_turn(), !(condition)) {                                                                      \
            ck_assert_msg(uv_hrtime() < turn_end, "waited in vain for %s; %s", #condition, client.why);               \
            bench_turn(&client.bench);                                                                                \
        }                                                                                                             \
    } while (0)

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct probe *probe = (struct probe *)request;

    ck_assert_int_eq(probe->replies + probe->losses, 0);
    probe->replies++;
    probe->type = reply->type;
    probe->integer = reply->integer;
    probe->length = reply->len;
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct probe *probe = (struct probe *)request;

    ck_assert_int_eq(probe->replies + probe->losses, 0);
    probe->losses++;
    probe->may_have_run = may_have_run;
}

static void on_ready(void *context)
{
    client.ready++;
}

static void end(void)
{
    struct resp_connection *connection = client.connection;

    client.connection = NULL;
    if (connection != NULL) {
        resp_close(connection);
    }
}

static void on_closed(void *context, bool auth, const char *why)
{
    client.closed++;
    snprintf(client.why, sizeof(client.why), "%s", why);
    end();
}

static const struct resp_events events = {.ready = on_ready, .closed = on_closed};

static struct probe *command(const char *first, const char *second)
{
    struct probe *probe = &client.probes[client.used++];
    const char *words[] = {first, second};
    size_t lengths[] = {strlen(first), second != NULL ? strlen(second) : 0};

    ck_assert_uint_le(client.used, PROBES);
    *probe = (struct probe){.request = {.reply = on_reply, .lost = on_lost}};
    ck_assert_int_eq(resp_send(client.connection, &probe->request, second != NULL ? 2 : 1, words, lengths), 0);
    return probe;
}

static void start(void)
{
    char why[TRANSPORT_WHY_BYTES];

    memset(&client, 0, sizeof(client));
    bench_start(&client.bench);
    client.offload = offload_create(client.bench.workers);
    client.config.connect_timeout_ms = 60000;
    client.reader = redisReaderCreate();
    client.reader->maxelements = 0;
    fake_rdma_hook = on_bytes;
    ck_assert_int_eq(transport_address_parse("rdma://192.0.2.1:6379", &client.address, why), 0);
    ck_assert_int_eq(dial_init(&client.dial, &client.config, &client.address), 0);
}

static void open_ready(void)
{
    char why[TRANSPORT_WHY_BYTES];

    ck_assert_int_eq(resp_open(&client.bench.loop, client.offload, &client.config, &client.dial, &events, &client,
                               &client.connection, why), 0);
    TURN_UNTIL(client.ready + client.closed == 1);
    ck_assert_msg(client.ready == 1, "%s", client.why);
}

static void stop(void)
{
    end();
    WAIT(&client.bench, workers_outstanding(client.bench.workers) == 0);
    fake_rdma_reset();
    redisReaderFree(client.reader);
    offload_unref(client.offload);
    dial_end(&client.dial);
    transport_address_free(&client.address);
    free(client.config.password_file);
    bench_stop(&client.bench);
}

static void write_password(const char *password)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/password", directory);
    fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, password, strlen(password)), (ssize_t)strlen(password));
    close(fd);
    free(client.config.password_file);
    client.config.rdma_auth_in_clear = true;
    client.config.password_file = strdup(path);
}

/* --- tests --- */

START_TEST(commands_in_a_row)
{
    start();
    fake_rdma_knobs.piece = 3;
    open_ready();
    struct rdma_queue_pair *pair = fake_rdma_last();
    for (int i = 0; i < 1000; i++) {
        command("PING", NULL);
    }
    TURN_UNTIL(resp_pending(client.connection) == 0);
    for (unsigned i = 0; i < 1000; i++) {
        ck_assert_int_eq(client.probes[i].integer, i + 1);
    }
    ck_assert_uint_eq(pair->peer.payloads, 1); /* of one turn of the loop */
    stop();
}
END_TEST

/* Answers are the proof that the server keeps up: with them no question is asked, however long it goes on. */
START_TEST(answers_are_told)
{
    start();
    fake_rdma_knobs.no_features = true;
    open_ready();
    struct rdma_queue_pair *pair = fake_rdma_last();
    for (int i = 0; i < 3000; i++) {
        struct probe *probe = command("PING", NULL);
        TURN_UNTIL(probe->replies == 1);
    }
    ck_assert_uint_ge(pair->peer.payloads, 3000);
    ck_assert_uint_eq(pair->peer.features, 0);
    stop();
}
END_TEST

/* AUTH, and its renewals between other commands: they count among the bytes that answers are matched with. */
START_TEST(auth_and_renewals)
{
    start();
    fake_rdma_knobs.no_features = true;
    write_password("a rather long password, so that bytes that are counted twice or not at all are noticed soon\n");
    open_ready();
    struct rdma_queue_pair *pair = fake_rdma_last();
    ck_assert_uint_eq(client.auths, 1);
    for (unsigned i = 0; i < 1200; i++) {
        struct probe *probe = command("PING", NULL);
        if (i % 2 == 0) {
            resp_renew(client.connection, true);
        }
        TURN_UNTIL(probe->replies == 1 && client.auths == 2 + i / 2 && resp_pending(client.connection) == 0);
    }
    ck_assert_uint_gt(pair->peer.payloads, 1200);
    ck_assert_uint_eq(pair->peer.features, 0);
    ck_assert_ptr_nonnull(strstr(client.auth_words, "a rather long password"));
    ck_assert_ptr_null(memmem(pair->staging, STREAM_STAGING_BYTES, "rather long", 11));
    stop();
}
END_TEST

START_TEST(replies_larger_than_our_window)
{
    static const char *const sizes[] = {"1", "65530", "65536", "65537", "300000", "1000000"};

    start();
    fake_rdma_knobs.piece = 60000;
    open_ready();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        command("BIG", sizes[i]);
    }
    TURN_UNTIL(resp_pending(client.connection) == 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ck_assert_uint_eq(client.probes[i].length, strtoul(sizes[i], NULL, 10));
    }
    stop();
}
END_TEST

static void give_value(struct resp_request *request)
{
    static char piece[1000];
    size_t taken = 1;

    while (client.value_left > 0 && taken > 0) {
        taken = resp_write(client.connection, piece, client.value_left < 1000 ? client.value_left : 1000);
        client.value_left -= taken;
    }
}

/* A value larger than everything that is pinned, in small pieces, with the end of line behind it. */
START_TEST(a_large_value)
{
    const char *words[] = {"SET", "key"};
    const size_t lengths[] = {3, 3};
    struct probe probe = {.request = {.reply = on_reply, .lost = on_lost, .writable = give_value}};

    start();
    fake_rdma_knobs.window = 65536;
    open_ready();
    client.value_left = 1000001;
    ck_assert_int_eq(resp_send_payload(client.connection, &probe.request, 2, words, lengths, client.value_left), 0);
    TURN_UNTIL(probe.replies == 1);
    ck_assert_uint_eq(client.commands, 1);
    struct probe *after = command("PING", NULL);
    TURN_UNTIL(after->replies == 1);
    stop();
}
END_TEST

/* Requests that were not posted have not left, those that were may have run. */
START_TEST(what_is_known_after_an_end)
{
    char value[2000];

    start();
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    client.silent = true;
    fake_rdma_knobs.window = 3000;
    fake_rdma_knobs.no_again = true;
    open_ready();
    struct rdma_queue_pair *pair = fake_rdma_last();
    struct probe *first = command("SET", value), *second = command("SET", value), *third = command("SET", value);
    TURN_UNTIL(pair->peer.got_length == 3000);
    struct probe *fourth = command("PING", NULL);
    fake_rdma_disconnect(pair);
    TURN_UNTIL(client.closed == 1);
    ck_assert(first->losses == 1 && first->may_have_run);
    ck_assert(second->losses == 1 && !second->may_have_run); /* its end never left */
    ck_assert(third->losses == 1 && !third->may_have_run);
    ck_assert(fourth->losses == 1 && !fourth->may_have_run);
    ck_assert_ptr_nonnull(strstr(client.why, "protected mode"));
    ck_assert_ptr_null(strstr(client.why, "tls"));
    stop();
}
END_TEST

START_TEST(an_answer_with_the_end)
{
    start();
    open_ready();
    struct probe *first = command("PING", NULL), *last = command("QUIT", NULL);
    TURN_UNTIL(client.closed == 1);
    ck_assert_int_eq(first->replies, 1);
    ck_assert_int_eq(last->replies, 1);
    stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("RESP over RDMA");
    TCase *unit_case = tcase_create("RESP over RDMA");
    const TTest *const tests[] = {commands_in_a_row, answers_are_told, auth_and_renewals,
                                  replies_larger_than_our_window, a_large_value, what_is_known_after_an_end,
                                  an_answer_with_the_end};
    char path[128];
    int failed;

    snprintf(directory, sizeof(directory), "/tmp/test_rdma_resp.XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return EXIT_FAILURE;
    }
    tcase_set_timeout(unit_case, UNIT_SECONDS);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        tcase_add_test(unit_case, tests[i]);
    }
    suite_add_tcase(suite, unit_case);
    failed = unit_run(suite);
    snprintf(path, sizeof(path), "%s/password", directory);
    unlink(path);
    rmdir(directory);
    return failed;
}
