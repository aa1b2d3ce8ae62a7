#include "daemon/base/ledger.h"

#include <assert.h>
#include <errno.h>

int ledger_charge(struct ledger *ledger, uint64_t bytes)
{
    /* used may be above a limit that was lowered since */
    if (ledger->used > ledger->limit || bytes > ledger->limit - ledger->used) {
        return -ENOSPC;
    }
    ledger->used += bytes;
    return 0;
}

void ledger_release(struct ledger *ledger, uint64_t bytes)
{
    assert(bytes <= ledger->used - ledger->quarantined);
    ledger->used -= bytes;
}

void ledger_quarantine(struct ledger *ledger, uint64_t bytes)
{
    assert(bytes <= ledger->used - ledger->quarantined);
    ledger->quarantined += bytes;
}
