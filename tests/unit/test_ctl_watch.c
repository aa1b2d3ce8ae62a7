/* The revocation check's look at memory: what changes is seen, whenever it does, and nothing else is. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/doctor/watch.h"
#include "tests/unit/unit_main.h"

#define CANARY 0x3C
#define LENGTH (3 * 4096 + 17)

static unsigned char bytes[LENGTH];

START_TEST(nothing_changes)
{
    memset(bytes, CANARY, sizeof(bytes));
    ck_assert_uint_eq(watch_changed(bytes, sizeof(bytes), CANARY, 0), 0);
    ck_assert_uint_eq(watch_changed(bytes, sizeof(bytes), CANARY, 30), 0);
}
END_TEST

START_TEST(each_byte_counts)
{
    static const size_t places[] = {0, 1, 4095, 4096, 3 * 4096 - 1, 3 * 4096, LENGTH - 1};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        memset(bytes, CANARY, sizeof(bytes));
        bytes[places[i]] ^= 1;
        ck_assert_uint_eq(watch_changed(bytes, sizeof(bytes), CANARY, 0), 1);
        ck_assert_uint_eq(watch_count(bytes, sizeof(bytes), CANARY), LENGTH - 1);
    }
    memset(bytes, 0, sizeof(bytes));
    ck_assert_uint_eq(watch_changed(bytes, sizeof(bytes), CANARY, 0), LENGTH);
}
END_TEST

/* A device that goes on writing. */
static void *write_late(void *started)
{
    pthread_barrier_wait(started);
    usleep(20000);
    __atomic_store_n(&bytes[2 * 4096 + 5], 0x5A, __ATOMIC_RELAXED);
    return NULL;
}

START_TEST(late_byte)
{
    pthread_barrier_t started;
    pthread_t thread;

    memset(bytes, CANARY, sizeof(bytes));
    pthread_barrier_init(&started, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_late, &started), 0);
    pthread_barrier_wait(&started);
    ck_assert_uint_eq(watch_changed(bytes, sizeof(bytes), CANARY, 20000), 1); /* returns as soon as it sees it */
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&started);
}
END_TEST

UNIT_MAIN("ctl_watch", nothing_changes, each_byte_counts, late_byte)
