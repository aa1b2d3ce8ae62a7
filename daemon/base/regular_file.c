#include "daemon/base/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int regular_file_open(int folder, const char *path, struct stat *status)
{
    struct stat own;
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int error = 0;

    if (fd < 0) {
        /* of a socket */
        return errno == ENXIO ? -ENOTSUP : -errno;
    }
    if (fstat(fd, &own) != 0) {
        error = -errno;
    } else if (!S_ISREG(own.st_mode)) {
        error = S_ISDIR(own.st_mode) ? -EISDIR : -ENOTSUP;
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    if (status != NULL) {
        *status = own;
    }
    return fd;
}

const char *regular_file_error(int error)
{
    return error == -ENOTSUP ? "it is no regular file" : strerror(-error);
}
