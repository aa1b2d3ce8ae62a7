#include "daemon/valkey/backoff.h"

#include <uv.h>

void backoff_init(struct backoff *backoff, unsigned base_ms, unsigned limit_ms)
{
    *backoff = (struct backoff){.base_ms = base_ms, .limit_ms = limit_ms};
    backoff->seed = uv_hrtime() ^ (uint64_t)(uintptr_t)backoff;
}

/* Any spread will do: it only keeps the daemons of many hosts from knocking at the same moment. */
static uint32_t next_random(struct backoff *backoff)
{
    backoff->seed = backoff->seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(backoff->seed >> 33);
}

unsigned backoff_next(struct backoff *backoff)
{
    unsigned shift = backoff->failures < 16 ? backoff->failures : 16;
    uint64_t wait = (uint64_t)backoff->base_ms << shift;

    if (wait > backoff->limit_ms) {
        wait = backoff->limit_ms;
    }
    backoff->failures++;
    return (unsigned)(wait - wait / 4 + next_random(backoff) % (wait / 2 + 1));
}
