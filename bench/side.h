/*
 * The two sides of the comparison: a client in the process, and the daemon. Each moves `count` values of `size` bytes
 * with `depth` in flight, and notes every latency.
 */
#ifndef GRD_BENCH_SIDE_H
#define GRD_BENCH_SIDE_H

#include <stdbool.h>
#include <stddef.h>

struct cell {
    bool set; /* else get */
    size_t size;
    unsigned depth;
    unsigned count;
};

struct measured {
    double *latencies_us; /* `count` of them, appended by the side */
    size_t used;
    double seconds; /* of the last run */
};

/* Largest depth and size a side is prepared for. */
#define SIDE_DEPTH 8
#define SIDE_SIZE (16u << 20)

/* A client in this process over the daemon's own fabric/ and valkey/ objects. */
struct direct;
struct direct *direct_start(const char *address, unsigned connections);
bool direct_run(struct direct *direct, const struct cell *cell, struct measured *measured);
void direct_stop(struct direct *direct);

/* The library and the daemon: a blocking call for one transfer in flight, one thread with a queue for several; with
 * `blocking`, one blocked thread for each transfer in flight. */
struct through;
struct through *through_start(const char *socket_path, bool blocking);
bool through_run(struct through *through, const struct cell *cell, struct measured *measured);
void through_stop(struct through *through);

#endif
