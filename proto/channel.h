/*
 * Packet channel: one message and its descriptors a packet, over SOCK_SEQPACKET with SCM_RIGHTS.
 * It knows no messages. Thread safe as far as the kernel's socket is: one reader and one writer may work at once.
 */
#ifndef GRD_PROTO_CHANNEL_H
#define GRD_PROTO_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/limits.h"

/* What one recvmsg brought. The receiver owns the descriptors and must close each, surplus ones included. */
struct channel_packet {
    size_t length;        /* bytes stored in the buffer */
    bool truncated;       /* the packet was longer than the buffer (MSG_TRUNC): the rest is gone */
    bool fds_truncated;   /* descriptors were dropped by the kernel (MSG_CTRUNC): too many, or none free */
    int fd_count;
    int fds[PROTO_FDS_RECEIVED_MAX];
};

/* Asks for PROTO_SOCKET_BUFFER_BYTES of send buffer and sets close-on-exec and non-blocking. 0 or -errno. */
int channel_prepare(int socket_fd);

/*
 * Receives one packet, without blocking (MSG_DONTWAIT), every descriptor close-on-exec.
 * 1: a packet (packet->length may be 0 only with descriptors or truncation); 0: the peer is gone (an empty packet is
 * the end of the stream); -EAGAIN: nothing there; other -errno: the socket failed. Never leaves descriptors behind
 * unreported: all control messages are walked. What a peer sent before it closed is delivered first, even where it
 * left packets of ours unread (the kernel's ECONNRESET is swallowed).
 */
int channel_receive(int socket_fd, void *buffer, size_t capacity, struct channel_packet *packet);

/*
 * Sends one packet with at most one descriptor (pass_fd < 0: none; it stays the caller's), without blocking and
 * without SIGPIPE. 0, -EAGAIN (the receiver is slow), -EMSGSIZE (above PROTO_MESSAGE_BYTES), -EINVAL (length 0, which
 * would read as the end of the stream), -EPIPE (the peer is gone; what it sent may still be received), or another
 * -errno.
 */
int channel_send(int socket_fd, const void *bytes, size_t length, int pass_fd);

/* Closes every descriptor of the packet. May block (a received socket can linger): not for event loops. */
void channel_close_fds(struct channel_packet *packet);

#endif
