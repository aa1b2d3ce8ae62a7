/* Intake of descriptors: sealed memory files pass, everything else is refused with what to do about it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/memory/intake.h"
#include "proto/errors.h"
#include "tests/unit/unit_main.h"

static struct intake check_fd(int fd, uint64_t offset, uint64_t size, bool writable)
{
    struct intake intake = {.fd = fd, .offset = offset, .size = size, .writable = writable};
    intake_check(&intake);
    return intake;
}

static int memory_file(off_t size, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, size), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void refused(int fd, bool writable, int code, const char *word)
{
    struct intake intake = check_fd(fd, 0, 4096, writable);
    ck_assert_int_eq(intake.code, code);
    ck_assert_msg(strstr(intake.why, word) != NULL, "\"%s\" lacks \"%s\"", intake.why, word);
    close(fd);
}

START_TEST(a_sealed_memory_file_passes)
{
    int fd = memory_file(8192, F_SEAL_SHRINK);
    struct intake intake = check_fd(fd, 4096, 4096, true);
    ck_assert_int_eq(intake.code, 0);
    ck_assert_uint_eq(intake.page_size, (uint64_t)sysconf(_SC_PAGESIZE));
    ck_assert(intake.inode != 0);
    close(fd);
}
END_TEST

START_TEST(a_logical_size_need_not_be_whole_pages)
{
    int fd = memory_file(5000, F_SEAL_SHRINK);
    ck_assert_int_eq(check_fd(fd, 0, 5000, true).code, 0);
    ck_assert_int_eq(check_fd(fd, 0, 5001, true).code, PROTO_ERR_BAD_FD);
    close(fd);
}
END_TEST

START_TEST(unsealed_is_refused)
{
    refused(memory_file(4096, F_SEAL_GROW), true, PROTO_ERR_BAD_FD, "F_SEAL_SHRINK");
}
END_TEST

START_TEST(sealed_against_writing_serves_sets_only)
{
    refused(memory_file(4096, F_SEAL_SHRINK | F_SEAL_WRITE), true, PROTO_ERR_BAD_FD, "\"r\"");
    refused(memory_file(4096, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), true, PROTO_ERR_BAD_FD, "\"r\"");
    int fd = memory_file(4096, F_SEAL_SHRINK | F_SEAL_WRITE);
    ck_assert_int_eq(check_fd(fd, 0, 4096, false).code, 0);
    close(fd);
}
END_TEST

START_TEST(read_only_descriptors_serve_sets_only)
{
    int fd = memory_file(4096, F_SEAL_SHRINK);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(check_fd(read_only, 0, 4096, false).code, 0);
    refused(read_only, true, PROTO_ERR_BAD_FD, "O_RDWR");
    refused(open(path, O_WRONLY | O_CLOEXEC), false, PROTO_ERR_BAD_FD, "O_RDONLY");
    close(fd);
}
END_TEST

START_TEST(what_is_no_memory_file_is_refused)
{
    char path[] = "/tmp/test_intake.XXXXXX";
    int pipes[2], sockets[2];
    int file = mkstemp(path);
    ck_assert_int_eq(ftruncate(file, 8192), 0);
    unlink(path);
    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    refused(file, true, PROTO_ERR_BAD_FD, "memfd_create");
    refused(pipes[0], false, PROTO_ERR_BAD_FD, "memfd_create");
    refused(sockets[0], true, PROTO_ERR_BAD_FD, "memfd_create");
    refused(open("/", O_RDONLY | O_DIRECTORY), false, PROTO_ERR_BAD_FD, "memfd_create");
    refused(open("/dev/zero", O_RDWR), true, PROTO_ERR_BAD_FD, "memfd_create");
    refused(open("/tmp", O_PATH), false, PROTO_ERR_BAD_FD, "memfd_create");
    close(pipes[1]);
    close(sockets[1]);
}
END_TEST

/* A file of a tmpfs can be asked for seals on some kernels, where it carries F_SEAL_SEAL and never F_SEAL_SHRINK. */
START_TEST(a_file_of_dev_shm_is_refused)
{
    char path[] = "/dev/shm/test_intake.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return;
    unlink(path);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(check_fd(fd, 0, 4096, true).code, PROTO_ERR_BAD_FD);
    close(fd);
}
END_TEST

START_TEST(ranges_are_checked_without_overflow)
{
    int fd = memory_file(1 << 20, F_SEAL_SHRINK);
    ck_assert_int_eq(check_fd(fd, 4096, UINT64_MAX - 4095, true).code, PROTO_ERR_BAD_FD);
    ck_assert_int_eq(check_fd(fd, 1 << 20, 1, true).code, PROTO_ERR_BAD_FD);
    ck_assert_int_eq(check_fd(fd, 100, 100, true).code, PROTO_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(check_fd(fd, 0, 1 << 20, true).code, 0);
    close(fd);
}
END_TEST

UNIT_MAIN("intake", a_sealed_memory_file_passes, a_logical_size_need_not_be_whole_pages, unsealed_is_refused,
          sealed_against_writing_serves_sets_only, read_only_descriptors_serve_sets_only,
          what_is_no_memory_file_is_refused, a_file_of_dev_shm_is_refused, ranges_are_checked_without_overflow)
