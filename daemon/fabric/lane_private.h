/* The inside of a lane, shared by lane.c, lane_prepare.c and lane_destroy.c. */
#ifndef GRD_FABRIC_LANE_PRIVATE_H
#define GRD_FABRIC_LANE_PRIVATE_H

#include <stdatomic.h>

#include "daemon/fabric/domain.h"
#include "daemon/fabric/lane.h"
#include "daemon/fabric/progress.h"

struct peers_call {
    struct worker_job job;
    uint8_t *addresses; /* owned */
    size_t length, count;
    lane_done done;
    void *context;
    int status;
};

struct wanted_slice {
    struct slice *slice;
    unsigned closings; /* of the slice when it was asked for */
};

struct prepare_call {
    struct worker_job job;
    struct made_waiter waiter;
    bool active, waiting;
    struct wanted_slice *wanted; /* owned: those still to be had */
    size_t count;
    struct slice_mr *batch; /* those the job makes */
    lane_done done;
    void *context;
    int status;
};

struct destroy_call {
    struct worker_job job;
    lane_done done;
    void *context;
    struct slice_mr *claimed; /* registrations of the lane's own domain that the job closes */
    bool revoked;             /* the first job ended: endpoint and claimed registrations are closed */
    bool waits_for_uses;      /* registrations that another lane's destruction closes are not gone yet */
    bool free_at_once;        /* nobody else is closing registrations of the domain */
    int status;
};

struct lane {
    struct mr_use *uses; /* owned: registrations that the current command names (lane_uses.c) */
    size_t use_capacity, use_count;
    size_t uses_left; /* of them, still there */
    bool collateral;
    int use_status; /* the worst of those that ended */

    struct fabric *fabric;
    unsigned nic;
    uint32_t may_be_on;    /* NICs, while it is being opened: without those that failed */
    struct domain *domain; /* the lane's own on providers with one per lane, else the NIC's */
    char *bind;            /* may be NULL */
    struct fabric_endpoint *endpoint; /* NULL while not open */
    uint8_t address[FABRIC_ADDRESS_BYTES];
    size_t address_length;

    struct worker_owner owner; /* the lane's own: one that hangs leaves the workers to the others */
    unsigned jobs;             /* jobs and waits outstanding, that of lane_destroy left out */
    atomic_bool stop;          /* tells workers not to start anything more */
    bool destroying;
    bool progressing; /* the endpoint is the progress thread's */
    struct progress_member member;

    struct worker_job open_job;
    struct domain_waiter open_waiter;
    lane_opened opened;
    void *opened_context;
    int open_status;
    int wait_fd;
    char why[FABRIC_WHY_BYTES];

    struct peers_call peers;
    struct prepare_call prepare;
    struct destroy_call destroy;
};

/* A job or a wait of the lane ended: goes on with lane_destroy when it was the last and that was called. */
void lane_job_ended(struct lane *lane);

/* Called by the progress thread's owner when the endpoint is ours again. */
void lane_endpoint_removed(struct progress_member *member);

/* Ends a preparation that still waits for others. */
void lane_prepare_abandon(struct lane *lane);

/* lane_uses.c: the registrations that the lane's command names and nobody is closing, now the caller's to close; lanes
 * that name them as well are marked. */
struct slice_mr *lane_claim_used(struct lane *lane);

/* A registration is gone, status 0: closed. */
void lane_mr_gone(struct mr_uses *uses, int status);

/* lane_destroy.c: the last registration that the lane's command named is gone. */
void lane_uses_gone(struct lane *lane);

/* Gives back the lane's place under lanes_max, an own domain that is not open, and the memory. */
void lane_free(struct lane *lane);

#endif
