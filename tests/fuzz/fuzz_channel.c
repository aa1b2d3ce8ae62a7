/*
 * The codec of messages, with descriptors, over a socket pair: what comes is received, parsed, decoded, said again and
 * answered as the daemon does, and the answer is read as the library reads it.
 *
 * An input is lines: one character, then the bytes of a packet.
 *
 *   0..9  that many descriptors      m  as many as the kernel takes      z  a descriptor and no bytes
 *   t     into a buffer of 16 bytes  b  repeated beyond the largest      l  three, of which the receiver can take one
 *   a     for the library            x  the sender closes
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/channel.h"
#include "proto/envelope.h"
#include "proto/errors.h"
#include "proto/methods.h"
#include "proto/text.h"
#include "tests/fuzz/fuzz.h"

#define PACKETS 32
#define SMALL_BUFFER 16

static int ends[2]; /* ours, the receiver's */
static int passed;  /* the descriptor that travels */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    passed = dup(STDERR_FILENO);
    return passed >= 0 ? 0 : 1;
}

static void send_raw(const void *bytes, size_t length, int count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PROTO_FDS_RECEIVED_MAX)];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
        for (int i = 0; i < count; i++) {
            memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &passed, sizeof(int));
        }
    }
    FUZZ_CHECK(sendmsg(ends[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0, "errno %d", errno);
}

/* Ended, not empty, and printable ASCII only. */
static void check_sentence(const char why[PROTO_WHY_BYTES])
{
    size_t length = strnlen(why, PROTO_WHY_BYTES);

    FUZZ_CHECK(length > 0 && length < PROTO_WHY_BYTES, "a sentence of %zu bytes", length);
    for (size_t i = 0; i < length; i++) {
        FUZZ_CHECK(why[i] >= 0x20 && why[i] < 0x7F, "byte %d in a sentence", why[i]);
    }
}

/* What was accepted can be said again, and then means the same. */
static void say_again(int method, const union proto_any_params *params)
{
    static char text[2 * PROTO_MESSAGE_BYTES];
    const struct proto_shape *shape = proto_methods[method].params;
    struct proto_request request;
    union proto_any_params again;
    char why[PROTO_WHY_BYTES];
    json_t *first = proto_shape_encode(shape, params), *second;
    int length;

    FUZZ_CHECK(first != NULL, "%s cannot be encoded", proto_methods[method].name);
    length = proto_write_request(text, sizeof(text), 7, proto_methods[method].name, first);
    FUZZ_CHECK(length > 0, "%s cannot be written: %d", proto_methods[method].name, length);
    FUZZ_CHECK(proto_request_parse(text, (size_t)length, &request, why) == 0, "%s", why);
    FUZZ_CHECK(request.id == 7 && proto_method_find(request.method) == method, "method %s", request.method);
    FUZZ_CHECK(proto_shape_decode(shape, request.params, true, &again, why) == 0, "%s", why);
    second = proto_shape_encode(shape, &again);
    FUZZ_CHECK(second != NULL && json_equal(first, second), "%s means something else", proto_methods[method].name);
    json_decref(first);
    json_decref(second);
    json_decref(request.root);
    proto_shape_free(shape, &again);
}

/* As the daemon: 0, or the error, with the id that could be read. */
static int serve(const char *text, size_t length, int64_t *id, char why[PROTO_WHY_BYTES])
{
    struct proto_request request;
    union proto_any_params params;
    int error = proto_request_parse(text, length, &request, why);

    *id = request.id;
    FUZZ_CHECK(error != 0 || (request.id >= 1 && request.id <= PROTO_ID_MAX), "id %lld", (long long)request.id);
    if (error == 0) {
        int method = proto_method_find(request.method);
        if (method < 0) {
            error = PROTO_ERR_NO_METHOD;
            snprintf(why, PROTO_WHY_BYTES, "no such method");
        } else {
            error = proto_shape_decode(proto_methods[method].params, request.params, true, &params, why);
        }
        if (error == 0) {
            say_again(method, &params);
            proto_shape_free(proto_methods[method].params, &params);
        }
    }
    json_decref(request.root);
    return error;
}

/* As the library: an answer against every result there is. */
static int listen_to(const char *text, size_t length, int64_t *id)
{
    static const struct proto_shape *const notes[] = {&proto_shape_region_closed, &proto_shape_session_closed,
                                                      &proto_shape_daemon_draining};
    union {
        struct proto_hello_result hello;
        struct proto_register_result region;
        struct proto_set_result set;
        struct proto_get_result get;
        struct proto_session_closed closed;
        struct proto_region_closed region_closed;
        char room[256];
    } out;
    char why[PROTO_WHY_BYTES];
    struct proto_answer answer;
    int error = proto_answer_parse(text, length, &answer);

    *id = answer.id;
    if (error == 0) {
        FUZZ_CHECK((answer.result != NULL) + (answer.code != 0) + (answer.method != NULL) == 1, "all or none");
        error = answer.code;
        for (int i = 0; i < PROTO_METHOD_COUNT && answer.result != NULL; i++) {
            const struct proto_shape *shape = proto_methods[i].result;
            if (proto_shape_decode(shape, answer.result, false, &out, why) == 0) {
                json_decref(proto_shape_encode(shape, &out));
                proto_shape_free(shape, &out);
            } else {
                check_sentence(why);
            }
        }
        for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && answer.method != NULL; i++) {
            if (proto_shape_decode(notes[i], answer.params, false, &out, why) == 0) {
                proto_shape_free(notes[i], &out);
            }
        }
    }
    json_decref(answer.root);
    return error;
}

/* Answers, and reads the answer at the other end. */
static void answer(int error, int64_t id, const char *why)
{
    static char text[PROTO_MESSAGE_BYTES];
    struct channel_packet packet;
    int64_t read_id;
    int length = error == 0 ? proto_write_result(text, sizeof(text), id, NULL)
                            : proto_write_error(text, sizeof(text), id, error, why, NULL);

    FUZZ_CHECK(length > 0, "an answer cannot be written: %d", length);
    FUZZ_CHECK(channel_send(ends[1], text, (size_t)length, error == 0 ? passed : -1) == 0, "not sent");
    FUZZ_CHECK(channel_receive(ends[0], text, sizeof(text), &packet) == 1, "not received");
    FUZZ_CHECK(packet.length == (size_t)length && packet.fd_count == (error == 0), "%zu bytes, %d descriptors",
               packet.length, packet.fd_count);
    channel_close_fds(&packet);
    FUZZ_CHECK(listen_to(text, packet.length, &read_id) == error && read_id == id, "error %d became another", error);
}

/* Receives into memory of exactly `capacity` bytes, so that reading past the packet is seen. */
static void receive(size_t capacity, int descriptors, bool for_library)
{
    char why[PROTO_WHY_BYTES] = "the packet was cut off";
    struct channel_packet packet;
    char *buffer = malloc(capacity), *exact;
    int64_t id = 0;
    int error, status = channel_receive(ends[1], buffer, capacity, &packet);

    FUZZ_CHECK(status == 1, "status %d", status);
    FUZZ_CHECK(packet.fd_count <= descriptors && (packet.fd_count == descriptors || packet.fds_truncated),
               "%d of %d descriptors", packet.fd_count, descriptors);
    FUZZ_CHECK(packet.length <= capacity, "%zu bytes", packet.length);
    channel_close_fds(&packet);
    exact = malloc(packet.length > 0 ? packet.length : 1);
    memcpy(exact, buffer, packet.length);
    free(buffer);
    if (for_library) {
        listen_to(exact, packet.length, &id);
    } else {
        error = packet.truncated ? PROTO_ERR_TOO_LARGE : serve(exact, packet.length, &id, why);
        if (error != 0) {
            check_sentence(why);
        }
        answer(error, id, why);
    }
    free(exact);
}

static void send_repeated(const char *line, size_t length)
{
    static char large[PROTO_MESSAGE_BYTES + 4096];

    for (size_t i = 0; i < sizeof(large); i++) {
        large[i] = line[i % length];
    }
    send_raw(large, sizeof(large), 1);
    receive(PROTO_MESSAGE_BYTES, 1, false);
}

static void receive_at_limit(const char *line, size_t length)
{
    struct rlimit before, low;
    int lowest = dup(passed);

    send_raw(line, length, 3);
    close(lowest);
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = (rlim_t)lowest + 1;
    setrlimit(RLIMIT_NOFILE, &low);
    receive(PROTO_MESSAGE_BYTES, 3, true); /* no answer: it would carry a descriptor */
    setrlimit(RLIMIT_NOFILE, &before);
}

/* One line; false: nothing comes any more. */
static bool packet_of(const char *line, size_t length)
{
    char kind = line[0];
    const char *bytes = line + 1;

    length--;
    if (kind == 'x') {
        close(ends[0]);
        ends[0] = -1;
        return false;
    }
    if (kind == 'z') {
        send_raw("", 0, 1);
        receive(PROTO_MESSAGE_BYTES, 1, false);
        return true;
    }
    if (length == 0) {
        return true;
    }
    if (kind == 'b') {
        send_repeated(bytes, length);
    } else if (kind == 'l') {
        receive_at_limit(bytes, length);
    } else {
        int count = kind == 'm' ? PROTO_FDS_RECEIVED_MAX : kind >= '0' && kind <= '9' ? kind - '0' : 0;
        send_raw(bytes, length < PROTO_MESSAGE_BYTES ? length : PROTO_MESSAGE_BYTES, count);
        receive(kind == 't' ? SMALL_BUFFER : PROTO_MESSAGE_BYTES, count, kind == 'a');
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_lines lines = {.at = (const char *)data, .end = (const char *)data + size};
    unsigned before = fuzz_descriptors();
    struct channel_packet packet;
    const char *line;
    size_t length;
    char byte;

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "errno %d", errno);
    FUZZ_CHECK(channel_prepare(ends[1]) == 0, "errno %d", errno);
    for (int i = 0; i < PACKETS && fuzz_line(&lines, &line, &length); i++) {
        if (length > 0 && !packet_of(line, length)) {
            break;
        }
    }
    if (ends[0] >= 0) {
        FUZZ_CHECK(channel_receive(ends[1], &byte, 1, &packet) == -EAGAIN, "something is left");
        close(ends[0]);
    }
    FUZZ_CHECK(channel_receive(ends[1], &byte, 1, &packet) == 0, "no end");
    close(ends[1]);
    FUZZ_CHECK(fuzz_descriptors() == before, "%u descriptors became %u", before, fuzz_descriptors());
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return fuzz_mutate_lines(data, size, max_size, seed);
}
