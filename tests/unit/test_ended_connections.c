/*
 * Connections that end while the closing of descriptors of their user hangs: what has no descriptors in it is closed at
 * once, and nothing of it stays behind.
 */
#include <unistd.h>

#include "tests/rig/fake_threads.h"
#include "tests/unit/sessions_rig.h"
#include "tests/unit/unit_main.h"

#define CONNECTIONS 100

static int first;
static unsigned before;

static void start(void)
{
    sessions_prepare();
    sessions_begin();
    first = sessions_greet(SESSIONS_UID);
    sessions_hang(first);
    before = sessions_descriptors();
}

/* Only what hangs is waited for. */
static void expect_nothing_behind(unsigned sessions)
{
    rig_settle();
    ck_assert_uint_eq(rig_service.session_count, sessions);
    ck_assert_uint_eq(sessions_user(SESSIONS_UID)->memory.closing, WORKER_JOBS_PER_OWNER);
}

START_TEST(leave_with_packets_unread)
{
    start();
    for (int i = 0; i < CONNECTIONS; i++) {
        int client = sessions_connect(SESSIONS_UID);
        for (int packet = 0; packet <= i % 3; packet++) {
            ck_assert(sessions_send(client, "{", -1));
        }
        ck_assert_int_eq(shutdown(client, SHUT_RDWR), 0);
        expect_nothing_behind(1);
    }
    ck_assert_uint_eq(sessions_descriptors() - before, CONNECTIONS); /* ours */
    sessions_finish();
}
END_TEST

/* More of them than the user may have. */
START_TEST(refused)
{
    unsigned most;

    start();
    most = (unsigned)rig_config.limits.sessions_per_user;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        (void)sessions_connect(SESSIONS_UID);
        expect_nothing_behind(i + 2 < most ? i + 2 : most);
    }
    ck_assert_uint_eq(sessions_descriptors() - before, CONNECTIONS + most - 1);
    sessions_finish();
}
END_TEST

/* What hangs goes on, and is gone. */
START_TEST(descriptors_in_packets_wait)
{
    int client, fd;

    start();
    client = sessions_connect(SESSIONS_UID);
    fd = sessions_descriptor();
    ck_assert(sessions_send(client, "{", fd));
    close(fd);
    ck_assert_int_eq(shutdown(client, SHUT_RDWR), 0);
    rig_settle();
    ck_assert_uint_eq(rig_service.session_count, 1);
    ck_assert_uint_eq(sessions_user(SESSIONS_UID)->memory.closing, WORKER_JOBS_PER_OWNER + 1);
    sessions_finish();
}
END_TEST

/*
 * However many connections come with descriptors in them: no more than a bound of them wait to be closed. The one beyond it
 * is not taken; those without descriptors are refused, and another user's is as ever.
 */
START_TEST(bound)
{
    const struct user *user;

    start();
    rig_service.closing_max = 20;
    user = sessions_user(SESSIONS_UID);
    sessions_leaves = true;
    sessions_gives = sessions_descriptor();
    for (int i = 0; user->memory.closing < rig_service.closing_max; i++) {
        ck_assert_int_lt(i, 20);
        (void)sessions_connect(SESSIONS_UID);
        ck_assert_int_eq(sessions_taken, SESSION_TAKEN);
        rig_settle();
    }
    (void)sessions_connect(SESSIONS_UID);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(sessions_taken, SESSION_HELD);
        rig_settle();
        ck_assert_uint_eq(user->memory.closing, rig_service.closing_max);
        ck_assert_uint_eq(user->sessions, 1);
        sessions_again();
    }
    (void)fake_workers_resume();
    rig_settle();
    sessions_again();
    ck_assert_int_eq(sessions_taken, SESSION_TAKEN);
    rig_settle();
    ck_assert_uint_eq(user->memory.closing, 0);
    close(sessions_gives);
    sessions_finish();
}
END_TEST

START_TEST(without_descriptors_beyond_the_bound)
{
    int client;

    start();
    rig_service.closing_max = WORKER_JOBS_PER_OWNER; /* which hang */
    client = sessions_connect(SESSIONS_UID);
    ck_assert_int_eq(sessions_taken, SESSION_FLOOD);
    sessions_expect(client, "\"session.closed\"");
    expect_nothing_behind(1);
    client = sessions_greet(SESSIONS_UID + 1);
    ck_assert_int_eq(sessions_taken, SESSION_TAKEN);
    sessions_finish();
}
END_TEST

UNIT_MAIN("ended_connections", leave_with_packets_unread, refused, descriptors_in_packets_wait, bound,
          without_descriptors_beyond_the_bound)
