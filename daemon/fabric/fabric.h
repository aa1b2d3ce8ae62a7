/*
 * The fabric of this host: the loaded table of operations, the configured provider, its NICs.
 *
 * Shape: Valkey connection -> lane -> domain. `tcp` gives each lane a domain of its own (several endpoints in one tcp
 * domain lose acknowledgements); providers with real NICs share one domain a NIC. Loop thread only unless said
 * otherwise.
 */
#ifndef GRD_FABRIC_FABRIC_H
#define GRD_FABRIC_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/base/worker.h"
#include "daemon/fabric/ops.h"

struct domain;
struct fabric_progress;

/* Must not change while the fabric lives: workers read the strings. */
struct fabric_config {
    char *provider;       /* NULL: "efa-direct" */
    char *library;        /* libfabric.so.1 to load first; NULL: $GLIDE_LIBFABRIC_PATH, else the linker's */
    char *bind;           /* NULL: local address of the RESP socket (tcp), the provider's choice (others) */
    char *interfaces;
    unsigned lanes_max;   /* per NIC */
    uint64_t mr_max_bytes;
    char *revoke;         /* efa-direct: "full" (NULL too) or "endpoint": what destroying a lane closes */
    bool keep_mappings;   /* values may move through the mapping of registered memory as well: [valkey] fallback */
};

/* Private to fabric/ but for status: failures in a row, and until when it is left out for them (nics.h). */
struct fabric_nic_state {
    unsigned failures;
    uint64_t retry_at; /* uv_now */
    char why[256];     /* of the last */
};

struct fabric {
    uv_loop_t *loop;
    struct workers *workers;
    const struct fabric_config *config;
    const struct fabric_ops *ops;  /* NULL: could not be loaded, see why */
    bool usable;                   /* loaded, provider present, a NIC found */
    bool domain_per_lane;
    bool host_nic;                 /* tcp without interfaces, or with a bind: nics[0] is the host, no interface */
    bool pins;                     /* registered pages are pinned (provider.h) */
    bool hides_mappings;           /* the mapping of registered memory is PROT_NONE (slice.h) */
    bool revoke_slices;            /* destroying a lane closes the registrations that its command named */
    char why[FABRIC_WHY_BYTES];    /* while not usable: what is missing and what to do */
    char object[256];              /* path of our object that was loaded */
    char version[32];
    char providers[256];
    struct fabric_nic nics[FABRIC_NICS];
    unsigned nic_count;
    unsigned lanes;                /* opening, open or being destroyed, all NICs */
    unsigned nic_lanes[FABRIC_NICS];
    struct fabric_nic_state nic_states[FABRIC_NICS];
    _Atomic uint64_t registrations[FABRIC_NICS]; /* calls that register memory, ever; workers count */
    struct fabric_progress *progress;

    /* private to fabric/ */
    struct domain *homes[FABRIC_NICS]; /* a NIC's domain: all lanes' on real NICs, for proofs alone on tcp */
    struct domain **domains;           /* by index; NULL: the index is free */
    unsigned domain_slots;
};

/*
 * Cleans the environment of libfabric's dangerous variables, sets those that rules 1 and 5 need (tcp without prefetch
 * and staging copies, no MR cache), loads `library` if given, then our object, and asks for the provider's NICs.
 * Blocking: at start, before threads. Always 0 unless out of memory: a fabric that cannot be used says why.
 * `ops` not NULL: use this table instead (tests). `loop` and `workers` NULL: only look, open no lane (--version).
 */
int fabric_start(struct fabric *fabric, uv_loop_t *loop, struct workers *workers, const struct fabric_config *config,
                 const struct fabric_ops *ops);

/*
 * Closes the domains of the NICs and ends the progress thread, blocking; every lane must have been destroyed and every
 * registration closed, and no job may be outstanding. The object and libfabric stay loaded.
 */
void fabric_stop(struct fabric *fabric);

/* It failed lately, and is not used while another one can be. */
bool fabric_nic_left_out(const struct fabric *fabric, unsigned nic);

#endif
