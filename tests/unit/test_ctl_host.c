/* What doctor says of hosts that this one is not: devices, their modes and drivers, and huge pages. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/doctor/host.h"
#include "tests/unit/unit_main.h"

#define UID 4242
#define GID 4343

static char root[64];
static struct finding finding;

static const char *path_of(const char *path)
{
    static char full[256];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    return full;
}

/* All folders before the last slash. */
static void make_folders(const char *path)
{
    char full[256];

    snprintf(full, sizeof(full), "%s", path_of(path));
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file;

    make_folders(path);
    file = fopen(path_of(path), "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    chmod(path_of(path), mode);
}

static void add_adapter(const char *name, const char *driver)
{
    char path[128], target[128];

    snprintf(path, sizeof(path), "sys/class/infiniband/%s/device/driver", name);
    snprintf(target, sizeof(target), "../../../bus/pci/drivers/%s", driver);
    make_folders(path);
    ck_assert_int_eq(symlink(target, path_of(path)), 0);
}

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/grd-host-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    memset(&finding, 0, sizeof(finding));
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static void expect(enum verdict verdict, const char *text, const char *advice)
{
    ck_assert_msg(finding.verdict == verdict && strstr(finding.text, text) != NULL &&
                      strstr(finding.advice, advice) != NULL, "%d: %s -> %s", finding.verdict, finding.text,
                  finding.advice);
}

START_TEST(no_device_needed)
{
    host_devices(root, "tcp", UID, GID, &finding);
    expect(VERDICT_SKIPPED, "tcp needs no", "");
    host_devices(root, "", UID, GID, &finding);
    expect(VERDICT_SKIPPED, "not known", "");
}
END_TEST

START_TEST(no_adapter)
{
    host_devices(root, "verbs", UID, GID, &finding);
    expect(VERDICT_FAILED, "no RDMA device", "driver");
}
END_TEST

/* A device of another driver is none for EFA, and is named. */
START_TEST(other_driver)
{
    add_adapter("mlx5_0", "mlx5_core");
    write_file("dev/infiniband/uverbs0", "", 0666);
    host_devices(root, "efa-direct", UID, GID, &finding);
    expect(VERDICT_FAILED, "mlx5_0 (mlx5_core)", "EFA");
    host_devices(root, "verbs", UID, GID, &finding);
    expect(VERDICT_OK, "mlx5_0 (mlx5_core)", "");
}
END_TEST

START_TEST(no_file)
{
    add_adapter("rdmap0s6", "efa");
    host_devices(root, "efa-direct", UID, GID, &finding);
    expect(VERDICT_FAILED, "no /dev/infiniband/uverbs", "ib_uverbs");
}
END_TEST

START_TEST(closed_file)
{
    add_adapter("rdmap0s6", "efa");
    write_file("dev/infiniband/uverbs0", "", 0660);
    write_file("dev/infiniband/rdma_cm", "", 0666);
    host_devices(root, "efa-direct", UID, GID, &finding);
    expect(VERDICT_FAILED, "uid 4242) may not open", "udev");
    ck_assert_ptr_nonnull(strstr(finding.text, "uverbs0 has mode 0660"));
}
END_TEST

START_TEST(good_file)
{
    add_adapter("rdmap0s6", "efa");
    write_file("dev/infiniband/uverbs0", "", 0660);
    write_file("dev/infiniband/uverbs1", "", 0666);
    host_devices(root, "efa-direct", UID, GID, &finding);
    expect(VERDICT_OK, "1 of 2 device files may be opened by uid 4242", "");
    host_devices(root, "efa-direct", getuid(), GID, &finding);
    expect(VERDICT_OK, "2 of 2", "");
    host_devices(root, "efa-direct", UID, getgid(), &finding);
    expect(VERDICT_OK, "2 of 2", "");
}
END_TEST

static void set_aside(const char *total, const char *left)
{
    write_file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", total, 0644);
    write_file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", left, 0644);
}

START_TEST(huge_pages)
{
    host_huge_pages(root, "efa-direct", &finding);
    expect(VERDICT_SKIPPED, "hugepages", "");
    set_aside("0\n", "0\n");
    host_huge_pages(root, "tcp", &finding);
    expect(VERDICT_OK, "2048kB: 0, 0 of them free", "");
    host_huge_pages(root, "efa-direct", &finding);
    expect(VERDICT_WARNING, "none are set aside", "vm.nr_hugepages");
    memset(&finding, 0, sizeof(finding));
    set_aside("512\n", "100\n");
    host_huge_pages(root, "efa-direct", &finding);
    expect(VERDICT_OK, "2048kB: 512, 100 of them free", "");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {no_device_needed, no_adapter, other_driver, no_file,
                                    closed_file,      good_file,  huge_pages};
    Suite *suite = suite_create("ctl_host");
    TCase *part = tcase_create("ctl_host");

    tcase_set_timeout(part, UNIT_SECONDS);
    tcase_add_checked_fixture(part, setup, teardown);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        tcase_add_test(part, tests[i]);
    }
    suite_add_tcase(suite, part);
    return unit_run(suite);
}
