/* Where the provider pins, the daemon's mapping of registered memory is PROT_NONE, except while it is registered. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/fabric_rig.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/unit_main.h"

static struct rig rig;
static struct fabric_ops ops;
static struct slice slice;
static size_t bytes;
static int ended;
static char inside[8]; /* protection of the slice's first page while the last registration was made */

static void on_mr_ended(struct slice *gone, unsigned nic, int status)
{
    ended++;
}

/* "rw-s" of the mapping that holds `address`; the whole slice must have it. */
static const char *protection(const struct slice *of)
{
    static char found[8];
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t at = (uintptr_t)of->base, end = at + of->length, low, high;
    char line[512], words[8];

    ck_assert_ptr_nonnull(maps);
    found[0] = '\0';
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &low, &high, words) == 3 && low < end && high > at) {
            ck_assert(found[0] == '\0' || strcmp(found, words) == 0);
            strcpy(found, words);
        }
    }
    fclose(maps);
    return found;
}

/* What the kernel would see: it can pin only what is mapped with the access that the registration asks for. */
static int watched_open(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **mr,
                        uint64_t *key)
{
    int status = fake_ops.mr_open(domain, base, length, access, mr, key); /* may be held */

    strcpy(inside, protection(&slice));
    return status;
}

static void set_up(const char *provider, unsigned nics, unsigned access)
{
    uint8_t *memory;

    fake_reset();
    fake_set_nics(nics, true, strcmp(provider, "efa-direct") != 0);
    ops = fake_ops;
    ops.keep_mappings = false;
    ops.mr_open = watched_open;
    rig_start(&rig, provider, &ops);
    bytes = 4 * (size_t)sysconf(_SC_PAGESIZE);
    /* pages around it belong to others */
    memory = map_memory(3 * bytes, 1);
    slice_init(&slice, memory + bytes, bytes, access, on_mr_ended, NULL);
    inside[0] = '\0';
    ended = 0;
}

static void tear_down(void)
{
    struct slice before = {.base = slice.base - bytes, .length = bytes};
    struct slice after = {.base = slice.base + bytes, .length = bytes};
    int count = (int)slice_close_registrations(&slice, &rig.fabric, &rig.owner) + ended;

    ck_assert(rig_wait(&rig, &ended, count, RIG_PATIENCE_MS));
    rig_stop(&rig);
    ck_assert_msg(fake_fault() == NULL, "%s", fake_fault());
    ck_assert_uint_eq(fake_mrs(), 0);
    ck_assert_str_eq(protection(&before), "rw-s");
    ck_assert_str_eq(protection(&after), "rw-s");
    munmap(slice.base - bytes, 3 * bytes);
    fake_reset();
}

static struct lane *lane_on(unsigned nic)
{
    struct result opened = {0};
    struct lane *lane;

    ck_assert_int_eq(lane_open(&rig.fabric, UINT32_C(1) << nic, NULL, on_opened, &opened, &lane), 0);
    ck_assert(rig_wait(&rig, &opened.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(opened.status, 0);
    ck_assert_uint_eq(lane_nic(lane), nic);
    return lane;
}

static void prove(unsigned nic, int status)
{
    struct result proved = {0};

    ck_assert_int_eq(slice_prove(&slice, &rig.fabric, nic, &rig.owner, on_proved, &proved), 0);
    ck_assert(rig_wait(&rig, &proved.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(proved.status, status);
}

START_TEST(hidden_once_registered)
{
    static const char *const providers[] = {"verbs", "efa-direct"};

    set_up(providers[_i], 1, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    ck_assert_str_eq(protection(&slice), "rw-s");
    prove(0, 0);
    ck_assert_str_eq(inside, "rw-s");
    ck_assert_str_eq(protection(&slice), "---s");
    tear_down();
}
END_TEST

/* Memory that may only be read is never made writable. */
START_TEST(read_only)
{
    set_up("verbs", 1, FABRIC_REMOTE_READ);
    ck_assert_int_eq(mprotect(slice.base, bytes, PROT_READ), 0);
    prove(0, 0);
    ck_assert_str_eq(inside, "r--s");
    ck_assert_str_eq(protection(&slice), "---s");
    tear_down();
}
END_TEST

/* tcp moves its bytes through the mapping. */
START_TEST(stays_where_nothing_is_pinned)
{
    struct lane *lane;

    set_up("tcp", 1, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    prove(0, 0);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slice);
    ck_assert_str_eq(protection(&slice), "rw-s");
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    tear_down();
}
END_TEST

/* Values over TCP are written through the mapping: file_range_write. */
START_TEST(stays_for_the_fallback)
{
    set_up("verbs", 1, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    fabric_stop(&rig.fabric);
    rig.config.keep_mappings = true;
    ck_assert_int_eq(fabric_start(&rig.fabric, &rig.loop, rig.workers, &rig.config, &ops), 0);
    prove(0, 0);
    ck_assert_str_eq(protection(&slice), "rw-s");
    tear_down();
}
END_TEST

START_TEST(a_refused_registration)
{
    set_up("verbs", 1, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    prove(0, -ENOMEM);
    ck_assert_str_eq(protection(&slice), "---s");
    prove(0, 0);
    ck_assert_str_eq(inside, "rw-s");
    tear_down();
}
END_TEST

/* A further NIC registers what is hidden already. */
START_TEST(a_further_nic)
{
    struct lane *lane;

    set_up("verbs", 2, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    prove(0, 0);
    lane = lane_on(1);
    inside[0] = '\0';
    rig_prepare(&rig, lane, &slice);
    ck_assert_str_eq(inside, "rw-s");
    ck_assert_str_eq(protection(&slice), "---s");
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    tear_down();
}
END_TEST

/* Two NICs at once: whoever is done first must not take the other's access away. */
START_TEST(two_at_once)
{
    struct result slow = {0};
    struct lane *lane;

    set_up("verbs", 2, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    lane = lane_on(1);
    fake_hold(FAKE_MR_OPEN, 1);
    ck_assert_int_eq(slice_prove(&slice, &rig.fabric, 0, &rig.owner, on_proved, &slow), 0);
    for (int i = 0; i < RIG_PATIENCE_MS && fake_held(FAKE_MR_OPEN) == 0; i++) {
        rig_idle(&rig, 1);
    }
    ck_assert_uint_eq(fake_held(FAKE_MR_OPEN), 1);
    rig_prepare(&rig, lane, &slice);
    ck_assert_int_eq(slow.calls, 0);
    ck_assert_str_eq(protection(&slice), "rw-s");
    fake_release(FAKE_MR_OPEN);
    ck_assert(rig_wait(&rig, &slow.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(slow.status, 0);
    ck_assert_str_eq(inside, "rw-s");
    ck_assert_str_eq(protection(&slice), "---s");
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    tear_down();
}
END_TEST

/* efa-direct closes the registration with the lane whose command named it; it is made anew. */
START_TEST(after_a_revocation)
{
    struct slice *named = &slice;
    struct lane *lane;

    set_up("efa-direct", 1, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    prove(0, 0);
    lane = lane_on(0);
    rig_prepare(&rig, lane, &slice);
    ck_assert_int_eq(lane_begin(lane, &named, 1), 0);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    ck_assert_uint_eq(fake_mrs(), 0);
    lane = lane_on(0);
    inside[0] = '\0';
    rig_prepare(&rig, lane, &slice);
    ck_assert_str_eq(inside, "rw-s");
    ck_assert_str_eq(protection(&slice), "---s");
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    tear_down();
}
END_TEST

/* A mapping that cannot be protected is not registered: nothing would keep the daemon from its bytes. */
START_TEST(not_whole_pages)
{
    set_up("verbs", 1, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
    slice.base += 1;
    prove(0, -EINVAL);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 0);
    slice.base -= 1;
    tear_down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_mappings");
    TCase *tests = tcase_create("fabric_mappings");

    tcase_set_timeout(tests, UNIT_SECONDS);
    tcase_add_loop_test(tests, hidden_once_registered, 0, 2);
    tcase_add_test(tests, read_only);
    tcase_add_test(tests, stays_where_nothing_is_pinned);
    tcase_add_test(tests, stays_for_the_fallback);
    tcase_add_test(tests, a_refused_registration);
    tcase_add_test(tests, a_further_nic);
    tcase_add_test(tests, two_at_once);
    tcase_add_test(tests, after_a_revocation);
    tcase_add_test(tests, not_whole_pages);
    suite_add_tcase(suite, tests);
    return unit_run(suite);
}
