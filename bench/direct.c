/*
 * The direct client: one thread drives the loop, the Valkey connections and the lanes, as an in-process client would,
 * with nothing between the caller and the commands. No thread is crossed: the hardest baseline there is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/figures.h"
#include "bench/side.h"
#include "daemon/valkey/node.h"
#include "daemon/valkey/places.h"

struct flight {
    struct carrier_request request;
    struct direct *direct;
    struct carrier *carrier;
    unsigned index;
    double started;
};

struct direct {
    uv_loop_t loop;
    struct workers *workers;
    struct fabric fabric;
    struct places places;
    struct fabric_config fabric_config;
    struct valkey_config valkey_config;
    struct transport_address address;
    struct node *node;
    struct slice slice;
    struct flight flights[SIDE_DEPTH];
    unsigned idle[SIDE_DEPTH], idle_count; /* indices of flights that are not in the air */
    const struct cell *cell;
    struct measured *measured;
    unsigned started, done;
    bool failed;
};

static void fly(struct direct *direct);

static void key_of(const struct flight *flight, char key[32])
{
    snprintf(key, 32, "bench:%zu:%u", flight->direct->cell->size, flight->index);
}

static void landed(struct carrier_request *request, const struct blob_reply *reply, bool may_have_run, const char *why)
{
    struct flight *flight = (struct flight *)request;
    struct direct *direct = flight->direct;
    (void)may_have_run;
    if (reply == NULL || reply->class != BLOB_REPLY_DONE) {
        fprintf(stderr, "direct: %s\n", reply != NULL ? reply->text : why);
        direct->failed = true;
        uv_stop(&direct->loop);
        return;
    }
    direct->measured->latencies_us[direct->measured->used++] = now_us() - flight->started;
    direct->done++;
    direct->idle[direct->idle_count++] = flight->index;
    carrier_release(flight->carrier);
    if (direct->done == direct->cell->count)
        uv_stop(&direct->loop);
    else
        fly(direct);
}

static void send_flight(struct flight *flight)
{
    struct direct *direct = flight->direct;
    const struct cell *cell = direct->cell;
    char key[32];
    key_of(flight, key);
    struct slice_triple triple =
        lane_triple(carrier_lane(flight->carrier), &direct->slice, (uint64_t)flight->index * SIDE_SIZE, cell->size);
    flight->request.done = landed;
    int status = cell->set ? carrier_set(flight->carrier, &flight->request, key, strlen(key), cell->size, false, 0,
                                         &triple, 1)
                           : carrier_get(flight->carrier, &flight->request, key, strlen(key), cell->size, &triple, 1);
    if (status != 0) {
        fprintf(stderr, "direct: sending: %d\n", status);
        direct->failed = true;
        uv_stop(&direct->loop);
    }
}

static void prepared(void *context, int status)
{
    struct flight *flight = context;
    if (status == 0) {
        send_flight(flight);
        return;
    }
    fprintf(stderr, "direct: registration: %d\n", status);
    flight->direct->failed = true;
    uv_stop(&flight->direct->loop);
}

/* Starts as many as may fly. */
static void fly(struct direct *direct)
{
    while (direct->cell != NULL && direct->idle_count > 0 && direct->started < direct->cell->count) {
        double started = now_us();
        struct carrier *carrier = node_acquire(direct->node, LANE_ANY_NIC, direct->idle_count);
        if (carrier == NULL)
            return;
        struct flight *flight = &direct->flights[direct->idle[--direct->idle_count]];
        struct slice *slice = &direct->slice;
        flight->carrier = carrier;
        flight->started = started;
        direct->started++;
        if (lane_has(carrier_lane(carrier), slice))
            send_flight(flight);
        else
            lane_prepare(carrier_lane(carrier), &slice, 1, prepared, flight);
    }
}

static void carrier_idle(void *context)
{
    fly(context);
}

static void unavailable(void *context, int code, bool later, const char *why)
{
    struct direct *direct = context;
    fprintf(stderr, "direct: %d: %s\n", code, why);
    direct->failed = true;
    uv_stop(&direct->loop);
}

static void mr_ended(struct slice *slice, unsigned nic, int status)
{
    (void)slice;
    (void)status;
}

static bool start_node(struct direct *direct, const char *address)
{
    static const struct node_events events = {.carrier_idle = carrier_idle, .unavailable = unavailable};
    char why[TRANSPORT_WHY_BYTES];
    if (fabric_start(&direct->fabric, &direct->loop, direct->workers, &direct->fabric_config, NULL) != 0 ||
        !direct->fabric.usable) {
        fprintf(stderr, "direct: %s\n", direct->fabric.why);
        return false;
    }
    if (transport_address_parse(address, &direct->address, why) != 0)
        return false;
    places_init(&direct->places, &direct->fabric);
    direct->node = node_start(&direct->loop, direct->workers, &direct->fabric, &direct->places, &direct->valkey_config,
                              &direct->address, &events, direct);
    return direct->node != NULL;
}

struct direct *direct_start(const char *address, unsigned connections)
{
    static char provider[] = "tcp";
    struct direct *direct = calloc(1, sizeof *direct);
    size_t bytes = (size_t)SIDE_DEPTH * SIDE_SIZE;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uv_loop_init(&direct->loop);
    direct->workers = workers_start(&direct->loop);
    direct->fabric_config =
        (struct fabric_config){.provider = provider, .lanes_max = connections, .mr_max_bytes = bytes};
    direct->valkey_config =
        (struct valkey_config){.connections = connections, .warm = true, .connect_timeout_ms = 5000};
    for (unsigned i = 0; i < SIDE_DEPTH; i++)
        direct->flights[i] = (struct flight){.direct = direct, .index = i};
    if (memory == MAP_FAILED || !start_node(direct, address))
        return NULL;
    memset(memory, 0x5a, bytes);
    slice_init(&direct->slice, memory, bytes, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, mr_ended, direct);
    return direct;
}

bool direct_run(struct direct *direct, const struct cell *cell, struct measured *measured)
{
    direct->cell = cell;
    direct->measured = measured;
    direct->started = direct->done = 0;
    direct->idle_count = cell->depth;
    for (unsigned i = 0; i < cell->depth; i++)
        direct->idle[i] = i;
    double begin = now_us();
    fly(direct);
    uv_run(&direct->loop, UV_RUN_DEFAULT);
    measured->seconds = (now_us() - begin) / 1e6;
    direct->cell = NULL;
    return !direct->failed;
}

static void stopped(void *context, int status)
{
    struct direct *direct = context;
    if (status != 0)
        fprintf(stderr, "direct: a lane did not close: %d\n", status);
    uv_stop(&direct->loop);
}

void direct_stop(struct direct *direct)
{
    node_stop(direct->node, stopped, direct);
    uv_run(&direct->loop, UV_RUN_DEFAULT);
    fabric_stop(&direct->fabric);
    workers_stop(direct->workers);
    while (uv_run(&direct->loop, UV_RUN_NOWAIT) != 0)
        ;
    uv_loop_close(&direct->loop);
    transport_address_free(&direct->address);
    munmap(direct->slice.base, direct->slice.length);
    free(direct);
}
