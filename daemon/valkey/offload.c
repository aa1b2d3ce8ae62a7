#include "daemon/valkey/offload.h"

#include <stdlib.h>

struct offload {
    struct workers *workers;
    struct worker_owner owner;
    unsigned references;
};

struct offload *offload_create(struct workers *workers)
{
    struct offload *offload = calloc(1, sizeof(*offload));

    if (offload == NULL) {
        return NULL;
    }
    offload->workers = workers;
    offload->references = 1;
    worker_owner_init(&offload->owner);
    return offload;
}

void offload_unref(struct offload *offload)
{
    if (--offload->references == 0) {
        free(offload);
    }
}

static void run_job(struct worker_job *worker_job)
{
    struct offload_job *job = (struct offload_job *)worker_job;

    job->run(job);
}

static void job_done(struct worker_job *worker_job)
{
    struct offload_job *job = (struct offload_job *)worker_job;
    struct offload *offload = job->offload;

    job->done(job);
    offload_unref(offload);
}

void offload_submit(struct offload *offload, struct offload_job *job, void (*run)(struct offload_job *),
                    void (*done)(struct offload_job *))
{
    job->offload = offload;
    job->run = run;
    job->done = done;
    offload->references++;
    workers_submit(offload->workers, &offload->owner, &job->job, run_job, job_done);
}
