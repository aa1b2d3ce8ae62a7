/*
 * Shares of a node's connections: one is kept from a user that already holds its share, while somebody else may need
 * it.
 *
 * Concepts. A user is *active* when it has submitted a transfer within the last SHARE_ACTIVE_MS, or has one waiting.
 * Its share of a node is the node's connections divided by the active users, at least 1. Who holds its share does not
 * get the last connection as long as an active user has nothing waiting there: when that one comes, a connection is
 * free at once, and not only after a transfer of perhaps a GiB. Where all active users wait for the node their turns
 * decide, so that bytes and not connections are what is shared; but of those in the same round one below its share
 * goes first. A user alone may have all connections.
 *
 * No timer: whoever is refused holds a connection of that node, so the node is looked at again when that is released.
 * Entering and looking are O(1), but that users who are active no more leave then. Private to transfer/. Loop thread
 * only.
 */
#ifndef GRD_TRANSFER_SHARE_H
#define GRD_TRANSFER_SHARE_H

#include "daemon/transfer/transfer.h"

#define SHARE_ACTIVE_MS 1000

void share_init(struct transfers *transfers);

/* The user's transfer waits from now on. */
void share_enter(struct transfers *transfers, struct transfer_user *user);

/* The user is about to be freed. */
void share_leave(struct transfers *transfers, struct transfer_user *user);

/* Whether a transfer that queue_look showed may have one of the connections that are free at its node. */
bool share_allows(struct transfers *transfers, struct queue *queue, const struct transfer *transfer);

#endif
