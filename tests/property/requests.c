/*
 * What clients ask for: the steps of a round that are theirs.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "proto/envelope.h"
#include "tests/property/clients_private.h"
#include "tests/rig/fake_host.h"

#define FIRST_UID 1000
#define PAGE 4096

static struct client *pick_client(void)
{
    unsigned first = random_below(CLIENTS);

    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *client = &clients[(first + i) % CLIENTS];
        if (client->listens && !client->said_closed) {
            return client;
        }
    }
    return NULL;
}

static unsigned number_of(const struct client *client)
{
    return (unsigned)(client - clients);
}

static struct model_request *new_request(struct client *client, int method, struct model_region *region)
{
    struct model_request *request;

    if (request_count == REQUESTS) {
        return NULL;
    }
    request = &requests[request_count];
    *request = (struct model_request){.id = client->next_id++,
                                      .method = method,
                                      .number = request_count,
                                      .client = number_of(client),
                                      .session = client->session,
                                      .region = region};
    request_count++;
    return request;
}

/* Consumes `params`. What could not be sent is not asked for. */
static void send_request(struct client *client, struct model_request *request, json_t *params, int fd)
{
    static char text[PROTO_MESSAGE_BYTES];
    int length = proto_write_request(text, sizeof(text), request->id, proto_methods[request->method].name, params);

    json_decref(params);
    RIG_CHECK(length > 0, "a request of client %u is not written", request->client);
    if (channel_send(client->fd, text, (size_t)length, fd) != 0) {
        request->answered = true;
    }
}

void client_step_open(void)
{
    unsigned first = random_below(CLIENTS);

    if (rig_service.draining) {
        return; /* nobody listens any more */
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        unsigned number = (first + i) % CLIENTS;
        struct client *client = &clients[number];
        int ends[2];
        if (client->listens && !client->said_closed) {
            continue;
        }
        client_disconnect(client);
        RIG_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "errno %d", errno);
        *client = (struct client){.fd = ends[0],
                                  .life = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                  .session = ++session_count,
                                  .listens = true,
                                  .next_id = 1};
        RIG_CHECK(channel_prepare(client->fd) == 0, "errno %d", errno);
        fake_peer = (struct peer){.pid = 100 + (pid_t)number,
                                  .uid = FIRST_UID + number % USERS,
                                  .gid = FIRST_UID,
                                  .pidfd = client->life};
        trace("client %u of user %u connects", number, number % USERS);
        RIG_CHECK(session_start(&rig_service, &rig_config.sockets[0], false, ends[1]) != SESSION_HELD, "it is held");
        struct model_request *request = new_request(client, PROTO_METHOD_HELLO, NULL);
        if (request != NULL) {
            send_request(client, request, json_pack("{s:i}", "protocol", 1), -1);
        }
        return;
    }
}

/* The whole file, a part of it, or one that only overlaps others. */
static void choose_range(struct model_region *region)
{
    unsigned pages = FILE_BYTES / PAGE;

    if (random_percent(60)) {
        region->size = FILE_BYTES;
        return;
    }
    region->start = random_below(pages) * PAGE;
    region->size = 1 + random_below((uint32_t)(FILE_BYTES - region->start));
}

void client_step_register(void)
{
    struct client *client = pick_client();
    struct model_region *region = &regions[region_count];
    struct model_request *request;

    if (client == NULL || region_count == REGIONS || request_count == REQUESTS) {
        return;
    }
    region_count++;
    *region = (struct model_region){.state = REGION_ASKED,
                                    .client = number_of(client),
                                    .user = number_of(client) % USERS,
                                    .session = client->session,
                                    .writable = random_percent(92)};
    region->file = random_percent(15) ? COMMON_FILE : region->user * 2 + random_below(2);
    choose_range(region);
    request = new_request(client, PROTO_METHOD_REGION_REGISTER, region);
    trace("client %u: request %" PRId64 " registers %" PRIu64 " bytes at %" PRIu64 " of file %u%s", region->client,
          request->id, region->size, region->start, region->file, region->writable ? "" : ", for reading");
    send_request(client, request,
                 json_pack("{s:s,s:I,s:I,s:s,s:b}", "type", "memfd", "size", (json_int_t)region->size, "offset",
                           (json_int_t)region->start, "access", region->writable ? "rw" : "r", "populate",
                           random_percent(20)),
                 file_fd(region->file));
}

static struct model_region *pick_region(bool for_transfers)
{
    unsigned first = random_below(region_count + 1);

    for (unsigned i = 0; i < region_count; i++) {
        struct model_region *region = &regions[(first + i) % region_count];
        const struct client *client = &clients[region->client];
        if (region->state == REGION_OPEN && client->session == region->session && client->listens &&
            !client->said_closed && !(for_transfers && region->file == COMMON_FILE)) {
            return region;
        }
    }
    return NULL;
}

/* Where nobody is at work, most of the time. */
static void choose_window(struct model_request *request, const struct model_region *region)
{
    bool any = random_percent(20);

    for (unsigned attempt = 0; attempt < 8; attempt++) {
        uint64_t length = 1 + random_below(random_percent(15) ? 12000 : 700);
        length = length < region->size ? length : region->size;
        request->start = region->start + random_below((uint32_t)(region->size - length + 1));
        request->end = request->start + length;
        if (any || !window_busy(region->file, request->start, request->end, request)) {
            return;
        }
    }
}

static void prepare_window(struct model_request *request, bool set)
{
    bool free_now = !window_busy(request->region->file, request->start, request->end, request);
    uint64_t length = request->end - request->start;

    if (!set) {
        file_yield(request->region->file, request->start, request->end);
        return;
    }
    if (free_now) {
        file_fill(request->region->file, request->start, request->end, (uint8_t)(request->number * 53 + 1), 5);
        request->expected = malloc(length);
        memcpy(request->expected, file_bytes(request->region->file) + request->start, length);
    }
}

void client_step_transfer(bool set)
{
    struct model_region *region = pick_region(true);
    struct model_request *request;
    json_t *params;
    char key[32];

    if (region == NULL || (request = new_request(&clients[region->client],
                                                 set ? PROTO_METHOD_TRANSFER_SET : PROTO_METHOD_TRANSFER_GET,
                                                 region)) == NULL) {
        return;
    }
    choose_window(request, region);
    if (window_lost(region->file, request->start, request->end)) {
        request->answered = true; /* not sent */
        return;
    }
    prepare_window(request, set);
    snprintf(key, sizeof(key), "%" PRIu64, request->number);
    params = json_pack("{s:I,s:I,s:I,s:s}", "region", (json_int_t)region->id, "offset",
                       (json_int_t)(request->start - region->start), "length",
                       (json_int_t)(request->end - request->start), "key", key);
    if (random_percent(20)) {
        json_object_set_new(params, "deadline_ms", json_integer(1 + random_below(200)));
    }
    if (set && random_percent(30)) {
        json_object_set_new(params, "crc32c", json_integer(random_next()));
    }
    trace("client %u: request %" PRId64 " is %s %" PRIu64 ", bytes %" PRIu64 " to %" PRIu64 " of file %u%s",
          request->client, request->id, set ? "set" : "get", request->number, request->start, request->end - 1,
          region->file, json_object_get(params, "deadline_ms") != NULL ? ", with a deadline" : "");
    send_request(&clients[region->client], request, params, -1);
}

void client_step_cancel(void)
{
    unsigned first = random_below(request_count + 1);

    for (unsigned i = 0; i < request_count; i++) {
        const struct model_request *target = &requests[(first + i) % request_count];
        struct client *client = &clients[target->client];
        struct model_request *request;
        if (!IS_TRANSFER(target) || target->answered || target->abandoned || target->session != client->session ||
            (request = new_request(client, PROTO_METHOD_TRANSFER_CANCEL, NULL)) == NULL) {
            continue;
        }
        trace("client %u: cancels request %" PRId64, target->client, target->id);
        send_request(client, request, json_pack("{s:I}", "id", (json_int_t)target->id), -1);
        return;
    }
}

void client_step_close_region(void)
{
    struct model_region *region = pick_region(false);
    struct model_request *request;
    bool force = random_percent(60);

    if (region == NULL ||
        (request = new_request(&clients[region->client], PROTO_METHOD_REGION_CLOSE, region)) == NULL) {
        return;
    }
    region->state = REGION_CLOSING;
    trace("client %u: request %" PRId64 " closes region %" PRId64 "%s", region->client, request->id, region->id,
          force ? " by force" : "");
    send_request(&clients[region->client], request,
                 json_pack("{s:I,s:b}", "region", (json_int_t)region->id, "force", force), -1);
}

void client_step_close(void)
{
    struct client *client = pick_client();

    if (client != NULL) {
        trace("client %u closes its connection", number_of(client));
        client_abandon(client);
        client_disconnect(client);
    }
}

void client_step_die(void)
{
    struct client *client = pick_client();

    if (client != NULL) {
        trace("the process of client %u ends", number_of(client));
        client_abandon(client);
        eventfd_write(client->life, 1);
        client->listens = false;
    }
}

/* It still listens. */
void client_step_half_close(void)
{
    struct client *client = pick_client();

    if (client != NULL) {
        trace("client %u will send no more", number_of(client));
        shutdown(client->fd, SHUT_WR);
    }
}

void clients_prepare(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        client_step_open();
        rig_settle();
    }
    for (unsigned i = 0; i < count + 1; i++) {
        client_step_register();
        rig_settle();
    }
}
