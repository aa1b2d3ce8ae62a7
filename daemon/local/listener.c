#include "daemon/local/listener.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/local/session.h"
#include "daemon/local/socket_lock.h"

#define BACKLOG 512
#define PASSED_FDS_START 3
/* Taking connections may last so long in one turn: one that comes is no more urgent than the packets of sessions. */
#define ACCEPT_TURN_US 50
/* The pause when the process has no descriptor left, or a connection is held. */
#define RETRY_MS 200
/* A pause follows where there was a connection of a user that makes too many: taking and closing them would keep the
 * daemon busy. Connections of others may wait behind those, so it is short, and more of them are taken in one turn. */
#define FLOOD_PAUSE_MS 1
#define FLOOD_TURN_US 100

/* --- accepting ---------------------------------------------------------------------------------------------------- */

static void acceptable(uv_poll_t *poll, int status, int events);

static void take_connections(struct listener *listener);

static void retry(uv_timer_t *timer)
{
    struct listener *listener = timer->data;
    uv_poll_start(&listener->poll, UV_READABLE, acceptable);
    if (listener->held >= 0)
        take_connections(listener);
}

static void pause_for(struct listener *listener, uint64_t ms)
{
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->retry, retry, ms, 0);
}

/* Out of descriptors, mostly: the socket stays readable, and polling on would spin. */
static void back_off(struct listener *listener, int error)
{
    if (!listener->complained)
        log_error("[%s] cannot accept: %s; trying again every %d ms", listener->socket->name, strerror(error),
                  RETRY_MS);
    listener->complained = true;
    pause_for(listener, RETRY_MS);
}

/* The one that is held, or the next one that waits. */
static int next_connection(struct listener *listener)
{
    int fd = listener->held;
    listener->held = -1;
    return fd >= 0 ? fd : accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void take_connections(struct listener *listener)
{
    uint64_t begun = uv_hrtime();
    bool flood = false;
    do {
        int fd = next_connection(listener);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                back_off(listener, errno);
            else if (flood)
                pause_for(listener, FLOOD_PAUSE_MS);
            return;
        }
        listener->complained = false;
        enum session_taken taken = session_start(listener->service, listener->socket, listener->admin, fd);
        if (taken == SESSION_HELD) {
            listener->held = fd;
            pause_for(listener, RETRY_MS);
            return;
        }
        flood |= taken == SESSION_FLOOD;
    } while (uv_hrtime() - begun < (flood ? FLOOD_TURN_US : ACCEPT_TURN_US) * UINT64_C(1000));
    if (flood)
        pause_for(listener, FLOOD_PAUSE_MS);
}

static void acceptable(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    (void)events;
    if (status < 0)
        log_error("[%s] polling failed: %s", listener->socket->name, uv_strerror(status));
    else
        take_connections(listener);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static int group_id(const char *group, gid_t *gid)
{
    char *end;
    unsigned long number = strtoul(group, &end, 10);
    if (isdigit((unsigned char)*group) && *end == '\0') {
        *gid = (gid_t)number;
        return number < (gid_t)-1 ? 0 : -ENOENT; /* the largest stands for no change in chown() */
    }
    const struct group *entry = getgrnam(group);
    if (entry == NULL)
        return -ENOENT;
    *gid = entry->gr_gid;
    return 0;
}

/* One that a daemon of this user was about to open when it crashed; see bind_closed. */
static bool never_opened(const struct stat *st)
{
    return (st->st_mode & 0777) == 0 && st->st_uid == geteuid();
}

/* A socket file that nobody listens on any more is left by a crash and replaced; anything else at the path is not. */
static int clear_path(const struct sockaddr_un *address, char *why)
{
    struct stat st;
    if (lstat(address->sun_path, &st) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(why, LISTENER_WHY_BYTES, "%s exists and is no socket; it is left alone", address->sun_path);
        return -EEXIST;
    }
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int connected = probe < 0 ? -1 : connect(probe, (const struct sockaddr *)address, sizeof *address);
    int error = errno;
    if (probe >= 0)
        close(probe);
    if (connected == 0 || error == EAGAIN) {
        snprintf(why, LISTENER_WHY_BYTES, "another process listens on %s", address->sun_path);
        return -EADDRINUSE;
    }
    if (error == EPROTOTYPE) {
        snprintf(why, LISTENER_WHY_BYTES, "%s is a socket of another type; it is left alone", address->sun_path);
        return -EEXIST;
    }
    if (error == ENOENT)
        return 0;
    if (error != ECONNREFUSED && !(error == EACCES && never_opened(&st))) {
        snprintf(why, LISTENER_WHY_BYTES, "%s: cannot tell whether another process listens on it: %s; it is left alone",
                 address->sun_path, strerror(error));
        return -error;
    }
    return unlink(address->sun_path) == 0 ? 0 : -errno;
}

/* bind() under umask 0777 makes a file that nobody can connect to until group and mode are right. */
static int bind_closed(int fd, const struct sockaddr_un *address)
{
    mode_t before = umask(0777);
    int status = bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : -errno;
    umask(before);
    return status;
}

static int listen_at(const struct config_socket *socket_config, const struct sockaddr_un *address, gid_t gid, int *fd_out)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int status = bind_closed(fd, address);
    bool bound = status == 0;
    if (status == 0 && gid != (gid_t)-1 && chown(address->sun_path, (uid_t)-1, gid) != 0)
        status = -errno;
    if (status == 0 && listen(fd, BACKLOG) != 0)
        status = -errno;
    if (status == 0 && chmod(address->sun_path, (mode_t)socket_config->mode) != 0)
        status = -errno;
    if (status == 0) {
        *fd_out = fd;
        return 0;
    }
    if (bound)
        unlink(address->sun_path);
    close(fd);
    return status;
}

/* The lock is the caller's from 0 on. */
static int make_socket(const struct config_socket *socket_config, int *fd, int *lock_fd, char *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = socket_config->path;
    gid_t gid = (gid_t)-1;
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, LISTENER_WHY_BYTES, "path of %zu bytes; a socket's path has at most %zu: %.200s", strlen(path),
                 sizeof address.sun_path - 1, path);
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (socket_config->group != NULL && group_id(socket_config->group, &gid) != 0) {
        snprintf(why, LISTENER_WHY_BYTES, "no group \"%.64s\"", socket_config->group);
        return -ENOENT;
    }
    int status = socket_lock_take(path, lock_fd);
    if (status == -EADDRINUSE)
        snprintf(why, LISTENER_WHY_BYTES, "another process listens on %s, or is about to (it holds %s.lock)", path, path);
    if (status != 0)
        return status;
    status = clear_path(&address, why);
    if (status == 0)
        status = listen_at(socket_config, &address, gid, fd);
    if (status != 0)
        socket_lock_give(path, *lock_fd);
    return status;
}

/* --- passed sockets ----------------------------------------------------------------------------------------------- */

static int passed_count(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (pid == NULL || count == NULL || strtol(pid, NULL, 10) != (long)getpid())
        return 0;
    return (int)strtol(count, NULL, 10);
}

/* NULL: no section of that name. A guess could give a socket the quotas and the policy of another. */
static const struct config_socket *socket_named(const struct config *config, const char *name, bool *admin)
{
    *admin = strcmp(name, "admin") == 0;
    if (*admin)
        return &config->admin;
    for (size_t i = 0; i < config->socket_count; i++)
        if (strcmp(config->sockets[i].name, name) == 0)
            return &config->sockets[i];
    bool unnamed = name[0] == '\0' || strcmp(name, "unknown") == 0;
    return unnamed && config->socket_count == 1 ? &config->sockets[0] : NULL;
}

static int check_passed(int fd, char *why)
{
    int type = 0, listening = 0;
    socklen_t length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening) {
        snprintf(why, LISTENER_WHY_BYTES, "passed descriptor %d is no listening SOCK_SEQPACKET socket "
                                          "(ListenSequentialPacket= in the socket unit)", fd);
        return -EINVAL;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return 0;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

/* The socket's file, and the lock on its path. */
static void remove_file(const struct listener *listener)
{
    if (listener->lock_fd < 0) /* passed */
        return;
    unlink(listener->socket->path);
    socket_lock_give(listener->socket->path, listener->lock_fd);
}

/* Its path is the service manager's, and need not be that of the configuration. */
static void log_passed(int fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof address;
    (void)getsockname(fd, (struct sockaddr *)&address, &length);
    log_notice("listening on %.*s [%s], passed by the service manager", (int)sizeof address.sun_path, address.sun_path,
               name);
}

/* `lock_fd` -1: the socket was passed. Takes over both descriptors, also when it fails. */
static int add(struct listeners *listeners, struct service *service, const struct config_socket *socket, bool admin,
               int fd, int lock_fd)
{
    struct listener *listener = &listeners->items[listeners->count++];
    *listener = (struct listener){
        .service = service, .socket = socket, .admin = admin, .fd = fd, .held = -1, .lock_fd = lock_fd};
    int status = uv_poll_init(service->loop, &listener->poll, fd);
    if (status != 0) {
        listeners->count--;
        remove_file(listener);
        close(fd);
        return status;
    }
    worker_owner_init(&listener->owner);
    uv_timer_init(service->loop, &listener->retry);
    listener->poll.data = listener;
    listener->retry.data = listener;
    uv_poll_start(&listener->poll, UV_READABLE, acceptable);
    if (lock_fd < 0)
        log_passed(fd, socket->name);
    else
        log_notice("listening on %s [%s]", socket->path, socket->name);
    return 0;
}

static int take_passed(struct listeners *listeners, struct service *service, int count, char *why)
{
    const char *value = getenv("LISTEN_FDNAMES");
    char *names = strdup(value != NULL ? value : "");
    char *rest = names;
    int status = names != NULL ? 0 : -ENOMEM;
    for (int i = 0; status == 0 && i < count; i++) {
        const char *name = strsep(&rest, ":");
        bool admin;
        const struct config_socket *socket = socket_named(service->config, name != NULL ? name : "", &admin);
        int fd = PASSED_FDS_START + i;
        status = check_passed(fd, why);
        if (status == 0 && i > CONFIG_SOCKETS) {
            snprintf(why, LISTENER_WHY_BYTES, "more than %d sockets were passed", CONFIG_SOCKETS + 1);
            status = -EINVAL;
        }
        if (status == 0 && socket == NULL) {
            snprintf(why, LISTENER_WHY_BYTES, "passed socket \"%.64s\" is neither \"admin\" nor the NAME of a [socket "
                                              "NAME] section (FileDescriptorName= in its unit)", name);
            status = -EINVAL;
        }
        if (status == 0)
            status = add(listeners, service, socket, admin, fd, -1);
    }
    free(names);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return status;
}

static int check_path(const struct listeners *listeners, const struct config_socket *socket, char *why)
{
    for (size_t i = 0; i < listeners->count; i++)
        if (strcmp(listeners->items[i].socket->path, socket->path) == 0) {
            snprintf(why, LISTENER_WHY_BYTES, "sockets %.64s and %.64s of the configuration have the same path %.200s",
                     listeners->items[i].socket->name, socket->name, socket->path);
            return -EADDRINUSE;
        }
    return 0;
}

static int make_all(struct listeners *listeners, struct service *service, char *why)
{
    const struct config *config = service->config;
    int status = 0;
    for (size_t i = 0; status == 0 && i <= config->socket_count; i++) {
        bool admin = i == config->socket_count;
        const struct config_socket *socket = admin ? &config->admin : &config->sockets[i];
        int fd = -1, lock_fd = -1;
        why[0] = '\0';
        status = check_path(listeners, socket, why);
        if (status == 0)
            status = make_socket(socket, &fd, &lock_fd, why);
        if (status == 0)
            status = add(listeners, service, socket, admin, fd, lock_fd);
        else if (why[0] == '\0')
            snprintf(why, LISTENER_WHY_BYTES, "%.300s: %s", socket->path, strerror(-status));
    }
    return status;
}

static void close_run(struct worker_job *job)
{
    const struct listener *listener = (const struct listener *)((char *)job - offsetof(struct listener, job));
    close(listener->fd);
    if (listener->held >= 0)
        close(listener->held);
}

static void close_done(struct worker_job *job)
{
    (void)job;
}

/* The descriptor may be closed as soon as its handle is. */
static void stop_listening(struct listener *listener)
{
    remove_file(listener);
    uv_close((uv_handle_t *)&listener->poll, NULL);
    uv_close((uv_handle_t *)&listener->retry, NULL);
}

int listeners_open(struct listeners *listeners, struct service *service, char why[LISTENER_WHY_BYTES])
{
    int passed = passed_count();
    listeners->count = 0;
    why[0] = '\0';
    int status = passed > 0 ? take_passed(listeners, service, passed, why) : make_all(listeners, service, why);
    for (; status != 0 && listeners->count > 0; listeners->count--) {
        stop_listening(&listeners->items[listeners->count - 1]);
        close(listeners->items[listeners->count - 1].fd);
    }
    return status;
}

void listeners_close(struct listeners *listeners)
{
    for (size_t i = 0; i < listeners->count; i++) {
        struct listener *listener = &listeners->items[i];
        stop_listening(listener);
        /* What those have sent who were not taken yet is closed with it: that may block. */
        workers_submit(listener->service->workers, &listener->owner, &listener->job, close_run, close_done);
    }
    listeners->count = 0;
}
