/*
 * The two budgets of registered memory (docs/architecture.md, "Memory accounting"): *memlock*, the bytes that are
 * registered on any NIC, counted once for each of them; and for each NIC its *device* budget, in bytes and in number of
 * registrations. Where lanes have domains of their own (tcp) the host is one NIC, number 0.
 *
 * An arena is charged for all of its pages on a NIC before the first registration of it there starts, and what was
 * charged is given back after its last registration there was closed. What could not be closed stays charged. Loop
 * thread only.
 */
#ifndef GRD_MEMORY_BUDGET_H
#define GRD_MEMORY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/ledger.h"
#include "daemon/base/pin_account.h"
#include "daemon/base/pin_limit.h"
#include "daemon/fabric/fabric.h"

struct memory_error;

struct budget_device {
    struct ledger bytes;
    struct ledger registrations; /* their number */
};

struct budget {
    struct ledger memlock;
    uint64_t queues;        /* bytes of memlock that connections hold for themselves */
    struct pin_limit limit; /* where memlock.limit comes from */
    struct budget_device devices[FABRIC_NICS];
    unsigned device_count;
    const struct fabric *fabric; /* the NICs' names */
};

struct budget_settings {
    struct pin_limit limit;
    uint64_t device_limit; /* bytes on one NIC; 0: none */
};

/* What an arena takes on one NIC. */
struct charge {
    uint64_t bytes, registrations;
};

void budget_init(struct budget *budget, const struct budget_settings *settings, const struct fabric *fabric);

/* Other limits from now on. What is charged stays; where it is more than the new limit nothing is added until it
 * fell. */
void budget_set_limits(struct budget *budget, const struct budget_settings *settings);

/* The NIC that a NIC's registrations are charged to. */
unsigned budget_nic(const struct budget *budget, unsigned nic);

/* Whether budget_charge would succeed now. */
bool budget_fits(const struct budget *budget, unsigned nic, struct charge charge);

/* Charges all of it, or nothing: 0, or PROTO_ERR_OVER_BUDGET with `error` filled. */
int budget_charge(struct budget *budget, unsigned nic, struct charge charge, struct memory_error *error);
void budget_release(struct budget *budget, unsigned nic, struct charge charge);

/* Marks what is charged as never to be released. */
void budget_quarantine(struct budget *budget, unsigned nic, struct charge charge);

/*
 * Where connections to servers charge what they register for themselves (windows, staging memory, receives): bytes of
 * memlock, counted as `queues`. They are no NIC's bytes: which device carries a connection is found while it is made.
 * Good as long as the budget.
 */
struct pin_account budget_queue_account(struct budget *budget);

/* The first NIC that it fits on, or 0, whose refusal is then told. */
unsigned budget_choose(const struct budget *budget, struct charge charge);

/*
 * Fills `error` for a registration that the provider refused although it had been charged: where it pins and has run
 * out of something, PROTO_ERR_OVER_BUDGET with the numbers of both budgets and the one that was most likely hit; else
 * PROTO_ERR_NOT_USABLE. `why`: the provider's words.
 */
void budget_explain_refusal(const struct budget *budget, unsigned nic, struct charge charge, int status,
                            const char *why, struct memory_error *error);

#endif
