#include "client/backoff.h"

void backoff_init(struct backoff *backoff, uint64_t seed)
{
    *backoff = (struct backoff){.random = seed != 0 ? seed : 1};
}

void backoff_reset(struct backoff *backoff)
{
    backoff->attempts = 0;
}

/* Xorshift: good enough to spread clients. */
static uint64_t next_random(struct backoff *backoff)
{
    backoff->random ^= backoff->random << 13;
    backoff->random ^= backoff->random >> 7;
    backoff->random ^= backoff->random << 17;
    return backoff->random;
}

uint64_t backoff_next_ms(struct backoff *backoff)
{
    uint64_t whole = BACKOFF_FIRST_MS;

    if (backoff->attempts++ == 0) {
        return 0;
    }
    for (unsigned i = 2; i < backoff->attempts && whole < BACKOFF_MAX_MS; i++) {
        whole *= 2;
    }
    whole = whole < BACKOFF_MAX_MS ? whole : BACKOFF_MAX_MS;
    return whole - next_random(backoff) % (whole / 2 + 1);
}
