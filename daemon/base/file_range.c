#include "daemon/base/file_range.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

int file_range_read(const struct file_range *range, uint64_t at, void *buffer, size_t length)
{
    size_t done = 0;

    while (done < length) {
        ssize_t bytes = pread(range->fd, (char *)buffer + done, length - done, (off_t)(range->offset + at + done));
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes <= 0) {
            return bytes < 0 ? -errno : -EIO; /* the file cannot shrink */
        }
        done += (size_t)bytes;
    }
    return 0;
}

int file_range_write(const struct file_range *range, uint64_t at, const void *buffer, size_t length)
{
    size_t done = 0;

    while (done < length) {
        struct iovec from = {.iov_base = (void *)((uintptr_t)buffer + done), .iov_len = length - done};
        struct iovec to = {.iov_base = (char *)range->mapped + at + done, .iov_len = length - done};
        ssize_t bytes = process_vm_writev(getpid(), &from, 1, &to, 1, 0);
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes <= 0) {
            return bytes < 0 ? -errno : -EFAULT;
        }
        done += (size_t)bytes;
    }
    return 0;
}
