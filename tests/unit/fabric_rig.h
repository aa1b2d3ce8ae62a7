/* Loop, workers, fabric and callbacks' results, for tests of daemon/fabric. */
#ifndef GRD_TESTS_FABRIC_RIG_H
#define GRD_TESTS_FABRIC_RIG_H

#include <stdio.h>
#include <sys/types.h>

#include "daemon/fabric/lane.h"

struct rig {
    uv_loop_t loop;
    uv_timer_t tick;
    struct workers *workers;
    struct worker_owner owner;
    struct fabric_config config;
    struct fabric fabric;
};

/* What a callback said. */
struct result {
    int calls, status;
    struct lane *lane;
    char why[FABRIC_WHY_BYTES];
};

/* `ops` NULL: the real libfabric. Dies when that fails. */
void rig_start(struct rig *rig, const char *provider, const struct fabric_ops *ops);
void rig_stop(struct rig *rig);

/* A limit for what comes at once, unless the machine has very much to do. */
#define RIG_PATIENCE_MS 20000

/* Runs the loop until `*calls` has at least `wanted`; false after `ms`. */
bool rig_wait(struct rig *rig, const int *calls, int wanted, unsigned ms);
/* Runs the loop for some time. */
void rig_idle(struct rig *rig, unsigned ms);

void on_opened(void *context, struct lane *lane, int status, const char *why);
void on_done(void *context, int status);
void on_proved(void *context, int status, const char *why);

/* Opens a lane and waits for it. */
struct lane *rig_lane(struct rig *rig);
/* Registers the slice in the lane and waits. */
void rig_prepare(struct rig *rig, struct lane *lane, struct slice *slice);
/* Destroys the lane and waits: the status. */
int rig_destroy(struct rig *rig, struct lane *lane);

/* rma_peer.c */
struct peer {
    pid_t pid;
    int buffer_fd;
    uint8_t *buffer;
    size_t bytes;
    FILE *to, *from;
};

void peer_start(struct peer *peer, const char *operation, size_t bytes, long count, uint8_t fill);
void peer_go(struct peer *peer, const struct lane *lane, const struct slice *slice, uint64_t offset);
/* Waits for its answer while the loop runs: the status, and the time of an operation. */
int peer_answer(struct rig *rig, struct peer *peer, double *microseconds);
void peer_end(struct peer *peer);

/* A shared mapping, freed by the process' end. */
uint8_t *map_memory(size_t bytes, uint8_t fill);
uint64_t now_us(void);

#endif
