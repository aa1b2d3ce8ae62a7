#include "daemon/fabric/lane.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/fabric/lane_private.h"
#include "daemon/fabric/nics.h"

/* Opening */

static void open_run(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, open_job));
    const struct fabric_ops *ops = lane->fabric->ops;
    struct domain *domain = lane->domain;

    if (lane->open_status < 0) {
        return; /* the NIC's domain could not be opened */
    }
    if (atomic_load(&lane->stop)) {
        lane->open_status = -ECANCELED;
        return;
    }
    if (lane->fabric->domain_per_lane) {
        struct fabric_settings settings = fabric_nic_settings(lane->fabric, lane->nic, lane->bind);
        lane->open_status = ops->domain_open(&settings, &domain->handle, lane->why);
        if (lane->open_status < 0) {
            return;
        }
    }
    lane->open_status = ops->endpoint_open(domain->handle, &lane->endpoint, lane->address, &lane->address_length,
                                           lane->why);
    if (lane->open_status >= 0) {
        lane->wait_fd = ops->endpoint_wait_fd(lane->endpoint);
        return;
    }
    lane->endpoint = NULL;
    if (lane->fabric->domain_per_lane) {
        ops->domain_close(domain->handle);
        domain->handle = NULL;
    }
}

static void start_progress(struct lane *lane)
{
    if (lane->wait_fd < 0) {
        return;
    }
    lane->member = (struct progress_member){
        .endpoint = lane->endpoint, .wait_fd = lane->wait_fd, .removed = lane_endpoint_removed};
    lane->progressing = true;
    progress_add(lane->fabric->progress, &lane->member);
}

static void open_failed(struct lane *lane)
{
    lane_opened opened = lane->opened;
    void *context = lane->opened_context;
    int status = lane->open_status;
    char why[FABRIC_WHY_BYTES];

    snprintf(why, sizeof(why), "%s", lane->why);
    lane_free(lane);
    opened(context, NULL, status, why);
}

static void begin_opening(struct lane *lane);

/* On another NIC that would do, each one once: false when there is none. */
static bool open_elsewhere(struct lane *lane)
{
    struct fabric *fabric = lane->fabric;
    struct domain *domain = lane->domain;
    int nic;

    lane->may_be_on &= ~(UINT32_C(1) << lane->nic);
    nic = nics_choose_working(fabric, lane->may_be_on);
    if (nic >= 0 && !fabric->domain_per_lane) {
        domain = domain_home(fabric, (unsigned)nic);
    }
    if (nic < 0 || domain == NULL) {
        return false;
    }
    fabric->nic_lanes[lane->nic]--;
    fabric->nic_lanes[nic]++;
    lane->nic = (unsigned)nic;
    lane->domain = domain;
    if (fabric->domain_per_lane) {
        domain->nic = (unsigned)nic; /* nobody else has it; in one that lanes share workers look at it */
    }
    lane->open_status = 0;
    lane->why[0] = '\0';
    begin_opening(lane);
    return true;
}

static void open_done(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, open_job));

    if (lane->destroying) {
        int status = lane->open_status < 0 ? lane->open_status : -ECANCELED;
        lane->opened(lane->opened_context, NULL, status, lane->why[0] != '\0' ? lane->why : "the lane is given up");
        lane_job_ended(lane);
        return;
    }
    lane_job_ended(lane);
    if (lane->open_status < 0) {
        nics_failed(lane->fabric, lane->nic, lane->why);
        if (!open_elsewhere(lane)) {
            open_failed(lane);
        }
        return;
    }
    nics_worked(lane->fabric, lane->nic);
    start_progress(lane);
    lane->opened(lane->opened_context, lane, 0, "");
}

static void domain_ready(struct domain_waiter *waiter, int status, const char *why)
{
    struct lane *lane = (struct lane *)((char *)waiter - offsetof(struct lane, open_waiter));

    if (status < 0) {
        lane->open_status = status;
        snprintf(lane->why, sizeof(lane->why), "%s", why);
    }
    workers_submit(lane->fabric->workers, &lane->owner, &lane->open_job, open_run, open_done);
}

static void begin_opening(struct lane *lane)
{
    lane->jobs++;
    if (lane->fabric->domain_per_lane || domain_want(lane->domain, &lane->open_waiter)) {
        domain_ready(&lane->open_waiter, 0, "");
    }
}

static struct lane *new_lane(struct fabric *fabric, unsigned nic, const char *bind)
{
    struct lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL) {
        return NULL;
    }
    if (bind != NULL && (lane->bind = strdup(bind)) == NULL) {
        free(lane);
        return NULL;
    }
    lane->domain = fabric->domain_per_lane ? domain_new(fabric, nic) : domain_home(fabric, nic);
    if (lane->domain == NULL) {
        free(lane->bind);
        free(lane);
        return NULL;
    }
    lane->fabric = fabric;
    lane->nic = nic;
    atomic_init(&lane->stop, false);
    worker_owner_init(&lane->owner);
    fabric->lanes++;
    fabric->nic_lanes[nic]++;
    return lane;
}

void lane_free(struct lane *lane)
{
    lane->fabric->lanes--;
    lane->fabric->nic_lanes[lane->nic]--;
    if (lane->fabric->domain_per_lane) {
        domain_free(lane->domain);
    }
    free(lane->uses);
    free(lane->bind);
    free(lane);
}

int lane_open(struct fabric *fabric, uint32_t nics, const char *bind, lane_opened opened, void *context,
              struct lane **result)
{
    struct lane *lane;
    int nic;

    if (!fabric->usable) {
        return -ENETDOWN;
    }
    nic = nics_choose(fabric, nics);
    if (nic < 0) {
        return nic;
    }
    lane = new_lane(fabric, (unsigned)nic, bind);
    if (lane == NULL) {
        return -ENOMEM;
    }
    lane->opened = opened;
    lane->opened_context = context;
    lane->open_waiter.ready = domain_ready;
    lane->may_be_on = nics;
    *result = lane;
    begin_opening(lane);
    return 0;
}

/* Use */

unsigned lane_nic(const struct lane *lane)
{
    return lane->nic;
}

const uint8_t *lane_address(const struct lane *lane, size_t *length)
{
    *length = lane->address_length;
    return lane->address;
}

bool lane_has(const struct lane *lane, const struct slice *slice)
{
    const struct slice_mr *mr = mr_find(slice, lane->domain);

    return mr != NULL && mr->state == MR_OPEN;
}

struct slice_triple lane_triple(const struct lane *lane, const struct slice *slice, uint64_t offset, uint64_t length)
{
    const struct slice_mr *mr = mr_find(slice, lane->domain);
    uint64_t start = lane->fabric->nics[lane->nic].virtual_addresses ? (uint64_t)(uintptr_t)slice->base : 0;

    assert(mr != NULL && mr->state == MR_OPEN);
    return (struct slice_triple){.key = mr->key, .address = start + offset, .length = length};
}

static void peers_run(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, peers.job));
    struct peers_call *call = &lane->peers;

    for (size_t i = 0; i < call->count && call->status >= 0; i++) {
        call->status = atomic_load(&lane->stop)
                           ? -ECANCELED
                           : lane->fabric->ops->endpoint_add_peer(lane->endpoint, call->addresses + i * call->length,
                                                                  call->length);
    }
}

static void peers_done(struct worker_job *job)
{
    struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, peers.job));
    struct peers_call call = lane->peers;

    free(call.addresses);
    lane->peers = (struct peers_call){0};
    if (lane->destroying && call.status >= 0) {
        call.status = -ECANCELED;
    }
    call.done(call.context, call.status); /* may call lane_destroy, which then waits for the line below */
    lane_job_ended(lane);
}

void lane_add_peers(struct lane *lane, const uint8_t *addresses, size_t length, size_t count, lane_done done,
                    void *context)
{
    assert(lane->peers.done == NULL && !lane->destroying);
    lane->peers = (struct peers_call){.length = length, .count = count, .done = done, .context = context};
    if (count > 0 && length > 0) {
        lane->peers.addresses = reallocarray(NULL, count, length);
        if (lane->peers.addresses == NULL) {
            lane->peers.status = -ENOMEM;
        } else {
            memcpy(lane->peers.addresses, addresses, count * length);
        }
    }
    lane->jobs++;
    workers_submit(lane->fabric->workers, &lane->owner, &lane->peers.job, peers_run, peers_done);
}
