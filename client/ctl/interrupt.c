#include "client/ctl/interrupt.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "client/ctl/progress.h"

/* Those that end a process, but for faults of its own and SIGKILL. */
static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,   SIGALRM,
                              SIGUSR1, SIGUSR2, SIGXCPU, SIGVTALRM, SIGPROF};

#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static const char *volatile to_remove;
static volatile sig_atomic_t deferring, seen;

/* The signal then does what it would have done, so that the caller sees which it was. */
static void end(int number)
{
    if (deferring && !seen) {
        seen = number;
        return;
    }
    if (to_remove != NULL) {
        unlink(to_remove);
    }
    progress_wipe();
    signal(number, SIG_DFL);
    raise(number);
}

void interrupt_install(void)
{
    struct sigaction action = {.sa_handler = end}, before;

    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++) {
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

void interrupt_hold(sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaddset(&set, signals[i]);
    }
    pthread_sigmask(SIG_BLOCK, &set, before);
}

void interrupt_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void interrupt_remove(const char *path)
{
    to_remove = path;
}

void interrupt_defer(void)
{
    deferring = 1;
}

bool interrupt_seen(void)
{
    return seen != 0;
}

void interrupt_obey(void)
{
    if (seen != 0) {
        progress_end();
        signal(seen, SIG_DFL);
        raise(seen);
    }
}
