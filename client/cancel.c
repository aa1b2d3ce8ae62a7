/*
 * Taking transfers of a queue back: one that the daemon has, by asking it; one that is parked, here. Nothing waits.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/channel.h"
#include "proto/shape.h"

/* Without the lock. 0 or a negative errno. */
static int send_cancel(grd_client *client, int64_t id, int64_t ticket)
{
    struct proto_cancel_params params = {.id = (uint64_t)ticket};
    json_t *json = proto_shape_encode(proto_methods[PROTO_METHOD_TRANSFER_CANCEL].params, &params);
    struct message message = {.large = NULL};
    int sent = -ENOMEM;

    if (json != NULL && message_write(&message, id, PROTO_METHOD_TRANSFER_CANCEL, json) == 0) {
        sent = channel_send(client->socket, message.text, message.length, -1);
    }
    free(message.large);
    json_decref(json);
    return sent;
}

/* Lock held. The ticket may be gone meanwhile. */
static int cancel_failed(grd_queue *queue, uint64_t epoch, int64_t id, int64_t ticket, int reason,
                         struct grd_error *error)
{
    grd_client *client = queue->client;
    struct call *request = call_find(client, id), *target = call_find(client, ticket);

    if (request != NULL) {
        call_withdraw(client, request);
    }
    if (reason == -EPIPE) {
        call_not_sent(client, epoch, reason, error);
        error_clear(error);
        return 0; /* with the session the transfer ends too */
    }
    if (target != NULL) {
        ((struct ticket *)target)->cancelled = false;
    }
    return reason == -EAGAIN
               ? error_system(error, GRD_ERR_BUSY, EAGAIN, "the daemon has not read the earlier requests yet")
               : call_not_sent(client, epoch, reason, error);
}

/* It is nowhere but here: over at once. */
static void cancel_parked(struct ticket *ticket)
{
    struct grd_error error;

    error_set(&error, GRD_ERR_CANCELLED, "cancelled while it waited for a session with the daemon");
    ticket->cancelled = true;
    ticket_fail(ticket, &error);
}

int ticket_cancel(struct ticket *ticket, struct grd_error *error)
{
    grd_queue *queue = ticket->queue;
    grd_client *client = queue->client;
    int64_t target = ticket->call.id, id;
    uint64_t epoch = client->epoch;
    struct call *request;
    int sent;

    if (ticket->parked) {
        cancel_parked(ticket);
        return 0;
    }
    if (ticket->cancelled || client->state != SESSION_OPEN || client->closing) {
        ticket->cancelled = true;
        return 0;
    }
    request = calloc(1, sizeof(*request));
    if (request == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for a request");
    }
    ticket->cancelled = true;
    call_open(client, request, CALL_FORGOTTEN);
    id = request->id;
    send_begin(client, epoch);
    pthread_mutex_unlock(&client->lock);
    sent = send_cancel(client, id, target);
    pthread_mutex_lock(&client->lock);
    send_end(client);
    return sent == 0 ? 0 : cancel_failed(queue, epoch, id, target, sent, error);
}

/* An open call with this number, or a parked ticket's; NULL: there is none. Lock held. */
static struct call *find_ticket(grd_client *client, uint64_t number)
{
    struct call *call = number <= (uint64_t)client->last_id ? call_find(client, (int64_t)number) : NULL;
    struct ticket *parked = call == NULL && number <= INT64_MAX ? parked_find(client, (int64_t)number) : NULL;

    return parked != NULL ? &parked->call : call;
}

int grd_cancel(grd_queue *queue, uint64_t ticket, struct grd_error *error)
{
    struct call *call;
    int code;

    error_clear(error);
    if (queue == NULL) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no queue");
    }
    code = queue_enter(queue, error);
    if (code != 0) {
        return code;
    }
    call = find_ticket(queue->client, ticket);
    if (ticket == 0 || ticket > (uint64_t)queue->client->last_id ||
        (call != NULL && (call->kind != CALL_TICKET || ((struct ticket *)call)->queue != queue))) {
        code = error_set(error, GRD_ERR_INVALID_ARGUMENT, "%llu is no ticket of this queue",
                         (unsigned long long)ticket);
    } else if (call != NULL) {
        code = ticket_cancel((struct ticket *)call, error);
    }
    queue_leave(queue);
    return code;
}
