/* AUTH once more: when it is sent, what it holds, and what follows from a refusal; never inside a transfer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/valkey/node_private.h"
#include "tests/unit/node_rig.h"
#include "tests/unit/unit_main.h"

#define PEERS 8
#define WORDS 1024
#define RENEWALS 5

static char path[] = "/tmp/test_renewal.XXXXXX";
static void (*answer)(struct stub_peer *peer, const redisReply *words);
static char said[PEERS][WORDS]; /* what each connection was sent: A(UTH), H(ELLO), T(ransfer), other */
static char last_password[64];
static const char *refusal; /* to every AUTH but the first of a connection; NULL: +OK */
static bool silent_transfers;

static void write_password(const char *password)
{
    char made[sizeof(path) + 4];
    FILE *file;

    snprintf(made, sizeof(made), "%s.new", path);
    file = fopen(made, "w");
    ck_assert_ptr_nonnull(file);
    fputs(password, file);
    fclose(file);
    ck_assert_int_eq(rename(made, path), 0); /* a worker may be reading it */
}

static void script(struct stub_peer *peer, const redisReply *words)
{
    char *list = said[peer->number % PEERS];
    size_t used = strlen(list);
    bool transfer = stub_is(words, "BLOB.RDMA_GET");

    list[used] = stub_is(words, "AUTH") ? 'A' : stub_is(words, "BLOB.RDMA_HELLO") ? 'H' : transfer ? 'T' : 'o';
    if (!stub_is(words, "AUTH")) {
        if (!transfer || !silent_transfers) {
            answer(peer, words);
        }
        return;
    }
    snprintf(last_password, sizeof(last_password), "%s", words->element[1]->str);
    stub_say(peer, refusal != NULL && used > 0 ? refusal : "+OK\r\n");
}

static void start(unsigned age_ms)
{
    memset(said, 0, sizeof(said));
    refusal = NULL;
    silent_transfers = false;
    rig_prepare(NULL);
    answer = rig.stub.command;
    rig.stub.command = script;
    snprintf(path, sizeof(path), "/tmp/test_renewal.XXXXXX");
    close(mkstemp(path));
    write_password("one\n");
    rig.config.password_file = path;
    rig.config.auth_max_age_ms = age_ms;
    rig.config.connections = 1;
    rig_node();
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
}

static void stop(void)
{
    rig_end();
    unlink(path);
}

/* The control connection is the first, the carrier's the second. */
#define CONTROL said[1]
#define CARRIER said[2]

START_TEST(idle_connections_by_a_timer)
{
    start(4000); /* none is due before the test has begun */
    carrier_release(rig_carrier());
    ck_assert_str_eq(CONTROL, "A");
    ck_assert_str_eq(CARRIER, "AH");
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 1);
    write_password("two\r\nnot this");
    uint64_t begun = uv_hrtime();
    WAIT(&rig.bench, strcmp(CONTROL, "AA") == 0 && strcmp(CARRIER, "AHA") == 0);
    ck_assert_uint_ge((uv_hrtime() - begun) / 1000000, 500);
    ck_assert_str_eq(last_password, "two");
    write_password("three");
    WAIT(&rig.bench, strcmp(CONTROL, "AAA") == 0 && strcmp(CARRIER, "AHAA") == 0);
    ck_assert_str_eq(last_password, "three");
    ck_assert_uint_eq(rig.stub.connections, 2);
    stop();
}
END_TEST

START_TEST(no_timer_without_an_age)
{
    start(0);
    carrier_release(rig_carrier());
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    stop();
}
END_TEST

/* The transfer is the only thing on its connection until its reply; what follows goes behind AUTH. */
START_TEST(never_inside_a_transfer)
{
    struct transfer_probe probe = {0}, next = {0};
    char sent[WORDS];
    size_t renewed;

    start(150);
    silent_transfers = true;
    rig_get(&probe, rig_carrier());
    WAIT(&rig.bench, strchr(CARRIER, 'T') != NULL);
    snprintf(sent, sizeof(sent), "%s", CARRIER); /* "AHT", or with an AUTH more where this machine is slow */
    renewed = strlen(CONTROL);
    WAIT(&rig.bench, strlen(CONTROL) >= renewed + 2); /* it was due twice */
    bench_idle(&rig.bench, 20);
    ck_assert_str_eq(CARRIER, sent);
    stub_say(LIST_FIRST(&rig.stub.peers), "*2\r\n:5\r\n:77\r\n"); /* the newest: the carrier */
    WAIT(&rig.bench, probe.calls == 1);
    silent_transfers = false;
    rig_get(&next, probe.carrier);
    WAIT(&rig.bench, next.calls == 1);
    ck_assert_int_eq(next.reply.class, BLOB_REPLY_DONE);
    carrier_release(next.carrier);
    WAIT(&rig.bench, strncmp(CARRIER + strlen(sent), "TA", 2) == 0 || strncmp(CARRIER + strlen(sent), "AT", 2) == 0);
    stop();
}
END_TEST

/* The server still takes us for who we were: a transfer behind AUTH has its reply before the connection ends. */
START_TEST(refused)
{
    struct command_probe command;

    start(150);
    carrier_release(rig_carrier());
    refusal = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    WAIT(&rig.bench, strcmp(rig_health().state, "down") == 0);
    ck_assert_msg(strstr(rig_health().why, "renewal of AUTH was refused: WRONGPASS") != NULL, "%s", rig_health().why);
    ck_assert_ptr_nonnull(strstr(rig_health().why, "password_file"));
    ck_assert_ptr_null(strstr(rig_health().why, "one"));
    WAIT(&rig.bench, rig_health().carriers == 0);
    refusal = NULL;
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    ck_assert_int_eq(rig_command(&command, "PING"), 0);
    WAIT(&rig.bench, command.replies == 1);
    stop();
}
END_TEST

START_TEST(file_is_gone)
{
    start(150);
    carrier_release(rig_carrier());
    unlink(path);
    WAIT(&rig.bench, strcmp(rig_health().state, "down") == 0);
    ck_assert_ptr_nonnull(strstr(rig_health().why, path));
    write_password("back");
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    ck_assert_str_eq(last_password, "back");
    stop();
}
END_TEST

static unsigned count(char letter, const char *list)
{
    unsigned found = 0;

    for (; *list != '\0'; list++) {
        found += *list == letter;
    }
    return found;
}

/* Commands on keys are not held up: AUTH goes between two of them, and the replies are told apart. */
START_TEST(between_commands)
{
    static struct command_probe probes[WORDS / 2];
    unsigned sent = 0;

    start(100);
    while (count('A', CONTROL) <= RENEWALS && sent < WORDS / 2) {
        if (rig_command(&probes[sent], "EXISTS") == 0) {
            sent++;
        }
        bench_idle(&rig.bench, 2);
    }
    ck_assert_uint_gt(count('A', CONTROL), RENEWALS);
    WAIT(&rig.bench, probes[sent - 1].replies == 1);
    for (unsigned i = 0; i < sent; i++) {
        ck_assert_int_eq(probes[i].replies, 1);
        ck_assert_str_ne(probes[i].text, "OK");
    }
    stop();
}
END_TEST

START_TEST(login_is_gone)
{
    struct command_probe command;

    start(0);
    rig.other = "-NOAUTH Authentication required.\r\n";
    ck_assert_int_eq(rig_command(&command, "EXISTS"), 0);
    WAIT(&rig.bench, command.replies == 1);
    ck_assert_ptr_nonnull(strstr(command.text, "NOAUTH"));
    WAIT(&rig.bench, strcmp(rig_health().state, "down") == 0);
    ck_assert_ptr_nonnull(strstr(rig_health().why, "NOAUTH"));
    rig.other = ":1\r\n";
    write_password("new");
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    ck_assert_str_eq(last_password, "new");
    ck_assert_uint_eq(rig.stub.connections, 2);
    stop();
}
END_TEST

UNIT_MAIN("renewal", idle_connections_by_a_timer, no_timer_without_an_age, never_inside_a_transfer, refused,
          file_is_gone, between_commands, login_is_gone)
