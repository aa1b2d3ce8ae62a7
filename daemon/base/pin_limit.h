/*
 * How much memory may be registered at once: what the operator set, what the host or its control group has, and what
 * RLIMIT_MEMLOCK lets this process pin (docs/architecture.md, "Memory accounting"). Reading the facts and deciding are
 * apart, so that the decision can be tested with any host. Thread safe.
 */
#ifndef GRD_BASE_PIN_LIMIT_H
#define GRD_BASE_PIN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define PIN_WHY_BYTES 512

/* Of RLIMIT_MEMLOCK a quarter, but no more than this, is left to the queues of lanes, which are pinned as well. */
#define PIN_HEADROOM_BYTES (UINT64_C(64) << 20)

struct pin_facts {
    uint64_t configured; /* [memory] pinned_limit, bytes; 0: not set */
    uint64_t host;       /* MemTotal, bytes */
    uint64_t group;      /* the least memory.max of the control group and those above it; UINT64_MAX: none */
    bool pins;           /* the provider does */
    bool ipc_lock;       /* CAP_IPC_LOCK is effective: RLIMIT_MEMLOCK does not bind */
    uint64_t rlimit;     /* RLIMIT_MEMLOCK, soft, bytes; UINT64_MAX: unlimited */
};

struct pin_limit {
    uint64_t bytes;
    const char *source; /* what it comes from: "pinned_limit", "MemTotal", "memory.max" or "RLIMIT_MEMLOCK" */
    uint64_t rlimit;    /* RLIMIT_MEMLOCK where it binds this process, bytes; else UINT64_MAX */
};

/* Fills host, group, ipc_lock and rlimit; /proc and /sys are looked for below `root` ("": the host's). At start
 * only. */
void pin_facts_read(struct pin_facts *facts, const char *root);

/*
 * The limit: pinned_limit, else half of the smaller of MemTotal and memory.max; where the provider pins and
 * RLIMIT_MEMLOCK binds, no more than that less the headroom. -EINVAL, with a sentence that holds both numbers, for a
 * pinned_limit above it.
 */
int pin_limit_decide(const struct pin_facts *facts, struct pin_limit *limit, char why[PIN_WHY_BYTES]);

#endif
