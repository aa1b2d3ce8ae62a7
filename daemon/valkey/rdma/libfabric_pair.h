/*
 * What the files of glide-rdmad-valkey-rdma.so share. Included by libfabric_*.c of this folder only: nothing else sees
 * a libfabric header.
 *
 * A queue pair has a fabric, a domain and queues of its own: nothing is shared between connections, so that each is
 * opened, used and closed by whoever has it.
 */
#ifndef GRD_VALKEY_RDMA_LIBFABRIC_PAIR_H
#define GRD_VALKEY_RDMA_LIBFABRIC_PAIR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "daemon/valkey/rdma/ops.h"

/* One mapping, each part on pages of its own with a page that cannot be accessed on either side. */
struct pair_memory {
    uint8_t *base; /* NULL: none */
    size_t bytes;
    size_t control_bytes;
    uint8_t *window, *staging;
    uint8_t *control; /* RDMA_RECEIVES to receive into, then one for each of `sends` */
    struct fid_mr *window_mr, *staging_mr, *control_mr;
};

enum pair_state {
    PAIR_OPEN,
    PAIR_CONNECTING,
    PAIR_CONNECTED,
    PAIR_OVER, /* the last event was given */
};

/* A write or control message under way. They end in the order in which they were posted. */
struct pair_slot {
    uint64_t token;
};

enum pair_order { ORDER_NONE, ORDER_CONNECT, ORDER_STOP };

/* See libfabric_connect.c. */
struct pair_connector {
    pthread_t thread;
    bool started;
    atomic_int order; /* enum pair_order */
    atomic_bool done; /* the outcome stands, and the thread touches nothing any more */
    struct rdma_event outcome;
    int order_bell, done_bell;
    int queue; /* the event queue's descriptor, of libfabric */
    int watch; /* what the loop sleeps on: done_bell, later the queue as well */
};

struct rdma_queue_pair {
    size_t window_bytes, staging_bytes;
    unsigned sends;
    struct fi_info *info; /* owned */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct pair_memory memory;
    struct pair_connector connector;
    struct pair_slot *slots; /* a ring of `sends` */
    unsigned next, under_way;
    enum pair_state state;
    bool disconnecting; /* by us: receives come back unused */
    bool disconnected;  /* by the peer or us; completions may still be in the queue */
    bool flushed;       /* a posted receive or send came back unused */
};

/* "what: the library's words" in `why`; returns the error. */
int pair_fail(char why[RDMA_WHY_BYTES], const char *what, long error);

/* Maps and registers the memory of an open domain; negative with `why`, and memory_close is due either way. */
int memory_open(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES]);
/* Closes and unmaps what there is; after the endpoint. */
void memory_close(struct rdma_queue_pair *pair);

/* Posts one receive; 0 or negative. */
int pair_post_receive(struct rdma_queue_pair *pair, uint8_t *buffer);

/* Makes the thread that will connect; negative with `why`. connector_close is due either way, before the endpoint is
 * closed; the descriptors are -1 before. May block, as close may. */
int connector_open(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES]);
void connector_close(struct rdma_queue_pair *pair);
/* The rest is the polling thread's and never blocks. */
void connector_begin(struct rdma_queue_pair *pair);
/* CONNECTED or REFUSED, once it is known; else NULL. */
const struct rdma_event *connector_outcome(struct rdma_queue_pair *pair);
/* After the outcome CONNECTED: what the loop sleeps on follows the event queue. 0 or negative. */
int connector_hand_over(struct rdma_queue_pair *pair);
/* On the thread that connects: true with CONNECTED or REFUSED; false: the event queue says nothing yet. */
bool pair_read_connecting(struct rdma_queue_pair *pair, struct rdma_event *outcome);

/* Functions of the table. */
int pair_open(const struct rdma_settings *settings, struct rdma_queue_pair **pair, struct rdma_memory *memory,
              char why[RDMA_WHY_BYTES]);
void pair_close(struct rdma_queue_pair *pair);
int pair_try_wait(struct rdma_queue_pair *pair);
size_t pair_poll(struct rdma_queue_pair *pair, struct rdma_event *events, size_t capacity);

#endif
