#include "daemon/base/histogram.h"

/* Bounds are inclusive, hence the step down: (2, 3] us is bucket 2, (8, 10] the first of its octave. */
static unsigned bucket_of(uint64_t us)
{
    uint64_t at = us > 0 ? us - 1 : 0;
    unsigned octave;

    if (at < 4) {
        return (unsigned)at;
    }
    octave = 61 - (unsigned)__builtin_clzll(at); /* 0: 4 to 7 */
    if (octave >= HISTOGRAM_OCTAVES) {
        return HISTOGRAM_BUCKETS - 1;
    }
    return 4 + octave * 4 + (unsigned)((at >> octave) & 3);
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 != 0);

    histogram->count++;
    histogram->sum_ns += ns;
    histogram->buckets[bucket_of(us)]++;
    if (us > histogram->max_us) {
        histogram->max_us = us;
    }
}

uint64_t histogram_bound_us(unsigned bucket)
{
    unsigned octave = (bucket - 4) / 4, step = (bucket - 4) % 4;

    if (bucket < 4) {
        return bucket + 1;
    }
    return bucket < HISTOGRAM_BUCKETS - 1 ? (uint64_t)(5 + step) << octave : UINT64_MAX;
}

uint64_t histogram_count_to(const struct histogram *histogram, uint64_t us)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS && histogram_bound_us(i) <= us; i++) {
        count += histogram->buckets[i];
    }
    return count;
}

uint64_t histogram_quantile_us(const struct histogram *histogram, unsigned permille)
{
    uint64_t wanted = (histogram->count * permille + 999) / 1000, count = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        count += histogram->buckets[i];
        if (count > 0 && count >= wanted) {
            uint64_t bound = histogram_bound_us(i);
            return bound < histogram->max_us ? bound : histogram->max_us;
        }
    }
    return 0;
}
