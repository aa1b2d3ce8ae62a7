/*
 * Submitting transfers. Packets leave with sendmmsg(), some at a time; nothing here waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/channel.h"
#include "proto/shape.h"

/* Transfers that are prepared before the first of them is sent. */
#define BATCH 32

struct parcel {
    struct ticket *ticket;
    struct message message;
};

struct batch {
    grd_queue *queue;
    struct grd_error *error;
    char *transfers; /* the caller's array from here on */
    size_t stride;
    size_t count;    /* of it, at most BATCH */
    struct parcel *parcels;
    uint64_t epoch; /* session in which the tickets were opened */
    size_t direct;  /* so many of the tickets are calls of it; the others are to be parked */
};

static struct grd_transfer *asked(const struct batch *batch, size_t index)
{
    return (struct grd_transfer *)(void *)(batch->transfers + index * batch->stride);
}

static int check_options(const struct grd_transfer *wanted, size_t stride, struct grd_error *error)
{
    if (wanted->struct_size != stride) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "struct_size is %zu in one transfer and %zu in another",
                         stride, wanted->struct_size);
    }
    if (wanted->operation != GRD_OPERATION_SET && wanted->operation != GRD_OPERATION_GET) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "operation %d is not known", (int)wanted->operation);
    }
    if (wanted->operation == GRD_OPERATION_GET && wanted->ttl_ms != 0) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "a get takes no ttl_ms");
    }
    return 0;
}

static struct ticket *ticket_new(const struct batch *batch, const struct grd_transfer *wanted, int *code)
{
    grd_queue *queue = batch->queue;
    struct ticket *ticket;
    struct transfer transfer = {
        .writes = wanted->operation == GRD_OPERATION_GET,
        .window = wanted->window,
        .deadline_ms = wanted->deadline_ms,
        .ttl_ms = wanted->ttl_ms,
        .checksum = wanted->checksum,
        .crc32c = wanted->crc32c,
        .no_verify = wanted->no_verify,
        .no_retry = wanted->no_retry,
    };

    *code = check_options(wanted, batch->stride, batch->error);
    if (*code == 0) {
        *code = transfer_check(&transfer, wanted->key, wanted->key_length, batch->error);
    }
    if (*code == 0 && transfer.window.region->client != queue->client) {
        *code = error_set(batch->error, GRD_ERR_INVALID_ARGUMENT, "the window's region is of another client");
    }
    if (*code != 0) {
        return NULL;
    }
    ticket = calloc(1, sizeof(*ticket));
    if (ticket == NULL) {
        *code = error_set(batch->error, GRD_ERR_NO_MEMORY, "no memory for a transfer");
        return NULL;
    }
    ticket->queue = queue;
    ticket->transfer = transfer;
    ticket->user_data = wanted->user_data;
    ticket->deadline_ms = wanted->deadline_ms != 0 ? clock_ms() + wanted->deadline_ms : WAIT_FOREVER;
    ticket->sending = true;
    return ticket;
}

/* --- the steps of a batch: each returns how many transfers it got through; *code belongs to the first it did not - */

static size_t make_tickets(struct batch *batch, int *code)
{
    size_t made = 0;

    while (made < batch->count &&
           (batch->parcels[made].ticket = ticket_new(batch, asked(batch, made), code)) != NULL) {
        batch->parcels[made].message.large = NULL;
        made++;
    }
    return made;
}

/* Lock held. Number `index` of the batch becomes a call, unless it, or one before it, has to wait for a session. */
static void make_call(struct batch *batch, struct ticket *ticket, size_t index)
{
    grd_client *client = batch->queue->client;

    if (batch->direct == index && client->state == SESSION_OPEN &&
        ticket->transfer.window.region->registration == REGION_REGISTERED) {
        call_open(client, &ticket->call, CALL_TICKET);
        batch->direct++;
    } else {
        ticket->call = (struct call){.id = ++client->last_id, .kind = CALL_TICKET};
    }
}

/* Lock held. */
static int open_ticket(struct batch *batch, struct ticket *ticket, size_t index)
{
    grd_queue *queue = batch->queue;
    grd_client *client = queue->client;
    size_t open = client->open_calls + client->parked_count + (index - batch->direct);
    uint64_t limit = client->limits.requests != 0 ? client->limits.requests : CLIENT_REQUESTS_DEFAULT;
    int code;

    /* Looked at again: this call may have come in before grd_close() did. */
    if (client->closing) {
        return error_set(batch->error, GRD_ERR_CLOSED, "the client is being closed");
    }
    if (open >= limit) {
        code = error_set(batch->error, GRD_ERR_BUSY, "%zu requests of this client are open, as many as are allowed",
                         open);
        if (batch->error != NULL) {
            batch->error->used = open;
            batch->error->limit = limit;
            batch->error->asked = 1;
        }
        queue_wants_room(queue);
        return code;
    }
    code = transfer_begin(&ticket->transfer, batch->error);
    if (code != 0) {
        return code;
    }
    make_call(batch, ticket, index);
    TAILQ_INSERT_TAIL(&queue->open, ticket, entry);
    queue->open_count++;
    queue->pending++;
    return 0;
}

static size_t open_tickets(struct batch *batch, size_t count, int *code)
{
    grd_client *client = batch->queue->client;
    size_t opened = 0;

    pthread_mutex_lock(&client->lock);
    batch->epoch = client->epoch;
    batch->direct = 0;
    while (opened < count) {
        int refused = open_ticket(batch, batch->parcels[opened].ticket, opened);

        if (refused != 0) {
            *code = refused;
            break;
        }
        /* Written before the packet leaves: another thread may reap it before grd_submit() returns. */
        asked(batch, opened)->ticket = (uint64_t)batch->parcels[opened].ticket->call.id;
        opened++;
    }
    pthread_mutex_unlock(&client->lock);
    return opened;
}

/* The parameters are kept where the transfer may have to be sent in another session. */
static int write_parcel(struct batch *batch, struct parcel *parcel, const struct grd_transfer *wanted, bool direct)
{
    struct ticket *ticket = parcel->ticket;
    int code = transfer_encode(&ticket->transfer, wanted->key, wanted->key_length, &ticket->params, batch->error);

    if (code != 0 || !direct) {
        return code;
    }
    code = message_write(&parcel->message, ticket->call.id, transfer_method(&ticket->transfer), ticket->params);
    if (!ticket->queue->client->reconnects) {
        json_decref(ticket->params);
        ticket->params = NULL;
    }
    return code != 0 ? error_set(batch->error, code, "cannot write the request of a transfer") : 0;
}

static size_t write_parcels(struct batch *batch, size_t count, int *code)
{
    size_t written = 0;

    while (written < count) {
        int failed = write_parcel(batch, &batch->parcels[written], asked(batch, written), written < batch->direct);

        if (failed != 0) {
            *code = failed;
            break;
        }
        written++;
    }
    return written;
}

/* *reason: a negative errno where fewer were sent. */
static size_t send_all(struct batch *batch, size_t count, int *reason)
{
    struct mmsghdr headers[BATCH];
    struct iovec parts[BATCH];
    size_t sent = 0;

    for (size_t i = 0; i < count; i++) {
        union {
            const char *in;
            void *out; /* sendmmsg() only reads */
        } text = {.in = batch->parcels[i].message.text};

        parts[i] = (struct iovec){.iov_base = text.out, .iov_len = batch->parcels[i].message.length};
        headers[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    while (sent < count) {
        int taken = sendmmsg(batch->queue->client->socket, headers + sent, (unsigned)(count - sent),
                             MSG_DONTWAIT | MSG_NOSIGNAL);

        if (taken > 0) {
            sent += (size_t)taken;
        } else if (errno != EINTR) {
            *reason = errno == ECONNRESET ? -EPIPE : errno == EWOULDBLOCK ? -EAGAIN : -errno;
            break;
        }
    }
    return sent;
}

/* Those that are calls, as far as their session is still there: *reason is -EPIPE where it is not. */
static size_t send_parcels(struct batch *batch, size_t written, int *reason)
{
    grd_client *client = batch->queue->client;
    size_t count = written < batch->direct ? written : batch->direct, sent;
    bool alive;

    if (count == 0) {
        return 0;
    }
    pthread_mutex_lock(&client->lock);
    alive = send_begin(client, batch->epoch);
    pthread_mutex_unlock(&client->lock);
    if (!alive) {
        *reason = -EPIPE;
        return 0;
    }
    sent = send_all(batch, count, reason);
    pthread_mutex_lock(&client->lock);
    send_end(client);
    pthread_mutex_unlock(&client->lock);
    return sent;
}

/* --- and what is left of it -------------------------------------------------------------------------------------- */

/* Lock held. It was sent; its answer may have come while it was ours. */
static void let_go(struct ticket *ticket)
{
    ticket->sending = false;
    if (ticket->call.done) {
        queue_finish(ticket, false);
    }
}

/* Lock held. As if it had never been asked for. */
static void withdraw(struct batch *batch, size_t index)
{
    struct ticket *ticket = batch->parcels[index].ticket;
    grd_queue *queue = batch->queue;

    if (index < batch->direct) {
        call_withdraw(queue->client, &ticket->call);
    }
    TAILQ_REMOVE(&queue->open, ticket, entry);
    queue->open_count--;
    queue->pending--;
    transfer_end(&ticket->transfer);
    asked(batch, index)->ticket = 0;
}

/* Lock held. It provably did not leave, or was never to: it goes with the next session, or with this one. */
static void park(struct batch *batch, size_t index, bool unsent)
{
    struct ticket *ticket = batch->parcels[index].ticket;

    if (index < batch->direct) {
        call_withdraw(batch->queue->client, &ticket->call);
    }
    ticket->sending = false;
    ticket->call.done = false;
    ticket->call.ended_with = 0;
    ticket_park(ticket, unsent ? batch->epoch : 0);
}

/* Lock held. */
static int not_sent(struct batch *batch, int reason)
{
    if (reason == -EAGAIN) {
        queue_wants_room(batch->queue);
        return error_system(batch->error, GRD_ERR_BUSY, EAGAIN, "the daemon has not read the earlier requests yet");
    }
    return call_not_sent(batch->queue->client, batch->epoch, reason, batch->error);
}

/* Lock held, and on return. Returns how many were accepted: sent, or parked. */
static size_t park_or_withdraw(struct batch *batch, size_t sent, size_t written, size_t opened, int reason, int *code)
{
    grd_client *client = batch->queue->client;
    bool parks = client->reconnects && !client->closing && !batch->queue->closing;
    size_t accepted = parks && (reason == 0 || reason == -EPIPE) ? written : sent;

    for (size_t i = sent; i < accepted; i++) {
        park(batch, i, i < batch->direct);
    }
    for (size_t i = accepted; i < opened; i++) {
        withdraw(batch, i);
    }
    if (reason == -EPIPE && accepted > sent) {
        call_not_sent(client, batch->epoch, reason, NULL); /* nobody may have seen the end of the session yet */
    } else if (reason != 0) {
        *code = not_sent(batch, reason);
    } else if (accepted < written) {
        *code = error_set(batch->error, GRD_ERR_CLOSED, "the client or the queue is being closed");
    }
    return accepted;
}

static size_t settle(struct batch *batch, size_t sent, size_t written, size_t opened, int reason, int *code)
{
    grd_queue *queue = batch->queue;
    grd_client *client = queue->client;
    size_t accepted = sent;

    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < sent; i++) {
        let_go(batch->parcels[i].ticket);
    }
    if (sent < opened) {
        accepted = park_or_withdraw(batch, sent, written, opened, reason, code);
    }
    if (client->parked_count > 0) { /* also those whose session ended while they were ours */
        if (client->state == SESSION_OPEN) {
            parked_send(client);
        }
        lead_kick(client);
    }
    if (queue_is_over(queue) || queue_is_closed(queue)) {
        queue_update(queue);
        lead_wake_queue(client, queue, true);
    }
    if (client->closing) {
        lead_wake_queue(client, NULL, true);
    }
    pthread_mutex_unlock(&client->lock);
    return accepted;
}

/* Returns how many were accepted; *code tells why not all. */
static size_t submit_batch(struct batch *batch, int *code)
{
    size_t made = make_tickets(batch, code);
    size_t opened = open_tickets(batch, made, code);
    size_t written = write_parcels(batch, opened, code);
    int reason = 0;
    size_t sent = send_parcels(batch, written, &reason);

    /* What was accepted belongs to whoever reaps it from here on. */
    size_t accepted = settle(batch, sent, written, opened, reason, code);

    for (size_t i = 0; i < made; i++) {
        free(batch->parcels[i].message.large);
        if (i >= accepted) {
            ticket_free(batch->parcels[i].ticket);
        }
    }
    return accepted;
}

static int submit_all(struct batch *batch, size_t count, size_t *accepted)
{
    size_t done = 0;
    int code = 0;

    batch->parcels = malloc((count < BATCH ? count : BATCH) * sizeof(*batch->parcels));
    if (batch->parcels == NULL) {
        return error_set(batch->error, GRD_ERR_NO_MEMORY, "no memory for %zu transfers", count);
    }
    while (code == 0 && done < count) {
        size_t sent;

        batch->count = count - done < BATCH ? count - done : BATCH;
        sent = submit_batch(batch, &code);
        batch->transfers += sent * batch->stride;
        done += sent;
    }
    free(batch->parcels);
    *accepted = done;
    return code;
}

int grd_submit(grd_queue *queue, struct grd_transfer *transfers, size_t count, size_t *accepted,
               struct grd_error *error)
{
    struct batch batch = {.queue = queue, .error = error, .transfers = (char *)transfers};
    size_t done = 0;
    int code;

    error_clear(error);
    if (accepted != NULL) {
        *accepted = 0;
    }
    if (queue == NULL || (count > 0 && (transfers == NULL || transfers[0].struct_size < sizeof(*transfers)))) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no queue, no transfers, or struct_size is not set");
    }
    if (accepted == NULL && count > 1) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no place for the number of accepted transfers");
    }
    code = queue_enter(queue, error);
    if (code != 0) {
        return code;
    }
    pthread_mutex_unlock(&queue->client->lock);
    if (count > 0) {
        batch.stride = transfers[0].struct_size;
        code = submit_all(&batch, count, &done);
    }
    pthread_mutex_lock(&queue->client->lock);
    queue_leave(queue);
    if (accepted != NULL) {
        *accepted = done;
    }
    return code;
}
