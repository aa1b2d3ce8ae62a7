#include "daemon/base/journal.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int journal_open(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd >= 0 ? fd : -errno;
}

/* By its address each time: a journal that was restarted listens on another socket at the same path. */
int journal_send(int fd, const char *path, const char *entry, size_t length)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t path_length = strlen(path);
    ssize_t sent;

    if (path_length >= sizeof(address.sun_path)) {
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, path, path_length);
    do {
        sent = sendto(fd, entry, length, MSG_NOSIGNAL, (const struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_length + 1));
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return 0;
    }
    return errno == ENOBUFS ? -EAGAIN : -errno;
}
