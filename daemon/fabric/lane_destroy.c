/*
 * lane_destroy: how a transfer is taken back.
 *
 * tcp            The endpoint is taken from the progress thread and closed: that closes its sockets, and bytes move
 *                only inside calls of the provider on them, so none moves afterwards. Closing the registration alone
 *                is no barrier: its key is looked at when a message's header arrives, and a message that has begun
 *                goes on landing (or, the other way round, goes on being read). The lane's own domain goes as well,
 *                with every registration in it.
 * verbs          Closing the endpoint destroys its queue pairs: the NIC refuses what still arrives for them. Domain
 *                and registrations are the NIC's and stay, for the other lanes.
 * efa-direct     As verbs: closing the endpoint destroys its queue pair. That this alone stops a running transfer was
 *                measured by nobody here, that closing the registration does was, elsewhere: so the registrations that
 *                the lane's command named are closed too, and made anew when next needed. Transfers of other lanes on
 *                them fail with that and are run again (lane_uses.c). [fabric] revoke = endpoint leaves them open.
 *
 * Every close is called once for its object, whatever it returns. When closing the endpoint fails, or on efa-direct a
 * registration that its command named, the status is negative: the windows' memory must be kept. On tcp a registration
 * that fails to close keeps its own slice's memory (mr_ended) and nobody else's: the endpoint is closed, no byte moves.
 * Queues and domains hold no client memory, theirs is only logged.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/base/log.h"
#include "daemon/fabric/lane_private.h"

static void log_failure(struct lane *lane, const char *what, int status)
{
    if (status < 0) {
        log_error("fabric: lane on NIC %s: closing %s: %s (%d)", lane->fabric->nics[lane->nic].name, what,
                  lane->fabric->ops->text(status), status);
    }
}

/* On a worker. */
static void free_rest(struct lane *lane)
{
    const struct fabric_ops *ops = lane->fabric->ops;

    if (lane->endpoint == NULL) {
        return;
    }
    log_failure(lane, "queues", ops->endpoint_free(lane->endpoint));
    if (lane->fabric->domain_per_lane) {
        log_failure(lane, "domain", ops->domain_close(lane->domain->handle));
    }
}

/* On a worker. The order counts: bytes stop with the endpoint; only then may keys go. */
static void revoke_run(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, destroy.job));
    struct destroy_call *call = &lane->destroy;
    const struct fabric_ops *ops = lane->fabric->ops;

    if (lane->endpoint != NULL) {
        call->status = ops->endpoint_close(lane->endpoint);
        log_failure(lane, "endpoint", call->status);
    }
    for (struct slice_mr *mr = call->claimed; mr != NULL; mr = mr->next) {
        mr->status = ops->mr_close(mr->handle);
        log_failure(lane, "registration", mr->status);
    }
    if (call->free_at_once) {
        free_rest(lane);
    }
}

static void finish(struct lane *lane)
{
    struct destroy_call call = lane->destroy;

    if (call.status >= 0 && lane->use_status < 0) {
        call.status = lane->use_status;
    }
    lane_free(lane);
    call.done(call.context, call.status);
}

static void free_run(struct worker_job *job)
{
    free_rest((struct lane *)((char *)job - offsetof(struct lane, destroy.job)));
}

static void free_done(struct worker_job *job)
{
    finish((struct lane *)((char *)job - offsetof(struct lane, destroy.job)));
}

/* Nobody closes registrations of the lane's domain any more: the domain can go. */
static void closings_ended(void *context)
{
    struct lane *lane = context;

    if (lane->destroy.revoked) {
        workers_submit(lane->fabric->workers, &lane->owner, &lane->destroy.job, free_run, free_done);
    }
}

/*
 * A registration of an endpoint that could not be closed counts as not closed, though its own close went well: on tcp
 * that one proves nothing.
 */
static void report_registrations(struct lane *lane)
{
    struct destroy_call *call = &lane->destroy;
    int endpoint_status = call->status;
    struct slice_mr *mr;

    while ((mr = call->claimed) != NULL) {
        int status = mr->status < 0 ? mr->status : endpoint_status;
        call->claimed = mr->next;
        if (call->status >= 0 && !lane->fabric->domain_per_lane) {
            call->status = mr->status;
        }
        mr_gone(mr, true, status);
    }
}

void lane_uses_gone(struct lane *lane)
{
    if (lane->destroy.waits_for_uses) {
        finish(lane);
    }
}

static void revoke_done(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, destroy.job));
    struct destroy_call *call = &lane->destroy;
    bool made_room = call->claimed != NULL && !lane->fabric->domain_per_lane;

    lane_prepare_abandon(lane);
    report_registrations(lane);
    if (made_room) {
        domain_tell_made(lane->domain); /* those who wait make them anew */
    }
    if (call->free_at_once && lane->uses_left > 0) {
        call->waits_for_uses = true;
        return;
    }
    if (call->free_at_once) {
        finish(lane);
        return;
    }
    call->revoked = true;
    if (lane->domain->closing == 0) {
        closings_ended(lane);
    }
}

/* Takes the registrations of the lane's own domain that nobody is closing, or those of the NIC's that its command
 * named. None of its own domain is being made: no job is left. */
static void claim_registrations(struct lane *lane)
{
    struct slice_mr *mr;

    if (!lane->fabric->domain_per_lane) {
        lane->destroy.claimed = lane_claim_used(lane);
        return;
    }
    LIST_FOREACH (mr, &lane->domain->mrs, link) {
        assert(mr->state != MR_MAKING);
        if (mr->state == MR_OPEN) {
            mr->state = MR_CLOSING;
            mr->next = lane->destroy.claimed;
            lane->destroy.claimed = mr;
        }
    }
}

static void try_revoke(struct lane *lane)
{
    struct destroy_call *call = &lane->destroy;

    if (!lane->destroying || lane->progressing || lane->jobs > 0) {
        return;
    }
    claim_registrations(lane);
    call->free_at_once = !lane->fabric->domain_per_lane || lane->domain->closing == 0;
    if (!call->free_at_once) {
        lane->domain->closings_ended = closings_ended;
        lane->domain->context = lane;
    }
    workers_submit(lane->fabric->workers, &lane->owner, &call->job, revoke_run, revoke_done);
}

void lane_endpoint_removed(struct progress_member *member)
{
    struct lane *lane = (struct lane *)((char *)member - offsetof(struct lane, member));

    lane->progressing = false;
    try_revoke(lane);
}

void lane_job_ended(struct lane *lane)
{
    lane->jobs--;
    try_revoke(lane);
}

void lane_destroy(struct lane *lane, lane_done done, void *context)
{
    assert(!lane->destroying);
    lane->destroying = true;
    lane->destroy.done = done;
    lane->destroy.context = context;
    atomic_store(&lane->stop, true);
    if (lane->progressing) {
        progress_remove(lane->fabric->progress, &lane->member);
    }
    try_revoke(lane);
}
