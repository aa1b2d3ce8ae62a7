/* Arenas over the fake fabric: lists of slices are all or nothing, shares cost nothing, and nothing is left behind. */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/memory/memory.h"
#include "proto/errors.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/fabric_rig.h"
#include "tests/unit/unit_main.h"

#define SLICE ((uint64_t)65536)
#define SLICES 8
#define SIZE (SLICES * SLICE)
#define REGIONS 8

/* A region and what its callbacks said. */
struct holder {
    struct region region;
    int opened, closed, code;
    bool released;
};

static struct rig rig;
static struct fabric_ops ops;
static struct memory memory;
static struct memory_account account;
static struct holder holders[REGIONS];
static int accounts_released;

/* Registrations in the order in which they were made and closed, by their place in the arena. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct fabric_mr *mr;
    uint8_t *base;
} made[SLICES];
static uint8_t *closed[SLICES];
static size_t made_count, closed_count;

static int record_open(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **mr,
                       uint64_t *key)
{
    int status = fake_ops.mr_open(domain, base, length, access, mr, key);

    pthread_mutex_lock(&lock);
    if (status == 0 && made_count < SLICES) {
        made[made_count].mr = *mr;
        made[made_count++].base = base;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static int record_close(struct fabric_mr *mr)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < made_count && closed_count < SLICES; i++) {
        if (made[i].mr == mr) {
            closed[closed_count++] = made[i].base;
        }
    }
    pthread_mutex_unlock(&lock);
    return fake_ops.mr_close(mr);
}

static void on_released(struct memory_account *unused)
{
    accounts_released++;
}

static void on_relieved(struct memory_account *unused)
{
}

/* A real NIC: a registration stays from the proof on. */
static void set_up(void)
{
    fake_reset();
    fake_set_nics(1, true, true);
    ops = fake_ops;
    ops.mr_open = record_open;
    ops.mr_close = record_close;
    rig_start(&rig, "verbs", &ops);
    rig.config.mr_max_bytes = SLICE;
    struct budget_settings budget = {.limit = {.bytes = 4 * SIZE, .source = "pinned_limit", .rlimit = UINT64_MAX}};
    memory_init(&memory, &rig.loop, rig.workers, &rig.fabric, &budget);
    memory_account_init(&account, on_released, on_relieved);
}

static void tear_down(void)
{
    ck_assert_uint_eq(memory.budget.memlock.used, memory.budget.memlock.quarantined);
    ck_assert_uint_eq(account.pinned_bytes, 0);
    ck_assert_uint_eq(memory.arenas, 0);
    ck_assert_uint_eq(memory.regions, 0);
    ck_assert(rig_wait(&rig, &accounts_released, 1, RIG_PATIENCE_MS));
    ck_assert_ptr_null(memory.files);
    rig_stop(&rig);
    ck_assert_msg(fake_fault() == NULL, "%s", fake_fault());
    fake_reset();
}

static int memory_file(bool populated)
{
    int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(ftruncate(fd, (off_t)SIZE), 0);
    for (uint64_t at = 0; populated && at < SIZE; at += 4096) {
        ck_assert_int_eq(pwrite(fd, "", 1, (off_t)at), 1);
    }
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

static void on_region_opened(struct region *region, const struct memory_error *error)
{
    struct holder *holder = (struct holder *)region;

    holder->opened++;
    holder->code = error != NULL ? error->code : 0;
}

static void on_region_closed(struct region *region, bool released)
{
    struct holder *holder = (struct holder *)region;

    holder->closed++;
    holder->released = released;
}

/* Asks, with a descriptor of its own. */
static void ask(struct holder *holder, int fd, bool populate)
{
    struct region_request request = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                     .size = SIZE,
                                     .writable = true,
                                     .populate = populate,
                                     .quota = UINT64_MAX};

    region_open(&holder->region, &memory, &account, &request, on_region_opened);
}

static int answer(struct holder *holder)
{
    ck_assert(rig_wait(&rig, &holder->opened, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(holder->opened, 1);
    return holder->code;
}

static bool give_back(struct holder *holder)
{
    region_close(&holder->region, on_region_closed);
    ck_assert(rig_wait(&rig, &holder->closed, 1, RIG_PATIENCE_MS));
    return holder->released;
}

/* Takes one of the user's two workers away, so that the jobs of the test run one after the other. */
struct hold {
    struct worker_job job;
    sem_t go;
    int done;
};

static void hold_run(struct worker_job *job)
{
    sem_wait(&((struct hold *)job)->go);
}

static void hold_done(struct worker_job *job)
{
    ((struct hold *)job)->done++;
}

static void hold_start(struct hold *hold)
{
    memset(hold, 0, sizeof(*hold));
    sem_init(&hold->go, 0, 0);
    workers_submit(rig.workers, &account.owner, &hold->job, hold_run, hold_done);
}

static void hold_end(struct hold *hold)
{
    sem_post(&hold->go);
    ck_assert(rig_wait(&rig, &hold->done, 1, RIG_PATIENCE_MS));
    sem_destroy(&hold->go);
}

/* Slice `fails` cannot be registered: those before are closed backwards, and when the answer comes nothing is left. */
static void roll_back(unsigned fails, int error, int code)
{
    struct hold hold;
    int fd = memory_file(true);

    memset(holders, 0, sizeof(holders));
    made_count = closed_count = 0;
    hold_start(&hold);
    fake_fail(FAKE_MR_OPEN, fails, error);
    ask(&holders[0], fd, false);
    ck_assert_int_eq(answer(&holders[0]), code);
    ck_assert_uint_eq(memory.budget.memlock.used, 0);
    ck_assert_uint_eq(account.pinned_bytes, 0);
    ck_assert_uint_eq(memory.arenas, 0);
    ck_assert_uint_eq(fake_mrs(), 0);
    ck_assert_uint_eq(made_count, fails);
    ck_assert_uint_eq(closed_count, fails);
    for (size_t i = 0; i < fails; i++) {
        ck_assert_ptr_eq(made[i].base, made[0].base + i * SLICE);
        ck_assert_ptr_eq(closed[i], made[fails - 1 - i].base);
    }
    hold_end(&hold);
    close(fd);
}

START_TEST(a_failed_slice_rolls_back_the_others_in_reverse)
{
    set_up();
    for (unsigned fails = 0; fails < SLICES; fails += 2) {
        roll_back(fails, -ENOMEM, PROTO_ERR_OVER_BUDGET);
        roll_back(fails + 1, -EIO, PROTO_ERR_NOT_USABLE);
    }
    tear_down();
}
END_TEST

START_TEST(after_a_failure_the_same_memory_can_be_registered)
{
    int fd = memory_file(true);

    set_up();
    fake_fail(FAKE_MR_OPEN, 5, -EIO);
    ask(&holders[0], fd, false);
    ck_assert_int_eq(answer(&holders[0]), PROTO_ERR_NOT_USABLE);
    ask(&holders[1], fd, false);
    ck_assert_int_eq(answer(&holders[1]), 0);
    ck_assert(!holders[1].region.shared);
    ck_assert_uint_eq(fake_mrs(), SLICES);
    ck_assert_uint_eq(memory.budget.memlock.used, SIZE);
    ck_assert(give_back(&holders[1]));
    ck_assert_uint_eq(fake_mrs(), 0);
    tear_down();
    close(fd);
}
END_TEST

/* The provider does not let go of a slice that was made before: nothing is tried twice, and the charge stays. */
START_TEST(a_roll_back_that_fails_quarantines)
{
    int fd = memory_file(true);

    set_up();
    fake_fail(FAKE_MR_OPEN, 5, -EIO);
    fake_fail(FAKE_MR_CLOSE, 2, -EBUSY);
    ask(&holders[0], fd, false);
    ck_assert_int_eq(answer(&holders[0]), PROTO_ERR_NOT_USABLE);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 5);
    ck_assert_uint_eq(memory.budget.memlock.used, SIZE);
    ck_assert_uint_eq(memory.budget.memlock.quarantined, SIZE);
    ck_assert_uint_eq(memory.quarantined, 1);
    tear_down();
    close(fd);
}
END_TEST

START_TEST(shares_are_neither_registered_nor_charged)
{
    int fd = memory_file(true);

    set_up();
    for (int i = 0; i < REGIONS; i++) {
        ask(&holders[i], fd, false);
    }
    for (int i = 0; i < REGIONS; i++) {
        ck_assert_int_eq(answer(&holders[i]), 0);
    }
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), SLICES);
    ck_assert_uint_eq(rig.fabric.registrations[0], SLICES);
    ck_assert_uint_eq(memory.budget.memlock.used, SIZE);
    for (int i = 0; i < REGIONS; i++) {
        ck_assert_uint_eq(fake_mrs(), SLICES);
        ck_assert(give_back(&holders[i]));
    }
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), SLICES);
    tear_down();
    close(fd);
}
END_TEST

/* All that wait for one arena hear that it could not be made; each may ask again at once, and shares with the next. */
START_TEST(shares_of_a_failed_arena_fail_with_it)
{
    int fd = memory_file(true);

    set_up();
    fake_hold(FAKE_MR_OPEN, 1);
    fake_fail(FAKE_MR_OPEN, 0, -EIO);
    for (int i = 0; i < 3; i++) {
        ask(&holders[i], fd, i == 2);
    }
    for (int i = 0;
         i < RIG_PATIENCE_MS && (fake_held(FAKE_MR_OPEN) == 0 || workers_outstanding(rig.workers) > 1); i++) {
        rig_idle(&rig, 1);
    }
    fake_release(FAKE_MR_OPEN);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(answer(&holders[i]), PROTO_ERR_NOT_USABLE);
    }
    ck_assert_uint_eq(memory.budget.memlock.used, 0);
    tear_down();
    close(fd);
}
END_TEST

/*
 * The one that asks to populate waits for an arena that is refused for missing pages: it gets one of its own then. With
 * one worker its descriptor is looked at after the other's and before the other's pages.
 */
START_TEST(a_refused_arena_does_not_take_the_populating_one_along)
{
    struct hold hold;
    int fd = memory_file(false);

    set_up();
    hold_start(&hold);
    ask(&holders[0], fd, false);
    ask(&holders[1], fd, true);
    ck_assert_int_eq(answer(&holders[0]), PROTO_ERR_NOT_POPULATED);
    ck_assert_int_eq(answer(&holders[1]), 0);
    ck_assert(!holders[1].region.shared);
    ck_assert_uint_eq(memory.budget.memlock.used, SIZE);
    ck_assert(give_back(&holders[1]));
    hold_end(&hold);
    tear_down();
    close(fd);
}
END_TEST

/* What is refused for missing pages was never registered, and is charged no longer when the answer comes. */
START_TEST(missing_pages_are_refused_before_registration)
{
    int fd = memory_file(false);

    set_up();
    ask(&holders[0], fd, false);
    ck_assert_int_eq(answer(&holders[0]), PROTO_ERR_NOT_POPULATED);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 0);
    ck_assert_uint_eq(memory.budget.memlock.used, 0);
    tear_down();
    close(fd);
}
END_TEST

UNIT_MAIN("arena", a_failed_slice_rolls_back_the_others_in_reverse, after_a_failure_the_same_memory_can_be_registered,
          a_roll_back_that_fails_quarantines, shares_are_neither_registered_nor_charged,
          shares_of_a_failed_arena_fail_with_it, a_refused_arena_does_not_take_the_populating_one_along,
          missing_pages_are_refused_before_registration)
