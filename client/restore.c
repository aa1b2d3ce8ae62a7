/*
 * Regions in the sessions that follow the first: each is registered again, with the memory file, range and access that
 * it was made with, under a new number that nobody but the library sees.
 *
 *   REGION_REGISTERED -- the session ends --> REGION_WAITING -- there is a session --> REGION_RESTORING
 *                                                   ^                                 |            |
 *                                                   +--- a call needs it --- REGION_REFUSED   REGION_REGISTERED
 */
#include <errno.h>
#include <stdlib.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/channel.h"
#include "proto/shape.h"

/* Registrations in progress at once. The daemon works on few at a time; each holds a descriptor in the socket. */
#define RESTORE_AT_ONCE 16

void regions_forget(grd_client *client)
{
    grd_region *region;

    LIST_FOREACH(region, &client->regions, entry) {
        region->id = 0;
        region->registration = REGION_WAITING;
        region->lost &= !client->reconnects; /* by that session; the next one is asked again */
    }
}

/* 0, or a negative errno: then nothing has left. */
static int send_registration(grd_region *region)
{
    grd_client *client = region->client;
    json_t *params = region_params(region, true);
    struct message message = {.large = NULL};
    int sent = -ENOMEM;

    region->restore = (struct call){.kind = CALL_RESTORE, .id = ++client->last_id};
    if (params != NULL &&
        message_write(&message, region->restore.id, PROTO_METHOD_REGION_REGISTER, params) == 0) {
        sent = channel_send(client->socket, message.text, message.length, region->fd);
    }
    free(message.large);
    json_decref(params);
    if (sent == 0) {
        call_open_again(client, &region->restore);
    }
    return sent;
}

static void refuse(grd_region *region)
{
    region->registration = REGION_REFUSED;
    parked_fail_region(region);
}

/* False: there is no room, or no session, for more. */
static bool restore(grd_region *region)
{
    int sent = send_registration(region);

    if (sent == 0) {
        region->registration = REGION_RESTORING;
        region->restore_epoch = region->client->epoch;
        return true;
    }
    if (sent == -EAGAIN || sent == -EPIPE) {
        region->client->parked_blocked = true;
        return false; /* an answer, or the end of the session, comes */
    }
    error_system(&region->refusal, GRD_ERR_NO_MEMORY, -sent, "cannot register the region again");
    refuse(region);
    return true;
}

/* Waits for this session, and not for the one after it. */
static bool is_next(const grd_region *region)
{
    return region->registration == REGION_WAITING && !region->closing && !region->lost &&
           region->restore_epoch != region->client->epoch;
}

void regions_restore(grd_client *client)
{
    grd_region *region;
    unsigned under_way = 0;

    LIST_FOREACH(region, &client->regions, entry) {
        under_way += region->registration == REGION_RESTORING;
    }
    LIST_FOREACH(region, &client->regions, entry) {
        if (under_way >= RESTORE_AT_ONCE) {
            return;
        }
        if (is_next(region)) {
            if (!restore(region)) {
                return;
            }
            under_way++;
        }
    }
}

void region_restore(grd_region *region)
{
    grd_client *client = region->client;

    if (region->registration == REGION_REFUSED) {
        region->registration = REGION_WAITING;
        region->restore_epoch = 0;
    }
    if (client->state == SESSION_OPEN && is_next(region)) {
        restore(region);
    }
}

/* False, with the refusal filled. */
static bool read_answer(grd_region *region, struct call *call)
{
    struct proto_register_result result;
    char why[PROTO_WHY_BYTES];

    if (call->answer.result == NULL) {
        error_from_answer(&call->answer, &region->refusal);
        return false;
    }
    if (proto_shape_decode(proto_methods[PROTO_METHOD_REGION_REGISTER].result, call->answer.result, false, &result,
                           why) != 0) {
        error_set(&region->refusal, GRD_ERR_PROTOCOL, "the daemon's answer to region.register cannot be read: %s",
                  why);
        return false;
    }
    region->id = result.region;
    region->lost_kept = false;
    proto_shape_free(proto_methods[PROTO_METHOD_REGION_REGISTER].result, &result);
    return true;
}

void region_restored(struct call *call)
{
    grd_region *region = (grd_region *)(void *)((char *)call - offsetof(grd_region, restore));
    grd_client *client = region->client;

    region->registration = REGION_WAITING;
    if (call->answered) {
        if (read_answer(region, call)) {
            region->registration = REGION_REGISTERED;
        } else if (!call_was_postponed(call, true)) {
            refuse(region);
        }
    }
    json_decref(call->answer.root);
    call->answer.root = NULL;
    if (client->state == SESSION_OPEN) {
        parked_send(client);
    }
    lead_wake_queue(client, NULL, true);
}
