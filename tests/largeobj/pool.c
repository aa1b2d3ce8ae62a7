#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>

#define STACK_SIZE ((size_t)256 * 1024)

struct worker {
    SLIST_ENTRY(worker) entry;
    pthread_cond_t wake;
    void (*job)(void *arg); /* NULL: idle */
    void *arg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, worker) idle = SLIST_HEAD_INITIALIZER(idle);

static void *work(void *arg)
{
    struct worker *self = arg;

    for (;;) {
        self->job(self->arg);
        pthread_mutex_lock(&lock);
        self->job = NULL;
        SLIST_INSERT_HEAD(&idle, self, entry);
        while (!self->job)
            pthread_cond_wait(&self->wake, &lock);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static int new_worker(void (*job)(void *arg), void *arg)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int rc;

    if (!worker)
        return -EAGAIN;
    worker->job = job;
    worker->arg = arg;
    pthread_cond_init(&worker->wake, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&thread, &attr, work, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (rc) {
        pthread_cond_destroy(&worker->wake);
        free(worker);
        return -EAGAIN;
    }
    return 0;
}

int pool_run(void (*job)(void *arg), void *arg)
{
    struct worker *worker;

    pthread_mutex_lock(&lock);
    worker = SLIST_FIRST(&idle);
    if (worker) {
        SLIST_REMOVE_HEAD(&idle, entry);
        worker->job = job;
        worker->arg = arg;
        pthread_cond_signal(&worker->wake);
    }
    pthread_mutex_unlock(&lock);
    return worker ? 0 : new_worker(job, arg);
}
