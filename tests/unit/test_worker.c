/* The worker pool: fairness between owners, order of completion, what keeps the loop alive. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/base/worker.h"
#include "tests/unit/unit_main.h"

#define MANY 400

struct test_job {
    struct worker_job job;
    sem_t *wait; /* blocks until it is posted */
    int id;
    bool ran;
};

static uv_loop_t loop;
static struct workers *workers;
static int finished;
static int order[MANY];
static atomic_int running, most;
static pthread_t loop_thread;

static void run(struct worker_job *job)
{
    struct test_job *test = (struct test_job *)job;
    int now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);

    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) {
    }
    ck_assert(!pthread_equal(pthread_self(), loop_thread));
    if (test->wait != NULL) {
        sem_wait(test->wait);
    }
    test->ran = true;
    atomic_fetch_sub(&running, 1);
}

static void done(struct worker_job *job)
{
    struct test_job *test = (struct test_job *)job;

    ck_assert(test->ran);
    ck_assert(pthread_equal(pthread_self(), loop_thread));
    order[finished++] = test->id;
}

static void set_up(void)
{
    loop_thread = pthread_self();
    uv_loop_init(&loop);
    workers = workers_start(&loop);
    ck_assert_ptr_nonnull(workers);
}

static void tear_down(void)
{
    ck_assert_uint_eq(workers_outstanding(workers), 0);
    workers_stop(workers);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(idle_loop_ends)
{
    set_up();
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    tear_down();
}
END_TEST

/* uv_run returns by itself when the last job is done: the pool keeps the loop alive exactly that long. */
START_TEST(many_jobs)
{
    static struct test_job jobs[MANY];
    struct worker_owner owners[20];

    set_up();
    for (int i = 0; i < 20; i++) {
        worker_owner_init(&owners[i]);
    }
    for (int i = 0; i < MANY; i++) {
        jobs[i].id = i;
        workers_submit(workers, &owners[i % 20], &jobs[i].job, run, done);
    }
    ck_assert_uint_eq(workers_outstanding(workers), MANY);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(finished, MANY);
    ck_assert_int_le(atomic_load(&most), WORKER_THREADS);
    tear_down();
}
END_TEST

/* Twenty jobs of one owner that hang: two run, and another owner's pass. */
START_TEST(hung_owner)
{
    static struct test_job hung[20], other[50];
    struct worker_owner bad, good;
    sem_t gate;

    set_up();
    sem_init(&gate, 0, 0);
    worker_owner_init(&bad);
    worker_owner_init(&good);
    for (int i = 0; i < 20; i++) {
        hung[i] = (struct test_job){.wait = &gate, .id = 1000 + i};
        workers_submit(workers, &bad, &hung[i].job, run, done);
    }
    for (int i = 0; i < 50; i++) {
        other[i].id = i;
        workers_submit(workers, &good, &other[i].job, run, done);
    }
    while (finished < 50) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    for (int i = 0; i < 50; i++) {
        ck_assert_int_lt(order[i], 1000);
    }
    ck_assert_int_le(atomic_load(&most), 2 * WORKER_JOBS_PER_OWNER);
    for (int i = 0; i < 20; i++) {
        sem_post(&gate);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(finished, 70);
    sem_destroy(&gate);
    tear_down();
}
END_TEST

static sem_t gates[WORKER_THREADS], begun, over;

/* Runs until the end of the test. */
static void last_run(struct worker_job *job)
{
    sem_post(&begun);
    sem_wait(&over);
    ((struct test_job *)job)->ran = true;
}

/*
 * Lets a job end. All threads have one, so that the next one runs on the thread of this: it is on the list of finished
 * jobs by then.
 */
static void release(int id)
{
    static struct test_job next[WORKER_THREADS];
    static struct worker_owner owners[WORKER_THREADS];

    worker_owner_init(&owners[id]);
    next[id].id = 100 + id;
    workers_submit(workers, &owners[id], &next[id].job, last_run, done);
    sem_post(&gates[id]);
    while (sem_wait(&begun) != 0) {
    }
}

START_TEST(order_of_completion)
{
    static struct test_job jobs[WORKER_THREADS];
    static struct worker_owner owners[WORKER_THREADS];

    set_up();
    sem_init(&begun, 0, 0);
    sem_init(&over, 0, 0);
    for (int i = 0; i < WORKER_THREADS; i++) {
        sem_init(&gates[i], 0, 0);
        worker_owner_init(&owners[i]);
        jobs[i] = (struct test_job){.wait = &gates[i], .id = i};
        workers_submit(workers, &owners[i], &jobs[i].job, run, done);
    }
    while (atomic_load(&running) < WORKER_THREADS) {
        sched_yield();
    }
    release(2);
    release(0);
    release(1);
    for (int i = 0; i < WORKER_THREADS; i++) {
        sem_post(&over);
        sem_post(&gates[i]);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(order[0], 2);
    ck_assert_int_eq(order[1], 0);
    ck_assert_int_eq(order[2], 1);
    tear_down();
}
END_TEST

struct chain {
    struct worker_job job;
    struct worker_owner *owner; /* freed with the last job: the pool must not touch it any more */
    int left;
};

static void chain_run(struct worker_job *job)
{
}

static void chain_done(struct worker_job *job)
{
    struct chain *chain = (struct chain *)job;

    finished++;
    if (--chain->left > 0) {
        workers_submit(workers, chain->owner, &chain->job, chain_run, chain_done);
        return;
    }
    free(chain->owner);
    free(chain);
    if (workers_outstanding(workers) == 0) {
        workers_stop(workers); /* from the last job's callback */
    }
}

START_TEST(resubmitted_and_freed)
{
    set_up();
    for (int i = 0; i < 50; i++) {
        struct chain *chain = calloc(1, sizeof(*chain));
        chain->owner = malloc(sizeof(*chain->owner));
        worker_owner_init(chain->owner);
        chain->left = 20;
        workers_submit(workers, chain->owner, &chain->job, chain_run, chain_done);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(finished, 1000);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

UNIT_MAIN("worker", idle_loop_ends, many_jobs, hung_owner, order_of_completion, resubmitted_and_freed)
