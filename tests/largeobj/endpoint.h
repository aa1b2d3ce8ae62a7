/*
 * One fabric endpoint of the server, an initiator only, with the thread that drives it.
 *
 * Every endpoint has a fabric, domain, address vector and completion queue of its own: several endpoints of one
 * domain lose each other's acknowledgements on libfabric's tcp provider. Its thread does all posting and all reading
 * of completions; other threads hand it operations and it sleeps while there is nothing to do.
 */
#ifndef LARGEOBJ_ENDPOINT_H
#define LARGEOBJ_ENDPOINT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

struct peer;
struct fabric_op;

/* Called on the endpoint's thread, without a lock. */
struct fabric_op_events {
    void (*posted)(struct fabric_op *op);
    /* The outcome, exactly once: 0 or a negative errno. -ETIMEDOUT: given up, the fabric may still use the memory. */
    void (*ended)(struct fabric_op *op, int error);
    /* The fabric does not use the memory any more. Once, after `ended`; not touched afterwards. Never called for an
     * operation that was given up and does not complete. */
    void (*released)(struct fabric_op *op);
};

struct fabric_op {
    struct fi_context2 context; /* first: a completion's context is the operation's address */
    TAILQ_ENTRY(fabric_op) entry;
    const struct fabric_op_events *events;
    const atomic_bool *cancelled; /* an operation not yet posted ends with -ECANCELED once this is set */
    struct peer *peer;
    bool write;
    unsigned char *buf;
    size_t len;
    uint64_t remote_addr;
    uint64_t remote_key;
    int64_t eagain_timeout_ns;
    int64_t op_timeout_ns;
    unsigned int max_in_flight;
    /* The endpoint's own. */
    int64_t deadline; /* before the post: of EAGAIN, 0 before the first try; after it: of the completion */
    bool orphan;
    struct fid_mr *mr;
};

TAILQ_HEAD(fabric_op_list, fabric_op);

struct endpoint {
    unsigned int index;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    unsigned char addr[64];
    size_t addr_len;
    unsigned int limit; /* operations in flight the provider takes */

    pthread_t thread;
    bool running;
    int wake_fd;
    int epoll_fd;
    pthread_mutex_t lock;
    struct fabric_op_list submitted; /* under the lock */
    bool stop;                       /* under the lock */

    /* The thread's own. */
    struct fabric_op_list pending;
    struct fabric_op_list in_flight;
    unsigned int in_flight_count;
    unsigned int round;
    uint64_t next_mr_key;

    atomic_ullong operations;
    atomic_uint in_flight_max;
    atomic_uint load; /* submitted and not ended */
};

/* Opens endpoint `index` on an interface name or IP address and starts its thread. Returns 0 or a negative errno
 * with a reason in `why`; *endpoint is then untouched. */
int endpoint_open(struct endpoint **endpoint, unsigned int index, const char *provider, const char *where, char *why,
                  size_t why_size);

/* Ends the thread. Operations that are still there are dropped without a call. */
void endpoint_halt(struct endpoint *endpoint);

/* Ends the thread and closes all; nothing may refer to the endpoint any more. */
void endpoint_close(struct endpoint *endpoint);

/* Takes over all operations of the list. Any thread. */
void endpoint_submit(struct endpoint *endpoint, struct fabric_op_list *ops, unsigned int count);

#endif
