/*
 * Blocking work of one node (DNS, the password file) on the worker pool, as one owner: a hung name server holds at most
 * two workers, and neither the node nor a connection has to outlive a job that hangs. Counted: the node holds one
 * reference, each job another. Loop thread only, apart from `run`.
 */
#ifndef GRD_VALKEY_OFFLOAD_H
#define GRD_VALKEY_OFFLOAD_H

#include "daemon/base/worker.h"

struct offload;

/* Embedded in the job's own struct, which belongs to the job until `done`. */
struct offload_job {
    struct worker_job job; /* private */
    struct offload *offload; /* private */
    void (*run)(struct offload_job *job);  /* on a worker */
    void (*done)(struct offload_job *job); /* on the loop's thread; may free the job */
};

/* One reference, the caller's; NULL when out of memory. */
struct offload *offload_create(struct workers *workers);
void offload_unref(struct offload *offload);

/* Runs a job: it has no way back, so its owner leaves it alone and looks away when `done` comes too late. */
void offload_submit(struct offload *offload, struct offload_job *job, void (*run)(struct offload_job *),
                    void (*done)(struct offload_job *));

#endif
