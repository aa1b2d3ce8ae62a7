/*
 * Which NIC a lane is opened on, and which are left out.
 *
 * Concepts. A NIC on which a lane or a domain could not be opened is *left out* for NIC_REST_MS, twice as long after
 * each further failure, NIC_REST_LIMIT_MS at most, and then tried again by the next lane that is wanted: no timer, no
 * attempt while nobody needs one. Where every NIC that would do is left out, the one whose rest ends first is tried
 * all the same. Loop thread only.
 */
#ifndef GRD_FABRIC_NICS_H
#define GRD_FABRIC_NICS_H

#include "daemon/fabric/fabric.h"

#define NIC_REST_MS 1000
#define NIC_REST_LIMIT_MS 60000

/* Of `nics` the one with the fewest lanes; -ENOSPC when all that are not left out are full. */
int nics_choose(const struct fabric *fabric, uint32_t nics);

/* The same, but none that is left out: -ENETDOWN where there is no other. */
int nics_choose_working(const struct fabric *fabric, uint32_t nics);

/* Something could not be opened on it, or could. */
void nics_failed(struct fabric *fabric, unsigned nic, const char *why);
void nics_worked(struct fabric *fabric, unsigned nic);

#endif
