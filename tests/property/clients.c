/*
 * What clients must get: one answer for each request, and their windows only when nothing can touch them any more. A
 * client that has a window back fills it at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/envelope.h"
#include "proto/errors.h"
#include "tests/property/clients_private.h"

struct client clients[CLIENTS];
struct model_region regions[REGIONS];
struct model_request requests[REQUESTS];
unsigned region_count, request_count;
uint64_t session_count;

void clients_init(void)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i].fd = -1;
        clients[i].life = -1;
    }
}

void clients_start(void)
{
    region_count = 0;
    request_count = 0;
    session_count = 0;
}

void client_disconnect(struct client *client)
{
    if (client->fd >= 0) {
        close(client->fd);
        close(client->life);
    }
    client->fd = -1;
    client->listens = false;
}

void clients_end(void)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        client_disconnect(&clients[i]);
    }
    for (unsigned i = 0; i < request_count; i++) {
        free(requests[i].expected);
    }
    clients_start();
}

struct model_request *request_numbered(uint64_t number)
{
    return number < request_count && IS_TRANSFER(&requests[number]) ? &requests[number] : NULL;
}

bool window_busy(unsigned file, uint64_t start, uint64_t end, const struct model_request *except)
{
    for (unsigned i = 0; i < request_count; i++) {
        const struct model_request *request = &requests[i];
        if (request != except && IS_TRANSFER(request) && (!request->answered || request->tainted) &&
            request->region->file == file && request->start < end && start < request->end) {
            return true;
        }
    }
    return false;
}

bool window_lost(unsigned file, uint64_t start, uint64_t end)
{
    for (unsigned i = 0; i < request_count; i++) {
        const struct model_request *request = &requests[i];
        if (request->tainted && request->region->file == file && request->start < end && start < request->end) {
            return true;
        }
    }
    return false;
}

unsigned clients_unanswered(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < request_count; i++) {
        count += !requests[i].answered && !requests[i].abandoned;
    }
    return count;
}

void clients_check_end(void)
{
    for (unsigned i = 0; i < request_count; i++) {
        RIG_CHECK(requests[i].answered || requests[i].abandoned, "request %" PRId64 " of client %u has no answer",
                  requests[i].id, requests[i].client);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        RIG_CHECK(!clients[i].listens || clients[i].said_closed, "client %zu was not told of the end", i);
    }
}

/* --- windows that come back --------------------------------------------------------------------------------------- */

/* The window is its client's again, and filled, unless another transfer is at work in a part of it. */
static void take_back(struct model_request *request, const char *how)
{
    request->answered = true;
    if (!IS_TRANSFER(request)) {
        return;
    }
    server_check_handed_back(request, how);
    if (!window_busy(request->region->file, request->start, request->end, NULL)) {
        file_fill(request->region->file, request->start, request->end, (uint8_t)(request->number * 11), 7);
    }
}

void client_abandon(const struct client *client)
{
    for (unsigned i = 0; i < request_count; i++) {
        if (requests[i].session == client->session && !requests[i].answered) {
            requests[i].abandoned = true;
            if (IS_TRANSFER(&requests[i])) {
                saw(SIGHT_ABANDONED);
            }
        }
    }
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void check_get(const struct model_request *request, const json_t *result)
{
    uint64_t length;
    const uint8_t *value;

    if (!json_is_true(json_object_get(result, "found"))) {
        return;
    }
    value = server_value(request, (uint32_t)json_integer_value(json_object_get(result, "crc32c")), &length);
    RIG_CHECK(value != NULL && (uint64_t)json_integer_value(json_object_get(result, "length")) == length,
              "get %" PRIu64 " is answered with a success that the server did not have", request->number);
    if (!window_busy(request->region->file, request->start, request->end, request)) {
        RIG_CHECK(memcmp(file_bytes(request->region->file) + request->start, value, length) == 0,
                  "get %" PRIu64 " is answered with success, and its window does not hold the value", request->number);
        saw(SIGHT_VALUE_COMPARED);
    }
}

static void check_set(struct model_request *request, const json_t *result, const json_t *data)
{
    if (result != NULL) {
        RIG_CHECK(request->stored > 0, "set %" PRIu64 " is answered with success and was not stored", request->number);
        return;
    }
    request->denied = !json_is_true(json_object_get(data, "may_have_run"));
    RIG_CHECK(!request->denied || request->stored == 0,
              "set %" PRIu64 " was stored, and its client is told that it did not run", request->number);
}

/* Somebody of the same user had the file before. */
static bool may_share(const struct model_region *region)
{
    for (unsigned i = 0; i < region_count; i++) {
        if (&regions[i] != region && regions[i].user == region->user && regions[i].file == region->file) {
            return true;
        }
    }
    return false;
}

static void check_registered(struct model_region *region, const json_t *result)
{
    region->state = result != NULL ? REGION_OPEN : REGION_GONE;
    region->id = json_integer_value(json_object_get(result, "region"));
    if (json_is_true(json_object_get(result, "shared"))) {
        RIG_CHECK(may_share(region), "client %u gets a share in another user's memory", region->client);
        saw(SIGHT_SHARED);
    }
}

static void check_closed(struct model_region *region, const json_t *result)
{
    bool released = json_is_true(json_object_get(result, "memory_released"));

    if (result == NULL) {
        if (region->state == REGION_CLOSING) {
            region->state = REGION_OPEN; /* busy */
        }
        return;
    }
    region->state = REGION_GONE;
    if (released) {
        saw(SIGHT_REGION_CLOSED);
    }
    for (unsigned i = 0; i < request_count; i++) {
        struct model_request *request = &requests[i];
        if (request->region != region || !IS_TRANSFER(request)) {
            continue;
        }
        RIG_CHECK(request->answered || request->abandoned,
                  "region %" PRId64 " of client %u is answered closed before request %" PRId64 " on it", region->id,
                  region->client, request->id);
        server_check_handed_back(request, "its region is closed");
        RIG_CHECK(!released || !request->tainted,
                  "region %" PRId64 " of client %u is called released, although a lane of it could not be closed",
                  region->id, region->client);
    }
}

/* Where a lane could not be closed its client is told that the window is lost. */
static void check_kept(const struct model_request *request, const struct proto_answer *answer)
{
    bool kept = json_is_false(json_object_get(answer->data, "memory_released"));

    if (answer->code == PROTO_ERR_OVERLAP) {
        saw(SIGHT_OVERLAP);
    }
    if (request->tainted) {
        saw(SIGHT_LANE_IN_DOUBT);
    }
    RIG_CHECK(kept || !request->tainted,
              "the lane of transfer %" PRIu64 " could not be closed, and its client is not told of its lost window",
              request->number);
    RIG_CHECK(!kept || round_close_failed(),
              "the client of transfer %" PRIu64 " is told that the window is lost, and every close went well",
              request->number);
}

static void settle(struct model_request *request, const struct proto_answer *answer)
{
    const char *word = json_string_value(json_object_get(answer->data, "name"));
    char how[64];

    snprintf(how, sizeof(how), "%s", answer->result != NULL ? "answered with a result" : word != NULL ? word : "?");
    trace("client %u: request %" PRId64 " %s", request->client, request->id, how);
    RIG_CHECK(answer->result != NULL || (word != NULL && proto_error_by_name(word) == answer->code),
              "error %d is named %s", answer->code, word != NULL ? word : "nothing");
    if (request->method == PROTO_METHOD_TRANSFER_GET && answer->result != NULL) {
        check_get(request, answer->result);
    } else if (request->method == PROTO_METHOD_TRANSFER_SET) {
        check_set(request, answer->result, answer->data);
    } else if (request->method == PROTO_METHOD_REGION_REGISTER) {
        check_registered(request->region, answer->result);
    } else if (request->method == PROTO_METHOD_REGION_CLOSE) {
        request->answered = true;
        check_closed(request->region, answer->result);
    }
    take_back(request, how);
    if (IS_TRANSFER(request)) {
        check_kept(request, answer);
    }
}

static void closed(struct client *client)
{
    client->said_closed = true;
    trace("client %td: session.closed", client - clients);
    for (unsigned i = 0; i < request_count; i++) {
        if (requests[i].session == client->session && !requests[i].answered) {
            take_back(&requests[i], "session.closed");
        }
    }
    for (unsigned i = 0; i < request_count; i++) {
        if (requests[i].session == client->session && IS_TRANSFER(&requests[i])) {
            server_check_handed_back(&requests[i], "session.closed");
        }
    }
}

static void take(struct client *client, const char *text, size_t length)
{
    struct proto_answer answer;
    struct model_request *request = NULL;

    RIG_CHECK(proto_answer_parse(text, length, &answer) == 0, "no client can read: %.*s", (int)length, text);
    RIG_CHECK(!client->said_closed, "something comes after session.closed: %.*s", (int)length, text);
    if (answer.method != NULL) {
        if (strcmp(answer.method, PROTO_NOTIFY_SESSION_CLOSED) == 0) {
            closed(client);
        }
        json_decref(answer.root);
        return;
    }
    for (unsigned i = 0; i < request_count; i++) {
        if (requests[i].session == client->session && requests[i].id == answer.id) {
            request = &requests[i];
        }
    }
    RIG_CHECK(request != NULL, "client %td gets an answer that it did not ask for: %.*s", client - clients, (int)length,
              text);
    RIG_CHECK(!request->answered, "request %" PRId64 " of client %td is answered twice", answer.id, client - clients);
    settle(request, &answer);
    json_decref(answer.root);
}

static bool read_client(struct client *client)
{
    static char text[PROTO_MESSAGE_BYTES];
    struct channel_packet packet;
    bool active = false;
    int status = -EAGAIN;

    while (client->fd >= 0 && (status = channel_receive(client->fd, text, sizeof(text), &packet)) == 1) {
        channel_close_fds(&packet);
        take(client, text, packet.length);
        active = true;
    }
    if (client->fd >= 0 && status != -EAGAIN && client->listens) {
        RIG_CHECK(client->said_closed || status == -ECONNRESET, "the connection of client %td ends in silence",
                  client - clients);
        client->listens = status == -ECONNRESET;
    }
    return active;
}

bool clients_read(void)
{
    bool active = false;

    for (size_t i = 0; i < CLIENTS; i++) {
        active |= clients[i].listens && read_client(&clients[i]);
    }
    return active;
}
