/*
 * Figures: the clock and percentiles. No state; any thread.
 */
#ifndef GRD_BENCH_FIGURES_H
#define GRD_BENCH_FIGURES_H

#include <stddef.h>

/* Monotonic, in microseconds. */
double now_us(void);

/* The value below which `share` (0 to 1) of them lie. Sorts the values; count must not be 0. */
double percentile(double *values, size_t count, double share);

#endif
