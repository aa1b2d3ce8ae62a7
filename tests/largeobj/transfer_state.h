/*
 * Inside of a transfer, shared by transfer.c (its course) and pieces.c (its bytes).
 */
#ifndef LARGEOBJ_TRANSFER_STATE_H
#define LARGEOBJ_TRANSFER_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "endpoint.h"
#include "settings.h"
#include "transfer.h"

struct blob;
struct peer;

/* One chunk's share of one region: one operation of the fabric. */
struct piece {
    struct fabric_op op; /* first */
    struct transfer *transfer;
    size_t chunk;
};

struct transfer {
    /* Set at the start, constant afterwards. */
    enum transfer_kind kind;
    uint64_t client_id;
    int db;
    char *key;
    size_t key_len;
    struct blob *blob;
    struct peer *peer;
    struct region *regions;
    size_t region_count;
    size_t window;
    bool check_crc;
    uint32_t want_crc;
    size_t chunk_size;
    unsigned int max_in_flight;
    int64_t op_timeout_ns;
    int64_t eagain_timeout_ns;
    struct faults faults;
    bool watched; /* the worker wants to know of every post and completion */
    bool direct;  /* there is no worker: transfer_moved is called instead */

    /* Of the worker, or without one of the endpoint that ends the last piece; then, handed over, of the main
     * thread. */
    struct vm_blocked *blocked; /* NULL once answered */
    const char *failure;
    struct piece *pieces;
    size_t piece_count;
    LIST_ENTRY(transfer) parked;

    atomic_uint refs;
    atomic_bool cancelled; /* a piece has failed: post no more */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    size_t submitted;
    size_t posted;
    size_t outstanding; /* submitted and not ended */
    size_t done_bytes;
    int error;          /* of the first piece that failed */
    int64_t early_at;   /* when the early answer is due, 0: not known yet */
    bool early_done;
    bool dropped;
};

void transfer_unref(struct transfer *transfer);

/* Every piece of a direct transfer has ended. On an endpoint's thread. */
void transfer_moved(struct transfer *transfer);

#endif
