/*
 * Hands objects from one thread to another without a lock, so that neither ever waits for the other: any thread adds,
 * any takes all that is there. Intrusive; a node may be added again as soon as it was taken and its `next` was read.
 */
#ifndef GRD_BASE_HANDOFF_H
#define GRD_BASE_HANDOFF_H

#include <stdatomic.h>
#include <stddef.h>

struct handoff_node {
    struct handoff_node *next;
};

/* Zero-initialised it is empty. */
struct handoff {
    _Atomic(struct handoff_node *) newest;
};

static inline void handoff_add(struct handoff *handoff, struct handoff_node *node)
{
    node->next = atomic_load_explicit(&handoff->newest, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&handoff->newest, &node->next, node, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

/* All of them, the oldest first, linked by `next`; NULL: none. */
static inline struct handoff_node *handoff_take(struct handoff *handoff)
{
    struct handoff_node *newest = atomic_exchange_explicit(&handoff->newest, NULL, memory_order_acquire);
    struct handoff_node *oldest = NULL;

    while (newest != NULL) {
        struct handoff_node *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

#endif
