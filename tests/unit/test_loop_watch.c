/* The loop's runner: what counts as a wait of the loop and what does not, and when it ends. */
#include <stdlib.h>
#include <time.h>

#include "daemon/base/log.h"
#include "daemon/base/loop_watch.h"
#include "tests/unit/unit_main.h"

#define MS UINT64_C(1000000)

static uv_loop_t loop;
static struct loop_watch watch;
static bool stopped;
static int called;
static uint64_t slept_ms = 50; /* until the timer */

static void wait_a_little(void)
{
    struct timespec pause = {.tv_nsec = 5 * (long)MS};
    nanosleep(&pause, NULL);
}

static void work_for_long(void)
{
    struct timespec now;
    uint64_t end = 0, cpu;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        cpu = (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
        end = end == 0 ? cpu + 30 * MS : end;
    } while (cpu < end);
}

static void nothing(void)
{
}

/* Runs `work` in the callback of a descriptor and in that of a timer, which also is slept for. */
static void on_async(uv_async_t *async)
{
    void (*work)(void) = *(void (**)(void))async->data;
    called++;
    work();
    uv_close((uv_handle_t *)async, NULL);
}

static void on_timer(uv_timer_t *timer)
{
    void (*work)(void) = *(void (**)(void))timer->data;
    called++;
    work();
    uv_close((uv_handle_t *)timer, NULL);
}

static void run_with(void (*work)(void), const char *hook)
{
    uv_async_t async;
    uv_timer_t timer;
    setenv("GLIDE_RDMAD_TEST_LOOP", hook, 1);
    uv_loop_init(&loop);
    uv_async_init(&loop, &async, on_async);
    uv_timer_init(&loop, &timer);
    async.data = timer.data = &work;
    uv_async_send(&async);
    uv_timer_start(&timer, on_timer, slept_ms, 0);
    loop_watch_run(&watch, &loop, &stopped);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(called, 2);
}

static bool strict(void)
{
    run_with(nothing, "1");
    called = 0;
    return watch.strict;
}

/*
 * Longer than a turn in which nothing is done takes on a machine with much to do. Something that must be read from the
 * disk once more is a wait, too: it does not come again and again, as the sleep would if it counted.
 */
START_TEST(sleep_of_the_loop)
{
    run_with(nothing, "1");
    slept_ms = 2000;
    for (int attempt = 0; attempt == 0 || (attempt < 5 && watch.blocked > 0); attempt++) {
        called = 0;
        watch = (struct loop_watch){0};
        run_with(nothing, "1");
    }
    ck_assert_uint_eq(watch.blocked, 0);
    ck_assert_uint_lt(watch.longest_ns, (slept_ms - 100) * MS);
}
END_TEST

START_TEST(callback_that_waits)
{
    if (!strict())
        return;
    run_with(wait_a_little, "1");
    ck_assert_uint_ge(watch.blocked, 1);
}
END_TEST

START_TEST(callback_that_works_for_long)
{
    if (!strict())
        return;
    run_with(work_for_long, "1");
    ck_assert_uint_ge(watch.blocked, 1);
}
END_TEST

START_TEST(without_the_hook)
{
    run_with(wait_a_little, "0");
    ck_assert_uint_eq(watch.blocked, 0);
    ck_assert_uint_ge(watch.longest_ns, 5 * MS);
}
END_TEST

static void stop(uv_timer_t *timer)
{
    called++;
    stopped = true;
}

START_TEST(stopped_although_something_is_left)
{
    uv_timer_t timer;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, stop, 1, 1);
    loop_watch_run(&watch, &loop, &stopped);
    ck_assert_int_eq(called, 1);
}
END_TEST

UNIT_MAIN("loop_watch", sleep_of_the_loop, callback_that_waits, callback_that_works_for_long, without_the_hook,
          stopped_although_something_is_left)
