/*
 * Where a transfer waits and runs: at the member of the deployment that serves the slot of its key, or that a
 * redirection named. Each member has a queue of its own; those that wait for the cluster's map have one too.
 *
 * From route_enter to route_let_go the member is held for the transfer. Private to transfer/. Loop thread only.
 */
#ifndef GRD_TRANSFER_ROUTE_H
#define GRD_TRANSFER_ROUTE_H

#include "daemon/transfer/queue.h"

/* Queues the transfer, and says where with transfer->member (NULL: there is no map). 0; or -ENOMEM, then it waits
 * nowhere. */
int route_enter(struct transfer *transfer, bool first);

/* Out of the queue; the member stays held. */
void route_leave(struct transfer *transfer);

/* Takes out one that queue_look showed; its member stays held. */
void route_take(struct transfer *transfer);

/* Back to the head of the queue that it was taken from: nothing was sent. 0 or -ENOMEM. */
int route_back(struct transfer *transfer);

/* The member's queue, or NULL if it never had one; that without a map for NULL. */
struct queue *route_queue(struct transfers *transfers, struct member *member);

/* Takes the member from the transfer, which no longer holds it: the caller does, and lets go of it. */
struct member *route_take_member(struct transfer *transfer);
void route_let_go(struct member *member);

/* Where the attempt that was just refused is to be made again, as far as the server said. */
void route_redirect(struct transfer *transfer);

#endif
