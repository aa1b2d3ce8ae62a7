/*
 * lane_prepare: the registrations that a transfer needs and the lane's domain lacks. On providers with one domain a
 * NIC another lane may be making the same registration: then this one waits for it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/fabric/lane_private.h"

static void go_on(struct lane *lane);

/*
 * Sorts the slices: those the domain has are dropped, those it lacks go to the batch, those that somebody else is
 * making stay. A slice that is dropped is not looked at again: its owner may close it while others are waited for.
 */
static void sort_out(struct lane *lane)
{
    struct prepare_call *call = &lane->prepare;
    size_t left = 0;

    for (size_t i = 0; i < call->count && call->status >= 0; i++) {
        struct wanted_slice wanted = call->wanted[i];
        struct slice_mr *mr = mr_find(wanted.slice, lane->domain);

        if (wanted.closings != wanted.slice->closings) {
            call->status = -ECANCELED;
        } else if (mr == NULL) {
            mr = mr_new(wanted.slice, lane->domain);
            if (mr == NULL) {
                call->status = -ENOMEM;
                break;
            }
            mr->next = call->batch;
            call->batch = mr;
        } else if (mr->revoked) {
            call->wanted[left++] = wanted; /* to be made anew when it is gone */
        } else if (mr->state == MR_CLOSING || mr->close_owner != NULL) {
            call->status = -ECANCELED;
        } else if (mr->state == MR_MAKING) {
            call->wanted[left++] = wanted;
        }
    }
    call->count = left;
}

static void finish(struct lane *lane)
{
    struct prepare_call *call = &lane->prepare;
    int status = call->status < 0 ? call->status : lane->destroying ? -ECANCELED : 0;

    free(call->wanted);
    call->wanted = NULL;
    call->active = false;
    call->done(call->context, status);
}

static void prepare_run(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, prepare.job));

    for (struct slice_mr *mr = lane->prepare.batch; mr != NULL; mr = mr->next) {
        if (atomic_load(&lane->stop)) {
            mr->status = -ECANCELED;
        } else {
            mr_make(lane->fabric->ops, mr);
        }
    }
}

static void prepare_done(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, prepare.job));
    struct prepare_call *call = &lane->prepare;
    struct slice_mr *mr;

    while ((mr = call->batch) != NULL) {
        int status;
        call->batch = mr->next;
        status = mr_made(mr);
        if (call->status >= 0) {
            call->status = status;
        }
    }
    domain_tell_made(lane->domain);
    go_on(lane);
    lane_job_ended(lane);
}

static void made(struct made_waiter *waiter)
{
    struct lane *lane = (struct lane *)((char *)waiter - offsetof(struct lane, prepare.waiter));

    lane->prepare.waiting = false;
    go_on(lane);
}

static void submit(struct lane *lane)
{
    lane->jobs++;
    workers_submit(lane->fabric->workers, &lane->owner, &lane->prepare.job, prepare_run, prepare_done);
}

static void go_on(struct lane *lane)
{
    struct prepare_call *call = &lane->prepare;

    if (call->status >= 0 && !lane->destroying) {
        sort_out(lane);
        if (call->batch != NULL) {
            submit(lane);
            return;
        }
        if (call->status >= 0 && call->count > 0) {
            call->waiting = true;
            TAILQ_INSERT_TAIL(&lane->domain->made_waiters, &call->waiter, link);
            return;
        }
    }
    finish(lane);
}

void lane_prepare_abandon(struct lane *lane)
{
    struct prepare_call *call = &lane->prepare;

    if (call->active) {
        assert(call->waiting);
        TAILQ_REMOVE(&lane->domain->made_waiters, &call->waiter, link);
        call->waiting = false;
        finish(lane);
    }
}

void lane_prepare(struct lane *lane, struct slice *const *slices, size_t count, lane_done done, void *context)
{
    struct prepare_call *call = &lane->prepare;

    assert(!call->active && !lane->destroying);
    *call = (struct prepare_call){.active = true, .done = done, .context = context, .waiter = {.made = made}};
    call->wanted = reallocarray(NULL, count > 0 ? count : 1, sizeof(struct wanted_slice));
    if (call->wanted == NULL) {
        call->status = -ENOMEM;
    } else {
        for (size_t i = 0; i < count; i++) {
            call->wanted[i] = (struct wanted_slice){.slice = slices[i], .closings = slices[i]->closings};
        }
        call->count = count;
        sort_out(lane);
    }
    submit(lane); /* with an empty batch too: `done` never comes from inside this call */
}
