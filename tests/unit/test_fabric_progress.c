/* The progress thread over the fake fabric. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/fabric/progress.h"
#include "tests/unit/fabric_rig.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/unit_main.h"

static uv_loop_t loop;
static struct fabric_progress *progress;
static struct fabric_domain *domain;
static int removed;

static void on_removed(struct progress_member *member)
{
    removed++;
}

static void set_up(void)
{
    struct fabric_settings settings = {.provider = "tcp"};
    char why[FABRIC_WHY_BYTES];

    fake_reset();
    uv_loop_init(&loop);
    progress = progress_start(&loop, &fake_ops);
    ck_assert_ptr_nonnull(progress);
    ck_assert_int_eq(fake_ops.domain_open(&settings, &domain, why), 0);
}

static struct progress_member new_member(void)
{
    struct progress_member member = {.removed = on_removed};
    uint8_t address[FABRIC_ADDRESS_BYTES];
    char why[FABRIC_WHY_BYTES];
    size_t length;

    ck_assert_int_eq(fake_ops.endpoint_open(domain, &member.endpoint, address, &length, why), 0);
    member.wait_fd = fake_ops.endpoint_wait_fd(member.endpoint);
    return member;
}

static void drop_member(struct progress_member *member)
{
    fake_ops.endpoint_close(member->endpoint);
    fake_ops.endpoint_free(member->endpoint);
}

static void tear_down(void)
{
    progress_stop(progress);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    fake_ops.domain_close(domain);
    ck_assert_msg(fake_fault() == NULL, "%s", fake_fault());
    fake_reset();
}

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

static void wait_calls(unsigned wanted)
{
    for (int i = 0; i < 30000 && fake_calls(FAKE_PROGRESS) < wanted; i++) {
        sleep_ms(1);
    }
    ck_assert_uint_ge(fake_calls(FAKE_PROGRESS), wanted);
}

/* Progress at once, then only when the descriptor says so; the loop is kept alive by a removal and nothing else. */
START_TEST(events)
{
    struct progress_member a, b;

    set_up();
    a = new_member();
    b = new_member();
    progress_add(progress, &a);
    progress_add(progress, &b);
    wait_calls(2);
    sleep_ms(50);
    ck_assert_uint_eq(fake_calls(FAKE_PROGRESS), 2);
    fake_ring();
    wait_calls(4);
    sleep_ms(50);
    ck_assert_uint_eq(fake_calls(FAKE_PROGRESS), 4);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_NOWAIT), 0);
    progress_remove(progress, &a);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(removed, 1);
    fake_ring();
    wait_calls(5);
    sleep_ms(20);
    ck_assert_uint_eq(fake_calls(FAKE_PROGRESS), 5);
    progress_remove(progress, &b);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(removed, 2);
    drop_member(&a);
    drop_member(&b);
    tear_down();
}
END_TEST

START_TEST(try_wait_again)
{
    struct progress_member a;

    set_up();
    a = new_member();
    fake_fail(FAKE_TRY_WAIT, 0, -EAGAIN);
    progress_add(progress, &a);
    wait_calls(2);
    sleep_ms(20);
    ck_assert_uint_eq(fake_calls(FAKE_PROGRESS), 2);
    progress_remove(progress, &a);
    uv_run(&loop, UV_RUN_DEFAULT);
    drop_member(&a);
    tear_down();
}
END_TEST

/* A queue that fails is left alone, though its descriptor stays readable, and disturbs no other. */
START_TEST(failed_queue)
{
    struct progress_member a, b;
    unsigned calls;

    set_up();
    a = new_member();
    fake_fail(_i == 0 ? FAKE_PROGRESS : FAKE_TRY_WAIT, 0, -EIO);
    progress_add(progress, &a);
    wait_calls(1);
    sleep_ms(20);
    b = new_member();
    progress_add(progress, &b);
    wait_calls(2);
    fake_ring();
    wait_calls(3);
    sleep_ms(50);
    calls = fake_calls(FAKE_PROGRESS);
    ck_assert_uint_eq(calls, 3);
    progress_remove(progress, &a);
    progress_remove(progress, &b);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(removed, 2);
    drop_member(&a);
    drop_member(&b);
    tear_down();
}
END_TEST

/* Removed before the thread has seen it, again and again. */
START_TEST(add_and_remove)
{
    struct progress_member members[8];

    set_up();
    for (int i = 0; i < 8; i++) {
        members[i] = new_member();
    }
    for (int round = 0; round < 300; round++) {
        removed = 0;
        for (int i = 0; i < 8; i++) {
            progress_add(progress, &members[i]);
            if (i == round % 8) {
                fake_ring();
            }
            if ((i + round) % 2 == 0) {
                progress_remove(progress, &members[i]);
            }
        }
        for (int i = 0; i < 8; i++) {
            if ((i + round) % 2 != 0) {
                progress_remove(progress, &members[i]);
            }
        }
        uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(removed, 8);
    }
    for (int i = 0; i < 8; i++) {
        drop_member(&members[i]);
    }
    tear_down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_progress");
    TCase *tests = tcase_create("fabric_progress");

    tcase_set_timeout(tests, UNIT_SECONDS);
    tcase_add_test(tests, events);
    tcase_add_test(tests, try_wait_again);
    tcase_add_loop_test(tests, failed_queue, 0, 2);
    tcase_add_test(tests, add_and_remove);
    suite_add_tcase(suite, tests);
    return unit_run(suite);
}
