/* Memory files: what the library makes is sealed and populated; what it is given is checked with a reason. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/private.h"
#include "old_kernel.h"
#include "unit_main.h"

#define MIB ((uint64_t)1 << 20)

START_TEST(made_memory_is_sealed)
{
    struct grd_error error;
    int fd;

    ck_assert_int_eq(memory_create(MIB, "label", &fd, &error), 0);
    ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_lt(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_lt(ftruncate(fd, (off_t)MIB * 2), 0);
    ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    close(fd);
}
END_TEST

static uint64_t resident(void *address, uint64_t size)
{
    static unsigned char pages[65536];
    uint64_t count = 0;

    ck_assert_int_eq(mincore(address, size, pages), 0);
    for (uint64_t i = 0; i < size / 4096; i++) {
        count += pages[i] & 1;
    }
    return count;
}

/* Sizes that do not divide by the number of threads: every page must be there. */
START_TEST(populates_every_page)
{
    static const uint64_t sizes[] = {4096, 3 * MIB, 7 * MIB + 8192, 200 * MIB};
    static const unsigned threads[] = {0, 1, 3, 7, 1000};

    for (size_t i = 0; i < 20; i++) {
        uint64_t size = sizes[i % 4];
        struct grd_error error;
        void *address;
        int fd;

        ck_assert_int_eq(memory_create(size, NULL, &fd, &error), 0);
        address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_uint_eq(resident(address, size), 0);
        ck_assert_int_eq(memory_populate(fd, 0, address, size, true, threads[i / 4], &error), 0);
        ck_assert_uint_eq(resident(address, size), size / 4096);
        munmap(address, size);
        close(fd);
    }
}
END_TEST

/* What the daemon can see is there as well: each page was touched, and no byte changed. */
START_TEST(populates_on_an_old_kernel)
{
    struct grd_error error;
    char *address, *other;
    int fd;

    become_old_kernel();
    ck_assert_int_eq(memory_create(MIB, NULL, &fd, &error), 0);
    address = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    other = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
    strcpy(address + 8192, "kept");
    ck_assert_int_eq(memory_populate(fd, 0, address, MIB, true, 2, &error), 0);
    ck_assert_uint_eq(resident(other, MIB), MIB / 4096);
    ck_assert_str_eq(address + 8192, "kept");
    close(fd);
}
END_TEST

/* Where the kernel cannot provide the pages there is an error, not a SIGBUS: here the file is too short. */
START_TEST(population_fails_with_a_reason)
{
    struct grd_error error;
    void *address;
    int fd;

    ck_assert_int_eq(memory_create(MIB, NULL, &fd, &error), 0);
    address = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_int_eq(memory_populate(fd, 0, address, 8 * MIB, true, 2, &error), GRD_ERR_NO_MEMORY);
    ck_assert_int_ne(error.os_errno, 0);
    ck_assert_ptr_nonnull(strstr(error.message, "8388608"));
    munmap(address, 8 * MIB);
    close(fd);
}
END_TEST

static int file_with(unsigned seals, uint64_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void check(int fd, uint64_t offset, uint64_t size, bool writable, int expected, const char *hint)
{
    struct grd_error error = {0};

    ck_assert_int_eq(memory_check(fd, offset, &size, writable, &error), expected);
    if (expected != 0) {
        ck_assert_msg(strstr(error.message, hint) != NULL, "%s", error.message);
    }
}

START_TEST(given_memory_is_checked)
{
    struct grd_error error;
    uint64_t size = 0;
    int good = file_with(F_SEAL_SHRINK, MIB), pipes[2], disk;
    char path[] = "/tmp/grd-memory-XXXXXX", read_only[64];

    check(good, 0, MIB, true, 0, "");
    check(good, 4096, MIB - 4096, true, 0, "");
    check(good, 0, MIB + 1, true, GRD_ERR_BAD_FD, "1048576");
    check(good, 4096, MIB, true, GRD_ERR_BAD_FD, "4096");
    check(good, UINT64_MAX - 4095, 8192, true, GRD_ERR_BAD_FD, "holds");
    check(good, 1, 4096, true, GRD_ERR_INVALID_ARGUMENT, "page size");
    check(good, MIB, 0, true, GRD_ERR_BAD_FD, "holds");
    ck_assert_int_eq(memory_check(good, 8192, &size, true, &error), 0);
    ck_assert_uint_eq(size, MIB - 8192);
    check(file_with(0, MIB), 0, MIB, true, GRD_ERR_BAD_FD, "F_SEAL_SHRINK");
    check(file_with(F_SEAL_SHRINK | F_SEAL_WRITE, MIB), 0, MIB, true, GRD_ERR_BAD_FD, "GRD_ACCESS_READ");
    check(file_with(F_SEAL_SHRINK | F_SEAL_WRITE, MIB), 0, MIB, false, 0, "");
    snprintf(read_only, sizeof(read_only), "/proc/self/fd/%d", good);
    check(open(read_only, O_RDONLY), 0, MIB, true, GRD_ERR_BAD_FD, "not open for writing");
    check(open(read_only, O_RDONLY), 0, MIB, false, 0, "");
    ck_assert_int_eq(pipe(pipes), 0);
    check(pipes[1], 0, MIB, false, GRD_ERR_BAD_FD, "memfd_create");
    disk = mkstemp(path);
    check(disk, 0, 0, true, GRD_ERR_BAD_FD, "memfd_create");
    unlink(path);
    check(999, 0, MIB, true, GRD_ERR_BAD_FD, "not open");
}
END_TEST

UNIT_MAIN("client_memory", made_memory_is_sealed, populates_every_page, populates_on_an_old_kernel,
          population_fails_with_a_reason, given_memory_is_checked)
