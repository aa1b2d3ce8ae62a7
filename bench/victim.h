/* The client that a benchmark of neighbours measures: gets of 64 KiB, one at a time. */
#ifndef GRD_BENCH_VICTIM_H
#define GRD_BENCH_VICTIM_H

#include <stdbool.h>
#include <stddef.h>

#include "glide-rdmad.h"

#define VICTIM_BYTES (64u << 10)

struct victim {
    grd_client *client;
    grd_region *region;
};

struct series {
    double *latencies_us;
    size_t used;
};

/* Connects and stores its value; false: printed why not. */
bool victim_start(struct victim *victim, const char *socket_path);
void victim_stop(struct victim *victim);

/* One get; adds its latency where there is a series. */
bool victim_get(const struct victim *victim, struct series *series);

#endif
