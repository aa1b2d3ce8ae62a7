#include "daemon/transfer/route.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/transfer/share.h"

struct queue *route_queue(struct transfers *transfers, struct member *member)
{
    return member != NULL ? member->data : &transfers->unmapped;
}

/* Made with the first transfer for the member. NULL: out of memory. */
static struct queue *need_queue(struct transfers *transfers, struct member *member)
{
    if (member != NULL && member->data == NULL && (member->data = malloc(sizeof(struct queue))) != NULL)
        queue_init(member->data, &transfers->ready, member);
    return route_queue(transfers, member);
}

int route_enter(struct transfer *transfer, bool first)
{
    struct transfers *transfers = transfer->transfers;
    struct member *member = transfer->target;
    if (member == NULL) {
        if ((member = deployment_member_of(transfers->deployment, transfer->slot)) != NULL)
            deployment_hold(member);
        transfer->request.asking = false;
    }
    transfer->redirected = transfer->target != NULL;
    transfer->target = NULL; /* its hold is the transfer's now */
    transfer->member = member;
    struct queue *queue = need_queue(transfers, member);
    if (queue == NULL || queue_add(queue, transfer, first) != 0) {
        route_let_go(route_take_member(transfer));
        return -ENOMEM;
    }
    transfer->state = TRANSFER_QUEUED;
    transfers->queued++;
    share_enter(transfers, transfer->session->user);
    return 0;
}

void route_leave(struct transfer *transfer)
{
    queue_remove(transfer);
    transfer->transfers->queued--;
}

void route_take(struct transfer *transfer)
{
    queue_take(transfer);
    transfer->transfers->queued--;
}

int route_back(struct transfer *transfer)
{
    queue_sent_ends(transfer);
    if (queue_add(route_queue(transfer->transfers, transfer->member), transfer, true) != 0)
        return -ENOMEM;
    transfer->state = TRANSFER_QUEUED;
    transfer->transfers->queued++;
    share_enter(transfer->transfers, transfer->session->user);
    return 0;
}

struct member *route_take_member(struct transfer *transfer)
{
    struct member *member = transfer->member;
    transfer->member = NULL;
    return member;
}

void route_let_go(struct member *member)
{
    if (member != NULL)
        deployment_let_go(member);
}

void route_redirect(struct transfer *transfer)
{
    const struct redirect *redirect = &transfer->reply.redirect;
    transfer->target = deployment_redirect(transfer->member, redirect);
    transfer->request.asking = redirect->kind == REDIRECT_ASK && transfer->target != NULL;
    if (transfer->target != NULL)
        deployment_hold(transfer->target);
}
