#include "daemon/transfer/transfer_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/transfer/queue.h"
#include "daemon/transfer/route.h"
#include "daemon/transfer/share.h"
#include "proto/limits.h"

/* How far others may go ahead of one that waits for a certain NIC. */
#define USERS_LOOKED_AT 8

static bool prepare(struct transfer *transfer);
static void send_command(struct transfer *transfer);

/* Nothing was sent: back to the head of its queue, for another NIC. */
static void put_back(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;
    struct carrier *carrier = transfer->carrier;
    struct member *member = transfer->member;
    deployment_hold(member); /* the transfer may end before the carrier is released */
    transfer->carrier = NULL;
    if (route_back(transfer) != 0)
        transfer_end_without_memory(transfer);
    carrier_release(carrier);
    transfers_kick(transfers, member);
    deployment_let_go(member);
}

static void prepared(void *context, int status)
{
    struct transfer *transfer = context;
    bool elsewhere = status != 0 && window_unprepared(&transfer->window, transfer->nic, status != -ECANCELED);
    if (transfer->state == TRANSFER_REVOKING) {
        return; /* given up: `revoked` follows */
    } else if (elsewhere && !transfer->ending_decided && status != -ECANCELED) {
        put_back(transfer);
    } else if (transfer->ending_decided) {
        transfer_release_and_settle(transfer);
    } else if (status != 0) {
        transfer_decide(transfer, OUTCOME_UNPREPARED);
        snprintf(transfer->why, sizeof transfer->why,
                 "the fabric refused to register the window's memory (error %d); RLIMIT_MEMLOCK or a limit of the "
                 "device may be reached", status);
        transfer_release_and_settle(transfer);
    } else if (prepare(transfer)) { /* not where another lane's destruction has closed one of them again */
        send_command(transfer);
    }
}

/* Registers what the lane does not have yet, charged before; true when nothing was missing. */
static bool prepare(struct transfer *transfer)
{
    struct slice *slices[PROTO_WINDOW_SLICES];
    struct lane *lane = carrier_lane(transfer->carrier);
    size_t count = window_slices(&transfer->window, slices);
    size_t missing = 0;
    for (size_t i = 0; i < count; i++)
        if (!lane_has(lane, slices[i]))
            slices[missing++] = slices[i];
    if (missing == 0)
        return true;
    struct memory_error error = {0};
    if (window_charge(&transfer->window, transfer->nic, &error) != 0) {
        transfer_decide(transfer, OUTCOME_UNPREPARED);
        snprintf(transfer->why, sizeof transfer->why, "%s", error.text);
        transfer_release_and_settle(transfer);
        return false;
    }
    transfer->state = TRANSFER_PREPARING;
    lane_prepare(lane, slices, missing, prepared, transfer);
    return false;
}

/* 0, or why nothing was sent. */
static int send_words(struct transfer *transfer)
{
    struct slice_triple triples[PROTO_WINDOW_SLICES];
    struct slice *slices[PROTO_WINDOW_SLICES];
    struct lane *lane = carrier_lane(transfer->carrier);
    int status = lane_begin(lane, slices, window_slices(&transfer->window, slices));
    if (status != 0)
        return status;
    size_t count = window_triples(&transfer->window, lane, triples);
    status = transfer->kind == TRANSFER_SET
                 ? carrier_set(transfer->carrier, &transfer->request, transfer->key, transfer->key_length,
                               transfer->window.length, transfer->has_crc32c, transfer->crc32c, triples, count)
                 : carrier_get(transfer->carrier, &transfer->request, transfer->key, transfer->key_length,
                               transfer->window.length, triples, count);
    transfer->named = status == 0;
    if (status != 0)
        lane_end(lane);
    return status;
}

/* Over the connection itself: there is nothing to register and nothing to name. */
static int send_value(struct transfer *transfer)
{
    struct file_range range;
    window_range(&transfer->window, &range);
    return transfer->kind == TRANSFER_SET
               ? carrier_tcp_set(transfer->carrier, &transfer->request, transfer->key, transfer->key_length,
                                 transfer->has_crc32c, transfer->crc32c, &range)
               : carrier_tcp_get(transfer->carrier, &transfer->request, transfer->key, transfer->key_length, &range);
}

/* From acceptance to the first sending; what waits for another attempt has been sent before. */
static void count_queued(struct transfer *transfer)
{
    uint64_t ns = transfer->sent_ns - transfer->accepted_ns;
    if (transfer->attempts > 1)
        return;
    transfer_stats_stage(&transfer->transfers->stats, TRANSFER_STAGE_QUEUE, transfer->window.length, ns);
    histogram_add(&transfer->session->user->queue_times, ns);
}

static void send_command(struct transfer *transfer)
{
    transfer->request.done = transfer_replied;
    transfer->request.ttl_ms = transfer->ttl_ms;
    transfer->state = TRANSFER_SENT;
    transfer->sent_ns = uv_hrtime();
    count_queued(transfer);
    int status = transfer->over_tcp ? send_value(transfer) : send_words(transfer);
    if (status == 0)
        return;
    transfer_decide_attempt(transfer, OUTCOME_UNSENT);
    snprintf(transfer->why, sizeof transfer->why, "%s",
             status == -ENOMEM ? "the daemon is out of memory" : "the connection to the server ended; nothing was sent");
    transfer_take_back(transfer);
}

static void begin(struct transfer *transfer, struct carrier *carrier)
{
    route_take(transfer);
    transfer->carrier = carrier;
    transfer->named = false;
    struct lane *lane = carrier_lane(carrier);
    transfer->over_tcp = lane == NULL;
    transfer->nic = lane != NULL ? lane_nic(lane) : 0;
    if (lane == NULL || prepare(transfer))
        send_command(transfer);
}

/*
 * Begins the first that a carrier is there for. Whose turn it is goes first; while there is none on a NIC that it can
 * use (node_acquire sees to one), the next users may have those that are idle. Those who leave the last connection to
 * others are passed over: each holds one, so there are no more of them than connections.
 */
static bool begin_next(struct transfers *transfers, struct queue *queue)
{
    struct node *node = queue->member->node;
    struct transfer *transfer = queue_look(queue, NULL);
    for (unsigned tried = 0; transfer != NULL && tried < USERS_LOOKED_AT; transfer = queue_look(queue, transfer)) {
        if (!share_allows(transfers, queue, transfer))
            continue;
        uint32_t nics = window_nics(&transfer->window);
        struct carrier *carrier = tried++ == 0 ? node_acquire(node, nics, queue->wanted) : node_take_idle(node, nics);
        if (carrier != NULL) {
            begin(transfer, carrier);
            return true;
        }
        if (!node_has_idle(node))
            return false;
    }
    return false;
}

/* Sends what waits in the queue, as far as its member has carriers. */
static void send_queue(struct transfers *transfers, struct queue *queue)
{
    struct member *member = queue->member;
    if (member == NULL)
        return;
    deployment_hold(member); /* the queue is the member's */
    while (begin_next(transfers, queue))
        ;
    deployment_let_go(member);
}

/* Looks at the queues where something may have become possible. */
void transfers_send_ready(struct transfers *transfers)
{
    struct queue *queue;
    if (transfers->sending) /* a callback from inside: the loop below goes on */
        return;
    transfers->sending = true;
    while ((queue = TAILQ_FIRST(&transfers->ready)) != NULL) {
        queue_unmark_ready(queue);
        send_queue(transfers, queue);
    }
    transfers->sending = false;
}

void transfers_kick(struct transfers *transfers, struct member *member)
{
    if (member != NULL && member->data != NULL)
        queue_mark_ready(member->data);
    transfers_send_ready(transfers);
}

/* --- events of the deployment ------------------------------------------------------------------------------------- */

static void carrier_idle(void *context, struct member *member)
{
    transfers_kick(context, member);
}

/* One that waits, and for which no carrier can be made. */
static void end_unavailable(struct transfer *transfer, int code, bool later, const char *why)
{
    route_take(transfer);
    transfer->refused += transfer->member != NULL || later ? 1 : 0;
    transfer->unavailable_code = code;
    transfer->unavailable_later = later;
    transfer_decide_attempt(transfer, OUTCOME_UNAVAILABLE);
    if (transfer->refused > 1)
        snprintf(transfer->why, sizeof transfer->why, "tried %u times, the last time: %s", transfer->attempts, why);
    else
        snprintf(transfer->why, sizeof transfer->why, "%s", why);
    struct member *member = route_take_member(transfer);
    transfer_settle(transfer);
    route_let_go(member);
}

static void member_unavailable(void *context, struct member *member, int code, bool later, const char *why)
{
    struct transfers *transfers = context;
    struct queue *queue = route_queue(transfers, member);
    if (queue == NULL)
        return;
    if (member != NULL)
        deployment_hold(member); /* the queue is the member's */
    /* Those that wait now, and not for others of their user to end; what their answers bring about is judged by the
     * next attempt. */
    struct transfer *transfer;
    for (unsigned count = queue->length; count > 0 && (transfer = queue_look(queue, NULL)) != NULL; count--) {
        struct carrier *carrier =
            member != NULL ? node_take_idle(member->node, window_nics(&transfer->window)) : NULL;
        if (carrier != NULL)
            begin(transfer, carrier);
        else
            end_unavailable(transfer, code, later, why);
    }
    transfers_send_ready(transfers);
    route_let_go(member);
}

/* Those that wait move to where their slot is served now. All have moved before the first is sent: sending may end
 * others, `next` among them. */
static void map_changed(void *context)
{
    struct transfers *transfers = context;
    struct transfer *transfer, *next;
    for (transfer = TAILQ_FIRST(&transfers->all); transfer != NULL; transfer = next) {
        next = TAILQ_NEXT(transfer, all_link);
        if (transfer->state != TRANSFER_QUEUED || transfer->redirected ||
            transfer->member == deployment_member_of(transfers->deployment, transfer->slot))
            continue;
        route_leave(transfer);
        route_let_go(route_take_member(transfer));
        transfer_enter(transfer, false);
    }
    transfers_send_ready(transfers);
}

static void member_gone(void *context, struct member *member)
{
    if (member->data != NULL)
        queue_unmark_ready(member->data);
    free(member->data); /* empty: nobody holds the member */
    member->data = NULL;
}

const struct deployment_events transfers_events = {
    .carrier_idle = carrier_idle,
    .unavailable = member_unavailable,
    .map_changed = map_changed,
    .member_gone = member_gone,
};
