#include "proto/standard_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

void standard_streams_fill(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            /* Gets the lowest free number, which is this one. */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int standard_streams_flush(void)
{
    struct pollfd entry = {.fd = STDOUT_FILENO, .events = POLLOUT};

    if (fflush(stdout) != 0) {
        return errno;
    }
    if (!ferror(stdout)) {
        return 0;
    }
    /* An earlier write has failed, and nobody kept its reason. Where the reader of a pipe has gone this still shows. */
    return poll(&entry, 1, 0) == 1 && (entry.revents & POLLERR) != 0 ? EPIPE : EIO;
}
