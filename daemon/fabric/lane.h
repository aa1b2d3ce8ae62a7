/*
 * Lanes: the unit of revocation (docs/architecture.md, "Lanes").
 *
 * Concepts. A lane is one fabric endpoint with CQ, AV and EQ of its own, bound to one Valkey connection, whose BLOB
 * session names the lane's address. Everything a server may still do for that connection arrives at that endpoint and
 * no other. lane_destroy() is therefore the way to take a transfer back: when it reports 0, no byte of the lane's
 * windows is read or written any more. What that takes differs by provider and stands in lane_destroy.c.
 *
 * All functions are called on the loop's thread, and callbacks run there, never from inside the call. A lane is freed
 * by its destruction, or when it could not be opened.
 */
#ifndef GRD_FABRIC_LANE_H
#define GRD_FABRIC_LANE_H

#include "daemon/fabric/slice.h"

/* Lanes may be asked for on some NICs only, one bit each. */
#define LANE_ANY_NIC UINT32_MAX

struct lane;

/* status 0: `lane` is open; negative: `why` says what failed, lane is NULL and the handle of lane_open is gone, unless
 * lane_destroy was called on it (-ECANCELED): then lane_destroy's `done` follows. */
typedef void (*lane_opened)(void *context, struct lane *lane, int status, const char *why);
typedef void (*lane_done)(void *context, int status);

/*
 * Opens a lane on the least loaded of the NICs in `nics`. `bind` (text, may be NULL; copied) is the local address that
 * the server can reach, used on tcp where config->bind is not set. -ENOSPC at lanes_max of those, -ENETDOWN when the
 * fabric is not usable
 * (fabric->why), -ENOMEM; otherwise 0, `opened` is called exactly once, and `*lane` is the handle: until then nothing
 * but lane_destroy may be called on it.
 */
int lane_open(struct fabric *fabric, uint32_t nics, const char *bind, lane_opened opened, void *context,
              struct lane **lane);

/* The NIC that it is on; before it is open that may change, to another one of those it was asked for on: where one
 * fails (nics.h) the next is tried, and lane_open fails only when none works. */
unsigned lane_nic(const struct lane *lane);

/* Address of the endpoint, for HELLO. */
const uint8_t *lane_address(const struct lane *lane, size_t *length);

/*
 * Inserts the server's addresses (flat array of `count` x `length` bytes, copied) in the lane's AV. `done` is called
 * exactly once: 0, -ENOMEM, the provider's error, or -ECANCELED when the lane is being destroyed. One call at a time.
 */
void lane_add_peers(struct lane *lane, const uint8_t *addresses, size_t length, size_t count, lane_done done,
                    void *context);

/* True when the slice has a registration in the lane's domain that can be named now. */
bool lane_has(const struct lane *lane, const struct slice *slice);

/*
 * Registers those of the slices that the lane's domain does not have yet, on a worker. `done` is called exactly once:
 * 0, the provider's error (e.g. -ENOMEM), or -ECANCELED when the lane is being destroyed or a slice closed. A
 * registration that another lane's destruction is closing is waited for and made anew; it may also be closed again
 * before `done`, so look with lane_has. The slices must stay alive until then. One preparation a lane at a time. After
 * an error those that could be registered stay so. Where every slice is there already (lane_has), skip the call: it
 * costs a worker's round.
 */
void lane_prepare(struct lane *lane, struct slice *const *slices, size_t count, lane_done done, void *context);

/* Key and address of `length` bytes at `offset` of a slice that the lane has. */
struct slice_triple lane_triple(const struct lane *lane, const struct slice *slice, uint64_t offset, uint64_t length);

/*
 * Before a command is sent that names these slices, which the lane has; ended by lane_end or lane_destroy. 0 or
 * -ENOMEM. Costs nothing where destroying a lane closes no registrations of others (fabric->revoke_slices).
 */
int lane_begin(struct lane *lane, struct slice *const *slices, size_t count);

/* The command has ended with proof, or was never sent. */
void lane_end(struct lane *lane);

/*
 * Since lane_begin a registration that the command names was closed with another lane: if it fails, it failed for that.
 * The slice can be prepared anew in another lane; this one must be destroyed as after any failure.
 */
bool lane_collateral(const struct lane *lane);

/*
 * Takes everything back: the caller has dropped the connection. `done(context, 0)`: no byte of the lane's windows is
 * read or written any more. Negative: the provider did not confirm; the memory of every window of this lane must be
 * quarantined. May be called at any time, once, also before `opened` and during lane_add_peers and lane_prepare, whose
 * callbacks then come first, with -ECANCELED (or their own error). The lane is gone when `done` is called.
 */
void lane_destroy(struct lane *lane, lane_done done, void *context);

#endif
