/*
 * What packets mean to the session, and how it ends.
 *
 * The answers of calls in flight at the end of the stream depend on how it ended. After the farewell nothing touches
 * memory any more: they are answered at once. Without it the daemon has died, or is dying: its registrations are gone
 * only when its process is, which its pidfd tells, so they are answered then (docs/architecture.md, "The daemon's
 * death").
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/errors.h"
#include "proto/shape.h"

void session_end(grd_client *client)
{
    if (client->state != SESSION_ENDED && client->state != SESSION_GREETING) {
        session_error(client, &client->end_error);
        client->attempt_error = (struct grd_error){0};
        client->attempt_ms = clock_ms() + backoff_next_ms(&client->backoff);
    }
    client->state = SESSION_ENDED;
    regions_forget(client);
    for (size_t i = 0; i < CLIENT_CALL_BUCKETS; i++) {
        while (!LIST_EMPTY(&client->calls[i])) {
            call_finish(client, LIST_FIRST(&client->calls[i]));
        }
    }
    parked_session_ended(client);
    queues_state_changed(client);
}

void session_stream_ended(grd_client *client)
{
    struct grd_error error;

    if (client->state == SESSION_ENDED) {
        return;
    }
    if (client->state == SESSION_GREETING) {
        error_set(&error, GRD_ERR_NO_DAEMON, "the daemon closed the connection instead of a greeting");
        session_attempt_failed(client, &error);
        return;
    }
    if (client->farewell) {
        session_end(client);
    } else {
        client->state = SESSION_MUTE;
        queues_state_changed(client);
    }
}

void session_break(grd_client *client, int code, const char *why)
{
    struct grd_error error;

    if (client->state == SESSION_GREETING) {
        error_set(&error, code, "%s", why);
        session_attempt_failed(client, &error);
        return;
    }
    if (client->state != SESSION_OPEN) {
        return;
    }
    client->state = SESSION_BROKEN;
    client->broken_code = code;
    snprintf(client->broken_why, sizeof(client->broken_why), "%s", why);
    /* The daemon sees our end of the stream, makes the memory safe, says its farewell and ends its own. */
    shutdown(client->socket, SHUT_WR);
}

static void region_closed(grd_client *client, const struct proto_region_closed *notice)
{
    grd_region *region;

    LIST_FOREACH(region, &client->regions, entry) {
        if (region->id == notice->region) {
            region->lost = true;
            region->lost_kept = !notice->memory_released;
            snprintf(region->lost_reason, sizeof(region->lost_reason), "%s", notice->reason);
        }
    }
}

static void session_closed(grd_client *client, const struct proto_session_closed *notice)
{
    struct grd_error error;

    client->farewell = true;
    client->farewell_code = (int)notice->code;
    snprintf(client->farewell_reason, sizeof(client->farewell_reason), "%s", notice->reason);
    if (client->state == SESSION_GREETING) {
        error_set(&error, client->farewell_code, "the daemon does not admit this client: %s",
                  client->farewell_reason);
        session_attempt_failed(client, &error);
    }
}

void session_drain_notified(grd_client *client, const char *method)
{
    if (strcmp(method, PROTO_NOTIFY_DAEMON_DRAINING) == 0) {
        client->draining = true;
    } else if (strcmp(method, PROTO_NOTIFY_DAEMON_RESUMED) == 0) {
        client->draining = false;
    }
}

/* A newer daemon may send notifications that are not known here: they are ignored. */
static void notified(grd_client *client, const char *method, json_t *params)
{
    union {
        struct proto_region_closed region;
        struct proto_session_closed session;
    } notice;
    char why[PROTO_WHY_BYTES];

    if (strcmp(method, PROTO_NOTIFY_REGION_CLOSED) == 0) {
        if (proto_shape_decode(&proto_shape_region_closed, params, false, &notice, why) == 0) {
            region_closed(client, &notice.region);
            proto_shape_free(&proto_shape_region_closed, &notice);
            return;
        }
    } else if (strcmp(method, PROTO_NOTIFY_SESSION_CLOSED) == 0) {
        if (proto_shape_decode(&proto_shape_session_closed, params, false, &notice, why) == 0) {
            session_closed(client, &notice.session);
            proto_shape_free(&proto_shape_session_closed, &notice);
            return;
        }
    } else {
        session_drain_notified(client, method);
        return;
    }
    session_break(client, GRD_ERR_PROTOCOL, "the daemon sent a notification that cannot be read");
}

/* Takes over answer->root where it belongs to a call, and leaves NULL then. */
void session_packet(grd_client *client, struct proto_answer *answer)
{
    struct call *call;

    if (answer == NULL) {
        session_break(client, GRD_ERR_PROTOCOL, "the daemon sent a packet that is no message of the protocol");
        return;
    }
    if (answer->method != NULL) {
        notified(client, answer->method, answer->params);
        return;
    }
    call = call_find(client, answer->id);
    if (call == NULL) {
        /* Whose answer it was cannot be told: some call would wait for ever. */
        session_break(client, GRD_ERR_PROTOCOL, "the daemon answered a request that is not open");
        return;
    }
    call->answer = *answer;
    call->answered = true;
    answer->root = NULL;
    if (call->kind == CALL_WAITED || call->kind == CALL_TICKET) {
        backoff_reset(&client->backoff);
    }
    call_finish(client, call);
}

int session_error(grd_client *client, struct grd_error *error)
{
    const char *advice = client->reconnects ? "" : "; when it runs again, connect again";

    switch (client->state) {
    case SESSION_ENDED:
    case SESSION_GREETING:
        if (error != NULL) {
            *error = client->end_error;
        }
        return client->end_error.code;
    default:
        break;
    }
    if (client->broken_code != 0) {
        return error_set(error, client->broken_code, client->reconnects ? "%s" : "%s; connect again",
                         client->broken_why);
    }
    if (client->farewell) {
        return error_set(error, GRD_ERR_INTERRUPTED, "the daemon closed the session (%s): %s",
                         proto_error_name(client->farewell_code), client->farewell_reason);
    }
    return error_set(error, GRD_ERR_INTERRUPTED, "the daemon ended without closing the session%s", advice);
}
