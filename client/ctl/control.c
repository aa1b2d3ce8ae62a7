#include "client/ctl/control.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/report.h"
#include "proto/channel.h"
#include "proto/envelope.h"
#include "proto/methods.h"
#include "proto/shape.h"

struct control {
    int socket;
    const char *path;
    uint64_t timeout_ms;
    int64_t id; /* of the last request */
    int fd;     /* that came with the last packet, or -1 */
    char packet[PROTO_MESSAGE_BYTES];
};

static uint64_t now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* --- connecting -------------------------------------------------------------------------------------------------- */

static enum ctl_exit cannot_connect(const struct control *control, int os_errno)
{
    switch (os_errno) {
    case EACCES:
    case EPERM:
        return report_no_access(control->path);
    case EPROTOTYPE:
        report("%s is not a socket of glide-rdmad", control->path);
        return CTL_PROTOCOL;
    default:
        report("cannot connect to the daemon on %s: %s", control->path, strerror(os_errno));
        return CTL_UNAVAILABLE;
    }
}

static enum ctl_exit connect_socket(struct control *control)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = (time_t)(control->timeout_ms / 1000),
                            .tv_usec = (suseconds_t)(control->timeout_ms % 1000 * 1000)};
    int rc;

    if (strlen(control->path) >= sizeof(address.sun_path)) {
        report("the path of a socket has at most %zu bytes: %s", sizeof(address.sun_path) - 1, control->path);
        return CTL_USAGE;
    }
    memcpy(address.sun_path, control->path, strlen(control->path));
    control->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (control->socket < 0) {
        report("cannot make a socket: %s", strerror(errno));
        return CTL_SYSTEM;
    }
    /* Where the daemon's queue of connections is full, connect() waits for so long. */
    setsockopt(control->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    do {
        rc = connect(control->socket, (const struct sockaddr *)&address, sizeof(address));
    } while (rc < 0 && errno == EINTR);
    return rc == 0 ? CTL_OK : cannot_connect(control, errno);
}

static enum ctl_exit say_hello(struct control *control)
{
    json_t *params = need_memory(json_pack("{s:i,s:s}", "protocol", PROTO_VERSION, "client", "glide-rdmactl"));
    json_t *result;
    enum ctl_exit status = control_call(control, proto_methods[PROTO_METHOD_HELLO].name, params, &result);

    json_decref(params);
    if (status == CTL_OK) {
        json_decref(result);
    }
    return status;
}

enum ctl_exit control_open(const char *path, bool hello, uint64_t timeout_ms, struct control **out)
{
    struct control *control = need_memory(calloc(1, sizeof(*control)));
    enum ctl_exit status;

    control->socket = control->fd = -1;
    control->path = path;
    control->timeout_ms = timeout_ms;
    status = connect_socket(control);
    if (status == CTL_OK && hello) {
        status = say_hello(control);
    }
    if (status != CTL_OK) {
        control_close(control);
        return status;
    }
    *out = control;
    return CTL_OK;
}

static void drop_fd(struct control *control)
{
    if (control->fd >= 0) {
        close(control->fd);
    }
    control->fd = -1;
}

void control_close(struct control *control)
{
    drop_fd(control);
    if (control->socket >= 0) {
        close(control->socket);
    }
    free(control);
}

/* --- asking ------------------------------------------------------------------------------------------------------ */

static enum ctl_exit unreadable(const struct control *control)
{
    report("what answers on %s cannot be understood", control->path);
    return CTL_PROTOCOL;
}

static enum ctl_exit lost(const struct control *control, int os_errno)
{
    report("the connection to the daemon on %s ended%s%s", control->path, os_errno != 0 ? ": " : "",
           os_errno != 0 ? strerror(os_errno) : "");
    return CTL_UNAVAILABLE;
}

static enum ctl_exit send_request(struct control *control, const char *method, json_t *params)
{
    int length = proto_write_request(control->packet, sizeof(control->packet), ++control->id, method, params);
    int rc;

    if (length < 0) {
        need_memory(NULL);
    }
    rc = channel_send(control->socket, control->packet, (size_t)length, -1);
    /* A daemon that admits nobody says so in a packet that can still be read. */
    return rc == 0 || rc == -EPIPE ? CTL_OK : lost(control, -rc);
}

static enum ctl_exit wait_packet(struct control *control, uint64_t deadline)
{
    for (;;) {
        struct pollfd entry = {.fd = control->socket, .events = POLLIN};
        uint64_t now = now_ms();
        int ready = now < deadline ? poll(&entry, 1, deadline - now < 60000 ? (int)(deadline - now) : 60000) : 0;

        if (ready > 0) {
            return CTL_OK;
        }
        if (now >= deadline) {
            report("the daemon on %s did not answer within %llu ms", control->path,
                   (unsigned long long)control->timeout_ms);
            return CTL_UNAVAILABLE;
        }
    }
}

/* One packet; answer->root is the caller's, and NULL where there was nothing to read after all. */
static enum ctl_exit read_packet(struct control *control, uint64_t deadline, struct proto_answer *answer)
{
    struct channel_packet packet;
    enum ctl_exit status = wait_packet(control, deadline);
    int received;

    *answer = (struct proto_answer){0};
    if (status != CTL_OK) {
        return status;
    }
    received = channel_receive(control->socket, control->packet, sizeof(control->packet), &packet);
    if (received == -EAGAIN) {
        return CTL_OK;
    }
    if (received <= 0) {
        return lost(control, -received);
    }
    drop_fd(control);
    if (packet.fd_count == 1) { /* may be the pidfd of hello: there is no memory to guard here */
        control->fd = packet.fds[0];
    } else {
        channel_close_fds(&packet);
    }
    if (packet.truncated || proto_answer_parse(control->packet, packet.length, answer) != 0) {
        json_decref(answer->root);
        answer->root = NULL;
        return unreadable(control);
    }
    return CTL_OK;
}

static enum ctl_exit session_closed(const struct control *control, json_t *params)
{
    struct proto_session_closed notice;
    char why[PROTO_WHY_BYTES];
    enum ctl_exit status;

    if (proto_shape_decode(&proto_shape_session_closed, params, false, &notice, why) != 0) {
        return unreadable(control);
    }
    report("the daemon closed the connection: %s", notice.reason);
    status = report_connect_status((int)notice.code);
    proto_shape_free(&proto_shape_session_closed, &notice);
    return status;
}

/* *done: it was the answer that is waited for, or the end. */
static enum ctl_exit take(struct control *control, const char *method, const struct proto_answer *answer,
                          json_t **result, bool *done)
{
    if (answer->method != NULL) {
        *done = strcmp(answer->method, PROTO_NOTIFY_SESSION_CLOSED) == 0;
        return *done ? session_closed(control, answer->params) : CTL_OK;
    }
    *done = true;
    if (answer->code != 0) {
        report("%s: %s", method, answer->message);
        return report_status(answer->code);
    }
    if (answer->id != control->id || !json_is_object(answer->result)) {
        return unreadable(control);
    }
    *result = json_incref(answer->result);
    return CTL_OK;
}

enum ctl_exit control_call(struct control *control, const char *method, json_t *params, json_t **result)
{
    uint64_t deadline = now_ms() + control->timeout_ms;
    enum ctl_exit status = send_request(control, method, params);
    bool done = false;

    while (status == CTL_OK && !done) {
        struct proto_answer answer;

        status = read_packet(control, deadline, &answer);
        if (status == CTL_OK && answer.root != NULL) {
            status = take(control, method, &answer, result, &done);
        }
        json_decref(answer.root);
    }
    return status;
}

enum ctl_exit control_call_fd(struct control *control, const char *method, json_t *params, json_t **result, int *fd)
{
    enum ctl_exit status = control_call(control, method, params, result);

    *fd = control->fd;
    control->fd = -1;
    return status;
}
