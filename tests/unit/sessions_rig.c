#include "tests/unit/sessions_rig.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/worker.h"
#include "tests/rig/check.h"
#include "tests/rig/fake_fabric.h"
#include "tests/rig/fake_host.h"
#include "tests/rig/fake_threads.h"

#define CLIENTS 512

int sessions_life = -1, sessions_gives = -1;
bool sessions_leaves;
enum session_taken sessions_taken;

static int clients[CLIENTS];
static unsigned client_count;
static int held; /* the daemon's end of the last client */

/* --- what the rig asks of the program that links it --------------------------------------------------------------- */

/* A test reads when it wants to. */
bool clients_read(void)
{
    return false;
}

void rig_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ck_abort_msg("%s:%d: %s: %s", file, line, condition, text);
    abort();
}

/* --- life --------------------------------------------------------------------------------------------------------- */

void sessions_prepare(void)
{
    const struct rig_options options = {0};

    rig_init();
    rig_configure(&options);
    client_count = 0;
}

void sessions_begin(void)
{
    rig_begin(&fake_ops);
    rig_settle();
}

static void stopped(void *context, int status)
{
    ck_assert_int_eq(status, 0);
    *(bool *)context = true;
}

void sessions_finish(void)
{
    bool done = false;
    uint64_t waited = 0;

    (void)fake_workers_resume();
    for (unsigned i = 0; i < client_count; i++) {
        close(clients[i]);
    }
    rig_settle();
    while (rig_service.session_count > 0 && rig_advance(&waited)) {
        rig_settle();
    }
    ck_assert_uint_eq(rig_service.session_count, 0);
    ck_assert_ptr_null(rig_service.users);
    deployment_stop(rig_service.deployment, stopped, &done);
    sessions_stop(&rig_service);
    rig_settle();
    ck_assert(done);
    rig_end();
}

int sessions_connect(uid_t uid)
{
    int ends[2];

    ck_assert_uint_lt(client_count, CLIENTS);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    fake_peer = (struct peer){.pid = 100, .uid = uid, .gid = uid, .pidfd = sessions_life};
    clients[client_count++] = ends[0];
    if (sessions_gives >= 0) {
        ck_assert(sessions_send(ends[0], "{", sessions_gives));
    }
    if (sessions_leaves) {
        sessions_drop(ends[0]);
    }
    held = ends[1];
    sessions_again();
    return ends[0];
}

void sessions_again(void)
{
    sessions_taken = session_start(&rig_service, &rig_config.sockets[0], false, held);
}

void sessions_drop(int client)
{
    for (unsigned i = 0; i < client_count; i++) {
        if (clients[i] == client) {
            clients[i] = clients[--client_count];
            close(client);
            return;
        }
    }
    ck_abort_msg("no client %d", client);
}

int sessions_greet(uid_t uid)
{
    int client = sessions_connect(uid);

    ck_assert(sessions_send(
        client, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}", -1));
    rig_settle();
    ck_assert_uint_eq(sessions_forget(client), 1);
    return client;
}

/* --- packets ------------------------------------------------------------------------------------------------------ */

bool sessions_send(int client, const char *text, int fd)
{
    int status = channel_send(client, text, strlen(text), fd);

    ck_assert_msg(status == 0 || status == -EAGAIN || status == -EPIPE, "channel_send: %d", status);
    return status == 0;
}

void sessions_send_all(int client, const char *text, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        ck_assert(sessions_send(client, text, -1));
    }
}

const char *sessions_receive(int client)
{
    static char text[PROTO_MESSAGE_BYTES + 1];
    struct channel_packet packet;

    text[0] = '\0';
    if (channel_receive(client, text, sizeof(text) - 1, &packet) == 1) {
        text[packet.length] = '\0';
        channel_close_fds(&packet);
    }
    return text;
}

void sessions_expect(int client, const char *part)
{
    const char *text = sessions_receive(client);

    ck_assert_msg(strstr(text, part) != NULL, "no %s in: %s", part, text);
}

unsigned sessions_forget(int client)
{
    unsigned count = 0;

    while (sessions_receive(client)[0] != '\0') {
        count++;
    }
    return count;
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

int sessions_memory(size_t bytes)
{
    int fd = memfd_create("sessions", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    for (size_t at = 0; at < bytes; at += 4096) {
        ck_assert_int_eq(pwrite(fd, "", 1, (off_t)at), 1);
    }
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

int sessions_descriptor(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

void sessions_hang(int client)
{
    int fd = sessions_descriptor();

    for (int i = 0; i < WORKER_JOBS_PER_OWNER; i++) {
        ck_assert(sessions_send(client, "{", fd));
    }
    close(fd);
    rig_loop();
    for (int i = 0; i < WORKER_JOBS_PER_OWNER; i++) {
        ck_assert(fake_workers_stall(0));
    }
    rig_settle();
    ck_assert_uint_eq(sessions_forget(client), WORKER_JOBS_PER_OWNER);
}

/* --- looks -------------------------------------------------------------------------------------------------------- */

const struct user *sessions_user(uid_t uid)
{
    const struct user *user = rig_service.users;

    while (user != NULL && user->key.uid != uid) {
        user = user->hh.next;
    }
    return user;
}

unsigned sessions_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    ck_assert_ptr_nonnull(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count - 3; /* ".", ".." and the folder's own */
}
