#include "proto/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int channel_prepare(int socket_fd)
{
    int flags = fcntl(socket_fd, F_GETFL);
    int fd_flags = fcntl(socket_fd, F_GETFD);
    if (flags < 0 || fd_flags < 0 || fcntl(socket_fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(socket_fd, F_SETFD, fd_flags | FD_CLOEXEC) < 0) {
        return -errno;
    }
    /* The kernel grants less without an error where net.core.wmem_max is lower; one message fits in any case. */
    int bytes = PROTO_SOCKET_BUFFER_BYTES;
    return setsockopt(socket_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) < 0 ? -errno : 0;
}

static void collect_fds(struct msghdr *message, struct channel_packet *packet)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL;
         control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(control) + i * sizeof(fd), sizeof(fd));
            if (packet->fd_count < PROTO_FDS_RECEIVED_MAX) {
                packet->fds[packet->fd_count++] = fd;
            } else {
                close(fd); /* beyond the kernel's own limit: cannot happen today */
                packet->fds_truncated = true;
            }
        }
    }
}

int channel_receive(int socket_fd, void *buffer, size_t capacity, struct channel_packet *packet)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PROTO_FDS_RECEIVED_MAX)];
    } control;
    struct iovec part = {.iov_base = buffer, .iov_len = capacity};
    struct msghdr message;
    ssize_t received;
    bool reset = false;

    packet->length = 0;
    packet->truncated = false;
    packet->fds_truncated = false;
    packet->fd_count = 0;
    for (;;) {
        message = (struct msghdr){.msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes)};
        received = recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (received >= 0) {
            break;
        }
        /*
         * A peer that closes with packets of ours unread leaves ECONNRESET here once, ahead of the packets it sent
         * before: those, `session.closed` among them, must still be read.
         */
        if (errno == ECONNRESET && !reset) {
            reset = true;
        } else if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
    packet->length = (size_t)received;
    packet->truncated = (message.msg_flags & MSG_TRUNC) != 0;
    packet->fds_truncated = (message.msg_flags & MSG_CTRUNC) != 0;
    collect_fds(&message, packet);
    return received > 0 || packet->fd_count > 0 || packet->truncated || packet->fds_truncated ? 1 : 0;
}

int channel_send(int socket_fd, const void *bytes, size_t length, int pass_fd)
{
    if (length == 0) {
        return -EINVAL; /* the receiver would take it for the end of the stream */
    }
    if (length > PROTO_MESSAGE_BYTES) {
        return -EMSGSIZE;
    }
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    union {
        const void *in;
        void *out; /* sendmsg does not write through it */
    } base = {.in = bytes};
    struct iovec part = {.iov_base = base.out, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (pass_fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &pass_fd, sizeof(pass_fd));
    }
    for (;;) {
        if (sendmsg(socket_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            return 0;
        }
        if (errno == ECONNRESET) {
            return -EPIPE; /* which of the two comes depends on what the peer had left unread */
        }
        if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
}

void channel_close_fds(struct channel_packet *packet)
{
    for (int i = 0; i < packet->fd_count; i++) {
        close(packet->fds[i]);
    }
    packet->fd_count = 0;
}
