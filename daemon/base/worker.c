#include "daemon/base/worker.h"

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct workers {
    uv_async_t async;
    unsigned outstanding; /* loop only */
    atomic_uint running;

    struct handoff given;    /* by the loop */
    struct handoff finished; /* by the workers */
    sem_t waiting;           /* jobs given and not taken; at the end one more for each thread */

    pthread_mutex_t lock;       /* among the workers: the loop does not take it */
    struct handoff_node *taken; /* from `given`, in their order */

    pthread_t threads[WORKER_THREADS];
    unsigned thread_count;
};

static struct worker_job *job_of(struct handoff_node *node)
{
    return (struct worker_job *)((char *)node - offsetof(struct worker_job, node));
}

void worker_owner_init(struct worker_owner *owner)
{
    *owner = (struct worker_owner){0};
    TAILQ_INIT(&owner->waiting);
}

/* --- the loop's thread: gives the threads no more jobs of an owner than may run, which makes owners take turns --- */

static void give_jobs(struct workers *workers, struct worker_owner *owner)
{
    struct worker_job *job;

    while (owner->running < WORKER_JOBS_PER_OWNER && (job = TAILQ_FIRST(&owner->waiting)) != NULL) {
        TAILQ_REMOVE(&owner->waiting, job, link);
        owner->running++;
        handoff_add(&workers->given, &job->node);
        sem_post(&workers->waiting);
    }
}

void workers_submit(struct workers *workers, struct worker_owner *owner, struct worker_job *job,
                    void (*run)(struct worker_job *), void (*done)(struct worker_job *))
{
    job->owner = owner;
    job->run = run;
    job->done = done;
    if (workers->outstanding++ == 0) {
        uv_ref((uv_handle_t *)&workers->async);
    }
    TAILQ_INSERT_TAIL(&owner->waiting, job, link);
    give_jobs(workers, owner);
}

static void deliver(uv_async_t *async)
{
    struct workers *workers = async->data;
    struct handoff_node *node = handoff_take(&workers->finished), *next;

    for (; node != NULL; node = next) {
        struct worker_job *job = job_of(node);
        next = node->next;
        job->owner->running--;
        give_jobs(workers, job->owner);
        if (--workers->outstanding == 0) {
            uv_unref((uv_handle_t *)&workers->async);
        }
        job->done(job); /* may free the job and its owner, submit others, or stop the pool when this was the last */
    }
}

unsigned workers_outstanding(const struct workers *workers)
{
    return workers->outstanding;
}

unsigned workers_running(const struct workers *workers)
{
    return atomic_load_explicit(&workers->running, memory_order_relaxed);
}

/* --- the workers ---------------------------------------------------------------------------------------------- */

/* NULL: the pool is stopping. */
static struct worker_job *take_job(struct workers *workers)
{
    struct handoff_node *node;

    while (sem_wait(&workers->waiting) != 0) {
    }
    pthread_mutex_lock(&workers->lock);
    if (workers->taken == NULL) {
        workers->taken = handoff_take(&workers->given);
    }
    node = workers->taken;
    if (node != NULL) {
        workers->taken = node->next;
    }
    pthread_mutex_unlock(&workers->lock);
    return node != NULL ? job_of(node) : NULL;
}

static void *work(void *argument)
{
    struct workers *workers = argument;
    struct worker_job *job;

    while ((job = take_job(workers)) != NULL) {
        atomic_fetch_add_explicit(&workers->running, 1, memory_order_relaxed);
        job->run(job);
        atomic_fetch_sub_explicit(&workers->running, 1, memory_order_relaxed);
        handoff_add(&workers->finished, &job->node);
        uv_async_send(&workers->async);
    }
    return NULL;
}

/* --- start and end -------------------------------------------------------------------------------------------- */

static void closed(uv_handle_t *handle)
{
    struct workers *workers = handle->data;

    sem_destroy(&workers->waiting);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

/* Signals are the loop's: none may be taken by a worker in the middle of a registration. */
static int start_threads(struct workers *workers)
{
    sigset_t all, before;
    int error = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && workers->thread_count < WORKER_THREADS) {
        error = pthread_create(&workers->threads[workers->thread_count], NULL, work, workers);
        if (error == 0) {
            pthread_setname_np(workers->threads[workers->thread_count], "grd-worker");
            workers->thread_count++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

struct workers *workers_start(uv_loop_t *loop)
{
    struct workers *workers = calloc(1, sizeof(*workers));

    if (workers == NULL) {
        return NULL;
    }
    if (uv_async_init(loop, &workers->async, deliver) != 0) {
        free(workers);
        return NULL;
    }
    workers->async.data = workers;
    uv_unref((uv_handle_t *)&workers->async);
    pthread_mutex_init(&workers->lock, NULL);
    sem_init(&workers->waiting, 0, 0);
    if (start_threads(workers) != 0) {
        workers_stop(workers);
        return NULL;
    }
    return workers;
}

void workers_stop(struct workers *workers)
{
    assert(workers->outstanding == 0);
    for (unsigned i = 0; i < workers->thread_count; i++) {
        sem_post(&workers->waiting);
    }
    for (unsigned i = 0; i < workers->thread_count; i++) {
        pthread_join(workers->threads[i], NULL);
    }
    uv_close((uv_handle_t *)&workers->async, closed);
}
