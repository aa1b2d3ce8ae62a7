/* Bytes of a memory file by system calls: right ones, at the right place, and an error where a page cannot be had. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/file_range.h"
#include "tests/unit/unit_main.h"

#define PAGES 4

static size_t page;

static struct file_range open_range(uint64_t offset, uint64_t length)
{
    struct file_range range = {.offset = offset, .length = length};
    char *base;

    page = (size_t)sysconf(_SC_PAGESIZE);
    range.fd = memfd_create("file_range", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(range.fd, 0);
    ck_assert_int_eq(ftruncate(range.fd, (off_t)(PAGES * page)), 0);
    base = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, range.fd, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    range.mapped = base + offset;
    return range;
}

static void close_range_of(struct file_range *range)
{
    munmap((char *)range->mapped - range->offset, PAGES * page);
    close(range->fd);
}

START_TEST(bytes_go_to_their_place)
{
    struct file_range range = open_range(100, 9000);
    char out[9000], in[9000], around[2];

    memset(out, 'x', sizeof(out));
    ck_assert_int_eq(file_range_write(&range, 0, out, 5000), 0);
    ck_assert_int_eq(file_range_write(&range, 5000, out, 4000), 0);
    ck_assert_int_eq(file_range_read(&range, 0, in, sizeof(in)), 0);
    ck_assert_mem_eq(in, out, sizeof(in));
    ck_assert_int_eq(pread(range.fd, &around[0], 1, 99), 1);
    ck_assert_int_eq(pread(range.fd, &around[1], 1, 9100), 1);
    ck_assert_mem_eq(around, "\0\0", 2);
    close_range_of(&range);
}
END_TEST

/* The open file is the client's, too. */
START_TEST(the_clients_flags_change_nothing)
{
    struct file_range range = open_range(0, 100);
    char byte = 0;

    ck_assert_int_eq(fcntl(range.fd, F_SETFL, O_APPEND), 0);
    ck_assert_int_eq(file_range_write(&range, 50, "x", 1), 0);
    ck_assert_int_eq(lseek(range.fd, 0, SEEK_END), (off_t)(PAGES * page));
    ck_assert_int_eq(file_range_read(&range, 50, &byte, 1), 0);
    ck_assert_int_eq(byte, 'x');
    close_range_of(&range);
}
END_TEST

/* As a huge page that is gone: the mapping is there, and no page behind it. */
START_TEST(a_page_that_cannot_be_had_is_an_error)
{
    struct file_range range = open_range(0, 2 * sysconf(_SC_PAGESIZE));
    char bytes[16] = "";

    ck_assert_int_eq(ftruncate(range.fd, (off_t)page), 0);
    ck_assert_int_eq(file_range_write(&range, page, bytes, sizeof(bytes)), -EFAULT);
    ck_assert_int_eq(file_range_write(&range, page - 8, bytes, sizeof(bytes)), -EFAULT);
    ck_assert_int_eq(file_range_read(&range, page - 8, bytes, sizeof(bytes)), -EIO);
    close_range_of(&range);
}
END_TEST

UNIT_MAIN("file_range", bytes_go_to_their_place, the_clients_flags_change_nothing,
          a_page_that_cannot_be_had_is_an_error)
