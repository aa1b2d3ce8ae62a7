#include "tests/rig/fake_threads.h"

#include "daemon/base/worker.h"
#include "daemon/fabric/progress.h"
#include "tests/rig/check.h"

/* --- workers --- */

struct workers {
    unsigned outstanding;
    struct worker_jobs given; /* that a worker could have in hand */
    struct worker_jobs stalled;
    struct worker_jobs finished;
};

static struct workers pool;

void worker_owner_init(struct worker_owner *owner)
{
    *owner = (struct worker_owner){0};
    TAILQ_INIT(&owner->waiting);
}

struct workers *workers_start(uv_loop_t *loop)
{
    TAILQ_INIT(&pool.given);
    TAILQ_INIT(&pool.stalled);
    TAILQ_INIT(&pool.finished);
    pool.outstanding = 0;
    return &pool;
}

static void give_jobs(struct worker_owner *owner)
{
    struct worker_job *job;

    while (owner->running < WORKER_JOBS_PER_OWNER && (job = TAILQ_FIRST(&owner->waiting)) != NULL) {
        TAILQ_REMOVE(&owner->waiting, job, link);
        TAILQ_INSERT_TAIL(&pool.given, job, link);
        owner->running++;
    }
}

void workers_submit(struct workers *workers, struct worker_owner *owner, struct worker_job *job,
                    void (*run)(struct worker_job *), void (*done)(struct worker_job *))
{
    job->owner = owner;
    job->run = run;
    job->done = done;
    workers->outstanding++;
    TAILQ_INSERT_TAIL(&owner->waiting, job, link);
    give_jobs(owner);
}

/* Takes one of those in hand; NULL: there is none. */
static struct worker_job *take_job(unsigned pick)
{
    struct worker_job *job;
    unsigned count = 0;

    TAILQ_FOREACH (job, &pool.given, link) {
        count++;
    }
    if (count == 0) {
        return NULL;
    }
    job = TAILQ_FIRST(&pool.given);
    for (pick %= count; pick > 0; pick--) {
        job = TAILQ_NEXT(job, link);
    }
    TAILQ_REMOVE(&pool.given, job, link);
    return job;
}

bool fake_workers_run(unsigned pick)
{
    struct worker_job *job = take_job(pick);

    if (job != NULL) {
        job->run(job);
        TAILQ_INSERT_TAIL(&pool.finished, job, link);
    }
    return job != NULL;
}

bool fake_workers_stall(unsigned pick)
{
    struct worker_job *job = take_job(pick);

    if (job != NULL) {
        TAILQ_INSERT_TAIL(&pool.stalled, job, link);
    }
    return job != NULL;
}

bool fake_workers_resume(void)
{
    bool any = !TAILQ_EMPTY(&pool.stalled);

    TAILQ_CONCAT(&pool.given, &pool.stalled, link);
    return any;
}

bool fake_workers_deliver(void)
{
    struct worker_jobs finished = TAILQ_HEAD_INITIALIZER(finished);
    struct worker_job *job;

    if (TAILQ_EMPTY(&pool.finished)) {
        return false;
    }
    TAILQ_CONCAT(&finished, &pool.finished, link);
    while ((job = TAILQ_FIRST(&finished)) != NULL) {
        TAILQ_REMOVE(&finished, job, link);
        pool.outstanding--;
        job->owner->running--;
        give_jobs(job->owner);
        job->done(job);
    }
    return true;
}

unsigned workers_running(const struct workers *workers)
{
    return 0;
}

unsigned workers_outstanding(const struct workers *workers)
{
    return workers->outstanding;
}

void workers_stop(struct workers *workers)
{
    RIG_CHECK(workers->outstanding == 0, "%u jobs are outstanding", workers->outstanding);
}

/* --- progress --- */

struct fabric_progress {
    unsigned members;
    TAILQ_HEAD(, progress_member) removed; /* by the link that the thread uses otherwise */
};

static struct fabric_progress thread;

struct fabric_progress *progress_start(uv_loop_t *loop, const struct fabric_ops *ops)
{
    thread.members = 0;
    TAILQ_INIT(&thread.removed);
    return &thread;
}

void progress_stop(struct fabric_progress *progress)
{
    RIG_CHECK(progress->members == 0, "%u endpoints are still under progress", progress->members);
}

void progress_add(struct fabric_progress *progress, struct progress_member *member)
{
    RIG_CHECK(!member->watched, "an endpoint was put under progress twice");
    member->watched = true;
    progress->members++;
}

void progress_remove(struct fabric_progress *progress, struct progress_member *member)
{
    RIG_CHECK(member->watched, "an endpoint was removed that was not under progress");
    member->watched = false;
    TAILQ_INSERT_TAIL(&progress->removed, member, due);
}

bool fake_progress_turn(void)
{
    struct progress_member *member = TAILQ_FIRST(&thread.removed);

    if (member == NULL) {
        return false;
    }
    TAILQ_REMOVE(&thread.removed, member, due);
    thread.members--;
    member->removed(member);
    return true;
}

unsigned fake_progress_members(void)
{
    return thread.members;
}
