/*
 * Many threads on one client and one region, against a daemon that answers in random order; some windows overlap. Fit
 * for the thread sanitizer. Every call must get its own answer, and no two transfers may be let through of which one
 * writes what the other uses.
 */
#include <stdlib.h>
#include <string.h>

#include "client_fake.h"
#include "proto/errors.h"
#include "unit_main.h"

#define THREADS 8
#define ROUNDS 400
#define SLOT ((uint64_t)4096)

/* Holds back up to so many requests, and answers one of them at random for each that comes. */
#define HELD 5

struct held {
    int64_t id;
    json_int_t offset, length;
    bool get;
};

/* The library must not have let two transfers through of which one writes what the other uses. */
static void check_disjoint(const struct held *held, int count, const struct held *added)
{
    for (int i = 0; i < count; i++) {
        if ((held[i].get || added->get) && held[i].offset < added->offset + added->length &&
            added->offset < held[i].offset + held[i].length) {
            abort();
        }
    }
}

static void answer(struct fake *fake, const struct held *held)
{
    if (held->get) {
        fake_answer(fake, held->id, json_pack("{s:b, s:I, s:s}", "found", 1, "length", held->length, "path", "rdma"));
    } else {
        fake_answer(fake, held->id, json_pack("{s:s}", "path", "rdma"));
    }
}

static bool is_transfer(const struct fake_request *request)
{
    return fake_is(request, PROTO_METHOD_TRANSFER_GET) || fake_is(request, PROTO_METHOD_TRANSFER_SET);
}

static void release_one(struct fake *fake, struct held *held, int *count, unsigned *seed)
{
    int chosen = (int)(*seed % (unsigned)*count);

    *seed = *seed * 1664525 + 1013904223;
    answer(fake, &held[chosen]);
    held[chosen] = held[--*count];
}

/* Any other request lets go of everything; after the region's end transfers find none. */
static void script(struct fake *fake)
{
    struct fake_request request = {0};
    struct held held[HELD];
    unsigned seed = 1;
    int count = 0;
    bool closed = false;

    fake_greet(fake);
    while (fake_receive(fake, &request)) {
        if (is_transfer(&request) && closed) {
            /* It was on its way when grd_close() closed the region. */
            fake_refuse(fake, request.parsed.id, PROTO_ERR_NO_REGION, "no such region", NULL);
            continue;
        }
        if (is_transfer(&request)) {
            held[count] = (struct held){request.parsed.id, fake_number(&request, "offset"),
                                        fake_number(&request, "length"), fake_is(&request, PROTO_METHOD_TRANSFER_GET)};
            check_disjoint(held, count, &held[count]);
            count++;
            while (count >= HELD) {
                release_one(fake, held, &count, &seed);
            }
            continue;
        }
        while (count > 0) {
            release_one(fake, held, &count, &seed);
        }
        if (fake_is(&request, PROTO_METHOD_REGION_REGISTER)) {
            fake_register(fake, &request);
        } else if (fake_is(&request, PROTO_METHOD_REGION_CLOSE)) {
            closed = true;
            fake_answer(fake, request.parsed.id, json_pack("{s:b}", "memory_released", 1));
        } else {
            fake_answer(fake, request.parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 0));
        }
    }
}

struct worker {
    pthread_t thread;
    grd_client *client;
    grd_region *region;
    unsigned number;
    unsigned overlaps, wrong;
};

static _Atomic bool over;

/* A get into a slot that all threads fight for: who gets in is alone in it until the call is over. */
static void fight(struct worker *worker, unsigned slot, uint64_t length)
{
    struct grd_window window = {.region = worker->region, .offset = slot * SLOT, .length = length};
    struct grd_receipt receipt;
    int code = grd_get("fight", 5, window, NULL, &receipt, NULL);

    if (code == GRD_ERR_OVERLAP) {
        worker->overlaps++;
    } else if (code != 0 || receipt.length != length) {
        worker->wrong++;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    unsigned seed = worker->number + 1;

    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t length = 1 + (round * THREADS + worker->number) % SLOT;
        struct grd_window own = {worker->region, (THREADS + worker->number) * SLOT, length};
        struct grd_receipt receipt;

        seed = seed * 1664525 + 1013904223;
        if (round % 3 == 0) {
            fight(worker, seed >> 16 & 1, length);
        } else if (round % 3 == 1) {
            worker->wrong += grd_get("own", 3, own, NULL, &receipt, NULL) != 0 || receipt.length != length;
        } else {
            worker->wrong += grd_set("own", 3, own, NULL, &receipt, NULL) != 0 || receipt.length != length;
        }
    }
    return NULL;
}

/* The daemon holds the last few back until somebody asks it something else. */
static void *flush(void *argument)
{
    grd_client *client = argument;
    struct grd_key key = {"flush", 5};
    struct grd_key_result result;

    while (!over) {
        grd_exists(client, &key, 1, &result, NULL);
        fake_sleep_ms(1);
    }
    return NULL;
}

START_TEST(threads_share_one_client)
{
    struct worker workers[THREADS];
    struct fake fake;
    grd_client *client;
    grd_region *region;
    pthread_t flusher;

    fake_start(&fake, script, NULL);
    client = fake_connect(&fake);
    region = fake_region(client, 2 * THREADS * SLOT);
    ck_assert_int_eq(pthread_create(&flusher, NULL, flush, client), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = client, .region = region, .number = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_uint_eq(workers[i].wrong, 0);
    }
    over = true;
    pthread_join(flusher, NULL);
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* grd_close() while every thread is in the middle of something: all come back, in whatever way. */
static void *work_until_closed(void *argument)
{
    struct worker *worker = argument;
    struct grd_window own = {worker->region, worker->number * SLOT, SLOT};
    struct grd_receipt receipt;
    int code;

    do {
        code = grd_get("own", 3, own, NULL, &receipt, NULL);
    } while (code == 0 || code == GRD_ERR_CANCELLED);
    worker->wrong = code != GRD_ERR_CLOSED;
    return NULL;
}

START_TEST(close_under_load)
{
    struct worker workers[THREADS];
    struct fake fake;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, script, NULL);
    client = fake_connect(&fake);
    region = fake_region(client, THREADS * SLOT);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = client, .region = region, .number = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work_until_closed, &workers[i]), 0);
    }
    fake_sleep_ms(50);
    grd_close(client);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_uint_eq(workers[i].wrong, 0);
    }
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    fake_stop(&fake);
}
END_TEST

/* The daemon dies while every thread is in the middle of something. */
static void dying_script(struct fake *fake)
{
    struct fake_request request = {0};

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    for (int i = 0; i < 200 && fake_receive(fake, &request); i++) {
        fake_answer(fake, request.parsed.id, json_pack("{s:b, s:I}", "found", 1, "length", (json_int_t)SLOT));
    }
    fake_release(&request);
    fake_close(fake);
    fake_sleep_ms(50);
    fake_kill(fake);
}

static void *work_until_interrupted(void *argument)
{
    struct worker *worker = argument;
    struct grd_window own = {worker->region, worker->number * SLOT, SLOT};
    struct grd_receipt receipt;
    int code;

    while ((code = grd_get("own", 3, own, NULL, &receipt, NULL)) == 0) {
    }
    worker->wrong = code != GRD_ERR_INTERRUPTED;
    return NULL;
}

START_TEST(death_under_load)
{
    struct worker workers[THREADS];
    struct fake fake;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, dying_script, NULL);
    client = fake_connect(&fake);
    region = fake_region(client, THREADS * SLOT);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = client, .region = region, .number = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work_until_interrupted, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_uint_eq(workers[i].wrong, 0);
    }
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

UNIT_MAIN("client_threads", threads_share_one_client, close_under_load, death_under_load)
