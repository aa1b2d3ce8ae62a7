/*
 * glide-rdmactl bench: sets and gets through a queue of the library, so many at once, measured from grd_submit() to the
 * moment when grd_reap() returned them.
 *
 * Concepts. A slot is a window and a key: one transfer at a time. A load has as many as transfers may be in flight at
 * most; a measurement uses the first `in_flight` of them. Main thread only. Times in nanoseconds, sizes in bytes.
 */
#ifndef GRD_CTL_BENCH_LOAD_H
#define GRD_CTL_BENCH_LOAD_H

#include <glide-rdmad.h>

#include "client/ctl/bench/latency.h"
#include "client/ctl/options.h"

#define LOAD_KEY_BYTES (OPTIONS_KEY_PREFIX_BYTES + 64)

struct slot {
    char key[LOAD_KEY_BYTES];
    bool stored; /* something may stand under the key */
    bool busy;
    uint64_t submitted; /* ns */
};

struct load {
    const struct options *options;
    grd_client *client;
    grd_queue *queue;
    grd_region *region;
    struct slot *slots;
    uint64_t slot_count;
    uint64_t busy; /* slots */
};

/* One of the two kinds of transfers in a measurement. */
struct kind_figures {
    uint64_t bytes;
    struct latency latency;
};

struct figures {
    uint64_t size, in_flight;
    uint64_t elapsed;             /* ns, from the first submission to the last completion */
    struct kind_figures set, get; /* what succeeded */
};

/* Connects and makes the slots for the largest of the measurements. Says what is wrong; then load_close() as well. */
enum ctl_exit load_open(const struct options *options, struct load *load);

/* One measurement; ends early, with what was measured so far, when a signal came. Says what is wrong. */
enum ctl_exit load_run(struct load *load, uint64_t size, uint64_t in_flight, struct figures *figures);

/* Deletes the keys and gives everything back. Says when a key could not be deleted. */
enum ctl_exit load_close(struct load *load);

#endif
