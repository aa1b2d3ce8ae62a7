/*
 * A fabric without hardware: fills the table of operations, logs the calls, fails, delays or holds the calls that a
 * test names, and notes every breach of the table's rules (a second close, a domain closed under its endpoint, ...).
 */
#ifndef GRD_TESTS_RIG_FAKE_FABRIC_H
#define GRD_TESTS_RIG_FAKE_FABRIC_H

#include "daemon/fabric/ops.h"

enum fake_op {
    FAKE_DOMAIN_OPEN,
    FAKE_DOMAIN_CLOSE,
    FAKE_ENDPOINT_OPEN,
    FAKE_ENDPOINT_CLOSE,
    FAKE_ENDPOINT_FREE,
    FAKE_ADD_PEER,
    FAKE_PROGRESS,
    FAKE_TRY_WAIT,
    FAKE_MR_OPEN,
    FAKE_MR_CLOSE,
    FAKE_OPS
};

extern const struct fabric_ops fake_ops;

/* One NIC with offsets and wait descriptors; nothing scripted, nothing logged. Frees what earlier tests left. */
void fake_reset(void);
void fake_set_nics(unsigned count, bool virtual_addresses, bool waits);

/* That a NIC says it has; 0: it does not say. */
void fake_set_registrations(uint64_t count);

/* No domain can be opened on the NIC of that name ("fake0" is the first); "": on all again. */
void fake_break_nic(const char *name);

bool fake_virtual_addresses(void);

/* The call number `skip` from now on fails (0: the next). */
void fake_fail(enum fake_op op, unsigned skip, int error);
/* Every call fails, each with that probability. */
void fake_fail_randomly(enum fake_op op, unsigned percent, int error);
/* The next `count` calls block until fake_release. */
void fake_hold(enum fake_op op, unsigned count);
void fake_release(enum fake_op op);
/* Calls take up to that long, by the seed. */
void fake_jitter(unsigned seed, unsigned max_us);

unsigned fake_calls(enum fake_op op);
/* Calls that are blocked now. */
unsigned fake_held(enum fake_op op);
/* Objects not closed. */
unsigned fake_domains(void);
unsigned fake_endpoints(void);
unsigned fake_mrs(void);
/* Names of opens and closes since the last fake_log_clear, separated by spaces. */
const char *fake_log(void);
void fake_log_clear(void);
/* The first rule that was broken; NULL: none. */
const char *fake_fault(void);

/* Makes the wait descriptor of every open endpoint readable. */
void fake_ring(void);

#endif
