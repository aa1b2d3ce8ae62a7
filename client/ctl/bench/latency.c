#include "client/ctl/bench/latency.h"

/* Below 64 each value has a class; above, the 64 steps of each power of two. */
static size_t class_of(uint64_t value)
{
    unsigned bits, shift;
    size_t class;

    if (value < LATENCY_STEPS) {
        return (size_t)value;
    }
    bits = 64 - (unsigned)__builtin_clzll(value); /* at least 7 */
    shift = bits - 7;
    class = (size_t)LATENCY_STEPS * shift + (size_t)(value >> shift);
    return class < LATENCY_CLASSES ? class : LATENCY_CLASSES - 1;
}

/* The largest value of the class. */
static uint64_t top_of(size_t class)
{
    uint64_t shift = class < 2 * LATENCY_STEPS ? 0 : class / LATENCY_STEPS - 1;

    return ((class - LATENCY_STEPS * shift + 1) << shift) - 1;
}

void latency_add(struct latency *latency, uint64_t nanoseconds)
{
    latency->count++;
    latency->classes[class_of(nanoseconds)]++;
    if (nanoseconds > latency->largest) {
        latency->largest = nanoseconds;
    }
}

uint64_t latency_permille(const struct latency *latency, unsigned permille)
{
    uint64_t wanted = (latency->count * permille + 999) / 1000, seen = 0;

    if (latency->count == 0) {
        return 0;
    }
    for (size_t class = 0; class < LATENCY_CLASSES; class++) {
        seen += latency->classes[class];
        if (seen >= wanted && seen > 0) {
            return class < LATENCY_CLASSES - 1 && top_of(class) < latency->largest ? top_of(class) : latency->largest;
        }
    }
    return latency->largest;
}
