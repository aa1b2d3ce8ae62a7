#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/valkey/resp.h"
#include "tests/unit/stub_valkey.h"
#include "tests/unit/unit_main.h"

#define REQUESTS 64

struct probe {
    struct resp_request request;
    struct client *client;
    int replies, losses;
    bool may_have_run;
    int type;
    long long integer;
    char text[256];
};

struct client {
    struct bench bench;
    struct stub stub;
    struct offload *offload;
    struct valkey_config config;
    struct transport_address address;
    struct dial dial;
    struct resp_connection *connection;
    int ready, closed;
    bool auth;
    char why[TRANSPORT_WHY_BYTES];
    struct probe probes[REQUESTS];
    unsigned used;
    bool close_in_reply, close_in_lost, send_in_reply, close_in_ready;
};

static struct client client;
static char directory[64];

static void end(void)
{
    struct resp_connection *connection = client.connection;

    client.connection = NULL;
    if (connection != NULL) {
        resp_close(connection);
    }
}

static struct probe *try_send(const char *first, const char *second, size_t second_length, int expected);

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct probe *probe = (struct probe *)request;

    ck_assert_int_eq(probe->replies + probe->losses, 0);
    probe->replies++;
    probe->type = reply->type;
    probe->integer = reply->integer;
    if (reply->str != NULL) {
        snprintf(probe->text, sizeof(probe->text), "%.*s", (int)(reply->len < 200 ? reply->len : 200), reply->str);
    }
    if (client.send_in_reply) {
        client.send_in_reply = false;
        try_send("PING", NULL, 0, 0);
    }
    if (client.close_in_reply) {
        end();
    }
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct probe *probe = (struct probe *)request;

    ck_assert_int_eq(probe->replies + probe->losses, 0);
    probe->losses++;
    probe->may_have_run = may_have_run;
    snprintf(probe->text, sizeof(probe->text), "%s", why);
    if (client.close_in_lost) {
        end();
    }
}

static void on_ready(void *context)
{
    client.ready++;
    if (client.close_in_ready) {
        end();
    }
}

static void on_closed(void *context, bool auth, const char *why)
{
    client.closed++;
    client.auth = auth;
    snprintf(client.why, sizeof(client.why), "%s", why);
    for (unsigned i = 0; i < client.used; i++) {
        ck_assert_int_eq(client.probes[i].replies + client.probes[i].losses, 1);
    }
    ck_assert_int_eq(resp_send(client.connection, &(struct resp_request){0}, 1, (const char *[]){"PING"}, NULL),
                     -ENOTCONN);
    end();
}

static const struct resp_events events = {.ready = on_ready, .closed = on_closed};

static struct probe *try_send(const char *first, const char *second, size_t second_length, int expected)
{
    struct probe *probe = &client.probes[client.used];
    const char *words[] = {first, second};
    size_t lengths[] = {strlen(first), second_length};

    ck_assert_uint_lt(client.used, REQUESTS);
    memset(probe, 0, sizeof(*probe));
    probe->request.reply = on_reply;
    probe->request.lost = on_lost;
    ck_assert_int_eq(resp_send(client.connection, &probe->request, second == NULL ? 1 : 2, words, lengths), expected);
    client.used += expected == 0 ? 1 : 0;
    return probe;
}

static struct probe *ping(void)
{
    return try_send("PING", NULL, 0, 0);
}

static void start(const char *unix_path)
{
    char why[TRANSPORT_WHY_BYTES];

    memset(&client, 0, sizeof(client));
    bench_start(&client.bench);
    stub_start(&client.stub, &client.bench, unix_path);
    client.offload = offload_create(client.bench.workers);
    client.config.connect_timeout_ms = 20000;
    ck_assert_int_eq(transport_address_parse(client.stub.address, &client.address, why), 0);
    ck_assert_int_eq(dial_init(&client.dial, &client.config, &client.address), 0);
}

static void open_connection(void)
{
    char why[TRANSPORT_WHY_BYTES];

    ck_assert_int_eq(resp_open(&client.bench.loop, client.offload, &client.config, &client.dial, &events, &client,
                               &client.connection, why), 0);
    ck_assert_int_eq(client.ready + client.closed, 0);
}

static void open_ready(void)
{
    open_connection();
    WAIT(&client.bench, client.ready == 1 && client.stub.open == 1);
    ck_assert(resp_is_ready(client.connection));
}

static void stop(void)
{
    end();
    stub_stop(&client.stub);
    offload_unref(client.offload);
    dial_end(&client.dial);
    transport_address_free(&client.address);
    free(client.config.password_file);
    bench_stop(&client.bench);
}

static void answer_in_order(struct stub_peer *peer, const redisReply *words)
{
    char text[32];

    snprintf(text, sizeof(text), ":%u\r\n", peer->commands);
    stub_say(peer, text);
}

START_TEST(pipelined)
{
    start(NULL);
    client.stub.command = answer_in_order;
    open_connection();
    for (int i = 0; i < 10; i++) {
        ping(); /* wait for the connection */
    }
    ck_assert_uint_eq(resp_pending(client.connection), 10);
    WAIT(&client.bench, client.ready == 1);
    for (int i = 0; i < 10; i++) {
        ping();
    }
    WAIT(&client.bench, resp_pending(client.connection) == 0);
    for (unsigned i = 0; i < client.used; i++) {
        ck_assert_int_eq(client.probes[i].integer, i + 1);
    }
    ck_assert_uint_eq(bench_active_timers(&client.bench), 0);
    stop();
}
END_TEST

START_TEST(unix_socket)
{
    char path[128], text[64];

    snprintf(path, sizeof(path), "%s/valkey.sock", directory);
    start(path);
    client.stub.command = answer_in_order;
    open_ready();
    struct probe *probe = ping();
    WAIT(&client.bench, probe->replies == 1);
    ck_assert_int_lt(resp_local_address(client.connection, text, sizeof(text)), 0);
    stop();
}
END_TEST

START_TEST(every_type)
{
    static const char *const replies[] = {"+OK\r\n", "-ERR no\r\n", ":-5\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n",
                                          "$3\r\na\r\nb"};

    start(NULL);
    open_ready();
    struct probe *probes[9];
    for (int i = 0; i < 8; i++) {
        probes[i] = ping();
    }
    for (int i = 0; i < 6; i++) {
        stub_say(stub_first(&client.stub), replies[i]);
    }
    stub_send(stub_first(&client.stub), "$5\r\na\r\nbc\r\n*2\r\n:1\r\n+x\r\n", 23);
    WAIT(&client.bench, resp_pending(client.connection) == 0);
    ck_assert_int_eq(probes[0]->type, REDIS_REPLY_STATUS);
    ck_assert_str_eq(probes[1]->text, "ERR no");
    ck_assert_int_eq(probes[2]->integer, -5);
    ck_assert_int_eq(probes[3]->type, REDIS_REPLY_NIL);
    ck_assert_int_eq(probes[4]->type, REDIS_REPLY_NIL);
    ck_assert_int_eq(probes[5]->type, REDIS_REPLY_STRING);
    ck_assert_str_eq(probes[6]->text, "a\r\nbc");
    ck_assert_int_eq(probes[7]->type, REDIS_REPLY_ARRAY);
    stop();
}
END_TEST

START_TEST(half_replies)
{
    static const char reply[] = "*2\r\n$5\r\nhello\r\n:42\r\n";

    start(NULL);
    open_ready();
    struct probe *probe = ping();
    for (size_t i = 0; i < sizeof(reply) - 1; i++) {
        ck_assert_int_eq(probe->replies, 0);
        stub_send(stub_first(&client.stub), reply + i, 1);
        bench_idle(&client.bench, 1);
    }
    WAIT(&client.bench, probe->replies == 1);
    ck_assert_int_eq(client.closed, 0);
    stop();
}
END_TEST

/* What the server sends as the answer to one command, and what is said about it. */
static void expect_end(const char *bytes, size_t length, const char *words)
{
    start(NULL);
    open_ready();
    struct probe *probe = ping();
    WAIT(&client.bench, client.stub.commands == 1);
    stub_send(stub_first(&client.stub), bytes, length);
    WAIT(&client.bench, client.closed == 1);
    ck_assert_msg(strstr(client.why, words) != NULL, "%s", client.why);
    ck_assert_int_eq(probe->losses, 1);
    ck_assert(probe->may_have_run);
    ck_assert(!client.auth);
    WAIT(&client.bench, client.stub.open == 0);
    stop();
}

START_TEST(garbage)
{
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "*abc\r\n", "$99x\r\n", ":1x\r\n",
                                          "$-2\r\n", "*-2\r\n", "\x15\x03\x01\x00\x02\x02\x16", "*1\r\n*1\r\n?\r\n"};

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        expect_end(answers[i], strlen(answers[i]), "rotocol error");
    }
}
END_TEST

START_TEST(resp3_types)
{
    static const char *const replies[] = {"%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n",
                                          "=5\r\ntxt:a\r\n", ">1\r\n+x\r\n", "*1\r\n#t\r\n"};

    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        expect_end(replies[i], strlen(replies[i]), "RESP2 does not have");
    }
}
END_TEST

START_TEST(too_much)
{
    size_t length = RESP_INPUT_BYTES + 70000;
    char *bytes = malloc(length);
    size_t used;

    /* A bulk that is announced and comes. */
    memset(bytes, 'x', length);
    memcpy(bytes, "$2147483647\r\n", 13);
    expect_end(bytes, length, "larger than");
    /* A line without an end. */
    memset(bytes, 'x', length);
    bytes[0] = '+';
    expect_end(bytes, length, "larger than");
    /* An array of small elements, all of them allowed, that are too many bytes together. */
    used = (size_t)sprintf(bytes, "*60000\r\n");
    while (used + 24 < length) {
        used += (size_t)sprintf(bytes + used, "$16\r\n0123456789abcdef\r\n");
    }
    expect_end(bytes, used, "larger than");
    /* Too many elements, and nested announcements that would need gigabytes. */
    expect_end("*65537\r\n", 8, "rotocol error");
    used = 0;
    for (int i = 0; i < 8; i++) {
        used += (size_t)sprintf(bytes + used, "*60000\r\n");
    }
    expect_end(bytes, used, "elements");
    free(bytes);
}
END_TEST

START_TEST(unasked)
{
    start(NULL);
    open_ready();
    stub_say(stub_first(&client.stub), "-ERR max number of clients reached\r\n");
    WAIT(&client.bench, client.closed == 1);
    ck_assert_ptr_nonnull(strstr(client.why, "max number of clients reached"));
    stop();

    start(NULL);
    open_ready();
    struct probe *probe = ping();
    stub_say(stub_first(&client.stub), "+PONG\r\n+PONG\r\n");
    WAIT(&client.bench, client.closed == 1);
    ck_assert_int_eq(probe->replies, 1);
    ck_assert_ptr_nonnull(strstr(client.why, "nobody"));
    stop();
}
END_TEST

START_TEST(text_is_clean)
{
    start(NULL);
    open_ready();
    stub_say(stub_first(&client.stub), "-ERR \x1b[31m\x01\xff\n level=error\r\n");
    WAIT(&client.bench, client.closed == 1);
    for (const char *at = client.why; *at != '\0'; at++) {
        ck_assert_int_ge(*at, 0x20);
    }
    stop();
}
END_TEST

static void say_half_and_go(struct stub_peer *peer, const redisReply *words)
{
    if (peer->commands == 3) {
        stub_say(peer, "+one\r\n$10\r\nhal");
        stub_hang_up(peer);
    }
}

START_TEST(closed_in_mid_reply)
{
    start(NULL);
    client.stub.command = say_half_and_go;
    open_ready();
    struct probe *first = ping(), *second = ping(), *third = ping();
    WAIT(&client.bench, client.closed == 1);
    ck_assert_int_eq(first->replies, 1);
    ck_assert(second->losses == 1 && second->may_have_run);
    ck_assert(third->losses == 1 && third->may_have_run);
    stop();
}
END_TEST

static void say_and_reset(struct stub_peer *peer, const redisReply *words)
{
    if (peer->commands == 2) {
        stub_say(peer, "+one\r\n");
        stub_reset(peer);
    }
}

START_TEST(reply_before_reset)
{
    start(NULL);
    client.stub.command = say_and_reset;
    open_ready();
    struct probe *first = ping(), *second = ping();
    WAIT(&client.bench, client.closed == 1);
    ck_assert_int_eq(first->replies + first->losses, 1);
    ck_assert(second->losses == 1 && second->may_have_run);
    stop();
}
END_TEST

/* A server that does not read: the commands that went in as a whole may run, the one that is cut cannot. */
START_TEST(bytes_that_may_have_left)
{
    size_t length = 1024 * 1024;
    char *value = calloc(1, length);
    unsigned sent = 0, whole = 0;

    start(NULL);
    client.stub.paused = true;
    open_ready();
    ping();
    while (sent < REQUESTS - 2) {
        struct probe *probe = &client.probes[client.used];
        const char *words[] = {"ECHO", value};
        size_t lengths[] = {4, length};
        probe->request.reply = on_reply;
        probe->request.lost = on_lost;
        int status = resp_send(client.connection, &probe->request, 2, words, lengths);
        if (status != 0) {
            ck_assert_int_eq(status, -ENOBUFS);
            break;
        }
        client.used++;
        sent++;
        bench_idle(&client.bench, 2);
    }
    ck_assert_uint_gt(sent, 2);
    ck_assert_uint_lt(sent, REQUESTS - 2);
    client.stub.command = NULL;
    stub_first(&client.stub)->bytes = 0;
    end();
    for (unsigned i = 0; i < client.used; i++) {
        ck_assert_int_eq(client.probes[i].losses, 1);
        whole += client.probes[i].may_have_run ? 1 : 0;
        /* Never again true after one was false: they left in order. */
        ck_assert(i == 0 || client.probes[i - 1].may_have_run || !client.probes[i].may_have_run);
    }
    ck_assert_uint_ge(whole, 1);
    ck_assert_uint_lt(whole, client.used);
    /* The server finds at most as many whole commands as may have run. */
    stub_resume(&client.stub);
    WAIT(&client.bench, client.stub.open == 0);
    ck_assert_uint_le(client.stub.commands, whole);
    free(value);
    stop();
}
END_TEST

/* The same, but the server reads on: nothing is lost, mixed up or sent twice. */
START_TEST(partial_writes)
{
    size_t length = 900 * 1024;
    char *value = malloc(length);

    start(NULL);
    memset(value, 'v', length);
    client.stub.paused = true;
    client.stub.command = answer_in_order;
    open_ready();
    for (int i = 0; i < 6; i++) {
        if (resp_pending(client.connection) < 4) {
            try_send("ECHO", value, length, 0);
        }
        ping();
    }
    stub_resume(&client.stub);
    WAIT(&client.bench, resp_pending(client.connection) == 0);
    for (unsigned i = 0; i < client.used; i++) {
        ck_assert_int_eq(client.probes[i].integer, i + 1);
    }
    ck_assert_uint_eq(client.stub.commands, client.used);
    free(value);
    stop();
}
END_TEST

START_TEST(close_inside)
{
    start(NULL);
    client.stub.command = answer_in_order;
    client.close_in_reply = true;
    open_ready();
    struct probe *first = ping(), *second = ping();
    WAIT(&client.bench, client.connection == NULL);
    ck_assert_int_eq(first->replies, 1);
    ck_assert_int_eq(second->losses, 1);
    bench_idle(&client.bench, 20);
    ck_assert_int_eq(client.closed, 0);
    stop();

    start(NULL);
    client.close_in_lost = true;
    open_ready();
    first = ping();
    second = ping();
    WAIT(&client.bench, client.stub.commands == 2);
    stub_hang_up(stub_first(&client.stub));
    WAIT(&client.bench, client.connection == NULL);
    ck_assert_int_eq(first->losses + second->losses, 2);
    ck_assert_int_eq(client.closed, 0);
    stop();

    start(NULL);
    client.close_in_ready = true;
    open_connection();
    first = ping();
    WAIT(&client.bench, client.connection == NULL);
    ck_assert(first->losses == 1 && !first->may_have_run);
    bench_idle(&client.bench, 20);
    stop();

    start(NULL);
    client.stub.command = answer_in_order;
    client.send_in_reply = true;
    open_ready();
    ping();
    WAIT(&client.bench, client.used == 2 && client.probes[1].replies == 1);
    stop();
}
END_TEST

START_TEST(close_while_connecting)
{
    start(NULL);
    open_connection();
    struct probe *probe = ping();
    end();
    ck_assert(probe->losses == 1 && !probe->may_have_run);
    bench_idle(&client.bench, 20);
    ck_assert_int_eq(client.ready + client.closed, 0);
    stop();
}
END_TEST

START_TEST(refused)
{
    start(NULL);
    stub_stop(&client.stub);
    open_connection();
    struct probe *probe = ping();
    WAIT(&client.bench, client.closed == 1);
    ck_assert_ptr_nonnull(strstr(client.why, "Connection refused"));
    ck_assert(probe->losses == 1 && !probe->may_have_run);
    stub_start(&client.stub, &client.bench, NULL);
    stop();
}
END_TEST

/* --- AUTH --- */

static char seen_user[64], seen_password[64];

static void check_auth(struct stub_peer *peer, const redisReply *words)
{
    if (!stub_is(words, "AUTH")) {
        ck_assert_uint_ge(peer->commands, 2);
        stub_say(peer, "+PONG\r\n");
        return;
    }
    ck_assert_uint_eq(peer->commands, 1);
    seen_user[0] = '\0';
    if (words->elements == 3) {
        snprintf(seen_user, sizeof(seen_user), "%s", words->element[1]->str);
    }
    snprintf(seen_password, sizeof(seen_password), "%s", words->element[words->elements - 1]->str);
    stub_say(peer, strcmp(seen_password, "sesame") == 0 ? "+OK\r\n" : "-WRONGPASS invalid username-password pair\r\n");
}

static void with_password(const char *text, size_t length)
{
    char path[128];
    int fd;

    start(NULL);
    snprintf(path, sizeof(path), "%s/password", directory);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
    close(fd);
    client.config.password_file = strdup(path);
    client.stub.command = check_auth;
}

START_TEST(auth_accepted)
{
    static const char *const files[] = {"sesame", "sesame\n", "sesame\r\nsecond line\n", "sesame\n\n\n"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        with_password(files[i], strlen(files[i]));
        client.config.user = i % 2 == 0 ? (char *)(uintptr_t) "glide" : NULL;
        open_connection();
        struct probe *early = ping();
        ck_assert(!resp_is_ready(client.connection));
        WAIT(&client.bench, early->replies == 1);
        ck_assert_int_eq(client.ready, 1);
        ck_assert_str_eq(seen_user, i % 2 == 0 ? "glide" : "");
        ck_assert_str_eq(seen_password, "sesame");
        stop();
    }
}
END_TEST

START_TEST(auth_refused)
{
    with_password("tr\x01ouble", 8);
    open_connection();
    struct probe *probe = ping();
    WAIT(&client.bench, client.closed == 1);
    ck_assert(client.auth);
    ck_assert_int_eq(client.ready, 0);
    ck_assert_ptr_nonnull(strstr(client.why, "WRONGPASS"));
    ck_assert_ptr_null(strstr(client.why, "ouble"));
    ck_assert(probe->losses == 1 && !probe->may_have_run);
    ck_assert_uint_eq(client.stub.commands, 1);
    stop();
}
END_TEST

static void say_loading(struct stub_peer *peer, const redisReply *words)
{
    stub_say(peer, "-LOADING Valkey is loading the dataset in memory\r\n");
}

static void say_pong(struct stub_peer *peer, const redisReply *words)
{
    stub_say(peer, "$2\r\nOK\r\n");
}

static void say_nothing(struct stub_peer *peer, const redisReply *words)
{
}

/* A server that takes the connection and hangs. */
START_TEST(auth_has_a_limit)
{
    with_password("sesame", 6);
    client.stub.command = say_nothing;
    client.config.connect_timeout_ms = 1000;
    open_connection();
    struct probe *probe = ping();
    WAIT(&client.bench, client.closed == 1);
    ck_assert(!client.auth);
    ck_assert_msg(strstr(client.why, "AUTH was not answered within connect_timeout_ms = 1000 ms") != NULL, "%s",
                  client.why);
    ck_assert(probe->losses == 1 && !probe->may_have_run);
    ck_assert_int_eq(client.ready, 0);
    stop();
}
END_TEST

/* It ends with the answer: a connection that is ready lasts. */
START_TEST(auth_limit_ends)
{
    with_password("sesame", 6);
    client.config.connect_timeout_ms = 1000;
    open_ready();
    bench_idle(&client.bench, 1500);
    ck_assert_int_eq(client.closed, 0);
    stop();
}
END_TEST

START_TEST(auth_other_answers)
{
    with_password("sesame", 6);
    client.stub.command = say_loading;
    open_connection();
    WAIT(&client.bench, client.closed == 1);
    ck_assert(!client.auth);
    stop();

    with_password("sesame", 6);
    client.stub.command = say_pong;
    open_connection();
    WAIT(&client.bench, client.closed == 1);
    ck_assert(!client.auth);
    stop();
}
END_TEST

START_TEST(auth_file)
{
    char *large = malloc(20000);

    with_password("\nsesame\n", 8);
    open_connection();
    WAIT(&client.bench, client.closed == 1);
    ck_assert(client.auth);
    ck_assert_ptr_nonnull(strstr(client.why, "is empty"));
    stop();

    memset(large, 'a', 20000);
    with_password(large, 20000);
    open_connection();
    WAIT(&client.bench, client.closed == 1);
    ck_assert_ptr_nonnull(strstr(client.why, "longer than"));
    stop();

    with_password("sesame", 6);
    unlink(client.config.password_file);
    open_connection();
    WAIT(&client.bench, client.closed == 1);
    ck_assert_ptr_nonnull(strstr(client.why, "No such file"));
    ck_assert_uint_eq(client.stub.commands, 0);
    stop();

    with_password("sesame", 6);
    open_connection();
    while (client.stub.open == 0) {
        bench_turn(&client.bench);
    }
    end(); /* the file may still be being read */
    stop();
    free(large);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resp");
    TCase *all = tcase_create("resp");
    const TTest *const list[] = {pipelined, unix_socket, every_type, half_replies, garbage, resp3_types, too_much,
                                 unasked, text_is_clean, closed_in_mid_reply, reply_before_reset,
                                 bytes_that_may_have_left, partial_writes, close_inside, close_while_connecting,
                                 refused, auth_accepted, auth_refused, auth_has_a_limit, auth_limit_ends,
                                 auth_other_answers, auth_file};

    snprintf(directory, sizeof(directory), "/tmp/test_resp.XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return EXIT_FAILURE;
    }
    tcase_set_timeout(all, UNIT_SECONDS);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        tcase_add_test(all, list[i]);
    }
    suite_add_tcase(suite, all);
    int status = unit_run(suite);
    char path[128];
    snprintf(path, sizeof(path), "%s/password", directory);
    unlink(path);
    snprintf(path, sizeof(path), "%s/valkey.sock", directory);
    unlink(path);
    rmdir(directory);
    return status;
}
