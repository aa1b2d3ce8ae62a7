/*
 * TCP and Unix sockets: non-blocking descriptors under uv_poll, so that we know exactly which bytes the kernel took.
 *
 * A stream owns one descriptor at a time, that of `socket`. Each address that is tried gets a socket and a poll handle
 * of its own, because a closing handle cannot be used again. The timer limits the way to a connection; afterwards it is
 * idle, and runs out at once when a failure inside read or write is to be reported from outside.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/valkey/resolve.h"
#include "daemon/valkey/transport.h"

/* A server that is gone without a word is noticed after 30 s idle plus three probes, or 30 s of unacknowledged data. A
 * server that merely does not answer acknowledges, so a long transfer is no reason to end the connection. */
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_PROBES 3
#define USER_TIMEOUT_MS 30000

struct stream;

struct stream_socket {
    uv_poll_t poll;
    int fd;
    struct stream *stream;
};

struct stream {
    struct transport base;
    uv_loop_t *loop;
    uv_timer_t timer;
    const struct transport_address *address;
    const struct transport_events *events;
    void *context;

    struct resolve resolve;
    struct addrinfo unix_info; /* stands for the only address of a Unix socket */
    struct sockaddr_un unix_path;
    struct stream_socket *socket;

    uint64_t attempt_ends; /* uv_now: the share of time of the address in use */

    bool connected, want_write;
    bool refused; /* at least one address, by the transport above */
    bool held; /* not to be told of bytes that can be read */
    bool write_failed; /* reading goes on to the end: replies that came before may be waiting */
    bool failed; /* no byte passes any more; `closed` was called or will be by the timer */
    bool closed; /* close was called: not a callback more */
    int error;
    char why[TRANSPORT_WHY_BYTES];
};

static void on_poll(uv_poll_t *handle, int status, int events);

static struct stream *stream_of(struct transport *transport)
{
    return (struct stream *)transport;
}

__attribute__((format(printf, 3, 4))) static int explain(struct stream *stream, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(stream->why, sizeof(stream->why), format, arguments);
    va_end(arguments);
    stream->error = error;
    return error;
}

static void free_socket(uv_handle_t *handle)
{
    free(handle->data);
}

static void drop_socket(struct stream *stream)
{
    struct stream_socket *sock = stream->socket;

    if (sock != NULL) {
        stream->socket = NULL;
        sock->stream = NULL;
        uv_close((uv_handle_t *)&sock->poll, free_socket); /* takes the descriptor out of the loop at once */
        close(sock->fd);
    }
}

/* What a connected socket is watched for, from now on. */
static void watch(struct stream *stream)
{
    int events = (stream->held ? 0 : UV_READABLE) | (stream->want_write ? UV_WRITABLE : 0);

    uv_poll_start(&stream->socket->poll, events, on_poll); /* without events: stops */
}

/* From a callback of the loop: the end. The owner closes, maybe inside. */
static void report(struct stream *stream)
{
    stream->failed = true;
    uv_timer_stop(&stream->timer);
    drop_socket(stream);
    stream->events->closed(stream->context, stream->error, stream->why);
}

static void on_report(uv_timer_t *timer)
{
    report(timer->data);
}

/* From anywhere: the end, reported later. */
static void fail_later(struct stream *stream)
{
    stream->failed = true;
    uv_poll_stop(&stream->socket->poll);
    uv_timer_start(&stream->timer, on_report, 0, 0);
}

static int set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value));
}

/* Commands are small and waited for, and a dead peer must be noticed. None of it is worth failing for. */
static void set_tcp_options(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
}

static int begin_connect(struct stream *stream, const struct addrinfo *target)
{
    struct stream_socket *sock = calloc(1, sizeof(*sock));
    int error;

    if (sock == NULL) {
        return -ENOMEM;
    }
    sock->fd = socket(target->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (sock->fd < 0) {
        error = -errno;
        goto free_sock;
    }
    if (target->ai_family != AF_UNIX) {
        set_tcp_options(sock->fd);
    }
    /* A full backlog of a Unix socket answers EAGAIN and gives no sign when there is room: a failure like others. */
    if (connect(sock->fd, target->ai_addr, target->ai_addrlen) != 0 && errno != EINPROGRESS) {
        error = -errno;
        goto close_fd;
    }
    error = uv_poll_init(stream->loop, &sock->poll, sock->fd);
    if (error != 0) {
        goto close_fd;
    }
    sock->poll.data = sock;
    sock->stream = stream;
    stream->socket = sock;
    uv_poll_start(&sock->poll, UV_WRITABLE, on_poll);
    return 0;

close_fd:
    close(sock->fd);
free_sock:
    free(sock);
    return error;
}

/* The address in use is of no use; what is told when none is left. */
static int address_failed(struct stream *stream, int error, const char *reason)
{
    const char *all = resolve_failed(&stream->resolve, reason);

    if (stream->refused) { /* by the one above, who knows what it wanted */
        return explain(stream, error, "%s", all);
    }
    return explain(stream, error, "cannot connect to %.120s: %.600s", stream->address->text, all);
}

static int explain_connect(struct stream *stream, int error)
{
    return address_failed(stream, error, strerror(-error));
}

static void on_timeout(uv_timer_t *timer);

/* Begins with the next address that can be begun with; negative when none is left. */
static int try_next(struct stream *stream)
{
    const struct addrinfo *target;

    while ((target = resolve_next(&stream->resolve)) != NULL) {
        int error = begin_connect(stream, target);

        if (error == 0) {
            uint64_t share = resolve_share_ms(&stream->resolve, uv_now(stream->loop));
            stream->attempt_ends = uv_now(stream->loop) + share;
            uv_timer_start(&stream->timer, on_timeout, share, 0);
            return 0;
        }
        explain_connect(stream, error);
    }
    return stream->error;
}

static void attempt_failed(struct stream *stream)
{
    drop_socket(stream);
    if (try_next(stream) != 0) {
        report(stream);
    }
}

static void on_timeout(uv_timer_t *timer)
{
    struct stream *stream = timer->data;

    if (resolve_is_looking(&stream->resolve)) {
        stream->error = resolve_give_up(&stream->resolve, stream->why);
        report(stream);
        return;
    }
    char reason[80];
    snprintf(reason, sizeof(reason), "no answer within %sconnect_timeout_ms = %u ms",
             resolve_several(&stream->resolve) ? "its share of " : "", stream->resolve.limit_ms);
    address_failed(stream, -ETIMEDOUT, reason);
    attempt_failed(stream);
}

static int socket_error(int fd)
{
    int error = 0;
    socklen_t length = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        return -errno;
    }
    return -error;
}

/* Where no one listens on a port of the ephemeral range, a connection to it from this host may meet itself. */
static bool met_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_length = sizeof(own), peer_length = sizeof(peer);

    return getsockname(fd, (struct sockaddr *)&own, &own_length) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0 && own.ss_family != AF_UNIX &&
           own_length == peer_length && memcmp(&own, &peer, own_length) == 0;
}

static void finish_connect(struct stream *stream, int status)
{
    int error = socket_error(stream->socket->fd);

    if (error == 0 && status < 0) {
        error = status;
    }
    if (error == 0 && met_itself(stream->socket->fd)) {
        error = -ECONNREFUSED;
    }
    if (error != 0) {
        explain_connect(stream, error);
        attempt_failed(stream);
        return;
    }
    uv_timer_stop(&stream->timer);
    stream->connected = true;
    watch(stream);
    stream->events->connected(stream->context);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct stream_socket *sock = handle->data;
    struct stream *stream = sock->stream;

    if (!stream->connected) {
        finish_connect(stream, status);
        return;
    }
    /* libuv reports a reset as an error and stops polling, but a reply that came before it can still be read, and may
     * be the proof that a transfer is over. */
    if (status < 0 || (events & UV_READABLE) != 0) {
        stream->events->readable(stream->context);
    }
    if (stream->closed || stream->failed || stream->socket != sock) { /* the last: refused, another is tried */
        return;
    }
    if (status < 0) {
        int error = socket_error(sock->fd);
        explain(stream, error != 0 ? error : status, "the connection to %.160s failed: %s", stream->address->text,
                strerror(error != 0 ? -error : -status));
        report(stream);
        return;
    }
    if ((events & UV_WRITABLE) != 0) {
        stream->want_write = false;
        watch(stream);
        stream->events->writable(stream->context);
    }
}

static void on_resolved(struct resolve *resolve, int error, const char *why)
{
    struct stream *stream = (struct stream *)((char *)resolve - offsetof(struct stream, resolve));

    if (error != 0) {
        explain(stream, error, "%s", why);
    }
    if (try_next(stream) != 0) {
        report(stream);
    }
}

static int begin_tcp(struct stream *stream, struct offload *offload, unsigned limit_ms)
{
    int status = resolve_start(&stream->resolve, stream->loop, offload, stream->address, limit_ms, on_resolved);

    if (status < 0) {
        return explain(stream, status, "out of memory");
    }
    if (status > 0) {
        uv_timer_start(&stream->timer, on_timeout, limit_ms, 0);
        return 0;
    }
    return try_next(stream);
}

static int begin_unix(struct stream *stream, unsigned limit_ms)
{
    size_t length = strlen(stream->address->host);

    if (length >= sizeof(stream->unix_path.sun_path)) {
        return explain_connect(stream, -ENAMETOOLONG);
    }
    stream->unix_path.sun_family = AF_UNIX;
    memcpy(stream->unix_path.sun_path, stream->address->host, length);
    stream->unix_info.ai_family = AF_UNIX;
    stream->unix_info.ai_addr = (struct sockaddr *)&stream->unix_path;
    stream->unix_info.ai_addrlen = sizeof(stream->unix_path);
    resolve_given(&stream->resolve, stream->loop, stream->address, limit_ms, &stream->unix_info);
    return try_next(stream);
}

static void stream_refuse(struct transport *transport, int error, const char *why)
{
    struct stream *stream = stream_of(transport);

    uv_timer_stop(&stream->timer);
    drop_socket(stream);
    stream->connected = stream->want_write = stream->held = stream->write_failed = stream->failed = false;
    stream->refused = true;
    address_failed(stream, error, why);
    if (try_next(stream) != 0) {
        stream->failed = true;
        uv_timer_start(&stream->timer, on_report, 0, 0);
    }
}

static uint64_t stream_attempt_ends(const struct transport *transport)
{
    return ((const struct stream *)transport)->attempt_ends;
}

static void free_stream(uv_handle_t *handle)
{
    free(handle->data);
}

static void stream_close(struct transport *transport)
{
    struct stream *stream = stream_of(transport);

    stream->closed = true;
    resolve_end(&stream->resolve);
    drop_socket(stream);
    uv_close((uv_handle_t *)&stream->timer, free_stream);
}

static int stream_open(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                       const struct transport_settings *settings, const struct transport_events *events, void *context,
                       struct transport **transport, char why[TRANSPORT_WHY_BYTES])
{
    struct stream *stream = calloc(1, sizeof(*stream));
    int status;

    *transport = NULL;
    if (stream == NULL) {
        snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    stream->base.class = address->port == NULL ? &transport_unix : &transport_tcp;
    stream->loop = loop;
    stream->address = address;
    stream->events = events;
    stream->context = context;
    uv_timer_init(loop, &stream->timer);
    stream->timer.data = stream;
    status = address->port == NULL ? begin_unix(stream, settings->connect_timeout_ms)
                                   : begin_tcp(stream, offload, settings->connect_timeout_ms);
    if (status != 0) {
        snprintf(why, TRANSPORT_WHY_BYTES, "%s", stream->why);
        stream_close(&stream->base);
        return status;
    }
    *transport = &stream->base;
    return 0;
}

static ssize_t stream_read(struct transport *transport, void *buffer, size_t capacity)
{
    struct stream *stream = stream_of(transport);
    ssize_t length;

    if (stream->failed) {
        return stream->error;
    }
    if (!stream->connected) {
        return 0;
    }
    do {
        length = recv(stream->socket->fd, buffer, capacity, MSG_DONTWAIT);
    } while (length < 0 && errno == EINTR);
    if (length > 0 || (length < 0 && errno == EAGAIN)) {
        return length > 0 ? length : 0;
    }
    if (stream->write_failed) {
        /* explained already, and that is the cause */
    } else if (length == 0) {
        explain(stream, -ECONNRESET, "%.160s closed the connection", stream->address->text);
    } else {
        int error = -errno;
        explain(stream, error, "reading from %.160s failed: %s", stream->address->text, strerror(-error));
    }
    fail_later(stream);
    return stream->error;
}

static ssize_t stream_write(struct transport *transport, const void *bytes, size_t length)
{
    struct stream *stream = stream_of(transport);
    ssize_t taken;

    if (stream->failed || stream->write_failed || !stream->connected) {
        return stream->connected ? stream->error : -ENOTCONN;
    }
    do {
        taken = send(stream->socket->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (taken < 0 && errno == EINTR);
    if (taken < 0 && errno != EAGAIN) {
        int error = -errno;
        explain(stream, error, "writing to %.160s failed: %s", stream->address->text, strerror(-error));
        stream->write_failed = true;
        shutdown(stream->socket->fd, SHUT_RDWR); /* the loop reads what is there, then the end */
        return error;
    }
    if (taken < 0) {
        taken = 0;
    }
    if ((size_t)taken < length && !stream->want_write) {
        stream->want_write = true;
        watch(stream);
    }
    return taken;
}

static void stream_hold(struct transport *transport, bool held)
{
    struct stream *stream = stream_of(transport);

    if (stream->held != held) {
        stream->held = held;
        if (stream->connected && !stream->failed) {
            watch(stream);
        }
    }
}

static int stream_local_address(const struct transport *transport, char *text, size_t size)
{
    const struct stream *stream = (const struct stream *)transport;
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof(own);

    if (stream->socket == NULL || !stream->connected) {
        return -ENOTCONN;
    }
    if (getsockname(stream->socket->fd, (struct sockaddr *)&own, &length) != 0) {
        return -errno;
    }
    if (own.ss_family == AF_UNIX) {
        return -EOPNOTSUPP;
    }
    if (getnameinfo((struct sockaddr *)&own, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0) {
        return -EINVAL;
    }
    return 0;
}

const struct transport_class transport_tcp = {
    .name = "tcp",
    .refuse = stream_refuse,
    .attempt_ends = stream_attempt_ends,
    .open = stream_open,
    .read = stream_read,
    .write = stream_write,
    .hold = stream_hold,
    .local_address = stream_local_address,
    .close = stream_close,
};

const struct transport_class transport_unix = {
    .name = "unix",
    .open = stream_open,
    .read = stream_read,
    .write = stream_write,
    .hold = stream_hold,
    .local_address = stream_local_address,
    .close = stream_close,
};
