/*
 * Latencies in bounded memory, however many there are: counted in classes, 64 for each power of two, so that a
 * percentile is at most 1/64 too high. The largest is exact. No state; one thread for each struct.
 */
#ifndef GRD_CTL_BENCH_LATENCY_H
#define GRD_CTL_BENCH_LATENCY_H

#include <stddef.h>
#include <stdint.h>

#define LATENCY_STEPS 64
#define LATENCY_CLASSES (LATENCY_STEPS * 40) /* up to 2^45 ns, ten hours; what lasts longer is in the last */

struct latency {
    uint64_t count;
    uint64_t largest; /* ns */
    uint64_t classes[LATENCY_CLASSES];
};

void latency_add(struct latency *latency, uint64_t nanoseconds);

/* The time within which so many of a thousand were done, in nanoseconds; 0 where there are none. */
uint64_t latency_permille(const struct latency *latency, unsigned permille);

#endif
