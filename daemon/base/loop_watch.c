#include "daemon/base/loop_watch.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/base/log.h"

/* Sanitizers wait for locks of their own, and slow everything down. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

/* What a turn is measured by. */
struct reading {
    uint64_t wall_ns, cpu_ns;
    long switches;
};

static void read_clocks(const struct loop_watch *watch, struct reading *now)
{
    struct rusage usage;
    struct timespec cpu;
    *now = (struct reading){0};
    if (watch->strict && getrusage(RUSAGE_THREAD, &usage) == 0 && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0) {
        now->switches = usage.ru_nvcsw;
        now->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec;
    }
    now->wall_ns = uv_hrtime();
}

static void judge(struct loop_watch *watch, const struct reading *before, const struct reading *after)
{
    uint64_t wall_ns = after->wall_ns - before->wall_ns;
    uint64_t cpu_us = (after->cpu_ns - before->cpu_ns) / 1000;
    long switches = after->switches - before->switches;
    if (wall_ns > watch->longest_ns)
        watch->longest_ns = wall_ns;
    if (switches == 0 && cpu_us <= LOOP_TURN_CPU_US)
        return;
    watch->blocked++;
    log_error("loop blocked: a turn of %llu us waited %ld times and used %llu us of the processor",
              (unsigned long long)(wall_ns / 1000), switches, (unsigned long long)cpu_us);
}

/* Until there is something to do. A signal, or a failure, only means one more turn. */
static void wait_for_work(uv_loop_t *loop)
{
    struct pollfd backend = {.fd = uv_backend_fd(loop), .events = POLLIN};
    uv_update_time(loop);
    int timeout = uv_backend_timeout(loop); /* 0 also while the descriptor does not yet hold every watcher */
    if (timeout != 0)
        (void)poll(&backend, 1, timeout);
}

bool loop_watch_late(const struct loop_watch *watch)
{
    return uv_hrtime() - watch->turn_ns > LOOP_LATE_US * UINT64_C(1000);
}

void loop_watch_run(struct loop_watch *watch, uv_loop_t *loop, const bool *stopped)
{
    const char *hook = getenv("GLIDE_RDMAD_TEST_LOOP");
    struct reading before, after;
    bool alive;
    watch->strict = !SANITIZED && hook != NULL && strcmp(hook, "1") == 0;
    do {
        wait_for_work(loop);
        read_clocks(watch, &before);
        watch->turn_ns = before.wall_ns;
        alive = uv_run(loop, UV_RUN_NOWAIT) != 0;
        read_clocks(watch, &after);
        judge(watch, &before, &after);
    } while (alive && !*stopped);
}
