/*
 * Budgets of registered memory (docs/architecture.md, "Memory accounting"): bytes charged before registration starts
 * and released after fi_close succeeded. Stands below memory, valkey and fabric, since queues are charged too.
 * Loop thread only.
 */
#ifndef GRD_BASE_LEDGER_H
#define GRD_BASE_LEDGER_H

#include <stdint.h>

struct ledger {
    uint64_t limit;       /* bytes; UINT64_MAX: no limit */
    uint64_t used;        /* bytes charged, quarantined ones included */
    uint64_t quarantined; /* bytes that are charged until the process ends */
};

/* 0, or -ENOSPC when used + bytes would exceed the limit: then nothing is charged. */
int ledger_charge(struct ledger *ledger, uint64_t bytes);
void ledger_release(struct ledger *ledger, uint64_t bytes);

/* Marks charged bytes as never to be released. */
void ledger_quarantine(struct ledger *ledger, uint64_t bytes);

#endif
