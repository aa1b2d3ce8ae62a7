#include "daemon/fabric/slice.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/fabric/lane_private.h"
#include "daemon/fabric/mapping.h"
#include "daemon/fabric/nics.h"

void slice_init(struct slice *slice, uint8_t *base, size_t length, unsigned access,
                void (*mr_ended)(struct slice *, unsigned nic, int status), void *owner)
{
    *slice = (struct slice){.base = base, .length = length, .access = access, .mr_ended = mr_ended, .owner = owner,
                            .mapping = {.lock = PTHREAD_MUTEX_INITIALIZER}};
}

static int reserve_slot(struct slice *slice, const struct domain *domain)
{
    unsigned slots = domain->fabric->domain_slots;
    struct slice_mr **mrs;

    if (domain->index < slice->mr_slots) {
        return 0;
    }
    mrs = reallocarray(slice->mrs, slots, sizeof(struct slice_mr *));
    if (mrs == NULL) {
        return -ENOMEM;
    }
    memset(mrs + slice->mr_slots, 0, (slots - slice->mr_slots) * sizeof(struct slice_mr *));
    slice->mrs = mrs;
    slice->mr_slots = slots;
    return 0;
}

static void release_slots(struct slice *slice)
{
    if (slice->mr_count == 0) {
        free(slice->mrs);
        slice->mrs = NULL;
        slice->mr_slots = 0;
    }
}

struct slice_mr *mr_new(struct slice *slice, struct domain *domain)
{
    struct slice_mr *mr = calloc(1, sizeof(*mr));

    if (mr == NULL) {
        return NULL;
    }
    if (reserve_slot(slice, domain) != 0) {
        free(mr);
        return NULL;
    }
    assert(slice->mrs[domain->index] == NULL);
    mr->slice = slice;
    mr->domain = domain;
    mr->base = slice->base;
    mr->length = slice->length;
    mr->access = slice->access;
    mr->state = MR_MAKING;
    LIST_INIT(&mr->uses);
    slice->mrs[domain->index] = mr;
    slice->mr_count++;
    LIST_INSERT_HEAD(&domain->mrs, mr, link);
    return mr;
}

void mr_make(const struct fabric_ops *ops, struct slice_mr *mr)
{
    struct fabric *fabric = mr->domain->fabric;
    int error;

    mr->status = fabric->hides_mappings ? mapping_show(mr) : 0;
    if (mr->status < 0) {
        return;
    }
    atomic_fetch_add_explicit(&fabric->registrations[mr->domain->nic], 1, memory_order_relaxed);
    mr->status = ops->mr_open(mr->domain->handle, mr->base, mr->length, mr->access, &mr->handle, &mr->key);
    error = fabric->hides_mappings ? mapping_hide(mr) : 0;
    if (error < 0 && mr->status >= 0) {
        int status = ops->mr_close(mr->handle);
        if (status < 0) { /* the registration stands: it is worth more to know that than to have it hidden */
            log_error("fabric: closing a registration of %zu bytes: %s (%d)", mr->length, ops->text(status), status);
            return;
        }
        mr->handle = NULL;
        mr->status = error;
    }
}

void mr_gone(struct slice_mr *mr, bool tell, int status)
{
    struct slice *slice = mr->slice;
    unsigned nic = mr->domain->nic;
    struct mr_uses uses = LIST_HEAD_INITIALIZER(uses);
    struct mr_use *use;

    while ((use = LIST_FIRST(&mr->uses)) != NULL) {
        LIST_REMOVE(use, link);
        LIST_INSERT_HEAD(&uses, use, link);
    }
    LIST_REMOVE(mr, link);
    slice->mrs[mr->domain->index] = NULL;
    slice->mr_count--;
    release_slots(slice);
    free(mr);
    if (tell) {
        slice->mr_ended(slice, nic, status);
    }
    lane_mr_gone(&uses, status);
}

static void close_run(struct worker_job *job)
{
    struct slice_mr *mr = (struct slice_mr *)((char *)job - offsetof(struct slice_mr, job));

    if (mr->handle != NULL) {
        mr->status = mr->domain->fabric->ops->mr_close(mr->handle);
    }
}

static void close_done(struct worker_job *job)
{
    struct slice_mr *mr = (struct slice_mr *)((char *)job - offsetof(struct slice_mr, job));
    struct domain *domain = mr->domain;

    if (mr->status < 0) {
        log_error("fabric: closing a registration of %zu bytes: %s (%d)", mr->length,
                  domain->fabric->ops->text(mr->status), mr->status);
    }
    domain->closing--;
    mr_gone(mr, true, mr->status);
    if (domain->closing == 0 && domain->closings_ended != NULL) {
        domain->closings_ended(domain->context);
    }
}

static void start_close(struct fabric *fabric, struct slice_mr *mr, struct worker_owner *owner)
{
    mr->state = MR_CLOSING;
    mr->domain->closing++;
    workers_submit(fabric->workers, owner, &mr->job, close_run, close_done);
}

/* One without a handle, that ends with `status`: mr_ended has to come after the callback of who was making it. */
static void end_later(struct fabric *fabric, struct slice_mr *mr, struct worker_owner *owner, int status)
{
    mr->handle = NULL;
    mr->status = status;
    start_close(fabric, mr, owner);
}

int mr_made(struct slice_mr *mr)
{
    struct fabric *fabric = mr->domain->fabric;
    int status = mr->status;

    if (mr->close_owner != NULL && status < 0) {
        end_later(fabric, mr, mr->close_owner, 0);
        return status;
    }
    if (mr->close_owner != NULL) {
        start_close(fabric, mr, mr->close_owner);
        return -ECANCELED;
    }
    if (status < 0) {
        mr_gone(mr, false, status);
        return status;
    }
    mr->state = MR_OPEN;
    return 0;
}

unsigned slice_close_registrations(struct slice *slice, struct fabric *fabric, struct worker_owner *owner)
{
    slice->closings++;
    for (unsigned i = 0; i < slice->mr_slots; i++) {
        struct slice_mr *mr = slice->mrs[i];
        if (mr == NULL) {
            continue;
        }
        if (mr->state == MR_MAKING) {
            mr->close_owner = owner;
        } else if (mr->state == MR_OPEN) {
            start_close(fabric, mr, owner);
        }
    }
    return slice->mr_count;
}

/* slice_prove: one job, or a wait for whoever is registering the slice on that NIC already. */

struct proof {
    struct worker_job job;
    struct domain_waiter opened;
    struct made_waiter made;
    struct slice *slice;
    unsigned closings; /* of the slice when the proof was asked for */
    struct fabric *fabric;
    struct worker_owner *owner;
    struct domain *domain;
    struct slice_mr *mr; /* NULL: somebody else's */
    void (*done)(void *context, int status, const char *why);
    void *context;
    int status;
    int close_status;
    char why[FABRIC_WHY_BYTES];
};

static void finish_proof(struct proof *proof, int status, const char *why)
{
    proof->done(proof->context, status, why);
    free(proof);
}

static void explain(struct proof *proof, int status)
{
    snprintf(proof->why, sizeof(proof->why), "registering %zu bytes on NIC %s: %s (%d)", proof->slice->length,
             proof->fabric->nics[proof->domain->nic].name, proof->fabric->ops->text(status), status);
}

static void prove_run(struct worker_job *job)
{
    struct proof *proof = (struct proof *)((char *)job - offsetof(struct proof, job));
    const struct fabric_ops *ops = proof->fabric->ops;
    struct slice_mr *mr = proof->mr;

    if (mr == NULL || mr->status < 0) {
        return;
    }
    mr_make(ops, mr);
    if (mr->status >= 0 && proof->fabric->domain_per_lane) {
        proof->close_status = ops->mr_close(mr->handle);
        mr->handle = NULL;
    }
}

/* The registration of a proof on a provider with a domain per lane: closed already. */
static int end_throw_away(struct proof *proof)
{
    struct slice_mr *mr = proof->mr;
    int status = proof->close_status;

    if (mr->close_owner != NULL) {
        end_later(proof->fabric, mr, mr->close_owner, status);
        return status < 0 ? status : -ECANCELED;
    }
    if (status < 0) {
        end_later(proof->fabric, mr, &proof->domain->owner, status);
        return status;
    }
    mr_gone(mr, false, 0);
    return 0;
}

static void end_making(struct proof *proof)
{
    struct slice_mr *mr = proof->mr;
    bool throw_away = proof->fabric->domain_per_lane && mr->status >= 0;

    if (mr->status < 0 && proof->why[0] == '\0') {
        explain(proof, mr->status);
    }
    proof->status = throw_away ? end_throw_away(proof) : mr_made(mr);
    if (proof->status < 0 && proof->why[0] == '\0') {
        explain(proof, proof->status);
    }
    domain_tell_made(proof->domain);
}

static void prove_done(struct worker_job *job)
{
    struct proof *proof = (struct proof *)((char *)job - offsetof(struct proof, job));

    if (proof->mr != NULL) {
        end_making(proof);
    }
    finish_proof(proof, proof->status, proof->why);
}

static void start_proof(struct proof *proof)
{
    workers_submit(proof->fabric->workers, proof->owner, &proof->job, prove_run, prove_done);
}

static void prove_domain_ready(struct domain_waiter *waiter, int status, const char *why)
{
    struct proof *proof = (struct proof *)((char *)waiter - offsetof(struct proof, opened));

    if (status < 0) {
        proof->mr->status = status;
        snprintf(proof->why, sizeof(proof->why), "%s", why);
    }
    start_proof(proof);
}

/* Looks at what the NIC has of the slice; submits a job or waits, so that `done` always comes later. */
static int look(struct proof *proof)
{
    struct slice_mr *mr = mr_find(proof->slice, proof->domain);
    bool closed = proof->slice->closings != proof->closings;

    if (mr == NULL && !closed) {
        proof->mr = mr_new(proof->slice, proof->domain);
        if (proof->mr == NULL) {
            return -ENOMEM;
        }
        if (domain_want(proof->domain, &proof->opened)) {
            start_proof(proof);
        }
        return 0;
    }
    if (!closed && mr->state == MR_MAKING && mr->close_owner == NULL) {
        TAILQ_INSERT_TAIL(&proof->domain->made_waiters, &proof->made, link);
        return 0;
    }
    if (closed || mr->state != MR_OPEN) {
        proof->status = -ECANCELED;
        explain(proof, proof->status);
    }
    start_proof(proof);
    return 0;
}

static void prove_made(struct made_waiter *waiter)
{
    struct proof *proof = (struct proof *)((char *)waiter - offsetof(struct proof, made));
    int status = look(proof);

    if (status < 0) {
        finish_proof(proof, status, "out of memory");
    }
}

int slice_prove(struct slice *slice, struct fabric *fabric, unsigned nic, struct worker_owner *owner,
                void (*done)(void *context, int status, const char *why), void *context)
{
    struct proof *proof;
    int status;

    if (!fabric->usable) {
        return -ENETDOWN;
    }
    proof = calloc(1, sizeof(*proof));
    if (proof == NULL) {
        return -ENOMEM;
    }
    proof->opened.ready = prove_domain_ready;
    proof->made.made = prove_made;
    proof->slice = slice;
    proof->closings = slice->closings;
    proof->fabric = fabric;
    proof->owner = owner;
    proof->done = done;
    proof->context = context;
    if (fabric->domain_per_lane) { /* any will do */
        int working = nics_choose(fabric, LANE_ANY_NIC);
        nic = working >= 0 ? (unsigned)working : nic;
    }
    proof->domain = domain_home(fabric, nic);
    status = proof->domain != NULL ? look(proof) : -ENOMEM;
    if (status < 0) {
        free(proof);
    }
    return status;
}

bool slice_on_nic(const struct slice *slice, const struct fabric *fabric, unsigned nic)
{
    return fabric->homes[nic] != NULL && mr_find(slice, fabric->homes[nic]) != NULL;
}
