#include <stdlib.h>
#include <string.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/shape.h"

bool client_forked(const grd_client *client)
{
    return client->generation != fork_generation();
}

static int forked_error(struct grd_error *error)
{
    return error_set(error, GRD_ERR_FORKED,
                     "this process was forked from the one that connected; connect in it, after the fork");
}

int client_enter_locked(grd_client *client, struct grd_error *error)
{
    if (client->closing) {
        return error_set(error, GRD_ERR_CLOSED, "the client is closed");
    }
    client->active++;
    return 0;
}

int client_enter(grd_client *client, struct grd_error *error)
{
    int code;

    if (client_forked(client)) {
        return forked_error(error);
    }
    pthread_mutex_lock(&client->lock);
    code = client_enter_locked(client, error);
    pthread_mutex_unlock(&client->lock);
    return code;
}

void client_leave_locked(grd_client *client)
{
    client->active--;
    if (client->closing && client->active == 0) {
        pthread_cond_broadcast(&client->idle);
    }
}

void client_leave(grd_client *client)
{
    pthread_mutex_lock(&client->lock);
    client_leave_locked(client);
    pthread_mutex_unlock(&client->lock);
}

grd_client *client_hold(grd_client *client)
{
    atomic_fetch_add_explicit(&client->references, 1, memory_order_relaxed);
    return client;
}

/* One copy of each text, however many daemons say it: a client that reconnects for years does not grow by that. */
const char *client_keep_text(grd_client *client, const char *text)
{
    struct client_text *kept;
    size_t bytes;

    text = text != NULL ? text : "";
    SLIST_FOREACH(kept, &client->texts, entry) {
        if (strcmp(kept->text, text) == 0) {
            return kept->text;
        }
    }
    bytes = strlen(text) + 1;
    kept = malloc(sizeof(*kept) + bytes);
    if (kept == NULL) {
        return NULL;
    }
    memcpy(kept->text, text, bytes);
    SLIST_INSERT_HEAD(&client->texts, kept, entry);
    return kept->text;
}

void client_release(grd_client *client)
{
    struct client_text *text;

    if (atomic_fetch_sub_explicit(&client->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    /* In a forked child another thread of the parent may have held the lock: it is left as it is. */
    if (!client_forked(client)) {
        pthread_cond_destroy(&client->unsent);
        pthread_cond_destroy(&client->idle);
        pthread_mutex_destroy(&client->lock);
    }
    while ((text = SLIST_FIRST(&client->texts)) != NULL) {
        SLIST_REMOVE_HEAD(&client->texts, entry);
        free(text);
    }
    free(client->path);
    free(client->name);
    free(client);
}

static grd_client *client_new(void)
{
    grd_client *client = calloc(1, sizeof(*client));

    if (client == NULL) {
        return NULL;
    }
    client->references = 1;
    client->socket = -1;
    client->pidfd = -1;
    client->bell = -1;
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->idle, NULL);
    pthread_cond_init(&client->unsent, NULL);
    TAILQ_INIT(&client->waiting);
    TAILQ_INIT(&client->parked);
    SLIST_INIT(&client->texts);
    backoff_init(&client->backoff, clock_ms() ^ (uint64_t)(uintptr_t)client);
    if (fork_watch(client) != 0) {
        pthread_cond_destroy(&client->unsent);
        pthread_cond_destroy(&client->idle);
        pthread_mutex_destroy(&client->lock);
        free(client);
        return NULL;
    }
    return client;
}

int grd_connect(const struct grd_connect_options *options, grd_client **client, struct grd_error *error)
{
    grd_client *made;
    int code;

    error_clear(error);
    if (client == NULL) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "there is no place for the client");
    }
    *client = NULL;
    if (options != NULL && options->struct_size < sizeof(size_t)) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "struct_size of the options is not set");
    }
    made = client_new();
    if (made == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for a client");
    }
    code = hello_connect(made, options, error);
    if (code != 0) {
        fork_unwatch(made);
        client_release(made);
        return code;
    }
    *client = made;
    return 0;
}

/* Lock held. A region that transfers use and that was not asked to be closed yet, or NULL. */
static grd_region *next_busy_region(grd_client *client)
{
    grd_region *region;

    LIST_FOREACH(region, &client->regions, entry) {
        if (!LIST_EMPTY(&region->uses) && !region->forced && region->id != 0) {
            region->forced = true;
            return region;
        }
    }
    return NULL;
}

/* Asks the daemon to cancel the transfers of this region. Without the lock; the number was the region's. */
static int force_close(grd_client *client, uint64_t number)
{
    struct proto_close_params params = {.region = number, .force = true};
    struct proto_close_result result;
    struct grd_error error;
    json_t *json = proto_shape_encode(proto_methods[PROTO_METHOD_REGION_CLOSE].params, &params);
    struct request request = {
        .method = PROTO_METHOD_REGION_CLOSE, .params = json, .pass_fd = -1, .now = true};
    int code = json != NULL ? call_run(client, &request, &result, &error) : GRD_ERR_NO_MEMORY;

    json_decref(json);
    if (code == 0) {
        call_free_result(PROTO_METHOD_REGION_CLOSE, &result);
    }
    return code;
}

/*
 * Has the daemon cancel every transfer: it answers each when its memory is safe. No session follows this one, so
 * numbers of regions stay what they are. Lock held, and on return.
 */
static void cancel_transfers(grd_client *client)
{
    grd_region *region;

    while ((region = next_busy_region(client)) != NULL) {
        uint64_t number = region->id;
        int code;

        pthread_mutex_unlock(&client->lock);
        code = force_close(client, number);
        pthread_mutex_lock(&client->lock);
        if (code != 0 && code != GRD_ERR_NO_REGION) {
            /* The other way to have everything cancelled; nothing happens if the session is over already. */
            session_break(client, GRD_ERR_CLOSED, "the client was closed");
        }
    }
}

static bool no_ticket_is_open(const void *subject)
{
    return ((const grd_client *)subject)->open_tickets == 0;
}

/*
 * Until no other thread is inside, and no transfer open. Those that wait for something to reap have been woken; tickets
 * need nobody to wait for them, so this thread reads their answers where no other does. Lock held, and on return.
 */
static void wait_for_calls(grd_client *client)
{
    struct waiter waiter = {.ready = no_ticket_is_open, .subject = client, .end_ms = WAIT_FOREVER};

    while (client->active > 0 || client->open_tickets > 0) {
        if (client->active > 0) {
            pthread_cond_wait(&client->idle, &client->lock);
        } else {
            lead_wait(client, &waiter);
        }
    }
}

void grd_close(grd_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client_forked(client)) {
        client_release(client);
        return;
    }
    pthread_mutex_lock(&client->lock);
    client->closing = true;
    parked_close(client);
    queues_state_changed(client);
    lead_kick(client);
    cancel_transfers(client);
    wait_for_calls(client);
    session_end(client);
    pthread_mutex_unlock(&client->lock);
    fork_unwatch(client);
    client_release(client);
}

int grd_client_info(grd_client *client, struct grd_client_info *info, struct grd_error *error)
{
    struct grd_client_info full;

    error_clear(error);
    if (client == NULL || info == NULL || info->struct_size < sizeof(size_t)) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no client, or no struct to fill with its struct_size set");
    }
    if (client_forked(client)) {
        return forked_error(error);
    }
    pthread_mutex_lock(&client->lock);
    full = (struct grd_client_info){
        .struct_size = info->struct_size,
        .protocol = client->protocol,
        .server = client->server,
        .usable = client->usable,
        .why = client->why,
        .provider = client->provider,
        .draining = client->draining,
        .message_bytes_max = client->limits.message_bytes,
        .regions_max = client->limits.regions,
        .requests_max = client->limits.requests,
        .in_flight_max = client->limits.in_flight,
        .region_bytes_max = client->limits.region_bytes,
        .value_bytes_max = client->limits.value_bytes,
    };
    pthread_mutex_unlock(&client->lock);
    memcpy(info, &full, info->struct_size < sizeof(full) ? info->struct_size : sizeof(full));
    return 0;
}
