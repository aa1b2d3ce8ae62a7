/*
 * Several registrations of one user under way at once, while workers have them in hand: each counts from its acceptance
 * on, so that they cannot exceed a quota together.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/rig/fake_threads.h"
#include "tests/unit/sessions_rig.h"
#include "tests/unit/unit_main.h"

#define PAGE 4096
#define REGION (8 * PAGE)

static int files[3];

static void start(enum policy_key quota, uint64_t limit)
{
    sessions_prepare();
    rig_quota(quota, limit);
    sessions_begin();
    for (int i = 0; i < 3; i++) {
        files[i] = sessions_memory(REGION);
    }
}

static void ask(int client, int number)
{
    char text[200];

    snprintf(text, sizeof(text),
             "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"region.register\","
             "\"params\":{\"type\":\"memfd\",\"size\":%d}}",
             10 + number, REGION);
    ck_assert(sessions_send(client, text, files[number]));
    rig_loop();
}

/* A worker does its next job for the user: it looks at a descriptor, or maps. */
static void one_job(void)
{
    ck_assert(fake_workers_run(0));
    ck_assert(fake_workers_deliver());
    rig_loop();
}

/* What is being mapped is charged; the other sessions of the user count with it. */
START_TEST(bytes)
{
    int first, second;

    start(POLICY_PINNED_BYTES, REGION);
    first = sessions_greet(SESSIONS_UID);
    second = sessions_greet(SESSIONS_UID);
    ask(first, 0);
    one_job(); /* the descriptor is good */
    ck_assert(fake_workers_stall(0)); /* the mapping hangs */
    ck_assert_uint_eq(sessions_user(SESSIONS_UID)->memory.pinned_bytes, REGION);
    ask(second, 1);
    rig_settle();
    sessions_expect(second, "\"over_quota\"");
    (void)fake_workers_resume();
    rig_settle();
    sessions_expect(first, "\"capacity\"");
    sessions_finish();
}
END_TEST

START_TEST(regions)
{
    int client;

    start(POLICY_REGIONS, 2);
    client = sessions_greet(SESSIONS_UID);
    for (int i = 0; i < 3; i++) {
        ask(client, i); /* no worker has looked at any */
    }
    sessions_expect(client, "\"over_quota\"");
    ck_assert_str_eq(sessions_receive(client), "");
    rig_settle();
    ck_assert_uint_eq(sessions_forget(client), 2);
    sessions_finish();
}
END_TEST

UNIT_MAIN("registrations_at_once", bytes, regions)
