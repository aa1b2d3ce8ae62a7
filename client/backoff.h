/*
 * How long to wait before the next attempt to connect: not at all before the first, then twice as long each time up to
 * a limit, and each time a random part less, so that the clients of one daemon do not all come at once.
 * Plain arithmetic: it knows no clock. Not thread safe for one struct.
 */
#ifndef GRD_CLIENT_BACKOFF_H
#define GRD_CLIENT_BACKOFF_H

#include <stdint.h>

#define BACKOFF_FIRST_MS 10
#define BACKOFF_MAX_MS 1000

struct backoff {
    unsigned attempts;
    uint64_t random; /* state; not 0 */
};

void backoff_init(struct backoff *backoff, uint64_t seed);

/* ms to wait before the next attempt: 0, then between the half of 10, 20, 40 ... 1000 and the whole. */
uint64_t backoff_next_ms(struct backoff *backoff);

/* A session has proved to be of use: the next attempt is the first again. */
void backoff_reset(struct backoff *backoff);

#endif
