/*
 * A neighbour that moves as much as it can: HEAVY_DEPTH gets of HEAVY_BYTES in flight all the time, as a process of
 * another user where the benchmark runs as root.
 */
#ifndef GRD_BENCH_HEAVY_H
#define GRD_BENCH_HEAVY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HEAVY_DEPTH 64
#define HEAVY_BYTES (UINT64_C(64) << 20)

struct heavy {
    pid_t pid;
    _Atomic uint64_t *bytes; /* that have arrived so far; shared with the process */
};

/* Starts it, and returns when its first get has ended; false: printed why not. */
bool heavy_start(struct heavy *heavy, const char *socket_path);
void heavy_stop(struct heavy *heavy);

#endif
