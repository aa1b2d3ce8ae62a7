/*
 * A histogram of times: powers of two in four steps each, so that a bound is at most a quarter above a value in its
 * bucket, from 1 us to 67 s. Adding is O(1) and takes no memory. Buckets only grow: whoever reads them twice can
 * subtract. No locks: belongs to one thread.
 */
#ifndef GRD_BASE_HISTOGRAM_H
#define GRD_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_OCTAVES 24 /* above the first four microseconds */
#define HISTOGRAM_BUCKETS (4 + 4 * HISTOGRAM_OCTAVES + 1) /* the last one: everything above 2^26 us */

struct histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_us;
    uint64_t buckets[HISTOGRAM_BUCKETS]; /* how many lie above the bound before and not above their own */
};

/* Adds a time, which counts as whole microseconds, rounded up. */
void histogram_add(struct histogram *histogram, uint64_t ns);

/* The largest value of a bucket, in microseconds; UINT64_MAX of the last one. */
uint64_t histogram_bound_us(unsigned bucket);

/* How many values are at most `us`, which should be a bound; else those of the bucket that holds it are left out. */
uint64_t histogram_count_to(const struct histogram *histogram, uint64_t us);

/*
 * A value that at least permille/1000 of all do not exceed, in microseconds: the bound of its bucket, or the largest
 * value where that is less. 0 without values.
 */
uint64_t histogram_quantile_us(const struct histogram *histogram, unsigned permille);

#endif
