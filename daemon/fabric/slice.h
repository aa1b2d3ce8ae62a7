/*
 * Slices and their registrations.
 *
 * A slice is a page-aligned piece of mapped memory, at most mr_max_bytes long; memory/ owns slices, fabric/ owns the
 * registrations (one MR a slice and domain) and closes each exactly once. Loop thread only.
 */
#ifndef GRD_FABRIC_SLICE_H
#define GRD_FABRIC_SLICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fabric/fabric.h"

struct lane;
struct slice_mr; /* one registration; private to fabric/ */

/*
 * Where fabric->hides_mappings, no access goes through the daemon's mapping any more once the pages are registered, and
 * then the mapping of the slice is PROT_NONE: a stray load or store of the daemon ends there, not in a client's page.
 * Only while a registration is being made the kernel needs it accessible. Several workers may be making one each, for
 * several NICs. Theirs alone.
 */
struct slice_mapping {
    pthread_mutex_t lock;
    unsigned makers; /* workers that need it accessible now */
};

struct slice {
    uint8_t *base;
    size_t length;
    unsigned access; /* FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE */
    struct slice_mr **mrs; /* by index of the domain, private to fabric/; freed with the last registration */
    unsigned mr_slots;
    unsigned mr_count; /* registrations that exist or are being made or closed */
    unsigned closings; /* calls of slice_close_registrations: what was asked for before one is not made after it */
    /* A registration of this slice ended, by slice_close_registrations or with its lane. status 0: closed; negative:
     * the provider refused, memory must be kept for ever (quarantine). Called on the loop's thread; the slice may be
     * freed in it when mr_count is 0. */
    void (*mr_ended)(struct slice *slice, unsigned nic, int status);
    void *owner; /* memory's */
    struct slice_mapping mapping;
};

/* What travels in a command for a piece of a window. */
struct slice_triple {
    uint64_t key, address, length;
};

/*
 * The mapping behind it is the fabric's from now on: nobody else may rely on access to it, unless
 * fabric->hides_mappings is false. Where it is true, base and length must be whole pages of the mapping, huge ones
 * included, or registering fails with -EINVAL.
 */
void slice_init(struct slice *slice, uint8_t *base, size_t length, unsigned access,
                void (*mr_ended)(struct slice *, unsigned nic, int status), void *owner);

/*
 * Starts closing every registration of the slice; mr_ended is called for each when done (never from inside), also for
 * one that was just being made, whatever came of it. Returns the number still to be waited for (0: the slice has no
 * registration left). No transfer may be running on the slice; a preparation or proof that has not got it registered
 * yet ends with -ECANCELED and leaves no registration. The slice may be registered anew afterwards. `owner` must
 * outlive the closing.
 */
unsigned slice_close_registrations(struct slice *slice, struct fabric *fabric, struct worker_owner *owner);

/*
 * Proves that the memory can be registered: registers it on that NIC. On providers with a domain per lane the
 * registration is closed again at once, else it stays. -ENETDOWN when the fabric is not usable (fabric->why),
 * -ENOMEM; otherwise 0 and `done` is called exactly once, later, on the loop's thread: 0, -ENOMEM, -ECANCELED after
 * slice_close_registrations, or the provider's error; `why` is then a sentence for the operator. The slice and `owner`
 * must stay alive until then. After the rare failure to close again, mr_ended says so as well, later.
 */
int slice_prove(struct slice *slice, struct fabric *fabric, unsigned nic, struct worker_owner *owner,
                void (*done)(void *context, int status, const char *why), void *context);

/*
 * Whether a registration of the slice exists, or is being made or closed, in a NIC's own domain. Never on providers
 * with a domain for each lane, proofs aside.
 */
bool slice_on_nic(const struct slice *slice, const struct fabric *fabric, unsigned nic);

#endif
