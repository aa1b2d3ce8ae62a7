/*
 * When a transfer is run again, and how often (docs/architecture.md, rule 2). Private to transfer/. Loop thread only.
 *
 * Which outcomes allow it stands in the table (outcome.h). Here is what bounds it: the number of attempts and the wait
 * before each. What ends a transfer for good (deadline, cancel, the client's or the daemon's end) ends it between two
 * attempts too; that is transfer.c's.
 */
#ifndef GRD_TRANSFER_AGAIN_H
#define GRD_TRANSFER_AGAIN_H

#include "daemon/transfer/transfer.h"

/*
 * Attempts of a transfer, the first included. Each of them that fails costs a lane, which every other user of the pool
 * pays for; what passes by itself, such as a connection that broke, has passed by the second or third. A server that is
 * down ends the transfer earlier: "unavailable" is only run again where it counts as a refusal (redirect.h).
 */
#define TRANSFER_ATTEMPTS 4

/* Before the second attempt, a quarter more or less; doubled for each further one. Milliseconds. */
#define AGAIN_WAIT_MS 50
#define AGAIN_WAIT_LIMIT_MS 1000

/*
 * Attempts beyond those that fail because another transfer on the same registration was taken back (lane_collateral).
 * They are the daemon's own doing: they count apart, nothing is waited for, and "retry" false does not forbid them.
 * Each takes somebody who cancels, or fails, again, so the bound only matters where that never ends.
 */
#define COLLATERAL_ATTEMPTS 32

/* Whether the transfer, whose end is decided, is to be run again. */
bool again_wanted(const struct transfer *transfer);

/* Counts the wait before the next attempt, logs it and says how long it is: milliseconds. */
unsigned again_wait_ms(struct transfer *transfer);

#endif
