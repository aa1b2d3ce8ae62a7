#include "client_fake.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/private.h"
#include "proto/channel.h"
#include "proto/errors.h"

/* check's asserts jump out of the test's thread only: a script that meets the unexpected ends the test's process. */
#define NEED(condition)                                                                                               \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: the script needs " #condition "\n", __FILE__, __LINE__);                          \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)

void fake_sleep_ms(unsigned ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&time, NULL);
}

void fake_await_closing(grd_client *client)
{
    bool closing = false;

    while (!closing) {
        fake_sleep_ms(1);
        pthread_mutex_lock(&client->lock);
        closing = client->closing;
        pthread_mutex_unlock(&client->lock);
    }
}

uint64_t fake_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *run_script(void *argument)
{
    struct fake *fake = argument;

    fake->script(fake);
    fake_close(fake);
    return NULL;
}

void fake_listen(struct fake *fake)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, fake->path, strlen(fake->path) + 1);
    fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    NEED(bind(fake->listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    NEED(listen(fake->listener, 8) == 0);
}

void fake_unlisten(struct fake *fake)
{
    close(fake->listener);
    unlink(fake->path);
    fake->listener = -1;
}

static void listen_on_path(struct fake *fake)
{
    strcpy(fake->directory, "/tmp/grd-client-XXXXXX");
    NEED(mkdtemp(fake->directory) != NULL);
    snprintf(fake->path, sizeof(fake->path), "%s/socket", fake->directory);
    fake_listen(fake);
}

static pid_t start_process(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();

    NEED(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent) {
            pause();
        }
        _exit(0);
    }
    return pid;
}

void fake_start(struct fake *fake, fake_script *script, void *argument)
{
    *fake = (struct fake){.peer = -1, .last_fd = -1, .script = script, .argument = argument};
    fake->process = start_process();
    listen_on_path(fake);
    NEED(pthread_create(&fake->thread, NULL, run_script, fake) == 0);
}

void fake_stop(struct fake *fake)
{
    pthread_join(fake->thread, NULL);
    fake_kill(fake);
    if (fake->listener >= 0) {
        close(fake->listener);
    }
    if (fake->last_fd >= 0) {
        close(fake->last_fd);
    }
    unlink(fake->path);
    rmdir(fake->directory);
}

void fake_accept(struct fake *fake)
{
    fake->peer = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
    NEED(fake->peer >= 0);
    NEED(channel_prepare(fake->peer) == 0);
}

static void keep_fd(struct fake *fake, struct channel_packet *packet)
{
    if (fake->last_fd >= 0) {
        close(fake->last_fd);
    }
    NEED(packet->fd_count <= 1);
    fake->last_fd = packet->fd_count == 1 ? packet->fds[0] : -1;
}

bool fake_receive(struct fake *fake, struct fake_request *request)
{
    struct channel_packet packet;
    struct pollfd entry = {.fd = fake->peer, .events = POLLIN};
    char why[PROTO_WHY_BYTES];
    int received;

    fake_release(request);
    do {
        poll(&entry, 1, -1);
        received = channel_receive(fake->peer, request->text, sizeof(request->text), &packet);
    } while (received == -EAGAIN);
    if (received <= 0) {
        return false;
    }
    keep_fd(fake, &packet);
    NEED(proto_request_parse(request->text, packet.length, &request->parsed, why) == 0);
    return true;
}

void fake_release(struct fake_request *request)
{
    json_decref(request->parsed.root);
    request->parsed = (struct proto_request){0};
}

bool fake_is(const struct fake_request *request, enum proto_method_id method)
{
    return strcmp(request->parsed.method, proto_methods[method].name) == 0;
}

json_int_t fake_number(const struct fake_request *request, const char *name)
{
    return json_integer_value(json_object_get(request->parsed.params, name));
}

const char *fake_text(const struct fake_request *request, const char *name)
{
    return json_string_value(json_object_get(request->parsed.params, name));
}

static void send_bytes(struct fake *fake, const char *bytes, size_t length, int fd)
{
    struct pollfd entry = {.fd = fake->peer, .events = POLLOUT};

    while (channel_send(fake->peer, bytes, length, fd) == -EAGAIN) {
        poll(&entry, 1, -1);
    }
}

void fake_answer(struct fake *fake, int64_t id, json_t *result)
{
    char text[PROTO_MESSAGE_BYTES];
    int length = proto_write_result(text, sizeof(text), id, result);

    NEED(length > 0);
    json_decref(result);
    send_bytes(fake, text, (size_t)length, -1);
}

void fake_refuse(struct fake *fake, int64_t id, int code, const char *message, json_t *data)
{
    char text[PROTO_MESSAGE_BYTES];
    json_t *all = data != NULL ? data : json_object();
    int length;

    json_object_set_new(all, "name", json_string(proto_error_name(code)));
    length = proto_write_error(text, sizeof(text), id, code, message, all);
    NEED(length > 0);
    json_decref(all);
    send_bytes(fake, text, (size_t)length, -1);
}

void fake_notify(struct fake *fake, const char *method, json_t *params)
{
    char text[PROTO_MESSAGE_BYTES];
    int length = proto_write_notification(text, sizeof(text), method, params);

    NEED(length > 0);
    json_decref(params);
    send_bytes(fake, text, (size_t)length, -1);
}

void fake_send_text(struct fake *fake, const char *text)
{
    send_bytes(fake, text, strlen(text), -1);
}

json_t *fake_hello_result(void)
{
    return json_pack("{s:i, s:s, s:b, s:{s:i, s:i, s:i, s:I, s:I}, s:{s:s, s:[s], s:s}}", "protocol", PROTO_VERSION,
                     "server", "glide-rdmad fake", "usable", 1, "limits", "message_bytes", 65536, "regions", 64,
                     "in_flight", 128, "region_bytes", (json_int_t)1 << 40, "value_bytes", (json_int_t)1 << 29,
                     "fabric", "provider", "tcp", "interfaces", "lo", "libfabric", "2.1");
}

void fake_answer_hello(struct fake *fake, int64_t id, bool with_pidfd)
{
    char text[PROTO_MESSAGE_BYTES];
    json_t *result = fake_hello_result();
    int pidfd = with_pidfd ? (int)syscall(SYS_pidfd_open, fake->process, 0) : -1;
    int length;

    if (fake->requests > 0) {
        json_object_set_new(json_object_get(result, "limits"), "requests", json_integer(fake->requests));
    }
    length = proto_write_result(text, sizeof(text), id, result);
    NEED(length > 0);
    NEED(pidfd >= 0 || !with_pidfd);
    json_decref(result);
    send_bytes(fake, text, (size_t)length, pidfd);
    if (pidfd >= 0) {
        close(pidfd);
    }
}

void fake_greet(struct fake *fake)
{
    struct fake_request request = {0};

    fake_accept(fake);
    fake_expect(fake, &request, PROTO_METHOD_HELLO);
    NEED(fake_number(&request, "protocol") == PROTO_VERSION);
    fake_answer_hello(fake, request.parsed.id, true);
    fake_release(&request);
}

void fake_register(struct fake *fake, const struct fake_request *request)
{
    NEED(fake->last_fd >= 0);
    fake_answer(fake, request->parsed.id,
                json_pack("{s:I, s:I, s:b, s:i}", "region", ++fake->next_region, "capacity",
                          fake_number(request, "size"), "shared", 0, "page_size", 4096));
}

void fake_expect(struct fake *fake, struct fake_request *request, enum proto_method_id method)
{
    NEED(fake_receive(fake, request));
    if (!fake_is(request, method)) {
        fprintf(stderr, "the script expects %s, not %s\n", proto_methods[method].name, request->parsed.method);
        abort();
    }
}

void fake_farewell(struct fake *fake, int code, const char *reason)
{
    fake_notify(fake, PROTO_NOTIFY_SESSION_CLOSED, json_pack("{s:i, s:s}", "code", code, "reason", reason));
}

void fake_close(struct fake *fake)
{
    if (fake->peer >= 0) {
        close(fake->peer);
    }
    fake->peer = -1;
}

void fake_kill(struct fake *fake)
{
    if (fake->process > 0) {
        kill(fake->process, SIGKILL);
        waitpid(fake->process, NULL, 0);
    }
    fake->process = -1;
}

void fake_revive(struct fake *fake)
{
    NEED(fake->process < 0);
    fake->process = start_process();
}

void fake_restart(struct fake *fake)
{
    fake_close(fake);
    fake_kill(fake);
    fake_revive(fake);
    fake_greet(fake);
}

bool fake_is_asked(struct fake *fake, int timeout_ms)
{
    struct pollfd entry = {.fd = fake->listener, .events = POLLIN};

    return poll(&entry, 1, timeout_ms) > 0;
}

void fake_serve_one(struct fake *fake, const struct fake_request *request)
{
    int64_t id = request->parsed.id;

    if (fake_is(request, PROTO_METHOD_REGION_REGISTER)) {
        fake_register(fake, request);
    } else if (fake_is(request, PROTO_METHOD_REGION_CLOSE)) {
        fake_answer(fake, id, json_pack("{s:b}", "memory_released", 1));
    } else if (fake_is(request, PROTO_METHOD_TRANSFER_GET)) {
        fake_answer(fake, id, json_pack("{s:b, s:i}", "found", 0, "length", 0));
    } else if (fake_is(request, PROTO_METHOD_TRANSFER_SET)) {
        fake_answer(fake, id, json_pack("{s:s}", "path", "rdma"));
    } else if (fake_is(request, PROTO_METHOD_KEYS_EXISTS)) {
        fake_answer(fake, id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    } else {
        fake_answer(fake, id, json_pack("{s:[{s:b}]}", "keys", "deleted", 1));
    }
}

void fake_serve(struct fake *fake)
{
    struct fake_request request = {0};

    while (fake_receive(fake, &request)) {
        fake_serve_one(fake, &request);
    }
    fake_release(&request);
}

grd_client *fake_connect_lasting(struct fake *fake, uint64_t reconnect_ms)
{
    struct grd_connect_options options = {.struct_size = sizeof(options),
                                          .socket_path = fake->path,
                                          .timeout_ms = FAKE_PATIENCE_MS,
                                          .reconnect_ms = reconnect_ms != 0 ? reconnect_ms : 20000};
    struct grd_error error;
    grd_client *client;

    ck_assert_msg(grd_connect(&options, &client, &error) == 0, "%s", error.message);
    return client;
}

grd_client *fake_connect(struct fake *fake)
{
    struct grd_connect_options options = {.struct_size = sizeof(options),
                                          .socket_path = fake->path,
                                          .timeout_ms = FAKE_PATIENCE_MS,
                                          .flags = GRD_CLIENT_NO_RECONNECT};
    struct grd_error error;
    grd_client *client;

    ck_assert_msg(grd_connect(&options, &client, &error) == 0, "%s", error.message);
    return client;
}

grd_region *fake_region(grd_client *client, uint64_t size)
{
    struct grd_error error;
    grd_region *region;

    ck_assert_msg(grd_region_create(client, size, NULL, &region, &error) == 0, "%s", error.message);
    return region;
}
