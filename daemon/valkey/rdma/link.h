/*
 * A queue pair in a loop: opened and closed on workers, its descriptors watched, what it has registered charged. It
 * outlives its owner while a worker has it. Loop thread only.
 */
#ifndef GRD_VALKEY_RDMA_LINK_H
#define GRD_VALKEY_RDMA_LINK_H

#include <netdb.h>
#include <stdbool.h>
#include <uv.h>

#include "daemon/base/pin_account.h"
#include "daemon/valkey/offload.h"
#include "daemon/valkey/rdma/ops.h"

/* What a queue pair with window and staging of these sizes has registered at most, about: bytes that are charged while
 * it is opened, when nothing better is known. */
#define RDMA_LINK_PINNED(settings)                                                                                    \
    ((settings)->window_bytes + (settings)->staging_bytes +                                                           \
     (size_t)RDMA_CONTROL_BYTES * (RDMA_RECEIVES + (settings)->sends))

struct rdma_link;

struct rdma_link_events {
    /* Opened, or negative with `why`, borrowed for the call; then call rdma_link_end. */
    void (*opened)(void *owner, int error, const char *why);
    /* Poll is due: then, before the callback returns, also rdma_link_ops(...)->try_wait. */
    void (*due)(void *owner);
};

/*
 * Charges and begins to open, to a numeric address (`target` is copied). `settings` gives the sizes; its host and port
 * are not looked at. `pins` may be NULL, else it lives until the workers have nothing left. 0 and the link; -ENOSPC
 * (the budget has no room) or -ENOMEM with `why`. No callback from inside.
 */
int rdma_link_open(uv_loop_t *loop, struct offload *offload, const struct addrinfo *target,
                   const struct rdma_settings *settings, const struct pin_account *pins,
                   const struct rdma_link_events *events, void *owner, struct rdma_link **link,
                   char why[RDMA_WHY_BYTES]);

/* Once it is open. */
const struct rdma_ops *rdma_link_ops(const struct rdma_link *link);
struct rdma_queue_pair *rdma_link_pair(const struct rdma_link *link);
const struct rdma_memory *rdma_link_memory(const struct rdma_link *link);
const struct rdma_settings *rdma_link_settings(const struct rdma_link *link);

/* Watches the descriptors of an open link: `due` is called from now on. 0 or a negative error of libuv. */
int rdma_link_watch(struct rdma_link *link);

/* Ends it in any state, without a callback: it disconnects, and a worker closes it. The charge is given back then. */
void rdma_link_end(struct rdma_link *link);

#endif
