#include "client/ctl/doctor/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static uint64_t now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* 0, or a negative errno. */
static int start(char *const argv[], int write_end, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int rc;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO);
    rc = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Until the other side has closed; true when it did in time. What does not fit is read and dropped. */
static bool collect(int fd, uint64_t deadline, char *output, size_t size)
{
    size_t used = 0;
    char surplus[256];

    for (;;) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        uint64_t now = now_ms();
        ssize_t got;

        output[used] = '\0';
        if (now >= deadline) {
            return false;
        }
        if (poll(&entry, 1, deadline - now < 1000 ? (int)(deadline - now) : 1000) <= 0) {
            continue;
        }
        got = used < size - 1 ? read(fd, output + used, size - 1 - used) : read(fd, surplus, sizeof(surplus));
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return true;
        }
        used += got > 0 && used < size - 1 ? (size_t)got : 0;
    }
}

int program_run(char *const argv[], uint64_t timeout_ms, char *output, size_t size)
{
    int ends[2], status = 0, rc;
    bool in_time;
    pid_t pid;

    output[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -errno;
    }
    rc = start(argv, ends[1], &pid);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return rc;
    }
    in_time = collect(ends[0], now_ms() + timeout_ms, output, size);
    close(ends[0]);
    if (!in_time) {
        kill(pid, SIGKILL);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!in_time) {
        return -ETIMEDOUT;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}
