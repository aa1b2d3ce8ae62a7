/*
 * Domains and the registrations in them; private to daemon/fabric/.
 *
 * A domain has a small index, used again after it is gone: a slice finds its registration in a domain by it. All
 * fields are the loop's unless said otherwise; workers see a domain's handle and a registration's own fields only.
 */
#ifndef GRD_FABRIC_DOMAIN_H
#define GRD_FABRIC_DOMAIN_H

#include <sys/queue.h>

#include "daemon/fabric/slice.h"

enum domain_state { DOMAIN_ABSENT, DOMAIN_OPENING, DOMAIN_OPEN };

/* Somebody who waits for a NIC's domain to be opened. */
struct domain_waiter {
    TAILQ_ENTRY(domain_waiter) link;
    void (*ready)(struct domain_waiter *waiter, int status, const char *why);
};

/* Somebody who waits for a registration that another one is making. */
struct made_waiter {
    TAILQ_ENTRY(made_waiter) link;
    void (*made)(struct made_waiter *waiter);
};

TAILQ_HEAD(made_waiters, made_waiter);

struct domain {
    struct fabric *fabric;
    unsigned nic, index;
    enum domain_state state;
    struct fabric_domain *handle;
    LIST_HEAD(, slice_mr) mrs;
    struct made_waiters made_waiters;
    unsigned closing;             /* registrations that slice_close_registrations is closing */
    void (*closings_ended)(void *context);
    void *context;

    /* opening, of a NIC's domain */
    struct worker_owner owner;
    struct worker_job job;
    TAILQ_HEAD(, domain_waiter) waiters;
    int status;
    char why[FABRIC_WHY_BYTES];
};

enum mr_state { MR_MAKING, MR_OPEN, MR_CLOSING };

/* A lane's command names a registration; in the lane (lane_uses.c). */
struct mr_use {
    LIST_ENTRY(mr_use) link;
    struct lane *lane;
    struct slice_mr *mr; /* NULL: not any more */
};

LIST_HEAD(mr_uses, mr_use);

struct slice_mr {
    LIST_ENTRY(slice_mr) link; /* in its domain */
    struct slice_mr *next;     /* in a worker's batch */
    struct slice *slice;
    struct domain *domain;
    enum mr_state state;
    struct worker_owner *close_owner; /* not NULL: close it as soon as it is made */
    struct mr_uses uses;              /* only where fabric->revoke_slices */
    bool revoked;                     /* a lane's destruction is closing it: then it may be made anew */

    /* a worker's while a job runs */
    struct worker_job job;
    uint8_t *base;
    size_t length;
    unsigned access;
    struct fabric_mr *handle;
    uint64_t key;
    int status;
};

/* To query. */
struct fabric_settings fabric_settings(const struct fabric *fabric);
/* To open a domain on a NIC; `local`: on tcp the local address of the RESP connection, or NULL. */
struct fabric_settings fabric_nic_settings(const struct fabric *fabric, unsigned nic, const char *local);

/* A domain with an index, not open; NULL when out of memory. */
struct domain *domain_new(struct fabric *fabric, unsigned nic);
void domain_free(struct domain *domain);

/* The NIC's own domain, made but not opened here; NULL when out of memory. */
struct domain *domain_home(struct fabric *fabric, unsigned nic);
/* True: it is open. Else it is being opened and waiter->ready is called later. */
bool domain_want(struct domain *domain, struct domain_waiter *waiter);

/* A registration being made, entered in slice and domain; NULL when out of memory. */
struct slice_mr *mr_new(struct slice *slice, struct domain *domain);
/* On a worker: makes it; mr->status. */
void mr_make(const struct fabric_ops *ops, struct slice_mr *mr);
/*
 * Afterwards: enters the result. 0, the provider's error (mr is gone), or -ECANCELED when the slice was to be closed
 * meanwhile (mr is being closed or gone).
 */
int mr_made(struct slice_mr *mr);
/* Tells those who wait for registrations of the domain; after mr_made of a whole batch. */
void domain_tell_made(struct domain *domain);
/* Takes a registration that ended out of slice and domain and frees it; `tell`: calls mr_ended. */
void mr_gone(struct slice_mr *mr, bool tell, int status);

static inline struct slice_mr *mr_find(const struct slice *slice, const struct domain *domain)
{
    return domain->index < slice->mr_slots ? slice->mrs[domain->index] : NULL;
}

#endif
