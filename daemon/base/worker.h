/*
 * Worker pool: blocking work (memory registration, closing of received descriptors, munmap, DNS, files) runs here so
 * that the loop never blocks (docs/architecture.md, rule 7).
 *
 * Jobs of one owner run at most two at a time, so a hung one leaves the other workers to everybody else. Jobs are
 * intrusive: no allocation to submit one, no limit of the queue other than the objects that hold jobs.
 *
 * The loop never waits for a worker either: it shares no lock with them.
 *
 * All functions are called on the loop's thread. `run` is called on a worker, `done` on the loop's thread afterwards,
 * in order of completion. A job may not be submitted again, nor its memory freed, before `done` was called.
 */
#ifndef GRD_BASE_WORKER_H
#define GRD_BASE_WORKER_H

#include <sys/queue.h>
#include <uv.h>

#include "daemon/base/handoff.h"

#define WORKER_THREADS 8
#define WORKER_JOBS_PER_OWNER 2

struct workers;

/* Whose job it is: embedded in a user, a lane, the daemon. Zero-initialise. It must outlive its jobs. */
struct worker_owner {
    unsigned running; /* jobs that the threads have */
    TAILQ_HEAD(worker_jobs, worker_job) waiting;
};

struct worker_job {
    TAILQ_ENTRY(worker_job) link;
    struct handoff_node node;
    struct worker_owner *owner;
    void (*run)(struct worker_job *job);
    void (*done)(struct worker_job *job);
};

void worker_owner_init(struct worker_owner *owner);

/* NULL when out of memory or threads. Keeps the loop alive only while jobs are outstanding. */
struct workers *workers_start(uv_loop_t *loop);

/* Queues a job; run and done must be set. Never fails. */
void workers_submit(struct workers *workers, struct worker_owner *owner, struct worker_job *job,
                    void (*run)(struct worker_job *), void (*done)(struct worker_job *));

/* Jobs submitted and not yet done; of these, jobs that run on a thread at this moment. */
unsigned workers_outstanding(const struct workers *workers);
unsigned workers_running(const struct workers *workers);

/*
 * Ends the threads; call when nothing is outstanding. The pool is freed by the loop's next iteration, so run the loop
 * once more before it is closed.
 */
void workers_stop(struct workers *workers);

#endif
