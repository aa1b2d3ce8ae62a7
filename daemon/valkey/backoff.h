/*
 * Exponential backoff with jitter, milliseconds. No timer of its own. Loop thread only.
 */
#ifndef GRD_VALKEY_BACKOFF_H
#define GRD_VALKEY_BACKOFF_H

#include <stdint.h>

struct backoff {
    unsigned base_ms, limit_ms;
    unsigned failures; /* since the last success; set to 0 by the owner */
    uint64_t seed;
};

void backoff_init(struct backoff *backoff, unsigned base_ms, unsigned limit_ms);

/* Counts a failure and says how long to wait: min(base << failures before this one, limit), a quarter more or less. */
unsigned backoff_next(struct backoff *backoff);

#endif
