#include "daemon/memory/intake.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/errors.h"

__attribute__((format(printf, 3, 4))) static void refuse(struct intake *intake, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(intake->why, sizeof intake->why, format, arguments);
    va_end(arguments);
    intake->code = code;
}

/* st_blksize would say 2 MiB on a tmpfs with transparent huge pages although its pages are 4 KiB. */
static uint64_t page_size_of(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) == 0 && (unsigned long)fs.f_type == HUGETLBFS_MAGIC)
        return (uint64_t)fs.f_bsize;
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool seals_fit(struct intake *intake)
{
    int seals = fcntl(intake->fd, F_GET_SEALS);
    if (seals < 0) {
        refuse(intake, PROTO_ERR_BAD_FD,
               "the descriptor is no memory file: only memfd_create(MFD_ALLOW_SEALING) makes one that can be served "
               "(files of /dev/shm and of disks cannot be sealed)");
        return false;
    }
    if ((seals & F_SEAL_SHRINK) == 0) {
        /* Files of a tmpfs, and memory files made without MFD_ALLOW_SEALING, carry F_SEAL_SEAL: nothing can be added. */
        refuse(intake, PROTO_ERR_BAD_FD, "the file can still shrink: %s",
               (seals & F_SEAL_SEAL) != 0
                   ? "and it cannot be sealed any more; only memfd_create(MFD_ALLOW_SEALING) makes one that can be served"
                   : "add F_SEAL_SHRINK with fcntl(F_ADD_SEALS) before it is registered");
        return false;
    }
    if (intake->writable && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
        refuse(intake, PROTO_ERR_BAD_FD,
               "the memory file is sealed against writing: register it with access \"r\" (set only), or without "
               "F_SEAL_WRITE and F_SEAL_FUTURE_WRITE");
        return false;
    }
    return true;
}

static bool access_fits(struct intake *intake)
{
    int flags = fcntl(intake->fd, F_GETFL);
    int mode = flags & O_ACCMODE;
    if (flags < 0 || (flags & O_PATH) != 0 || mode == O_WRONLY || (intake->writable && mode != O_RDWR)) {
        refuse(intake, PROTO_ERR_BAD_FD, "the descriptor is not open for %s: access \"%s\" needs %s",
               intake->writable ? "reading and writing" : "reading", intake->writable ? "rw" : "r",
               intake->writable ? "O_RDWR" : "O_RDONLY or O_RDWR");
        return false;
    }
    return true;
}

static bool range_fits(struct intake *intake)
{
    struct stat st;
    if (fstat(intake->fd, &st) != 0) {
        refuse(intake, PROTO_ERR_SYSTEM, "fstat: %s", strerror(errno));
        return false;
    }
    intake->device = st.st_dev;
    intake->inode = st.st_ino;
    intake->page_size = page_size_of(intake->fd);
    if (intake->offset % intake->page_size != 0) {
        refuse(intake, PROTO_ERR_OUT_OF_RANGE, "offset %llu is no multiple of the file's page size of %llu bytes",
               (unsigned long long)intake->offset, (unsigned long long)intake->page_size);
        return false;
    }
    uint64_t end;
    if (__builtin_add_overflow(intake->offset, intake->size, &end) || end > (uint64_t)st.st_size) {
        refuse(intake, PROTO_ERR_BAD_FD,
               "the memory file is too small: offset %llu and size %llu end behind its %lld bytes",
               (unsigned long long)intake->offset, (unsigned long long)intake->size, (long long)st.st_size);
        return false;
    }
    return true;
}

void intake_check(struct intake *intake)
{
    intake->code = 0;
    if (seals_fit(intake) && access_fits(intake))
        (void)range_fits(intake);
}
