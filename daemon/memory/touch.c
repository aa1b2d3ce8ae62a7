#include "daemon/memory/touch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/errors.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Pages of one mincore(): as many bytes on the stack, 64 MiB of small pages, well below a millisecond in the kernel. */
#define CHUNK_PAGES 16384

#define WHAT_TO_DO "populate them in the program, as the library does (MADV_POPULATE_WRITE), or ask with populate: true"

static int fail_system(struct memory_error *error, const struct touch *touch, const char *what)
{
    int number = errno;

    memory_error_set(error, PROTO_ERR_SYSTEM, "%s of %llu bytes: %s", what, (unsigned long long)touch->length,
                     strerror(number));
    error->os_errno = number;
    return error->code;
}

static int refuse_missing(struct memory_error *error, const struct touch *touch, const char *least, uint64_t missing)
{
    uint64_t pages = touch->length / touch->page_size;

    memory_error_set(error, PROTO_ERR_NOT_POPULATED,
                     "%s%llu of %llu pages of %llu bytes are not allocated, and the daemon is not to be the first to "
                     "touch them: " WHAT_TO_DO,
                     least, (unsigned long long)missing, (unsigned long long)pages,
                     (unsigned long long)touch->page_size);
    error->missing_pages = missing;
    error->pages = pages;
    return error->code;
}

static int refuse_unknown(struct memory_error *error, const char *why, const char *what_to_do)
{
    memory_error_set(error, PROTO_ERR_NOT_POPULATED,
                     "the daemon cannot see whether all pages are allocated, and is not to be the first to touch them: "
                     "%s; %s, or ask with populate: true",
                     why, what_to_do);
    return error->code;
}

/* --- the whole file ----------------------------------------------------------------------------------------------- */

static bool is_huge(const struct touch *touch)
{
    return touch->page_size > (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * Has the file all of its pages? False: perhaps not. In shared memory the last of transparent huge pages may reach
 * beyond the file's end and still be counted; a file that ends with one (a page full of page table entries) hides none.
 */
static bool all_allocated(const struct touch *touch, const struct stat *status)
{
    uint64_t transparent = touch->page_size * (touch->page_size / sizeof(uint64_t));

    return (uint64_t)status->st_blocks * 512 >= (uint64_t)status->st_size &&
           (is_huge(touch) || (uint64_t)status->st_size % transparent == 0);
}

/* --- hugetlbfs ---------------------------------------------------------------------------------------------------- */

/* Not all of the file is there. */
static int check_huge(const struct touch *touch, const struct stat *status, struct memory_error *error)
{
    uint64_t range = touch->length / touch->page_size;
    uint64_t file = (uint64_t)status->st_size / touch->page_size;
    uint64_t allocated = (uint64_t)status->st_blocks * 512 / touch->page_size;

    if (allocated < range) {
        return refuse_missing(error, touch, range < file ? "at least " : "", range - allocated);
    }
    return refuse_unknown(error,
                          "the kernel counts the allocated pages of a huge-page file, but does not tell which they are",
                          "populate the whole file");
}

/* --- shared memory ------------------------------------------------------------------------------------------------ */

/* Would mincore() tell the truth? The kernel's rule: the file's owner, or who may write it. */
static bool sees_pages(int fd, const struct stat *status)
{
    return status->st_uid == geteuid() || faccessat(fd, "", W_OK, AT_EACCESS | AT_EMPTY_PATH) == 0;
}

/*
 * Pages from `first` up to `end`, which mincore() missed: how many are holes. `data` has the file open by itself, and
 * is opened when first needed; -1: errno says why not.
 */
static int count_holes(const struct touch *touch, int *data, uint64_t first, uint64_t end, uint64_t *holes)
{
    char path[40];

    if (*data < 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", touch->fd);
        *data = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (*data < 0) {
        return -1;
    }
    while (first < end) {
        uint64_t at = touch->start + first * touch->page_size;
        off_t found = lseek(*data, (off_t)at, SEEK_DATA);
        uint64_t next = end;

        if (found < 0 && errno != ENXIO) {
            return -1;
        }
        if (found >= 0 && ((uint64_t)found - touch->start) / touch->page_size < end) {
            next = ((uint64_t)found - touch->start) / touch->page_size;
        }
        *holes += next - first;
        first = next + 1; /* the page found is there, and the one at `end` is not asked for */
    }
    return 0;
}

/* Adds the missing pages of one chunk. */
static int count_chunk(const struct touch *touch, int *data, uint64_t first, uint64_t count, uint64_t *missing)
{
    unsigned char resident[CHUNK_PAGES];

    if (mincore(touch->base + first * touch->page_size, (size_t)(count * touch->page_size), resident) != 0) {
        return -1;
    }
    for (uint64_t i = 0; i < count;) {
        uint64_t run = i;

        while (run < count && (resident[run] & 1) == 0) {
            run++;
        }
        if (run > i && count_holes(touch, data, first + i, first + run, missing) != 0) {
            return -1;
        }
        i = run + 1;
    }
    return 0;
}

static int check_small(const struct touch *touch, const struct stat *file, struct memory_error *error)
{
    uint64_t pages = touch->length / touch->page_size, missing = 0;
    int data = -1, status = 0; /* `data`: see count_holes */

    if (!sees_pages(touch->fd, file)) {
        return refuse_unknown(error, "the kernel tells that only who may write the file, and its mode forbids it",
                              "let others write it (fchmod)");
    }
    if (file->st_blocks == 0) {
        return refuse_missing(error, touch, "", pages); /* a new file: nothing to look for */
    }
    for (uint64_t first = 0; first < pages && status == 0; first += CHUNK_PAGES) {
        uint64_t rest = pages - first;

        status = count_chunk(touch, &data, first, rest < CHUNK_PAGES ? rest : CHUNK_PAGES, &missing);
    }
    status = status != 0 ? fail_system(error, touch, "looking for missing pages") : 0;
    if (data >= 0) {
        close(data);
    }
    if (status == 0 && missing > 0) {
        status = refuse_missing(error, touch, "", missing);
    }
    return status;
}

int touch_check(const struct touch *touch, struct memory_error *error)
{
    struct stat status;

    if (fstat(touch->fd, &status) != 0) {
        return fail_system(error, touch, "fstat");
    }
    if (all_allocated(touch, &status)) {
        return 0;
    }
    return is_huge(touch) ? check_huge(touch, &status, error) : check_small(touch, &status, error);
}

/* --- populating --------------------------------------------------------------------------------------------------- */

/* Linux before 5.14. Allocates, maps nothing; the file's end is not passed, since it may be sealed against growing. */
static int populate_old(const struct touch *touch, struct memory_error *error)
{
    struct stat status;
    uint64_t length = touch->length;

    if (!touch->writable) {
        return touch_check(touch, error);
    }
    if (fstat(touch->fd, &status) != 0) {
        return fail_system(error, touch, "fstat");
    }
    if (touch->start + length > (uint64_t)status.st_size) {
        length = (uint64_t)status.st_size - touch->start;
    }
    return fallocate(touch->fd, 0, (off_t)touch->start, (off_t)length) == 0
               ? 0
               : fail_system(error, touch, "allocating the pages");
}

int touch_populate(const struct touch *touch, struct memory_error *error)
{
    int advice = touch->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    int status;

    do {
        status = madvise(touch->base, (size_t)touch->length, advice);
    } while (status != 0 && (errno == EINTR || errno == EAGAIN));
    if (status == 0) {
        return 0;
    }
    if (errno == EINVAL) {
        return populate_old(touch, error);
    }
    if (errno == EFAULT) { /* what a touch would have met with SIGBUS: no huge page left, or the file's limit */
        errno = ENOMEM;
    }
    return fail_system(error, touch, "populating (MADV_POPULATE)");
}
