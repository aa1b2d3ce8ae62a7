#include "bench/hostile.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/stranger.h"

#define FLOODING 4 /* sessions that send requests */
#define OPENED 32  /* sessions that are opened and closed in turn */
#define BURST 32   /* packets of one session before the next one's turn */

static const char hello[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}";

static const char *const half_valid[] = {
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"status\"",
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"transfer.get\",\"params\":{\"region\":1.0,\"offset\":\"0\"}}",
    "[{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"status\"}]",
    "\xff\xfe{\"jsonrpc\":\"2.0\"}",
};

/* What a client can ask for that costs the daemon most: a large answer, and commands that go to the server. */
static int write_request(char *text, size_t size, unsigned long long id)
{
    switch (id % 3) {
    case 0:
        return snprintf(text, size, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"status\"}", id);
    case 1:
        return snprintf(text, size,
                        "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"keys.exists\",\"params\":{\"keys\":[\"a\",\"b\"]}}",
                        id);
    default:
        return snprintf(text, size,
                        "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"transfer.get\",\"params\":{\"region\":1,\"offset\":0,"
                        "\"length\":65536,\"key\":\"a\"}}",
                        id);
    }
}

static int open_session(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Over and over: one that the daemon has closed, or does not read any more, is replaced. */
static bool renew(int *fd, const struct sockaddr_un *address)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = open_session(address);
    return *fd >= 0 && send(*fd, hello, sizeof(hello) - 1, MSG_NOSIGNAL) >= 0;
}

static void flood(int *fd, const struct sockaddr_un *address, unsigned long long *id)
{
    char text[256];

    for (int i = 0; i < BURST; i++) {
        int length = write_request(text, sizeof(text), *id);

        ++*id;
        if (*fd < 0 || send(*fd, text, (size_t)length, MSG_NOSIGNAL) < 0) {
            if (*fd < 0 || errno != EAGAIN || *id % 1024 == 0) {
                renew(fd, address);
            }
            return;
        }
    }
}

static void send_rubbish(int *fd, const struct sockaddr_un *address)
{
    for (int i = 0; i < BURST; i++) {
        const char *text = half_valid[(unsigned)i % (sizeof(half_valid) / sizeof(half_valid[0]))];

        if (*fd < 0 || send(*fd, text, strlen(text), MSG_NOSIGNAL) < 0) {
            renew(fd, address);
            return;
        }
    }
}

static void attack(const struct sockaddr_un *address, int began)
{
    int flooding[FLOODING], opened[OPENED], rubbish = -1;
    unsigned long long id = 2;

    memset(flooding, -1, sizeof(flooding));
    memset(opened, -1, sizeof(opened));
    for (unsigned turn = 0;; turn++) {
        for (int i = 0; i < FLOODING; i++) {
            flood(&flooding[i], address, &id);
        }
        send_rubbish(&rubbish, address);
        renew(&opened[turn % OPENED], address);
        if (turn == OPENED && write(began, "b", 1) != 1) {
            return;
        }
    }
}

pid_t hostile_start(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int began[2];
    char byte;
    pid_t pid;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
    if (pipe(began) != 0) {
        perror("pipe");
        return -1;
    }
    pid = fork();
    if (pid == 0) {
        close(began[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        become_a_stranger();
        attack(&address, began[1]);
        _exit(1);
    }
    close(began[1]);
    if (pid > 0 && read(began[0], &byte, 1) != 1) {
        fprintf(stderr, "the hostile client ended at once: it needs root, to be another user than the one measured\n");
        hostile_stop(pid);
        pid = -1;
    }
    close(began[0]);
    return pid;
}

void hostile_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
