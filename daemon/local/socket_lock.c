#include "daemon/local/socket_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int name_of(const char *path, char name[PATH_MAX])
{
    int length = snprintf(name, PATH_MAX, "%s.lock", path);

    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Or has it been removed, by the one who had the lock before? Then others lock another file. */
static bool still_named(int fd, const char *name)
{
    struct stat ours, theirs;

    return fstat(fd, &ours) == 0 && lstat(name, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
           ours.st_ino == theirs.st_ino;
}

int socket_lock_take(const char *path, int *fd)
{
    char name[PATH_MAX];
    int status = name_of(path, name);

    while (status == 0) {
        int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (file < 0) {
            return -errno;
        }
        if (flock(file, LOCK_EX | LOCK_NB) != 0) {
            status = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
        } else if (still_named(file, name)) {
            *fd = file;
            return 0;
        }
        close(file);
    }
    return status;
}

void socket_lock_give(const char *path, int fd)
{
    char name[PATH_MAX];

    if (fd < 0) {
        return;
    }
    if (name_of(path, name) == 0) {
        unlink(name);
    }
    close(fd);
}
