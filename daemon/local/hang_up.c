#include "daemon/local/hang_up.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Packets that are looked at before it is left to a worker. */
#define PACKETS 64

enum look { LOOK_END, LOOK_PACKET, LOOK_DESCRIPTORS, LOOK_ERROR };

/*
 * What is first in the socket. With SO_PASSCRED every packet has control data, which tells an empty one from the end;
 * there is no room for more of it, which tells a packet with descriptors.
 */
static enum look look(int fd, int flags)
{
    char byte;
    union {
        struct cmsghdr header; /* for its alignment */
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {.iov_base = &byte, .iov_len = sizeof(byte)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(fd, &message, flags | MSG_DONTWAIT);

    if (length < 0) {
        return LOOK_ERROR; /* such as ECONNRESET, which comes once */
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return LOOK_DESCRIPTORS;
    }
    return length == 0 && message.msg_controllen == 0 ? LOOK_END : LOOK_PACKET;
}

bool hang_up(int fd)
{
    int on = 1;
    bool empty = false;

    if (shutdown(fd, SHUT_RDWR) != 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
        return false;
    }
    for (int i = 0; i < PACKETS && !empty; i++) {
        enum look found = look(fd, MSG_PEEK);
        if (found == LOOK_DESCRIPTORS) {
            return false;
        }
        if (found == LOOK_PACKET) {
            (void)look(fd, 0);
        }
        empty = found == LOOK_END;
    }
    if (empty) {
        close(fd);
    }
    return empty;
}

bool hung_up(int fd)
{
    struct pollfd socket = {.fd = fd};

    return poll(&socket, 1, 0) == 1 && (socket.revents & POLLHUP) != 0;
}
