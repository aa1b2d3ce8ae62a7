#include "daemon/transfer/share.h"

#include "daemon/transfer/queue.h"

/* Before one below its share stand at most as many as there are connections; mostly far fewer. */
#define USERS_COMPARED 16

void share_init(struct transfers *transfers)
{
    TAILQ_INIT(&transfers->active);
}

void share_enter(struct transfers *transfers, struct transfer_user *user)
{
    if (user->is_active) {
        TAILQ_REMOVE(&transfers->active, user, active_link);
    } else {
        transfers->active_count++;
    }
    TAILQ_INSERT_TAIL(&transfers->active, user, active_link);
    user->is_active = true;
    user->active_at = uv_now(transfers->loop);
}

void share_leave(struct transfers *transfers, struct transfer_user *user)
{
    if (user->is_active) {
        TAILQ_REMOVE(&transfers->active, user, active_link);
        transfers->active_count--;
    }
    user->is_active = false;
}

/* Each user is looked at once in SHARE_ACTIVE_MS. */
static void forget_inactive(struct transfers *transfers)
{
    uint64_t now = uv_now(transfers->loop);
    struct transfer_user *user;

    while ((user = TAILQ_FIRST(&transfers->active)) != NULL && now - user->active_at >= SHARE_ACTIVE_MS) {
        if (user->queued > 0) {
            share_enter(transfers, user);
        } else {
            share_leave(transfers, user);
        }
    }
}

/* Somebody of the same round who holds less than the share. */
static bool is_beside_smaller(struct queue *queue, const struct transfer *transfer, unsigned share)
{
    const struct transfer *other = queue_look(queue, transfer);

    for (unsigned i = 0; i < USERS_COMPARED && other != NULL && queue_same_round(other, transfer); i++) {
        if (queue_running(other) < share) {
            return true;
        }
        other = queue_look(queue, other);
    }
    return false;
}

bool share_allows(struct transfers *transfers, struct queue *queue, const struct transfer *transfer)
{
    const struct node *node = queue->member->node;
    unsigned share;

    if (node_free(node) > 1) {
        return true;
    }
    forget_inactive(transfers);
    share = node_capacity(node) / transfers->active_count;
    share = share > 0 ? share : 1;
    if (queue_running(transfer) < share) {
        return true;
    }
    return transfers->active_count <= queue->waiting && !is_beside_smaller(queue, transfer, share);
}
