/*
 * Memory files: made, sealed, checked, populated.
 *
 * What the library makes carries F_SEAL_SHRINK, which the daemon demands: nobody can cut pages away under a transfer.
 * F_SEAL_GROW keeps the file as long as its registration: what would be appended could never be used, only charged.
 * F_SEAL_SEAL keeps others who get the descriptor from adding a write seal, which would end every grd_get().
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/private.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* A thread is worth its start from so many bytes on; more than so many threads only wait for the zone locks. */
#define POPULATE_THREAD_BYTES ((uint64_t)64 << 20)
#define POPULATE_THREADS_AUTO 16
#define POPULATE_THREADS_MAX 256
/* Shares are cut at the size of a huge page, so that no two threads fight for one. */
#define POPULATE_ALIGN ((uint64_t)2 << 20)

uint64_t memory_page_size(int fd)
{
    struct statfs status;
    long page = sysconf(_SC_PAGESIZE);

    if (fstatfs(fd, &status) != 0) {
        return 0;
    }
    return status.f_type == HUGETLBFS_MAGIC ? (uint64_t)status.f_bsize : (uint64_t)page;
}

int memory_seal(int fd, struct grd_error *error)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return error_system(error, GRD_ERR_NO_MEMORY, errno, "cannot seal the memory file");
    }
    return 0;
}

int memory_create(uint64_t size, const char *label, int *fd, struct grd_error *error)
{
    char name[200] = "glide-rdmad";
    int code;

    if (label != NULL && label[0] != '\0') {
        snprintf(name, sizeof(name), "glide-rdmad:%s", label);
    }
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (*fd < 0 && errno == EINVAL) { /* before Linux 6.3 */
        *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    if (*fd < 0) {
        return error_system(error, GRD_ERR_NO_MEMORY, errno, "cannot make a memory file");
    }
    if (ftruncate(*fd, (off_t)size) != 0) {
        code = error_system(error, GRD_ERR_NO_MEMORY, errno, "cannot make a memory file of %llu bytes",
                            (unsigned long long)size);
    } else {
        code = memory_seal(*fd, error);
    }
    if (code != 0) {
        close(*fd);
        *fd = -1;
    }
    return code;
}

static int check_seals(int fd, bool writable, struct grd_error *error)
{
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0) {
        return error_system(error, GRD_ERR_BAD_FD, errno,
                            "descriptor %d is no memory file from memfd_create(): it has no seals", fd);
    }
    /* Files of a tmpfs, and memory files made without MFD_ALLOW_SEALING, carry F_SEAL_SEAL: nothing can be added. */
    if ((seals & (F_SEAL_SHRINK | F_SEAL_SEAL)) == F_SEAL_SEAL) {
        return error_set(error, GRD_ERR_BAD_FD,
                         "descriptor %d is a file that can still shrink and cannot be sealed any more: only "
                         "memfd_create(MFD_ALLOW_SEALING) makes one that can be registered",
                         fd);
    }
    if ((seals & F_SEAL_SHRINK) == 0) {
        return error_set(error, GRD_ERR_BAD_FD,
                         "memory file %d lacks F_SEAL_SHRINK: add it with fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK); the "
                         "file must be made with MFD_ALLOW_SEALING",
                         fd);
    }
    if (writable && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
        return error_set(error, GRD_ERR_BAD_FD,
                         "memory file %d is write-sealed: nothing can be fetched into it; register it with "
                         "GRD_ACCESS_READ",
                         fd);
    }
    return 0;
}

static int check_mode(int fd, bool writable, struct grd_error *error)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0) {
        return error_system(error, GRD_ERR_BAD_FD, errno, "descriptor %d is not open", fd);
    }
    if (writable && (flags & O_ACCMODE) != O_RDWR) {
        return error_set(error, GRD_ERR_BAD_FD,
                         "descriptor %d is not open for writing: register it with GRD_ACCESS_READ", fd);
    }
    return 0;
}

int memory_check(int fd, uint64_t offset, uint64_t *size, bool writable, struct grd_error *error)
{
    uint64_t page = memory_page_size(fd);
    struct stat status;
    int code = check_mode(fd, writable, error);

    if (code == 0) {
        code = check_seals(fd, writable, error);
    }
    if (code != 0) {
        return code;
    }
    if (page == 0 || fstat(fd, &status) != 0) {
        return error_system(error, GRD_ERR_BAD_FD, errno, "cannot look at memory file %d", fd);
    }
    if (offset % page != 0) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "offset %llu is no multiple of the page size, %llu bytes",
                         (unsigned long long)offset, (unsigned long long)page);
    }
    if (*size == 0 && offset < (uint64_t)status.st_size) {
        *size = (uint64_t)status.st_size - offset;
    }
    if (!window_inside(offset, *size, (uint64_t)status.st_size)) {
        return error_set(error, GRD_ERR_BAD_FD, "memory file %d holds %lld bytes, not %llu at offset %llu", fd,
                         (long long)status.st_size, (unsigned long long)*size, (unsigned long long)offset);
    }
    return 0;
}

/* What one thread populates. */
struct share {
    pthread_t thread;
    int fd;
    char *address;
    uint64_t file_offset, length;
    bool writable;
    int os_errno; /* out */
};

/*
 * Before Linux 5.14: sets the pages aside in the file, which fails with an errno, and then touches each without
 * changing it, since a page that was only set aside is nothing that the daemon can see. Read-only: left to the first
 * use, or to the daemon where it may (GRD_REGION_DAEMON_POPULATES).
 */
static int populate_old(const struct share *share)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (!share->writable) {
        return 0;
    }
    if (fallocate(share->fd, 0, (off_t)share->file_offset, (off_t)share->length) != 0) {
        return -1;
    }
    for (uint64_t at = 0; at < share->length; at += page) {
        (void)__atomic_fetch_or(share->address + at, 0, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Population fails with an errno where a touch would raise SIGBUS. */
static void *populate_share(void *argument)
{
    struct share *share = argument;
    int advice = share->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    int rc;

    do {
        rc = madvise(share->address, share->length, advice);
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc != 0 && errno == EINVAL) {
        rc = populate_old(share);
    }
    share->os_errno = rc != 0 ? errno : 0;
    return NULL;
}

static unsigned thread_count(uint64_t size, unsigned asked)
{
    uint64_t useful = (size + POPULATE_THREAD_BYTES - 1) / POPULATE_THREAD_BYTES;
    cpu_set_t cpus;
    unsigned count = asked;

    if (count == 0) {
        count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (unsigned)CPU_COUNT(&cpus) : 1;
        count = count < POPULATE_THREADS_AUTO ? count : POPULATE_THREADS_AUTO;
        count = count < useful ? count : (unsigned)useful;
    }
    return count < POPULATE_THREADS_MAX ? count : POPULATE_THREADS_MAX;
}

/* Starts a thread for each share but the first, which is this thread's; one that cannot start is done here too. */
static void run_shares(struct share *shares, unsigned count)
{
    sigset_t all, before;
    bool started[POPULATE_THREADS_MAX] = {false};

    /* The application's signals are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 1; i < count; i++) {
        started[i] = pthread_create(&shares[i].thread, NULL, populate_share, &shares[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (unsigned i = 0; i < count; i++) {
        if (!started[i]) {
            populate_share(&shares[i]);
        }
    }
    for (unsigned i = 1; i < count; i++) {
        if (started[i]) {
            pthread_join(shares[i].thread, NULL);
        }
    }
}

int memory_populate(int fd, uint64_t offset, void *address, uint64_t size, bool writable, unsigned threads,
                    struct grd_error *error)
{
    unsigned wanted = thread_count(size, threads), count = 0;
    uint64_t step = (size / wanted + POPULATE_ALIGN) / POPULATE_ALIGN * POPULATE_ALIGN;
    struct share *shares = calloc(wanted, sizeof(*shares));

    if (shares == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for populating a region");
    }
    for (uint64_t at = 0; at < size; at += step, count++) {
        shares[count] = (struct share){
            .fd = fd,
            .address = (char *)address + at,
            .file_offset = offset + at,
            .length = size - at < step ? size - at : step,
            .writable = writable,
        };
    }
    run_shares(shares, count);
    for (unsigned i = 0; i < count; i++) {
        if (shares[i].os_errno != 0) {
            int os_errno = shares[i].os_errno;

            free(shares);
            return error_system(error, GRD_ERR_NO_MEMORY, os_errno,
                                "the host or the cgroup cannot provide %llu bytes of memory",
                                (unsigned long long)size);
        }
    }
    free(shares);
    return 0;
}
