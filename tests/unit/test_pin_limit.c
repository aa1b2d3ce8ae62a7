/* How much memory may be registered: what is read from the host, and what is decided from it. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/pin_limit.h"
#include "tests/unit/unit_main.h"

#define MIB (UINT64_C(1) << 20)
#define NONE UINT64_MAX

static char root[] = "/tmp/test_pin_limit.XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void remove_root(void)
{
    char command[512];

    snprintf(command, sizeof(command), "rm -r '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static uint64_t default_under_root(void)
{
    struct pin_facts facts = {.pins = false};
    struct pin_limit limit;
    char why[PIN_WHY_BYTES];

    pin_facts_read(&facts, root);
    ck_assert_int_eq(pin_limit_decide(&facts, &limit, why), 0);
    return limit.bytes;
}

START_TEST(host_limit)
{
    ck_assert_ptr_nonnull(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:        2048 kB\nMemFree:         1 kB\n");
    ck_assert_uint_eq(default_under_root(), 1 << 20);
    put("/proc/self/cgroup", "4:memory:/old\n0::/system.slice/glide-rdmad.service\n");
    put("/sys/fs/cgroup/system.slice/glide-rdmad.service/memory.max", "max\n");
    ck_assert_uint_eq(default_under_root(), 1 << 20);
    put("/sys/fs/cgroup/system.slice/memory.max", "1048576\n"); /* an ancestor's */
    ck_assert_uint_eq(default_under_root(), 1 << 19);
    put("/sys/fs/cgroup/system.slice/glide-rdmad.service/memory.max", "4096\n");
    ck_assert_uint_eq(default_under_root(), 2048);
    put("/proc/self/cgroup", "0::/\n"); /* as a container sees it */
    put("/sys/fs/cgroup/memory.max", "8192\n");
    ck_assert_uint_eq(default_under_root(), 4096);
    remove_root();
}
END_TEST

START_TEST(this_host)
{
    struct pin_facts facts = {.pins = false};

    pin_facts_read(&facts, "");
    ck_assert_uint_gt(facts.host, 1 << 20);
    ck_assert_uint_lt(facts.host, UINT64_C(1) << 50);
    ck_assert_uint_gt(facts.rlimit, 0);
}
END_TEST

/* Host and group without what binds less; the rlimit counts only where memory is pinned without the capability. */
static const struct {
    struct pin_facts facts;
    uint64_t bytes; /* 0: refused */
    const char *source;
    uint64_t rlimit;
} decisions[] = {
    {{.host = 1000 * MIB, .group = NONE, .rlimit = NONE, .pins = true}, 500 * MIB, "MemTotal", NONE},
    {{.host = 1000 * MIB, .group = 100 * MIB, .rlimit = NONE, .pins = true}, 50 * MIB, "memory.max", NONE},
    {{.configured = 900 * MIB, .host = 1000 * MIB, .group = 100 * MIB, .rlimit = NONE}, 900 * MIB, "pinned_limit", NONE},
    /* the daemon's account is kept without pinning too, but nothing then counts against the rlimit */
    {{.host = 1000 * MIB, .group = NONE, .rlimit = 8 * MIB}, 500 * MIB, "MemTotal", NONE},
    {{.configured = 900 * MIB, .host = 1000 * MIB, .group = NONE, .rlimit = 8 * MIB}, 900 * MIB, "pinned_limit", NONE},
    /* with CAP_IPC_LOCK it does not bind */
    {{.configured = 900 * MIB, .host = 1000 * MIB, .group = NONE, .rlimit = 8 * MIB, .pins = true, .ipc_lock = true},
     900 * MIB, "pinned_limit", NONE},
    /* a quarter is left to queues */
    {{.host = 1000 * MIB, .group = NONE, .rlimit = 8 * MIB, .pins = true}, 6 * MIB, "RLIMIT_MEMLOCK", 8 * MIB},
    /* but no more than 64 MiB */
    {{.host = 10000 * MIB, .group = NONE, .rlimit = 1064 * MIB, .pins = true}, 1000 * MIB, "RLIMIT_MEMLOCK", 1064 * MIB},
    /* the lower one applies */
    {{.host = 1000 * MIB, .group = NONE, .rlimit = 10000 * MIB, .pins = true}, 500 * MIB, "MemTotal", 10000 * MIB},
    {{.configured = 6 * MIB, .host = 1000 * MIB, .group = NONE, .rlimit = 8 * MIB, .pins = true}, 6 * MIB,
     "pinned_limit", 8 * MIB},
    {{.configured = 6 * MIB + 1, .host = 1000 * MIB, .group = NONE, .rlimit = 8 * MIB, .pins = true}, 0, NULL, 0},
    {{.host = 1000 * MIB, .group = NONE, .rlimit = 0, .pins = true}, 0, "RLIMIT_MEMLOCK", 0},
};

START_TEST(decision)
{
    char why[PIN_WHY_BYTES] = "";
    struct pin_limit limit;
    int status = pin_limit_decide(&decisions[_i].facts, &limit, why);

    if (decisions[_i].source == NULL) {
        ck_assert_int_eq(status, -EINVAL);
        ck_assert_ptr_nonnull(strstr(why, "6291457")); /* pinned_limit */
        ck_assert_ptr_nonnull(strstr(why, "8388608")); /* RLIMIT_MEMLOCK */
        ck_assert_ptr_nonnull(strstr(why, "at most 6291456"));
        ck_assert_ptr_nonnull(strstr(why, "LimitMEMLOCK="));
        return;
    }
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(limit.bytes, decisions[_i].bytes);
    ck_assert_str_eq(limit.source, decisions[_i].source);
    ck_assert_uint_eq(limit.rlimit, decisions[_i].rlimit);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pin_limit");
    TCase *tests = tcase_create("pin_limit");

    tcase_set_timeout(tests, UNIT_SECONDS);
    tcase_add_test(tests, host_limit);
    tcase_add_test(tests, this_host);
    tcase_add_loop_test(tests, decision, 0, sizeof(decisions) / sizeof(decisions[0]));
    suite_add_tcase(suite, tests);
    return unit_run(suite);
}
