/*
 * Progress thread: reads the completion queues of providers that move bytes only while somebody reads them (tcp,
 * verbs;ofi_rxm). A thread of its own, since the bytes of `tcp` are copied by the kernel inside fi_cq_read and the
 * loop must not wait for that. It sleeps in epoll on the endpoints' wait descriptors: idle means no wake-up.
 */
#ifndef GRD_FABRIC_PROGRESS_H
#define GRD_FABRIC_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "daemon/base/handoff.h"
#include "daemon/fabric/ops.h"

struct fabric_progress;

/* Embedded in a lane. */
struct progress_member {
    struct fabric_endpoint *endpoint;
    int wait_fd;
    void (*removed)(struct progress_member *member); /* on the loop's thread */

    /* private */
    struct handoff_node node;           /* commands, then removed ones */
    TAILQ_ENTRY(progress_member) due;   /* the thread's: endpoints to be progressed before it sleeps */
    atomic_uint command;
    bool is_due, watched;
};

/* NULL when out of memory, descriptors or threads. */
struct fabric_progress *progress_start(uv_loop_t *loop, const struct fabric_ops *ops);

/* Every member must have been removed. Freed by the loop's next iteration. */
void progress_stop(struct fabric_progress *progress);

/*
 * Takes the endpoint under progress; it is the thread's until `removed` was called. A queue that fails is logged and
 * then left alone; its removal works as any.
 */
void progress_add(struct fabric_progress *progress, struct progress_member *member);

/* Asks the thread to let go of the endpoint; member->removed is called later, then nobody reads its queue any more. */
void progress_remove(struct fabric_progress *progress, struct progress_member *member);

#endif
