#include "client/ctl/progress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/text.h"

#define SILENT_MS 400 /* what is over by then needs no line */
#define REDRAW_MS 100
#define LINE_BYTES 256
#define BAR_COLUMNS 30

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool running;
    bool stop;
    /* The stage. */
    enum progress_kind kind;
    const char *what;
    uint64_t bytes;
    uint64_t since_us;
    unsigned turn; /* of the moving sign */
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t done;
static _Atomic int drawn; /* columns that are on the terminal */

static uint64_t now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static void put(const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, length);

        if (written < 0 && errno != EINTR) {
            return;
        }
        bytes += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
}

void progress_wipe(void)
{
    char line[LINE_BYTES + 2];
    int columns = atomic_exchange(&drawn, 0);

    if (columns > 0) {
        memset(line, ' ', sizeof(line));
        line[0] = '\r';
        line[columns + 1] = '\r';
        put(line, (size_t)columns + 2);
    }
}

static int columns_of_terminal(void)
{
    struct winsize size;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;

    return columns < LINE_BYTES ? columns - 1 : LINE_BYTES - 1;
}

static void bar(char out[BAR_COLUMNS + 1], double part)
{
    int filled = (int)(part * BAR_COLUMNS);

    for (int i = 0; i < BAR_COLUMNS; i++) {
        out[i] = i < filled ? '#' : '-';
    }
    out[BAR_COLUMNS] = '\0';
}

/* Lock held. */
static void describe(char line[LINE_BYTES], uint64_t now)
{
    char amount[TEXT_NUMBER_BYTES], total[TEXT_NUMBER_BYTES], spent[TEXT_NUMBER_BYTES], drawing[BAR_COLUMNS + 1];
    char sign = "|/-\\"[progress.turn++ % 4];
    uint64_t so_far = atomic_load(&done);
    double part = progress.bytes > 0 ? (double)so_far / (double)progress.bytes : 0;

    text_duration(spent, (now - progress.since_us) / 1000000 * 1000000);
    switch (progress.kind) {
    case PROGRESS_BAR:
        part = part > 1 ? 1 : part;
        bar(drawing, part);
        snprintf(line, LINE_BYTES, "%s [%s] %3.0f%%  %s of %s", progress.what, drawing, part * 100,
                 text_bytes(amount, so_far), text_bytes(total, progress.bytes));
        break;
    case PROGRESS_COUNT:
        snprintf(line, LINE_BYTES, "%s %c %s", progress.what, sign, text_bytes(amount, so_far));
        break;
    default:
        snprintf(line, LINE_BYTES, "%s %c %s, for %s", progress.what, sign, text_bytes(total, progress.bytes),
                 now - progress.since_us < 1000000 ? "0 s" : spent);
        break;
    }
}

/* Lock held; given back while the terminal takes the line. */
static void draw(uint64_t now)
{
    char text[LINE_BYTES], line[2 * LINE_BYTES + 2];
    int before = atomic_load(&drawn), columns = columns_of_terminal(), length;

    describe(text, now);
    length = snprintf(line, sizeof(line), "\r%-*.*s", before < columns ? before : columns, columns, text);
    atomic_store(&drawn, length - 1);
    pthread_mutex_unlock(&progress.lock);
    put(line, (size_t)length);
    pthread_mutex_lock(&progress.lock);
}

static void wait_ms(uint64_t milliseconds)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(milliseconds / 1000);
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!progress.stop && pthread_cond_timedwait(&progress.wake, &progress.lock, &until) == 0) {
    }
}

static void *run(void *unused)
{
    pthread_mutex_lock(&progress.lock);
    wait_ms(SILENT_MS);
    while (!progress.stop) {
        draw(now_us());
        wait_ms(REDRAW_MS);
    }
    pthread_mutex_unlock(&progress.lock);
    return unused;
}

/* Signals stay with the main thread. */
static void start(void)
{
    pthread_condattr_t attributes;
    sigset_t all, before;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&progress.wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    progress.stop = false;
    progress.running = pthread_create(&progress.thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_stage(bool quiet, const char *what, enum progress_kind kind, uint64_t bytes)
{
    if (quiet || !isatty(STDERR_FILENO)) {
        return;
    }
    pthread_mutex_lock(&progress.lock);
    progress.what = what;
    progress.kind = kind;
    progress.bytes = bytes;
    progress.since_us = now_us();
    atomic_store(&done, 0);
    pthread_mutex_unlock(&progress.lock);
    if (!progress.running) {
        start();
    }
}

void progress_add(uint64_t bytes)
{
    atomic_fetch_add_explicit(&done, bytes, memory_order_relaxed);
}

void progress_end(void)
{
    if (!progress.running) {
        return;
    }
    pthread_mutex_lock(&progress.lock);
    progress.stop = true;
    pthread_cond_signal(&progress.wake);
    pthread_mutex_unlock(&progress.lock);
    pthread_join(progress.thread, NULL);
    pthread_cond_destroy(&progress.wake);
    progress.running = false;
    progress_wipe();
}
