/*
 * Tickets that wait for a session. A ticket is parked when it is in nobody's hands but the library's:
 *
 * - it was submitted while there was no session, or its region is not registered in it yet;
 * - its packet provably never left (the socket was dead);
 * - its session ended before the answer, and it is a get, which changes nothing on the server;
 * - the daemon answered that it stops, and did nothing.
 *
 * A set whose packet has left is never here without the daemon's word that it did not begin: it may have run
 * (docs/architecture.md, rule 2). The window stays locked all the while.
 *
 * Parked tickets are sent in their order, by whoever opens the session, without waiting: what finds no room goes with
 * the next answer. Each is given up reconnect_ms after it was parked first, or at its deadline.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/channel.h"

bool ticket_is_for_the_next(const struct ticket *ticket)
{
    const struct call *call = &ticket->call;
    const grd_client *client = ticket->queue->client;
    bool again = ticket->transfer.writes && !ticket->transfer.no_retry;

    if (!client->reconnects || client->closing || ticket->queue->closing || ticket->cancelled ||
        ticket->params == NULL) {
        return false;
    }
    return call->answered ? call_was_postponed(call, again) : again && call->ended_with == GRD_ERR_INTERRUPTED;
}

static void set_failure(struct ticket *ticket, const struct grd_error *error)
{
    if (ticket->failure == NULL) {
        ticket->failure = malloc(sizeof(*ticket->failure));
    }
    if (ticket->failure != NULL) {
        *ticket->failure = *error;
    }
}

/* How it ended so far is told if no other session follows. No memory: then what is told is how that went. */
static void keep_ending(struct ticket *ticket)
{
    struct call *call = &ticket->call;
    struct grd_error error;

    if (call->answered) {
        error_from_answer(&call->answer, &error);
        set_failure(ticket, &error);
    } else if (call->ended_with != 0) {
        set_failure(ticket, &ticket->queue->client->end_error);
    }
    json_decref(call->answer.root);
    call->answer = (struct proto_answer){0};
    call->answered = false;
}

void ticket_park(struct ticket *ticket, uint64_t after)
{
    grd_client *client = ticket->queue->client;

    keep_ending(ticket);
    if (ticket->parked_end_ms == 0) {
        session_start_limit(client, &ticket->parked_end_ms);
        if (ticket->deadline_ms < ticket->parked_end_ms) {
            ticket->parked_end_ms = ticket->deadline_ms;
        }
    }
    ticket->parked_after = after;
    ticket->parked = true;
    TAILQ_INSERT_TAIL(&client->parked, ticket, parked_entry);
    if (client->parked_count == 0 || ticket->parked_end_ms < client->parked_ms) {
        client->parked_ms = ticket->parked_end_ms;
    }
    client->parked_count++;
    ticket->queue->parked_count++;
}

static void take_out(struct ticket *ticket)
{
    grd_client *client = ticket->queue->client;

    TAILQ_REMOVE(&client->parked, ticket, parked_entry);
    ticket->parked = false;
    client->parked_count--;
    ticket->queue->parked_count--;
}

void ticket_fail(struct ticket *ticket, const struct grd_error *error)
{
    grd_client *client = ticket->queue->client;

    take_out(ticket);
    set_failure(ticket, error);
    ticket->call.done = true;
    ticket->call.ended_with = error->code;
    json_decref(ticket->params);
    ticket->params = NULL; /* so that it is not parked again */
    queue_finish(ticket, false);
    if (client->crowded) {
        queues_room(client);
    }
}

struct ticket *parked_find(const grd_client *client, int64_t id)
{
    struct ticket *ticket;

    TAILQ_FOREACH(ticket, &client->parked, parked_entry) {
        if (ticket->call.id == id) {
            return ticket;
        }
    }
    return NULL;
}

/* --- sending ----------------------------------------------------------------------------------------------------- */

/* 0, or a negative errno: then nothing has left. The id is one that this session has not seen. */
static int send_ticket(struct ticket *ticket)
{
    grd_client *client = ticket->queue->client;
    struct message message = {.large = NULL};
    int sent = -ENOMEM;

    if (request_complete(ticket->params, ticket->transfer.window.region->id, ticket->deadline_ms) == 0 &&
        message_write(&message, ticket->call.id, transfer_method(&ticket->transfer), ticket->params) == 0) {
        sent = channel_send(client->socket, message.text, message.length, -1);
    }
    free(message.large);
    if (sent == 0) {
        take_out(ticket);
        free(ticket->failure);
        ticket->failure = NULL;
        call_open_again(client, &ticket->call);
    }
    return sent;
}

/* False: what follows has to wait. */
static bool try_ticket(struct ticket *ticket)
{
    grd_region *region = ticket->transfer.window.region;
    struct grd_error error;
    int sent;

    if (ticket->parked_after >= region->client->epoch) {
        return true;
    }
    if (region->lost) {
        error_set(&error, GRD_ERR_CLOSED, "the daemon closed (revoked) the region: %s", region->lost_reason);
        ticket_fail(ticket, &error);
        return true;
    }
    if (region->registration != REGION_REGISTERED) {
        region_restore(region);
        return true;
    }
    sent = send_ticket(ticket);
    if (sent == -EAGAIN || sent == -EPIPE) {
        return false;
    }
    if (sent != 0) {
        error_system(&error, GRD_ERR_NO_MEMORY, -sent, "cannot send a request to the daemon");
        ticket_fail(ticket, &error);
    }
    return true;
}

void parked_send(grd_client *client)
{
    uint64_t limit = client->limits.requests != 0 ? client->limits.requests : CLIENT_REQUESTS_DEFAULT;
    struct ticket *ticket, *next;

    client->parked_blocked = false;
    regions_restore(client);
    for (ticket = TAILQ_FIRST(&client->parked); ticket != NULL && client->state == SESSION_OPEN; ticket = next) {
        next = TAILQ_NEXT(ticket, parked_entry);
        if (client->open_calls >= limit || !try_ticket(ticket)) {
            client->parked_blocked = true;
            return;
        }
        if (next != NULL && !next->parked) { /* given up with its region */
            next = TAILQ_FIRST(&client->parked);
        }
    }
}

/* --- giving up --------------------------------------------------------------------------------------------------- */

/* Registering in an open session takes its time, as for a new region: only the deadline counts. */
static uint64_t end_of(const struct ticket *ticket)
{
    const grd_region *region = ticket->transfer.window.region;
    bool restoring = region->client->state == SESSION_OPEN && region->registration == REGION_RESTORING;

    return restoring ? ticket->deadline_ms : ticket->parked_end_ms;
}

static void expire(struct ticket *ticket, uint64_t now_ms)
{
    grd_client *client = ticket->queue->client;
    struct grd_error error = client->attempt_error;

    if (ticket->deadline_ms <= now_ms) {
        error_set(&error, GRD_ERR_DEADLINE, "the deadline passed before there was a session with the daemon");
    } else if (ticket->failure != NULL) {
        error = *ticket->failure;
    } else if (error.code == 0) {
        error_set(&error, GRD_ERR_NO_DAEMON, "no session with the daemon within %llu ms",
                  (unsigned long long)client->reconnect_ms);
    }
    ticket_fail(ticket, &error);
}

void parked_expire(grd_client *client, uint64_t now_ms)
{
    struct ticket *ticket, *next;

    if (client->parked_count == 0 || now_ms < client->parked_ms) {
        return;
    }
    client->parked_ms = WAIT_FOREVER;
    for (ticket = TAILQ_FIRST(&client->parked); ticket != NULL; ticket = next) {
        uint64_t end_ms = end_of(ticket);

        next = TAILQ_NEXT(ticket, parked_entry);
        if (end_ms <= now_ms) {
            expire(ticket, now_ms);
        } else if (end_ms < client->parked_ms) {
            client->parked_ms = end_ms;
        }
    }
}

void parked_session_ended(grd_client *client)
{
    client->parked_ms = client->parked_count > 0 ? 0 : WAIT_FOREVER; /* looked at by the next tick */
}

void parked_fail_all(grd_client *client, const struct grd_error *error)
{
    struct ticket *ticket;

    while ((ticket = TAILQ_FIRST(&client->parked)) != NULL) {
        ticket_fail(ticket, error);
    }
}

void parked_fail_region(grd_region *region)
{
    struct ticket *ticket, *next;

    for (ticket = TAILQ_FIRST(&region->client->parked); ticket != NULL; ticket = next) {
        next = TAILQ_NEXT(ticket, parked_entry);
        if (ticket->transfer.window.region == region) {
            ticket_fail(ticket, &region->refusal);
        }
    }
}

void parked_close(grd_client *client)
{
    struct grd_error error;

    error_set(&error, GRD_ERR_CLOSED, "the client was closed");
    parked_fail_all(client, &error);
}
