/*
 * The budgets of registered memory, with real memory files over the fake fabric: what is charged before a registration
 * and given back after it, on one NIC and on a further one; what fails; many at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/memory/memory.h"
#include "proto/errors.h"
#include "proto/limits.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/fabric_rig.h"
#include "tests/unit/unit_main.h"

#define PAGE UINT64_C(4096)
#define SLICE (64 * PAGE)
#define MANY 24
#define LONG_MS 3600000

struct probe {
    struct region region;
    int opened, closed;
    bool released;
    struct memory_error error;
};

static struct rig rig;
static struct memory memory;
static struct memory_account account;
static struct probe probes[MANY];
static int calls; /* opened and closed, all probes */
static uint64_t most; /* of the memlock budget that was in use at once */

static void nothing(struct memory_account *unused)
{
}

static void note_use(void)
{
    const struct budget *budget = &memory.budget;

    most = budget->memlock.used > most ? budget->memlock.used : most;
    ck_assert_uint_le(budget->memlock.used, budget->memlock.limit);
    for (unsigned i = 0; i < budget->device_count; i++) {
        ck_assert_uint_le(budget->devices[i].bytes.used, budget->devices[i].bytes.limit);
        ck_assert_uint_le(budget->devices[i].registrations.used, budget->devices[i].registrations.limit);
    }
}

static void on_region_opened(struct region *region, const struct memory_error *error)
{
    struct probe *probe = (struct probe *)region;

    calls++;
    probe->opened++;
    if (error != NULL) {
        probe->error = *error;
    }
    note_use();
}

static void on_region_closed(struct region *region, bool memory_released)
{
    struct probe *probe = (struct probe *)region;

    calls++;
    probe->closed++;
    probe->released = memory_released;
}

struct limits {
    const char *provider;
    unsigned nics;
    uint64_t pinned, device, registrations, rlimit;
};

static void set_up(struct limits limits)
{
    struct budget_settings settings = {
        .limit = {.bytes = limits.pinned, .source = "pinned_limit", .rlimit = UINT64_MAX},
        .device_limit = limits.device};

    log_set_level(LOG_LEVEL_ERROR);
    fake_reset();
    fake_set_nics(limits.nics, strcmp(limits.provider, "tcp") != 0, false);
    fake_set_registrations(limits.registrations);
    rig_start(&rig, limits.provider, &fake_ops);
    rig.config.mr_max_bytes = SLICE;
    if (limits.rlimit != 0) {
        settings.limit.rlimit = limits.rlimit;
    }
    memory_init(&memory, &rig.loop, rig.workers, &rig.fabric, &settings);
    memory_account_init(&account, nothing, nothing);
    memset(probes, 0, sizeof(probes));
    calls = 0;
    most = 0;
}

static struct probe *begin(unsigned number, uint64_t bytes)
{
    struct probe *probe = &probes[number];
    int fd = memfd_create("budget", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    struct region_request request = {.fd = fd, .size = bytes, .writable = true, .populate = true, .quota = UINT64_MAX};

    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    memset(probe, 0, sizeof(*probe));
    region_open(&probe->region, &memory, &account, &request, on_region_opened);
    return probe;
}

static struct probe *open_region(unsigned number, uint64_t bytes)
{
    struct probe *probe = begin(number, bytes);

    ck_assert(rig_wait(&rig, &probe->opened, 1, RIG_PATIENCE_MS));
    return probe;
}

static void close_region(struct probe *probe)
{
    if (probe->error.code == 0 && probe->closed == 0) {
        region_close(&probe->region, on_region_closed);
        ck_assert(rig_wait(&rig, &probe->closed, 1, RIG_PATIENCE_MS));
    }
}

static void expect_use(uint64_t memlock, uint64_t first, uint64_t second)
{
    ck_assert_uint_eq(memory.budget.memlock.used, memlock);
    ck_assert_uint_eq(memory.budget.devices[0].bytes.used, first);
    ck_assert_uint_eq(memory.budget.devices[1].bytes.used, second);
    ck_assert_uint_eq(account.pinned_bytes, memlock);
}

static void tear_down(void)
{
    for (int i = 0; i < MANY; i++) {
        if (probes[i].opened == 1) {
            close_region(&probes[i]);
        }
    }
    expect_use(0, 0, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(memory.budget.devices[i].registrations.used, 0);
    }
    ck_assert_uint_eq(account.refs, 0);
    rig_stop(&rig);
    ck_assert_msg(fake_fault() == NULL, "%s", fake_fault());
    ck_assert_uint_eq(fake_mrs(), 0);
    fake_reset();
}

static void expect_refusal(const struct probe *probe, const char *budget, uint64_t used, uint64_t limit, uint64_t asked)
{
    ck_assert_int_eq(probe->error.code, PROTO_ERR_OVER_BUDGET);
    ck_assert_str_eq(probe->error.budget, budget);
    ck_assert_uint_eq(probe->error.used, used);
    ck_assert_uint_eq(probe->error.limit, limit);
    ck_assert_uint_eq(probe->error.asked, asked);
}

START_TEST(memlock_refusal)
{
    set_up((struct limits){.provider = "verbs", .nics = 1, .pinned = 10 * PAGE});
    open_region(0, 6 * PAGE);
    expect_use(6 * PAGE, 6 * PAGE, 0);
    expect_refusal(open_region(1, 5 * PAGE), "memlock", 6 * PAGE, 10 * PAGE, 5 * PAGE);
    open_region(2, 3 * PAGE + 1); /* whole pages count */
    expect_use(10 * PAGE, 10 * PAGE, 0);
    expect_refusal(open_region(3, 1), "memlock", 10 * PAGE, 10 * PAGE, PAGE);
    close_region(&probes[0]);
    expect_use(4 * PAGE, 4 * PAGE, 0);
    ck_assert_int_eq(open_region(1, 5 * PAGE)->error.code, 0);
    tear_down();
}
END_TEST

/* The second arena goes to the NIC that has room; the third is refused, and the NIC is named. */
START_TEST(device_refusal)
{
    struct probe *refused;

    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 100 * PAGE, .device = 10 * PAGE});
    open_region(0, 6 * PAGE);
    ck_assert_int_eq(open_region(1, 6 * PAGE)->error.code, 0);
    expect_use(12 * PAGE, 6 * PAGE, 6 * PAGE);
    refused = open_region(2, 5 * PAGE);
    expect_refusal(refused, "device", 6 * PAGE, 10 * PAGE, 5 * PAGE);
    ck_assert_ptr_nonnull(strstr(refused->error.text, "fake0"));
    expect_use(12 * PAGE, 6 * PAGE, 6 * PAGE);
    tear_down();
}
END_TEST

START_TEST(registrations_refusal)
{
    struct probe *refused;

    set_up((struct limits){.provider = "verbs", .nics = 1, .pinned = 1000 * PAGE, .registrations = 3});
    open_region(0, SLICE + PAGE); /* two slices */
    ck_assert_uint_eq(memory.budget.devices[0].registrations.used, 2);
    ck_assert_uint_eq(rig.fabric.registrations[0], 2);
    refused = open_region(1, 2 * SLICE);
    expect_refusal(refused, "registrations", 2, 3, 2);
    ck_assert_ptr_nonnull(strstr(refused->error.text, "fake0"));
    ck_assert_int_eq(open_region(2, PAGE)->error.code, 0);
    ck_assert_uint_eq(rig.fabric.registrations[0], 3);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 3);
    tear_down();
}
END_TEST

/* The charge is there while the provider is still at work, and until the close has succeeded. */
START_TEST(charged_before_and_after)
{
    struct probe *probe;

    set_up((struct limits){.provider = "verbs", .nics = 1, .pinned = 10 * PAGE});
    fake_hold(FAKE_MR_OPEN, 1);
    probe = begin(0, 6 * PAGE);
    for (int i = 0; i < RIG_PATIENCE_MS && fake_held(FAKE_MR_OPEN) == 0; i++) {
        rig_idle(&rig, 1);
    }
    ck_assert_uint_eq(fake_held(FAKE_MR_OPEN), 1);
    expect_use(6 * PAGE, 6 * PAGE, 0);
    fake_release(FAKE_MR_OPEN);
    ck_assert(rig_wait(&rig, &probe->opened, 1, RIG_PATIENCE_MS));
    fake_hold(FAKE_MR_CLOSE, 1);
    region_close(&probe->region, on_region_closed);
    for (int i = 0; i < RIG_PATIENCE_MS && fake_held(FAKE_MR_CLOSE) == 0; i++) {
        rig_idle(&rig, 1);
    }
    expect_use(6 * PAGE, 6 * PAGE, 0);
    fake_release(FAKE_MR_CLOSE);
    ck_assert(rig_wait(&rig, &probe->closed, 1, RIG_PATIENCE_MS));
    ck_assert(probe->released);
    tear_down();
}
END_TEST

/* --- a further NIC ------------------------------------------------------------------------------------------------ */

/* Two lanes, one on each NIC. */
static struct lane *lanes[2];

static void open_lanes(void)
{
    for (int i = 0; i < 2; i++) {
        struct lane *lane = rig_lane(&rig);
        lanes[lane_nic(lane)] = lane;
    }
    ck_assert(lanes[0] != NULL && lanes[1] != NULL);
}

static void close_lanes(void)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(rig_destroy(&rig, lanes[i]), 0);
    }
}

/* As a transfer does it. */
static int prepare_on(struct window *window, unsigned nic)
{
    struct slice *slices[PROTO_WINDOW_SLICES];
    struct result result = {0};
    struct memory_error error = {0};
    size_t count = window_slices(window, slices);

    ck_assert_uint_le(count, PROTO_WINDOW_SLICES);
    if (window_charge(window, nic, &error) != 0) {
        return error.code;
    }
    note_use();
    lane_prepare(lanes[nic], slices, count, on_done, &result);
    ck_assert(rig_wait(&rig, &result.calls, 1, RIG_PATIENCE_MS));
    if (result.status != 0) {
        ck_assert(window_unprepared(window, nic, true) == (nic != 0));
    }
    return result.status;
}

/* Its first NIC cannot be opened: the region is proved on, and charged on, the next. */
START_TEST(a_home_that_fails_is_left)
{
    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 10 * PAGE});
    fake_break_nic("fake0");
    open_region(0, 8 * PAGE);
    expect_use(8 * PAGE, 0, 8 * PAGE);
    rig.fabric.nic_states[0].retry_at += LONG_MS; /* however long this test takes */
    open_region(1, PAGE); /* known by now: it is not tried again */
    expect_use(9 * PAGE, 0, 9 * PAGE);
    ck_assert_uint_eq(fake_calls(FAKE_DOMAIN_OPEN), 2);
    tear_down();
}
END_TEST

START_TEST(a_further_nic_is_charged)
{
    struct memory_error error;
    struct window window;
    struct probe *probe;

    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 10 * PAGE});
    open_lanes();
    probe = open_region(0, 4 * PAGE);
    ck_assert_int_eq(window_take(&window, &probe->region, 0, PAGE, true, &error), 0);
    ck_assert_uint_eq(window_nics(&window), 3);
    expect_use(4 * PAGE, 4 * PAGE, 0);
    ck_assert_int_eq(prepare_on(&window, 1), 0);
    expect_use(8 * PAGE, 4 * PAGE, 4 * PAGE);
    ck_assert_int_eq(prepare_on(&window, 1), 0); /* once */
    ck_assert_int_eq(prepare_on(&window, 0), 0);
    expect_use(8 * PAGE, 4 * PAGE, 4 * PAGE);
    ck_assert_uint_eq(rig.fabric.registrations[0], 1);
    ck_assert_uint_eq(rig.fabric.registrations[1], 1);
    window_release(&window);
    close_lanes();
    tear_down();
}
END_TEST

/* Where the budget has no room for it, the window names the NICs that have it; room that comes is used. */
START_TEST(a_further_nic_only_within_the_budget)
{
    struct memory_error error;
    struct window window;
    struct probe *probe;

    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 10 * PAGE});
    open_lanes();
    probe = open_region(0, 4 * PAGE);
    open_region(1, 3 * PAGE);
    ck_assert_int_eq(window_take(&window, &probe->region, 0, PAGE, true, &error), 0);
    ck_assert_uint_eq(window_nics(&window), 1);
    ck_assert_int_eq(window_charge(&window, 1, &error), PROTO_ERR_OVER_BUDGET);
    expect_use(7 * PAGE, 7 * PAGE, 0);
    close_region(&probes[1]);
    ck_assert_uint_eq(window_nics(&window), 3);
    ck_assert_int_eq(prepare_on(&window, 1), 0);
    open_region(2, 2 * PAGE);
    ck_assert_uint_eq(window_nics(&window), 3); /* charged there */
    window_release(&window);
    close_lanes();
    tear_down();
}
END_TEST

/* The provider refuses on a further NIC: the charge is given back, and the NIC is not named any more. */
START_TEST(a_further_nic_that_refuses)
{
    struct memory_error error;
    struct window window;
    struct probe *probe;

    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 10 * PAGE});
    open_lanes();
    probe = open_region(0, 4 * PAGE);
    ck_assert_int_eq(window_take(&window, &probe->region, 0, PAGE, true, &error), 0);
    fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    ck_assert_int_eq(prepare_on(&window, 1), -ENOMEM);
    expect_use(4 * PAGE, 4 * PAGE, 0);
    ck_assert_uint_eq(window_nics(&window), 1);
    ck_assert_int_eq(prepare_on(&window, 0), 0);
    window_release(&window);
    close_lanes();
    tear_down();
}
END_TEST

/* A close that fails on one NIC: that charge stays, the other is given back. */
START_TEST(quarantine_by_nic)
{
    struct memory_error error;
    struct window window;
    struct probe *probe;

    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 10 * PAGE});
    open_lanes();
    probe = open_region(0, 4 * PAGE);
    ck_assert_int_eq(window_take(&window, &probe->region, 0, PAGE, true, &error), 0);
    ck_assert_int_eq(prepare_on(&window, 1), 0);
    window_release(&window);
    fake_fail(FAKE_MR_CLOSE, 0, -EBUSY);
    close_region(probe);
    ck_assert(!probe->released);
    ck_assert_uint_eq(memory.budget.memlock.used, 4 * PAGE);
    ck_assert_uint_eq(memory.budget.memlock.quarantined, 4 * PAGE);
    ck_assert_uint_eq(memory.budget.devices[0].bytes.used + memory.budget.devices[1].bytes.used, 4 * PAGE);
    ck_assert_uint_eq(memory.quarantined, 1);
    ck_assert_uint_eq(memory.arenas, 0);
    ck_assert_uint_eq(account.refs, 0);
    close_lanes();
    rig_stop(&rig);
    fake_reset();
}
END_TEST

/* --- what the provider refuses ------------------------------------------------------------------------------------ */

START_TEST(rlimit_was_hit)
{
    struct probe *refused;

    set_up((struct limits){.provider = "verbs", .nics = 1, .pinned = 1000 * PAGE, .rlimit = 1200 * PAGE});
    open_region(0, 10 * PAGE);
    fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    refused = open_region(1, 5 * PAGE);
    expect_refusal(refused, "memlock", 10 * PAGE, 1200 * PAGE, 5 * PAGE);
    ck_assert(refused->error.both);
    ck_assert_uint_eq(refused->error.memlock_used, 10 * PAGE);
    ck_assert_uint_eq(refused->error.memlock_limit, 1000 * PAGE);
    ck_assert_uint_eq(refused->error.device_used, 10 * PAGE);
    ck_assert_ptr_nonnull(strstr(refused->error.text, "RLIMIT_MEMLOCK was hit"));
    expect_use(10 * PAGE, 10 * PAGE, 0);
    tear_down();
}
END_TEST

START_TEST(the_device_was_hit)
{
    struct probe *refused;

    set_up((struct limits){.provider = "verbs", .nics = 1, .pinned = 1000 * PAGE, .device = 100 * PAGE});
    open_region(0, 10 * PAGE);
    fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    refused = open_region(1, 5 * PAGE);
    expect_refusal(refused, "device", 10 * PAGE, 100 * PAGE, 5 * PAGE);
    ck_assert_uint_eq(refused->error.memlock_used, 10 * PAGE);
    ck_assert_uint_eq(refused->error.device_limit, 100 * PAGE);
    tear_down();
}
END_TEST

/* Nothing was pinned: no budget is to blame. */
START_TEST(without_pinning_no_budget_is_named)
{
    struct probe *refused;

    set_up((struct limits){.provider = "tcp", .nics = 1, .pinned = 1000 * PAGE});
    fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    refused = open_region(1, 5 * PAGE);
    ck_assert_int_eq(refused->error.code, PROTO_ERR_NOT_USABLE);
    ck_assert_ptr_null(refused->error.budget);
    tear_down();
}
END_TEST

/* On tcp the host is one NIC, however many lanes register the memory in their own domains. */
START_TEST(tcp_is_charged_once)
{
    struct memory_error error;
    struct window window;
    struct lane *lane;
    struct probe *probe;

    set_up((struct limits){.provider = "tcp", .nics = 1, .pinned = 10 * PAGE});
    probe = open_region(0, 6 * PAGE);
    ck_assert_int_eq(window_take(&window, &probe->region, 0, PAGE, true, &error), 0);
    for (int i = 0; i < 3; i++) {
        struct slice *slices[PROTO_WINDOW_SLICES];
        lane = rig_lane(&rig);
        ck_assert_uint_eq(window_slices(&window, slices), 1);
        ck_assert_int_eq(window_charge(&window, lane_nic(lane), &error), 0);
        rig_prepare(&rig, lane, slices[0]);
        expect_use(6 * PAGE, 6 * PAGE, 0);
        ck_assert_int_eq(rig_destroy(&rig, lane), 0);
        expect_use(6 * PAGE, 6 * PAGE, 0);
    }
    window_release(&window);
    tear_down();
}
END_TEST

/* --- many at once ------------------------------------------------------------------------------------------------- */

/* Registrations that fail or take their time: the sum never passes the limit (on_region_opened), and comes to zero. */
START_TEST(many_at_once)
{
    int refused = 0, failed = 0;

    set_up((struct limits){.provider = "verbs", .nics = 2, .pinned = 40 * PAGE, .device = 25 * PAGE});
    fake_jitter((unsigned)_i, 500);
    fake_fail_randomly(FAKE_MR_OPEN, 25, -EIO);
    for (unsigned round = 0; round < 6; round++) {
        calls = 0;
        for (unsigned i = 0; i < MANY; i++) {
            begin(i, (1 + (i * 7 + round) % 9) * PAGE);
        }
        ck_assert(rig_wait(&rig, &calls, MANY, RIG_PATIENCE_MS));
        for (unsigned i = 0; i < MANY; i++) {
            refused += probes[i].error.code == PROTO_ERR_OVER_BUDGET;
            failed += probes[i].error.code == PROTO_ERR_NOT_USABLE;
            close_region(&probes[i]);
        }
        expect_use(0, 0, 0);
    }
    ck_assert_int_gt(refused, 0);
    ck_assert_int_gt(failed, 0);
    ck_assert_uint_gt(most, 20 * PAGE);
    tear_down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory_budget");
    TCase *tests = tcase_create("memory_budget");

    tcase_set_timeout(tests, UNIT_SECONDS);
    tcase_add_test(tests, memlock_refusal);
    tcase_add_test(tests, device_refusal);
    tcase_add_test(tests, registrations_refusal);
    tcase_add_test(tests, charged_before_and_after);
    tcase_add_test(tests, a_home_that_fails_is_left);
    tcase_add_test(tests, a_further_nic_is_charged);
    tcase_add_test(tests, a_further_nic_only_within_the_budget);
    tcase_add_test(tests, a_further_nic_that_refuses);
    tcase_add_test(tests, quarantine_by_nic);
    tcase_add_test(tests, rlimit_was_hit);
    tcase_add_test(tests, the_device_was_hit);
    tcase_add_test(tests, without_pinning_no_budget_is_named);
    tcase_add_test(tests, tcp_is_charged_once);
    tcase_add_loop_test(tests, many_at_once, 0, 4);
    suite_add_tcase(suite, tests);
    return unit_run(suite);
}
