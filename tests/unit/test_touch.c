/* First touch: memory files with pages missing are found out, without a touch, and populated only when asked to. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/memory/touch.h"
#include "proto/errors.h"
#include "tests/unit/old_kernel.h"
#include "tests/unit/unit_main.h"

#define PAGE ((uint64_t)4096)
#define NOBODY 54321

static struct touch touch;
static struct memory_error error;

/* A memory file of so many pages with nothing in it, and the daemon's view of it. */
static void make(uint64_t pages)
{
    int fd = memfd_create("touch", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)(pages * PAGE)), 0);
    touch = (struct touch){.fd = fd, .length = pages * PAGE, .page_size = PAGE, .writable = true};
    touch.base = mmap(NULL, touch.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(touch.base, MAP_FAILED);
}

/* As a program does it, by a store. */
static void write_pages(uint64_t first, uint64_t count)
{
    for (uint64_t page = first; page < first + count; page++) {
        ck_assert_int_eq(pwrite(touch.fd, "x", 1, (off_t)(page * PAGE)), 1);
    }
}

static uint64_t allocated(void)
{
    struct stat status;

    ck_assert_int_eq(fstat(touch.fd, &status), 0);
    return (uint64_t)status.st_blocks * 512 / PAGE;
}

static void look_at(uint64_t first, uint64_t count)
{
    touch.base += (int64_t)(first * PAGE) - (int64_t)touch.start;
    touch.start = first * PAGE;
    touch.length = count * PAGE;
}

static void expect_missing(uint64_t missing)
{
    uint64_t before = allocated();
    int status = touch_check(&touch, &error);

    ck_assert_uint_eq(allocated(), before);
    ck_assert_msg(status == (missing > 0 ? PROTO_ERR_NOT_POPULATED : 0), "%d: %s", status, error.text);
    if (missing > 0) {
        ck_assert_uint_eq(error.missing_pages, missing);
        ck_assert_uint_eq(error.pages, touch.length / PAGE);
    }
}

START_TEST(missing_pages_are_counted)
{
    make(10);
    expect_missing(10);
    write_pages(0, 3);
    write_pages(5, 1);
    write_pages(9, 1);
    expect_missing(5);
    ck_assert_ptr_nonnull(strstr(error.text, "5 of 10 pages"));
    ck_assert_ptr_nonnull(strstr(error.text, "MADV_POPULATE_WRITE"));
    ck_assert_ptr_nonnull(strstr(error.text, "populate: true"));
    write_pages(3, 6);
    expect_missing(0);
}
END_TEST

START_TEST(a_file_without_a_page_needs_no_search)
{
    make(1);
    ck_assert_int_eq(ftruncate(touch.fd, (off_t)1 << 50), 0);
    touch.length = UINT64_C(1) << 50; /* there is no mapping of that size to look at */
    expect_missing(touch.length / PAGE);
}
END_TEST

START_TEST(only_the_range_counts)
{
    make(12);
    write_pages(4, 4);
    look_at(4, 4);
    expect_missing(0);
    look_at(3, 4);
    expect_missing(1);
    look_at(5, 4);
    expect_missing(1);
    look_at(0, 12);
    expect_missing(8);
}
END_TEST

/* One page at each side of the boundary between two pieces of the search, and at the ends. */
START_TEST(a_single_page_is_found_anywhere)
{
    static const uint64_t places[] = {0, 1, 16383, 16384, 32767, 32768, 40000};

    make(40001);
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        ck_assert_int_eq(fallocate(touch.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(places[i] * PAGE),
                                   (off_t)PAGE), 0);
        expect_missing(1);
        write_pages(places[i], 1);
        expect_missing(0);
    }
}
END_TEST

START_TEST(a_page_that_was_only_set_aside_is_missing)
{
    make(4);
    ck_assert_int_eq(fallocate(touch.fd, 0, 0, (off_t)touch.length), 0);
    expect_missing(4);
}
END_TEST

/* Means something with swap and little memory, as in a small control group; elsewhere the pages are simply there. */
START_TEST(pages_that_were_swapped_out_are_there)
{
    make(3001);
    write_pages(0, 1000);
    write_pages(1002, 1999);
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
    ck_assert_int_eq(fallocate(touch.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(1000 * PAGE),
                               (off_t)(2 * PAGE)), 0);
    (void)madvise(touch.base, touch.length, MADV_PAGEOUT);
    expect_missing(2);
    write_pages(1000, 2);
    (void)madvise(touch.base, touch.length, MADV_PAGEOUT);
    expect_missing(0);
}
END_TEST

START_TEST(the_position_of_the_client_stays)
{
    make(4);
    ck_assert_int_eq(lseek(touch.fd, 4711, SEEK_SET), 4711);
    expect_missing(4);
    ck_assert_int_eq(lseek(touch.fd, 0, SEEK_CUR), 4711);
}
END_TEST

/* Read-only descriptors and seals do not change what the daemon can see. */
START_TEST(memory_that_is_only_read_is_looked_at_alike)
{
    char path[64];

    make(4);
    write_pages(0, 3);
    munmap(touch.base, touch.length);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", touch.fd);
    touch.fd = open(path, O_RDONLY | O_CLOEXEC);
    touch.writable = false;
    touch.base = mmap(NULL, touch.length, PROT_READ, MAP_SHARED, touch.fd, 0);
    ck_assert_ptr_ne(touch.base, MAP_FAILED);
    expect_missing(1);
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
    expect_missing(0);
}
END_TEST

/* The kernel says "all there" to who cannot write the file: that is no answer to build on. */
START_TEST(a_mode_that_hides_the_pages_is_refused)
{
    if (geteuid() != 0) {
        return;
    }
    make(4);
    ck_assert_int_eq(fchmod(touch.fd, 0644), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    ck_assert_int_eq(touch_check(&touch, &error), PROTO_ERR_NOT_POPULATED);
    ck_assert_uint_eq(error.pages, 0);
    ck_assert_ptr_nonnull(strstr(error.text, "fchmod"));
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
    ck_assert_uint_eq(allocated(), 4);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(fchown(touch.fd, NOBODY, NOBODY), 0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
    expect_missing(0);
    ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

/* The file's count of pages decides, whatever its mode hides; only where no page can reach beyond its end. */
START_TEST(a_file_with_all_pages_needs_no_search)
{
    bool root = geteuid() == 0;

    make(1024);
    ck_assert_int_eq(fallocate(touch.fd, 0, 0, (off_t)touch.length), 0);
    expect_missing(0);
    ck_assert_int_eq(fchmod(touch.fd, 0644), 0);
    ck_assert_int_eq(root ? seteuid(NOBODY) : 0, 0);
    expect_missing(0);
    ck_assert_int_eq(fallocate(touch.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)PAGE), 0);
    ck_assert_int_eq(touch_check(&touch, &error), PROTO_ERR_NOT_POPULATED);
    ck_assert_int_eq(root ? seteuid(0) : 0, 0);
    make(1025);
    ck_assert_int_eq(fallocate(touch.fd, 0, 0, (off_t)touch.length), 0);
    expect_missing(1025);
}
END_TEST

START_TEST(populating_allocates_what_is_missing)
{
    make(300);
    write_pages(7, 1);
    look_at(5, 200);
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
    ck_assert_uint_eq(allocated(), 200);
    expect_missing(0);
    ck_assert_int_eq(touch.base[2 * PAGE], 'x');
}
END_TEST

/* Here the file is too short, so that a touch would be a SIGBUS. */
START_TEST(populating_fails_with_an_error)
{
    make(8);
    ck_assert_int_eq(ftruncate(touch.fd, (off_t)(4 * PAGE)), 0);
    ck_assert_int_eq(touch_populate(&touch, &error), PROTO_ERR_SYSTEM);
    ck_assert_int_eq(error.os_errno, ENOMEM);
    ck_assert_ptr_nonnull(strstr(error.text, "32768 bytes"));
}
END_TEST

START_TEST(an_old_kernel_allocates_by_another_call)
{
    become_old_kernel();
    make(8);
    ck_assert_int_eq(fcntl(touch.fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    ck_assert_int_eq(ftruncate(touch.fd, (off_t)(7 * PAGE + 5)), 0); /* whole pages are mapped */
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
    ck_assert_uint_eq(allocated(), 8);
}
END_TEST

/* Nothing can be allocated through memory that is only readable: what is there passes, the rest is refused. */
START_TEST(an_old_kernel_refuses_readable_memory_with_holes)
{
    become_old_kernel();
    make(8);
    touch.writable = false;
    write_pages(0, 7);
    ck_assert_int_eq(touch_populate(&touch, &error), PROTO_ERR_NOT_POPULATED);
    ck_assert_uint_eq(error.missing_pages, 1);
    write_pages(7, 1);
    ck_assert_int_eq(touch_populate(&touch, &error), 0);
}
END_TEST

UNIT_MAIN("touch", missing_pages_are_counted, a_file_without_a_page_needs_no_search, only_the_range_counts, a_single_page_is_found_anywhere,
          a_page_that_was_only_set_aside_is_missing, pages_that_were_swapped_out_are_there,
          the_position_of_the_client_stays, memory_that_is_only_read_is_looked_at_alike,
          a_mode_that_hides_the_pages_is_refused, a_file_with_all_pages_needs_no_search,
          populating_allocates_what_is_missing, populating_fails_with_an_error,
          an_old_kernel_allocates_by_another_call, an_old_kernel_refuses_readable_memory_with_holes)
