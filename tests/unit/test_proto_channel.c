/* The packet channel over socket pairs: descriptors, truncation, lost descriptors, the end of the stream. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/channel.h"
#include "unit_main.h"

static int pair[2];

static void open_pair(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    ck_assert_int_eq(channel_prepare(pair[0]), 0);
    ck_assert_int_eq(channel_prepare(pair[1]), 0);
}

static int count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(directory);
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* A packet with `count` copies of one descriptor. */
static void send_fds(const char *text, int count, int passed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PROTO_FDS_RECEIVED_MAX)];
    } control = {0};
    char copy[64];
    size_t length = strlen(text);
    memcpy(copy, text, length);
    struct iovec part = {.iov_base = copy, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header == NULL) {
        ck_abort_msg("no room for a control message");
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++) {
        memcpy(CMSG_DATA(header) + sizeof(int) * (size_t)i, &passed, sizeof(passed));
    }
    ck_assert_int_eq(sendmsg(pair[0], &message, MSG_NOSIGNAL), (ssize_t)length);
}

START_TEST(prepare_sets_flags)
{
    open_pair();
    ck_assert_int_ne(fcntl(pair[0], F_GETFL) & O_NONBLOCK, 0);
    ck_assert_int_ne(fcntl(pair[0], F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_eq(channel_prepare(-1), -EBADF);
}
END_TEST

START_TEST(packets_keep_their_boundaries)
{
    char buffer[PROTO_MESSAGE_BYTES];
    struct channel_packet packet;
    open_pair();
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), -EAGAIN);
    ck_assert_int_eq(channel_send(pair[0], "one", 3, -1), 0);
    ck_assert_int_eq(channel_send(pair[0], "second", 6, -1), 0);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_uint_eq(packet.length, 3);
    ck_assert_mem_eq(buffer, "one", 3);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_uint_eq(packet.length, 6);
    ck_assert_int_eq(packet.fd_count, 0);
    ck_assert(!packet.truncated && !packet.fds_truncated);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), -EAGAIN);
}
END_TEST

START_TEST(largest_message_passes_and_more_is_refused)
{
    static char bytes[PROTO_MESSAGE_BYTES + 1];
    static char buffer[PROTO_MESSAGE_BYTES];
    struct channel_packet packet;
    open_pair();
    memset(bytes, 'x', sizeof(bytes));
    ck_assert_int_eq(channel_send(pair[0], bytes, PROTO_MESSAGE_BYTES, -1), 0);
    ck_assert_int_eq(channel_send(pair[0], bytes, PROTO_MESSAGE_BYTES + 1, -1), -EMSGSIZE);
    ck_assert_int_eq(channel_send(pair[0], bytes, 0, -1), -EINVAL);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_uint_eq(packet.length, PROTO_MESSAGE_BYTES);
    ck_assert(!packet.truncated);
}
END_TEST

START_TEST(truncation_is_seen)
{
    char buffer[8];
    struct channel_packet packet;
    open_pair();
    ck_assert_int_eq(channel_send(pair[0], "0123456789", 10, -1), 0);
    ck_assert_int_eq(channel_send(pair[0], "01234567", 8, -1), 0);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert(packet.truncated);
    ck_assert_uint_eq(packet.length, 8);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert(!packet.truncated);
}
END_TEST

START_TEST(a_descriptor_arrives_close_on_exec)
{
    char buffer[64];
    struct channel_packet packet;
    struct {
        dev_t device;
        ino_t inode;
    } sent, came;
    struct stat status;
    open_pair();
    int memory = memfd_create("test", 0);
    ck_assert_int_eq(fstat(memory, &status), 0);
    sent.device = status.st_dev;
    sent.inode = status.st_ino;
    ck_assert_int_eq(channel_send(pair[0], "hello", 5, memory), 0);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_int_eq(packet.fd_count, 1);
    ck_assert_int_ne(packet.fds[0], memory);
    ck_assert_int_eq(fstat(packet.fds[0], &status), 0);
    came.device = status.st_dev;
    came.inode = status.st_ino;
    ck_assert(sent.device == came.device && sent.inode == came.inode);
    ck_assert_int_ne(fcntl(packet.fds[0], F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_eq(fcntl(memory, F_GETFD), 0); /* the sender's own stays open */
    channel_close_fds(&packet);
    ck_assert_int_eq(packet.fd_count, 0);
}
END_TEST

START_TEST(all_descriptors_are_reported)
{
    char buffer[64];
    struct channel_packet packet;
    static const int counts[] = {2, 3, 28, PROTO_FDS_RECEIVED_MAX};
    open_pair();
    int before = count_fds();
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        send_fds("x", counts[i], STDIN_FILENO);
        ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
        ck_assert_int_eq(packet.fd_count, counts[i]);
        ck_assert(!packet.fds_truncated);
        ck_assert_int_eq(count_fds(), before + counts[i]);
        channel_close_fds(&packet);
        ck_assert_int_eq(count_fds(), before);
    }
}
END_TEST

START_TEST(descriptors_come_with_truncated_packets_too)
{
    char buffer[2];
    struct channel_packet packet;
    open_pair();
    int before = count_fds();
    send_fds("long text", 3, STDIN_FILENO);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert(packet.truncated);
    ck_assert_int_eq(packet.fd_count, 3);
    channel_close_fds(&packet);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

START_TEST(no_descriptor_left_is_seen)
{
    char buffer[64];
    struct channel_packet packet;
    struct rlimit limit;
    open_pair();
    int before = count_fds();
    send_fds("first", 3, STDIN_FILENO);
    int highest = dup(STDIN_FILENO); /* the lowest free number, so everything below it is in use */
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t old = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)highest + 2; /* room for one more */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    limit.rlim_cur = old;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert(packet.fds_truncated);
    ck_assert_int_lt(packet.fd_count, 3);
    ck_assert_uint_eq(packet.length, 5); /* the message itself is whole */
    channel_close_fds(&packet);
    close(highest);
    ck_assert_int_eq(count_fds(), before);
    ck_assert_int_eq(channel_send(pair[0], "next", 4, STDIN_FILENO), 0);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert(!packet.fds_truncated);
    channel_close_fds(&packet);
}
END_TEST

START_TEST(end_of_the_stream)
{
    char buffer[64];
    struct channel_packet packet;
    open_pair();
    ck_assert_int_eq(channel_send(pair[0], "last", 4, -1), 0);
    close(pair[0]);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 0);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 0);
    ck_assert_int_eq(channel_send(pair[1], "late", 4, -1), -EPIPE);
}
END_TEST

START_TEST(last_packet_survives_unread_requests)
{
    /* The peer closes with a packet of ours unread: the kernel reports ECONNRESET ahead of what the peer sent. */
    char buffer[64];
    struct channel_packet packet;
    open_pair();
    ck_assert_int_eq(channel_send(pair[1], "request", 7, -1), 0);
    ck_assert_int_eq(channel_send(pair[0], "session.closed", 14, -1), 0);
    close(pair[0]);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_uint_eq(packet.length, 14);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 0);
}
END_TEST

START_TEST(sending_after_a_reset_leaves_the_last_packet)
{
    char buffer[64];
    struct channel_packet packet;
    open_pair();
    ck_assert_int_eq(channel_send(pair[1], "request", 7, -1), 0);
    ck_assert_int_eq(channel_send(pair[0], "session.closed", 14, -1), 0);
    close(pair[0]);
    ck_assert_int_eq(channel_send(pair[1], "another", 7, -1), -EPIPE);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 0);
}
END_TEST

START_TEST(a_slow_receiver_gives_eagain_and_room_comes_back)
{
    static char bytes[PROTO_MESSAGE_BYTES];
    static char buffer[PROTO_MESSAGE_BYTES];
    struct channel_packet packet;
    open_pair();
    int sent = 0;
    int error;
    while ((error = channel_send(pair[0], bytes, 60000, -1)) == 0) {
        sent++;
        ck_assert_int_lt(sent, 10000);
    }
    ck_assert_int_eq(error, -EAGAIN);
    ck_assert_int_ge(sent, 2);
    for (int i = 0; i < sent; i++) {
        ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    }
    ck_assert_int_eq(channel_send(pair[0], bytes, 60000, -1), 0);
}
END_TEST

START_TEST(empty_packet_with_a_descriptor_is_a_packet)
{
    char buffer[8];
    struct channel_packet packet;
    open_pair();
    int before = count_fds();
    send_fds("", 1, STDIN_FILENO);
    ck_assert_int_eq(channel_receive(pair[1], buffer, sizeof(buffer), &packet), 1);
    ck_assert_uint_eq(packet.length, 0);
    ck_assert_int_eq(packet.fd_count, 1);
    channel_close_fds(&packet);
    ck_assert_int_eq(count_fds(), before);
}
END_TEST

UNIT_MAIN("proto_channel", prepare_sets_flags, packets_keep_their_boundaries,
          largest_message_passes_and_more_is_refused, truncation_is_seen, a_descriptor_arrives_close_on_exec,
          all_descriptors_are_reported, descriptors_come_with_truncated_packets_too, no_descriptor_left_is_seen,
          end_of_the_stream, last_packet_survives_unread_requests, sending_after_a_reset_leaves_the_last_packet,
          a_slow_receiver_gives_eagain_and_room_comes_back, empty_packet_with_a_descriptor_is_a_packet)
