/*
 * A single server behind a name: after a failover the name leads to another one. The daemon notices by READONLY, or by
 * the loss of its connections, looks the name up again and goes on; what was refused is sent again.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/key_command.h"
#include "tests/unit/transfers_rig.h"
#include "tests/unit/unit_main.h"

static struct stub second;
static const char *leads_to; /* the address that the name has now */
static unsigned lookups;
static unsigned at[2]; /* transfers that each server got */
static bool first_is_replica;
static struct stub_peer *asked; /* the first server's, with a command on a key that is not answered yet */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    if (strcmp(host, "primary.example") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return __real_getaddrinfo(host, port, hints, found);
    }
    lookups++;
    return __real_getaddrinfo(leads_to, port, hints, found);
}

static void script(struct stub_peer *peer, const redisReply *words)
{
    bool first = peer->stub == &rig.stub;

    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        stub_say(peer, rig.hello);
        return;
    }
    if (stub_is(words, "EXISTS")) {
        asked = first ? peer : asked;
        if (!first) {
            stub_say(peer, ":2\r\n");
        }
        return;
    }
    at[first ? 0 : 1]++;
    carrying = peer;
    if (first && first_is_replica) {
        stub_say(peer, "-READONLY You can't write against a read only replica.\r\n");
    } else {
        stub_say(peer, stub_is(words, "BLOB.RDMA_SET") ? "+OK\r\n" : ":1\r\n");
    }
}

/* Two servers at the same port of two addresses; the name leads to the first. */
static void start_pair(void)
{
    static char address[64];
    const char *port;

    start_rig(2, NULL, 0);
    port = strrchr(rig.stub.address, ':') + 1;
    stub_start_at(&second, &rig.bench, "127.0.0.2", (unsigned)atoi(port));
    rig.stub.command = second.command = script;
    snprintf(address, sizeof(address), "primary.example:%s", port);
    rig.config.address = address;
    leads_to = "127.0.0.1";
    lookups = at[0] = at[1] = 0;
    first_is_replica = false;
    start_deployment();
    struct probe *probe = submit(0, TRANSFER_SET, "before", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(rig.stub.open, 2);
}

static void stopped(void *context, int status)
{
    rig.stopped++;
    rig.stop_status = status;
}

static void end_pair(void)
{
    deployment_stop(rig.deployment, stopped, NULL);
    rig.deployment = NULL;
    WAIT(&rig.bench, rig.stopped == 1 && second.open == 0);
    stub_stop(&second);
    end();
}

START_TEST(a_primary_that_became_a_replica)
{
    start_pair();
    first_is_replica = true;
    leads_to = "127.0.0.2";
    for (int i = 0; i < 2; i++) {
        struct probe *probe = submit(0, TRANSFER_SET, "after", 0);
        WAIT(&rig.bench, probe->ended == 1);
        ck_assert_msg(probe->outcome == OUTCOME_DONE, "%s", probe->text);
        ck_assert_uint_eq(probe->attempts, i == 0 ? 2 : 1);
    }
    ck_assert_uint_eq(at[0], 2);
    ck_assert_uint_eq(at[1], 2);
    /* Nothing stays connected to the old one: commands on keys would go there. */
    WAIT(&rig.bench, rig.stub.open == 0 && second.open == 2);
    end_pair();
}
END_TEST

struct question {
    struct key_command command;
    int done;
    long long answer; /* -1: none */
    char why[NODE_WHY_BYTES];
};

static void on_answer(struct key_command *command, const redisReply *reply, int code, const char *why)
{
    struct question *question = (struct question *)command;

    question->done++;
    question->answer = reply != NULL ? reply->integer : -1;
    snprintf(question->why, sizeof(question->why), "%s", why);
}

static void ask(struct question *question)
{
    *question = (struct question){
        .command = {.argc = 2, .argv = {"EXISTS", "k"}, .lengths = {6, 1}, .done = on_answer}};
    key_command_start(rig.deployment, &question->command);
}

/* Commands on keys share a connection: those that were sent are answered, others wait for the next one. */
START_TEST(commands_meanwhile)
{
    struct question before, meanwhile;

    start_pair();
    asked = NULL;
    ask(&before);
    WAIT(&rig.bench, asked != NULL);
    first_is_replica = true;
    leads_to = "127.0.0.2";
    struct probe *probe = submit(0, TRANSFER_SET, "after", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ask(&meanwhile);
    stub_say(asked, ":1\r\n");
    WAIT(&rig.bench, before.done == 1 && meanwhile.done == 1);
    ck_assert_msg(before.answer == 1, "%s", before.why);
    ck_assert_msg(meanwhile.answer == 2, "%s", meanwhile.why);
    end_pair();
}
END_TEST

/* One that is never answered does not hold the others. */
START_TEST(a_command_that_is_never_answered)
{
    struct question before, meanwhile;

    start_pair();
    asked = NULL;
    ask(&before);
    WAIT(&rig.bench, asked != NULL);
    first_is_replica = true;
    leads_to = "127.0.0.2";
    struct probe *probe = submit(0, TRANSFER_SET, "after", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ask(&meanwhile);
    WAIT(&rig.bench, before.done == 1 && meanwhile.done == 1);
    ck_assert_int_eq(before.answer, -1);
    ck_assert_msg(meanwhile.answer == 2, "%s", meanwhile.why);
    end_pair();
}
END_TEST

/* The name follows a moment later: the transfer is refused some times more. */
START_TEST(a_name_that_follows_late)
{
    start_pair();
    first_is_replica = true;
    struct probe *probe = submit(0, TRANSFER_SET, "after", 0);
    WAIT(&rig.bench, at[0] == 4);
    leads_to = "127.0.0.2";
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(at[1], 1);
    end_pair();
}
END_TEST

START_TEST(a_primary_that_is_gone)
{
    unsigned before;

    start_pair();
    before = lookups;
    leads_to = "127.0.0.2";
    while (!LIST_EMPTY(&rig.stub.peers)) {
        stub_hang_up(LIST_FIRST(&rig.stub.peers));
    }
    WAIT(&rig.bench, second.open >= 1);
    ck_assert_uint_gt(lookups, before);
    struct probe *probe = submit(0, TRANSFER_SET, "after", 0);
    WAIT(&rig.bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(at[1], 1);
    ck_assert_uint_eq(rig.stub.open, 0);
    end_pair();
}
END_TEST

UNIT_MAIN("failover", a_primary_that_became_a_replica, commands_meanwhile, a_command_that_is_never_answered,
          a_name_that_follows_late, a_primary_that_is_gone)
