/*
 * Threads with blocking calls and programs with queues on one client, while its daemon ends again and again, with and
 * without goodbye, with requests unanswered and unread. Fit for the thread sanitizer. No get fails, no set reaches a
 * daemon twice, and every call and completion comes.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_fake.h"
#include "proto/errors.h"
#include "unit_main.h"

#define CALLERS 4
#define PROGRAMS 2
#define THREADS (CALLERS + PROGRAMS)
#define SESSIONS 150
#define SETS_MAX 200000
#define SLOT ((uint64_t)4096)
#define AT_ONCE 8 /* transfers of a program */

struct load {
    _Atomic int over;         /* the last session has begun: the threads come to their end */
    unsigned char *seen;      /* sets that a daemon has received, by their number */
    _Atomic unsigned next_set;
    grd_client *client;
    grd_region *region;
};

struct worker {
    pthread_t thread;
    struct load *load;
    unsigned number;
    unsigned wrong, interrupted, done;
};

static void note_set(struct load *load, const struct fake_request *request)
{
    unsigned number = (unsigned)strtoul(fake_text(request, "key"), NULL, 10);

    if (number >= SETS_MAX || load->seen[number] != 0) {
        fprintf(stderr, "set %u came twice\n", number);
        abort();
    }
    load->seen[number] = 1;
}

/* Answers so many requests, and reads three more at most. False: the client ended. */
static bool serve_some(struct fake *fake, unsigned count)
{
    struct fake_request request = {0};
    bool alive = true;

    for (unsigned i = 0; i < count + 3 && alive; i++) {
        if (i >= count) {
            struct pollfd entry = {.fd = fake->peer, .events = POLLIN};

            if (poll(&entry, 1, 0) == 0) {
                break;
            }
        }
        alive = fake_receive(fake, &request);
        if (alive && fake_is(&request, PROTO_METHOD_TRANSFER_SET)) {
            note_set(fake->argument, &request);
        }
        if (alive && i < count) {
            fake_serve_one(fake, &request);
        }
    }
    fake_release(&request);
    return alive;
}

static void script(struct fake *fake)
{
    struct load *load = fake->argument;
    unsigned seed = 1;

    fake_greet(fake);
    for (unsigned i = 0; i < SESSIONS; i++) {
        seed = seed * 1103515245 + 12345;
        serve_some(fake, (seed >> 16) % 60);
        if (i % 3 == 0) {
            fake_farewell(fake, PROTO_ERR_DRAINING, "stopping");
            fake_close(fake);
            fake_greet(fake);
        } else {
            fake_restart(fake);
        }
    }
    load->over = 1;
    while (serve_some(fake, 1000)) {
    }
}

/* --- blocking calls ----------------------------------------------------------------------------------------------- */

static int next_set(struct load *load, char key[16])
{
    return snprintf(key, 16, "%u", load->next_set++);
}

static void blocking_round(struct worker *worker)
{
    struct load *load = worker->load;
    struct grd_window window = {load->region, worker->number * SLOT, SLOT};
    struct grd_key name = {"key", 3};
    struct grd_key_result result;
    struct grd_receipt receipt;
    struct grd_error error;
    char key[16];
    int length = next_set(load, key), code;

    worker->wrong += grd_get("key", 3, window, NULL, &receipt, &error) != 0;
    code = grd_set(key, (size_t)length, window, NULL, NULL, &error);
    worker->wrong += code != 0 && !(code == GRD_ERR_INTERRUPTED && error.may_have_run);
    worker->interrupted += code != 0;
    worker->wrong += grd_exists(load->client, &name, 1, &result, &error) != 0;
    worker->done++;
}

static void *call(void *argument)
{
    struct worker *worker = argument;

    while (worker->load->over == 0) {
        blocking_round(worker);
    }
    blocking_round(worker);
    return NULL;
}

/* --- queues ------------------------------------------------------------------------------------------------------- */

static void take(struct worker *worker, const struct grd_completion *completion)
{
    bool get = completion->operation == GRD_OPERATION_GET;

    worker->wrong += completion->code != 0 &&
                     (get || completion->code != GRD_ERR_INTERRUPTED || !completion->error.may_have_run);
    worker->interrupted += completion->code != 0;
    worker->done++;
}

static void submit_all(struct worker *worker, grd_queue *queue)
{
    struct load *load = worker->load;

    for (unsigned i = 0; i < AT_ONCE; i++) {
        char key[16];
        struct grd_transfer transfer = {
            .struct_size = sizeof(transfer),
            .operation = i % 2 == 0 ? GRD_OPERATION_GET : GRD_OPERATION_SET,
            .key = key,
            .key_length = (size_t)next_set(load, key),
            .window = {load->region, (CALLERS + (worker->number - CALLERS) * AT_ONCE + i) * SLOT, SLOT},
        };

        worker->wrong += grd_submit(queue, &transfer, 1, NULL, NULL) != 0;
    }
}

/* Only polls and reaps; the second program waits in grd_reap() instead. */
static void reap_all(struct worker *worker, grd_queue *queue)
{
    bool polls = worker->number % 2 == 0;
    struct pollfd entry = {.fd = polls ? grd_queue_fd(queue) : -1, .events = POLLIN};

    while (grd_queue_pending(queue) > 0) {
        struct grd_completion completions[AT_ONCE];
        size_t count;

        if (polls && poll(&entry, 1, 20000) == 0) {
            worker->wrong += 1000;
            return;
        }
        if (grd_reap(queue, completions, AT_ONCE, polls ? 0 : 20000, &count, NULL) != 0) {
            worker->wrong += 1000;
            return;
        }
        for (size_t i = 0; i < count; i++) {
            take(worker, &completions[i]);
        }
    }
}

static void *run_queue(void *argument)
{
    struct worker *worker = argument;
    grd_queue *queue;

    worker->wrong += grd_queue_create(worker->load->client, &queue, NULL) != 0;
    while (worker->load->over == 0 && worker->wrong == 0) {
        submit_all(worker, queue);
        reap_all(worker, queue);
    }
    grd_queue_close(queue);
    return NULL;
}

START_TEST(nothing_is_lost_and_no_set_comes_twice)
{
    struct load load = {.seen = calloc(SETS_MAX, 1)};
    struct worker workers[THREADS];
    struct fake fake;
    unsigned interrupted = 0;

    ck_assert_ptr_nonnull(load.seen);
    fake_start(&fake, script, &load);
    load.client = fake_connect_lasting(&fake, 60000);
    load.region = fake_region(load.client, (CALLERS + PROGRAMS * AT_ONCE) * SLOT);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.load = &load, .number = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, i < CALLERS ? call : run_queue, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_uint_eq(workers[i].wrong, 0);
        ck_assert_uint_gt(workers[i].done, 0);
        interrupted += workers[i].interrupted;
    }
    ck_assert_uint_gt(interrupted, 0);
    ck_assert_int_eq(grd_region_close(load.region, NULL, NULL), 0);
    grd_close(load.client);
    fake_stop(&fake);
    free(load.seen);
}
END_TEST

UNIT_MAIN("client_reconnect_load", nothing_is_lost_and_no_set_comes_twice)
