/*
 * Refused requests and new sessions cost their user time: a few have no effect, a flood is served in a turn every
 * PACE_WAIT_MS only. Each is answered all the same, and nobody else waits.
 */
#include <string.h>
#include <unistd.h>

#include "tests/rig/fake_host.h"
#include "tests/unit/sessions_rig.h"
#include "tests/unit/unit_main.h"

#define OTHER_UID (SESSIONS_UID + 1)
#define STATUS "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}"
#define REFUSED "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no.such\"}"

static void start(void)
{
    sessions_prepare();
    rig_config.limits.requests = 1000;
    sessions_begin();
}

/* Sends a packet and lets the loop turn, without the clock. True: it was answered. */
static bool answered(int client, const char *text)
{
    ck_assert(sessions_send(client, text, -1));
    rig_settle();
    return sessions_forget(client) == 1;
}

/* So many that the user has to wait from the next one on. Each of its sessions costs as much as one of them. */
static void make_slow(int client)
{
    int refused = 0;

    while (!pace_slow(sessions_user(SESSIONS_UID))) {
        ck_assert_msg(answered(client, REFUSED), "a refused request has to wait after %d others", refused);
        ck_assert_int_le(++refused, PACE_FREE_MS / PACE_COST_MS);
    }
    ck_assert_int_ge(refused, PACE_FREE_MS / PACE_COST_MS - 1);
    sessions_send_all(client, REFUSED, 20); /* in the last turn before the wait */
    rig_settle();
    ck_assert_uint_eq(sessions_forget(client), 20);
}

/* Lets time pass until so many answers have come. */
static void fetch(int client, unsigned count)
{
    uint64_t waited = 0;
    unsigned got = 0;

    while (got < count) {
        rig_settle();
        got += sessions_forget(client);
        ck_assert_msg(got == count || rig_advance(&waited), "%u of %u are answered", got, count);
    }
}

START_TEST(refused_requests)
{
    int client, other;

    start();
    client = sessions_greet(SESSIONS_UID);
    other = sessions_greet(OTHER_UID);
    make_slow(client);
    for (int i = 0; i < 3; i++) {
        ck_assert(!answered(client, STATUS)); /* whatever it sends */
        sessions_send_all(client, REFUSED, 2 * PACE_WAIT_MS);
        ck_assert(answered(other, STATUS));
        ck_assert(answered(other, REFUSED));
        ck_assert_uint_eq(sessions_forget(client), 0);
        fake_clock_advance(PACE_WAIT_MS);
        rig_settle();
        ck_assert_uint_eq(sessions_forget(client), 1 + 2 * PACE_WAIT_MS);
    }
    sessions_finish();
}
END_TEST

START_TEST(good_requests_cost_nothing)
{
    int client;

    start();
    client = sessions_greet(SESSIONS_UID);
    for (int i = 0; i < 2 * PACE_MOST_MS; i++) {
        ck_assert(answered(client, STATUS));
    }
    sessions_finish();
}
END_TEST

/* However much was refused: what is owed has a bound. */
START_TEST(who_stops_is_forgiven)
{
    int client;

    start();
    client = sessions_greet(SESSIONS_UID);
    for (int i = 0; i < 8 * PACE_MOST_MS / 100; i++) {
        sessions_send_all(client, REFUSED, 100);
        fetch(client, 100);
    }
    ck_assert(pace_slow(sessions_user(SESSIONS_UID)));
    fake_clock_advance(PACE_MOST_MS - PACE_FREE_MS);
    rig_settle();
    ck_assert(!pace_slow(sessions_user(SESSIONS_UID)));
    for (int i = 0; i < 10; i++) {
        ck_assert(answered(client, STATUS));
    }
    sessions_finish();
}
END_TEST

/* All that was sent is answered, in the end. */
START_TEST(nothing_is_dropped)
{
    int clients[2];

    start();
    clients[0] = sessions_greet(SESSIONS_UID);
    clients[1] = sessions_greet(SESSIONS_UID);
    make_slow(clients[0]);
    sessions_send_all(clients[0], REFUSED, 100);
    sessions_send_all(clients[1], REFUSED, 100);
    fetch(clients[0], 100);
    fetch(clients[1], 100);
    sessions_finish();
}
END_TEST

/* Connections cost as much, also those that are refused; who has left before it could be taken becomes no session. */
START_TEST(connections)
{
    uint64_t next;
    int client;

    start();
    client = sessions_greet(SESSIONS_UID);
    make_slow(client);
    next = rig_service.next_session;
    sessions_leaves = true;
    (void)sessions_connect(SESSIONS_UID);
    ck_assert_int_eq(sessions_taken, SESSION_FLOOD);
    ck_assert_uint_eq(rig_service.next_session, next);
    ck_assert_uint_eq(sessions_user(SESSIONS_UID)->sessions, 1);
    sessions_leaves = false;
    client = sessions_connect(SESSIONS_UID);
    ck_assert_int_eq(sessions_taken, SESSION_FLOOD);
    rig_settle();
    ck_assert(TAILQ_LAST(&rig_service.sessions, session_list)->waits);
    (void)sessions_connect(OTHER_UID);
    ck_assert_int_eq(sessions_taken, SESSION_TAKEN);
    sessions_finish();
}
END_TEST

/* A user that leaves and comes back owes what it owed. */
START_TEST(comes_and_goes)
{
    unsigned rounds = 0;

    start();
    sessions_leaves = true;
    do {
        (void)sessions_connect(SESSIONS_UID);
        rig_settle();
        ck_assert_uint_le(++rounds, PACE_FREE_MS / PACE_COST_MS + 1);
        ck_assert_ptr_null(sessions_user(SESSIONS_UID));
    } while (sessions_taken == SESSION_TAKEN);
    ck_assert_uint_eq(rounds, PACE_FREE_MS / PACE_COST_MS + 1);
    fake_clock_advance(PACE_MOST_MS);
    rig_settle();
    (void)sessions_connect(SESSIONS_UID);
    ck_assert_int_eq(sessions_taken, SESSION_TAKEN);
    ck_assert_uint_eq(rig_service.debtors.count, 0);
    sessions_finish();
}
END_TEST

/* Of users that have gone only so many are remembered. */
START_TEST(many_debtors)
{
    start();
    sessions_leaves = true;
    for (unsigned i = 0; i < PACE_DEBTORS + 10; i++) {
        (void)sessions_connect(SESSIONS_UID + i);
        rig_settle();
    }
    ck_assert_uint_eq(rig_service.debtors.count, PACE_DEBTORS);
    sessions_finish();
}
END_TEST

UNIT_MAIN("pace", refused_requests, good_requests_cost_nothing, who_stops_is_forgiven, nothing_is_dropped, connections,
          comes_and_goes, many_debtors)
