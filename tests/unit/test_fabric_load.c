/* fabric_start where something is missing or wrong, and the environment it leaves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fabric/fabric.h"
#include "daemon/fabric/lane.h"
#include "tests/unit/unit_main.h"

static uv_loop_t loop;
static struct workers *workers;
static struct fabric fabric;
static char provider[] = "tcp";
static struct fabric_config config = {.provider = provider, .lanes_max = 4};

static void start(void)
{
    uv_loop_init(&loop);
    workers = workers_start(&loop);
    ck_assert_int_eq(fabric_start(&fabric, &loop, workers, &config, NULL), 0);
}

static void stop(void)
{
    fabric_stop(&fabric);
    workers_stop(workers);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void check_unusable(const char *words)
{
    struct lane *lane;

    start();
    ck_assert(!fabric.usable);
    ck_assert_msg(strstr(fabric.why, words) != NULL, "%s", fabric.why);
    ck_assert_int_eq(lane_open(&fabric, LANE_ANY_NIC, NULL, NULL, NULL, &lane), -ENETDOWN);
    stop();
}

START_TEST(loads)
{
    start();
    ck_assert_msg(fabric.usable, "%s", fabric.why);
    ck_assert_str_eq(fabric.why, "");
    ck_assert_int_ge(atoi(fabric.version), 2);
    ck_assert_ptr_nonnull(strstr(fabric.providers, "tcp"));
    ck_assert_uint_eq(fabric.nic_count, 1);
    ck_assert_str_eq(fabric.nics[0].name, "host");
    ck_assert(!fabric.nics[0].virtual_addresses);
    ck_assert(fabric.domain_per_lane);
    ck_assert_str_eq(fabric.object, getenv("GLIDE_RDMAD_FABRIC_OBJECT"));
    stop();
}
END_TEST

START_TEST(library_missing)
{
    char path[] = "/nonexistent/libfabric.so.1";

    config.library = path;
    check_unusable("[fabric] library = /nonexistent/libfabric.so.1 cannot be loaded: ");
}
END_TEST

START_TEST(library_missing_by_environment)
{
    setenv("GLIDE_LIBFABRIC_PATH", "/nonexistent/libfabric.so.1", 1);
    check_unusable("GLIDE_LIBFABRIC_PATH = /nonexistent/libfabric.so.1 cannot be loaded: ");
}
END_TEST

/* The named file is the one that is used: the system's own, by its path. */
START_TEST(library_named)
{
    char path[512] = "";
    char line[1024];
    FILE *maps;

    start();
    maps = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof(line), maps) != NULL) {
        char *at = strchr(line, '/');
        if (at != NULL && strstr(at, "/libfabric.so") != NULL) {
            snprintf(path, sizeof(path), "%.*s", (int)strcspn(at, "\n"), at);
        }
    }
    fclose(maps);
    stop();
    ck_assert_str_ne(path, "");
    config.library = path;
    start();
    ck_assert_msg(fabric.usable, "%s", fabric.why);
    stop();
}
END_TEST

START_TEST(object_missing)
{
    setenv("GLIDE_RDMAD_FABRIC_OBJECT", "/nonexistent/object.so", 1);
    check_unusable("/nonexistent/object.so: cannot open shared object file");
}
END_TEST

/* Neither beside the program nor installed: both places are named. */
START_TEST(objects_missing)
{
    unsetenv("GLIDE_RDMAD_FABRIC_OBJECT");
    start();
    if (!fabric.usable) { /* an installed one may be there */
        ck_assert_ptr_nonnull(strstr(fabric.why, "/fabric/glide-rdmad-fabric.so: not there"));
        ck_assert_ptr_nonnull(strstr(fabric.why, "/glide-rdmad/glide-rdmad-fabric.so: cannot open"));
        ck_assert_ptr_nonnull(strstr(fabric.why, "install libfabric"));
    }
    stop();
}
END_TEST

START_TEST(object_wrong)
{
    setenv("GLIDE_RDMAD_FABRIC_OBJECT", getenv("WRONG_OBJECT"), 1);
    check_unusable("has interface 4711, this program needs");
}
END_TEST

START_TEST(library_too_old)
{
    setenv("GLIDE_RDMAD_FABRIC_OBJECT", getenv("OLD_OBJECT"), 1);
    check_unusable("libfabric 1.17 is too old: version 2 or newer is needed");
}
END_TEST

START_TEST(provider_unknown)
{
    strcpy(provider, "udp");
    check_unusable("provider = udp is none of efa-direct, tcp, verbs");
}
END_TEST

START_TEST(provider_without_nic)
{
    char name[] = "efa-direct";

    config.provider = name;
    start();
    if (!fabric.usable) {
        ck_assert_ptr_nonnull(strstr(fabric.why, "efa-direct"));
        ck_assert_ptr_nonnull(strstr(fabric.why, "fi_info"));
    }
    stop();
}
END_TEST

START_TEST(bind_unreachable)
{
    char any[] = "0.0.0.0", foreign[] = "203.0.113.7";

    config.bind = any;
    check_unusable("[fabric] bind = 0.0.0.0 is not an address that a server can reach");
    config.bind = foreign;
    check_unusable("[fabric] bind = 203.0.113.7: ");
}
END_TEST

START_TEST(environment)
{
    static const char *const gone[] = {"FI_EFA_MTU_SIZE",      "FI_EFA_TX_IOV_LIMIT", "FI_EFA_RX_IOV_LIMIT",
                                       "FI_TCP_ZEROCOPY_SIZE", "FI_TCP_IO_URING",     "FI_EFA_TX_MIN_CREDITS",
                                       "FI_EFA_IFACE"};
    static const char *const zero[] = {"FI_TCP_PREFETCH_RBUF_SIZE", "FI_TCP_STAGING_SBUF_SIZE",
                                       "FI_MR_CACHE_MAX_COUNT", "FI_EFA_MR_CACHE_ENABLE"};

    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        setenv(gone[i], "-1", 1);
    }
    setenv("FI_EFA_IFACE", "", 1);
    setenv(zero[0], "9000", 1);
    setenv("FI_MR_CACHE_MONITOR", "userfaultfd", 1);
    start();
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        ck_assert_msg(getenv(gone[i]) == NULL, "%s", gone[i]);
    }
    for (size_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++) {
        ck_assert_str_eq(getenv(zero[i]), "0");
    }
    ck_assert_str_eq(getenv("FI_MR_CACHE_MONITOR"), "disabled");
    ck_assert_str_eq(getenv("FI_UNIVERSE_SIZE"), "16");
    stop();
}
END_TEST

/* What does no harm stays. */
START_TEST(environment_kept)
{
    setenv("FI_EFA_IFACE", "rdmap0s6", 1);
    setenv("FI_EFA_TX_MIN_CREDITS", "32", 1);
    setenv("FI_TCP_PORT_LOW_RANGE", "20000", 1);
    setenv("FI_UNIVERSE_SIZE", "64", 1);
    start();
    ck_assert_str_eq(getenv("FI_UNIVERSE_SIZE"), "64");
    ck_assert_str_eq(getenv("FI_EFA_IFACE"), "rdmap0s6");
    ck_assert_str_eq(getenv("FI_EFA_TX_MIN_CREDITS"), "32");
    ck_assert_str_eq(getenv("FI_TCP_PORT_LOW_RANGE"), "20000");
    stop();
}
END_TEST

UNIT_MAIN("fabric_load", loads, library_missing, library_missing_by_environment, library_named, object_missing,
          objects_missing, object_wrong, library_too_old, provider_unknown, provider_without_nic, bind_unreachable,
          environment, environment_kept)
