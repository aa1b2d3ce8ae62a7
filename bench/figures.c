#include "bench/figures.h"

#include <stdlib.h>
#include <time.h>

double now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double percentile(double *values, size_t count, double share)
{
    qsort(values, count, sizeof(*values), compare);
    return values[(size_t)((double)(count - 1) * share)];
}
