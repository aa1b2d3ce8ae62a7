#include "tests/rig/fake_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/valkey/backoff.h"

#define SECOND UINT64_C(1000000000)

static uint64_t now_ns = 1000 * SECOND;
struct peer fake_peer;

void fake_clock_advance(uint64_t ms)
{
    now_ns += ms * 1000000;
}

/* libuv's clock. libFuzzer measures with another one. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE) {
        time->tv_sec = (time_t)(now_ns / SECOND);
        time->tv_nsec = (long)(now_ns % SECOND);
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}

void peer_release(struct peer *peer)
{
    if (peer->pidfd >= 0) {
        close(peer->pidfd);
    }
}

uid_t peer_overflow_uid(void)
{
    return 65534;
}

int peer_uid(int socket_fd, uid_t *uid)
{
    *uid = fake_peer.uid;
    return 0;
}

int peer_read(int socket_fd, struct peer *peer)
{
    *peer = fake_peer;
    if (peer->pidfd >= 0) {
        peer->pidfd = fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 0);
    }
    return 0;
}

void backoff_init(struct backoff *backoff, unsigned base_ms, unsigned limit_ms)
{
    *backoff = (struct backoff){.base_ms = base_ms, .limit_ms = limit_ms};
}

unsigned backoff_next(struct backoff *backoff)
{
    unsigned shift = backoff->failures < 16 ? backoff->failures : 16;
    uint64_t wait = (uint64_t)backoff->base_ms << shift;

    backoff->failures++;
    return wait < backoff->limit_ms ? (unsigned)wait : backoff->limit_ms;
}

/* No turn of the loop ever takes long. */
struct loop_watch;
bool loop_watch_late(const struct loop_watch *watch);
bool loop_watch_late(const struct loop_watch *watch)
{
    return false;
}

/* Every line is made, so that its arguments are looked at, and thrown away. */
__attribute__((format(printf, 2, 0))) static void make_line(enum log_level level, const char *format, va_list arguments)
{
    static char line[4096];

    vsnprintf(line, sizeof(line), format, arguments);
    if (getenv("FUZZ_LOG") != NULL) {
        fprintf(stderr, "log %d: %s\n", (int)level, line);
    }
}

void log_write(enum log_level level, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    make_line(level, format, arguments);
    va_end(arguments);
}

void log_limited(struct log_limit *limit, uint64_t now_ms, enum log_level level, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    make_line(level, format, arguments);
    va_end(arguments);
}

void log_about(const struct log_fields *fields, enum log_level level, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    make_line(level, format, arguments);
    va_end(arguments);
}

void log_limited_about(struct log_limit *limit, uint64_t now_ms, const struct log_fields *fields, enum log_level level,
                       const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    make_line(level, format, arguments);
    va_end(arguments);
}

int log_level_parse(const char *word, enum log_level *level)
{
    return -1;
}

const char *log_level_name(enum log_level level)
{
    return "debug";
}

uint64_t log_left_out(void)
{
    return 0;
}

void log_set_level(enum log_level level)
{
}

enum log_level log_get_level(void)
{
    return LOG_LEVEL_DEBUG;
}
