/*
 * Connecting: the socket and the greeting. No memory is at stake yet, so this has a time limit. grd_connect() does it
 * in one go (hello_connect); afterwards the leader does it in steps (reconnect.c), which share the pieces here.
 * The two descriptors appear under the fork lock: a child never inherits one that it does not know.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/private.h"
#include "proto/channel.h"
#include "proto/errors.h"
#include "proto/shape.h"

/* The client's socket until a greeting has come. */
enum { BLOCKING = 0, NONBLOCKING = SOCK_NONBLOCK };

static const char *socket_path(const struct grd_connect_options *options)
{
    const char *path = OPTION(options, socket_path, NULL);

    if (path != NULL) {
        return path;
    }
    path = secure_getenv("GLIDE_RDMAD_SOCKET");
    return path != NULL && path[0] != '\0' ? path : GRD_DEFAULT_SOCKET;
}

static int cannot_connect(int os_errno, const char *path, struct grd_error *error)
{
    switch (os_errno) {
    case EACCES:
    case EPERM:
        return error_system(error, GRD_ERR_NO_ACCESS, os_errno,
                            "uid %u may not connect to %s: the socket's group must be one of this process's groups",
                            (unsigned)geteuid(), path);
    case EPROTOTYPE:
        return error_system(error, GRD_ERR_PROTOCOL, os_errno, "%s is not the socket of glide-rdmad", path);
    case EAGAIN:
        return error_system(error, GRD_ERR_NO_DAEMON, os_errno, "the daemon on %s admitted nobody in time", path);
    default:
        return error_system(error, GRD_ERR_NO_DAEMON, os_errno, "cannot connect to the daemon on %s", path);
    }
}

static int open_socket(grd_client *client, int flags, struct grd_error *error)
{
    int os_errno;

    fork_lock();
    client->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    os_errno = errno;
    fork_unlock();
    return client->socket >= 0 ? 0 : error_system(error, GRD_ERR_NO_MEMORY, os_errno, "cannot make a socket");
}

void hello_close(grd_client *client)
{
    fork_lock();
    if (client->socket >= 0) {
        close(client->socket);
    }
    if (client->pidfd >= 0) {
        close(client->pidfd);
    }
    client->socket = -1;
    client->pidfd = -1;
    fork_unlock();
}

static int connect_socket(grd_client *client, int flags, struct grd_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = client->path;
    uint64_t timeout_ms = client->timeout_ms;
    struct timeval limit = {.tv_sec = (time_t)(timeout_ms / 1000), .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000)};
    int rc;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "the path of the socket is longer than %zu bytes: %s",
                         sizeof(address.sun_path) - 1, path);
    }
    memcpy(address.sun_path, path, strlen(path));
    rc = open_socket(client, flags, error);
    if (rc != 0) {
        return rc;
    }
    /* Where the daemon's queue of connections is full, connect() waits for so long. */
    setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    do {
        rc = connect(client->socket, (const struct sockaddr *)&address, sizeof(address));
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        return cannot_connect(errno, path, error);
    }
    rc = channel_prepare(client->socket);
    return rc == 0 ? 0 : error_system(error, GRD_ERR_NO_MEMORY, -rc, "cannot prepare the socket");
}

static int send_hello(grd_client *client, int64_t id, struct grd_error *error)
{
    struct proto_hello_params params = {.protocol = PROTO_VERSION, .client = client->name};
    json_t *json = proto_shape_encode(proto_methods[PROTO_METHOD_HELLO].params, &params);
    char message[2048];
    int length, sent;

    if (json == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for the greeting");
    }
    length = proto_write_request(message, sizeof(message), id, proto_methods[PROTO_METHOD_HELLO].name, json);
    json_decref(json);
    if (length < 0) {
        return error_set(error, length, "cannot write the greeting");
    }
    sent = channel_send(client->socket, message, (size_t)length, -1);
    /* A daemon that refuses this user has already said why, and ended the stream: read it. */
    return sent == 0 || sent == -EPIPE ? 0 : error_system(error, GRD_ERR_NO_DAEMON, -sent, "cannot greet the daemon");
}

/* 1: something to read, 0: time is over. */
static int wait_until(int fd, uint64_t end_ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    for (;;) {
        uint64_t now = clock_ms();
        int left = now >= end_ms ? 0 : end_ms - now > 60000 ? 60000 : (int)(end_ms - now);
        int rc = poll(&entry, 1, left);

        if (rc > 0) {
            return 1;
        }
        if (left == 0) {
            return 0;
        }
    }
}

int hello_receive(grd_client *client, struct channel_packet *packet)
{
    int received;

    fork_lock();
    received = channel_receive(client->socket, client->receive_buffer, sizeof(client->receive_buffer), packet);
    if (received == 1 && packet->fd_count == 1 && client->pidfd < 0) {
        client->pidfd = packet->fds[0];
        packet->fd_count = 0;
    }
    fork_unlock();
    return received;
}

static uint64_t limit(const json_t *limits, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(limits, name));

    return value > 0 ? (uint64_t)value : 0;
}

static int keep(grd_client *client, const struct proto_hello_result *result, struct grd_error *error)
{
    client->protocol = result->protocol;
    client->usable = result->usable;
    client->server = client_keep_text(client, result->server);
    client->why = client_keep_text(client, result->why);
    client->provider =
        client_keep_text(client, json_string_value(json_object_get(result->fabric, "provider")));
    client->limits = (struct client_limits){
        .message_bytes = limit(result->limits, "message_bytes"),
        .regions = limit(result->limits, "regions"),
        .requests = limit(result->limits, "requests"),
        .in_flight = limit(result->limits, "in_flight"),
        .region_bytes = limit(result->limits, "region_bytes"),
        .value_bytes = limit(result->limits, "value_bytes"),
    };
    if (client->server == NULL || client->why == NULL || client->provider == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for the daemon's greeting");
    }
    if (result->protocol < PROTO_VERSION_MIN || result->protocol > PROTO_VERSION) {
        return error_set(error, GRD_ERR_PROTOCOL, "%s speaks version %llu of the protocol, this library %d to %d",
                         client->server, (unsigned long long)result->protocol, PROTO_VERSION_MIN, PROTO_VERSION);
    }
    if (client->pidfd < 0) {
        return error_set(error, GRD_ERR_PROTOCOL,
                         "the daemon's greeting lacks the descriptor of its process; without it memory is not safe "
                         "when the daemon dies (is this the admin socket, or this process out of descriptors?)");
    }
    return 0;
}

int hello_read(grd_client *client, const struct proto_answer *answer, struct grd_error *error)
{
    struct proto_hello_result result;
    char why[PROTO_WHY_BYTES];
    int code;

    if (answer->result == NULL) {
        return error_from_answer(answer, error);
    }
    if (proto_shape_decode(proto_methods[PROTO_METHOD_HELLO].result, answer->result, false, &result, why) != 0) {
        return error_set(error, GRD_ERR_PROTOCOL, "the daemon's greeting cannot be read: %s", why);
    }
    code = keep(client, &result, error);
    proto_shape_free(proto_methods[PROTO_METHOD_HELLO].result, &result);
    return code;
}

/* session.closed instead of a greeting: the daemon does not admit this client. */
static int refused(const struct proto_answer *answer, struct grd_error *error)
{
    struct proto_session_closed notice;
    char why[PROTO_WHY_BYTES];
    int code;

    if (proto_shape_decode(&proto_shape_session_closed, answer->params, false, &notice, why) != 0) {
        return error_set(error, GRD_ERR_PROTOCOL, "the daemon's refusal cannot be read: %s", why);
    }
    code = error_set(error, (int)notice.code, "the daemon does not admit this client: %s", notice.reason);
    proto_shape_free(&proto_shape_session_closed, &notice);
    return code;
}

/* One packet. *done: it was the greeting, or the refusal. */
static int take_packet(grd_client *client, size_t length, bool truncated, bool *done, struct grd_error *error)
{
    struct proto_answer answer = {0};
    int code = 0;

    *done = true;
    if (truncated || proto_answer_parse(client->receive_buffer, length, &answer) != 0) {
        code = error_set(error, GRD_ERR_PROTOCOL, "what listens there does not speak the protocol of glide-rdmad");
    } else if (answer.method == NULL) {
        code = answer.id == client->last_id || answer.result == NULL
                   ? hello_read(client, &answer, error)
                   : error_set(error, GRD_ERR_PROTOCOL, "the daemon answered before it was asked");
    } else if (strcmp(answer.method, PROTO_NOTIFY_SESSION_CLOSED) == 0) {
        code = refused(&answer, error);
    } else {
        session_drain_notified(client, answer.method);
        *done = false;
    }
    json_decref(answer.root);
    return code;
}

static int receive_greeting(grd_client *client, uint64_t end_ms, struct grd_error *error)
{
    struct channel_packet packet;
    bool done = false;
    int code = 0;

    while (!done && code == 0) {
        int received;

        if (wait_until(client->socket, end_ms) == 0) {
            return error_set(error, GRD_ERR_NO_DAEMON, "the daemon did not answer the greeting in time");
        }
        received = hello_receive(client, &packet);
        if (received == -EAGAIN) {
            continue;
        }
        if (received <= 0) {
            return error_set(error, GRD_ERR_NO_DAEMON, "the daemon closed the connection instead of a greeting");
        }
        channel_close_fds(&packet);
        code = take_packet(client, packet.length, packet.truncated, &done, error);
    }
    return code;
}

int hello_send_again(grd_client *client, struct grd_error *error)
{
    int code = connect_socket(client, NONBLOCKING, error);

    if (code == 0) {
        code = send_hello(client, client->greeting.id, error);
    }
    if (code != 0) {
        hello_close(client);
    }
    return code;
}

/* What connecting takes, now and again. */
static int keep_options(grd_client *client, const struct grd_connect_options *options, struct grd_error *error)
{
    const char *name = OPTION(options, name, NULL);
    unsigned flags = OPTION(options, flags, 0U);
    uint64_t timeout_ms = OPTION(options, timeout_ms, 0);
    uint64_t reconnect_ms = OPTION(options, reconnect_ms, 0);

    if (name == NULL) {
        name = program_invocation_short_name;
    }
    if (socket_path(options)[0] == '\0') {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "the path of the socket is empty; NULL is the default one");
    }
    if (strlen(name) > PROTO_TEXT_BYTES) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "the client's name is longer than %d bytes",
                         PROTO_TEXT_BYTES);
    }
    if ((flags & ~(unsigned)GRD_CLIENT_NO_RECONNECT) != 0) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "flags %#x are not known", flags);
    }
    timeout_ms = timeout_ms != 0 ? timeout_ms : CLIENT_TIMEOUT_MS_DEFAULT;
    client->timeout_ms = timeout_ms < PROTO_TIME_MS_MAX ? timeout_ms : PROTO_TIME_MS_MAX;
    reconnect_ms = reconnect_ms != 0 ? reconnect_ms : client->timeout_ms;
    client->reconnect_ms = reconnect_ms < PROTO_TIME_MS_MAX ? reconnect_ms : PROTO_TIME_MS_MAX;
    client->reconnects = (flags & GRD_CLIENT_NO_RECONNECT) == 0;
    client->path = strdup(socket_path(options));
    client->name = strdup(name);
    return client->path != NULL && client->name != NULL ? 0
                                                        : error_set(error, GRD_ERR_NO_MEMORY, "no memory for a client");
}

int hello_connect(grd_client *client, const struct grd_connect_options *options, struct grd_error *error)
{
    int code = keep_options(client, options, error);
    uint64_t end_ms = clock_ms() + client->timeout_ms;

    if (code == 0) {
        code = connect_socket(client, BLOCKING, error);
    }
    if (code == 0) {
        code = send_hello(client, ++client->last_id, error);
    }
    if (code == 0) {
        code = receive_greeting(client, end_ms, error);
    }
    client->epoch = 1;
    return code;
}
