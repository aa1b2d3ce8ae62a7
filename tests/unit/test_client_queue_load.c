/*
 * Queues under load, against a daemon that answers in random order: many threads that submit, reap and cancel one
 * queue while others block; loops that wait on the descriptor, for thousands of transfers; closing and dying in the
 * middle. Each accepted transfer must complete once, and no loop may sleep through an answer. Fit for the thread
 * sanitizer.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_fake.h"
#include "proto/errors.h"
#include "unit_main.h"

#define SLOT ((uint64_t)4096)
#define SLOTS 64

/* Held back, and answered in random order; all of them whenever no more requests are there. */
#define HELD 24

struct daemon {
    int64_t ids[HELD];
    bool gets[HELD];
    unsigned count, seed;
    int limit; /* requests that it takes until it dies; 0: no limit */
};

static void answer_index(struct fake *fake, struct daemon *daemon, unsigned index)
{
    if (daemon->gets[index]) {
        fake_answer(fake, daemon->ids[index], json_pack("{s:b, s:i}", "found", 0, "length", 0));
    } else {
        fake_answer(fake, daemon->ids[index], json_pack("{s:s}", "path", "rdma"));
    }
    daemon->count--;
    daemon->ids[index] = daemon->ids[daemon->count];
    daemon->gets[index] = daemon->gets[daemon->count];
}

static void answer_some(struct fake *fake, struct daemon *daemon, unsigned until)
{
    while (daemon->count > until) {
        daemon->seed = daemon->seed * 1664525 + 1013904223;
        answer_index(fake, daemon, (daemon->seed >> 8) % daemon->count);
    }
}

static void cancel(struct fake *fake, struct daemon *daemon, const struct fake_request *request)
{
    bool found = false;

    for (unsigned i = 0; i < daemon->count && !found; i++) {
        if (daemon->ids[i] == fake_number(request, "id")) {
            fake_refuse(fake, daemon->ids[i], PROTO_ERR_CANCELLED, "cancelled", NULL);
            daemon->count--;
            daemon->ids[i] = daemon->ids[daemon->count];
            daemon->gets[i] = daemon->gets[daemon->count];
            found = true;
        }
    }
    fake_answer(fake, request->parsed.id, json_pack("{s:b}", "cancelled", found));
}

static void take(struct fake *fake, struct daemon *daemon, const struct fake_request *request)
{
    if (fake_is(request, PROTO_METHOD_TRANSFER_GET) || fake_is(request, PROTO_METHOD_TRANSFER_SET)) {
        daemon->gets[daemon->count] = fake_is(request, PROTO_METHOD_TRANSFER_GET);
        daemon->ids[daemon->count++] = request->parsed.id;
    } else if (fake_is(request, PROTO_METHOD_TRANSFER_CANCEL)) {
        cancel(fake, daemon, request);
    } else if (fake_is(request, PROTO_METHOD_REGION_REGISTER)) {
        fake_register(fake, request);
    } else if (fake_is(request, PROTO_METHOD_REGION_CLOSE)) {
        answer_some(fake, daemon, 0);
        fake_answer(fake, request->parsed.id, json_pack("{s:b}", "memory_released", 1));
    } else {
        fake_answer(fake, request->parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    }
}

static void script(struct fake *fake)
{
    struct daemon *daemon = fake->argument;
    struct fake_request request = {0};

    fake->requests = 256;
    fake_greet(fake);
    for (int taken = 0; daemon->limit == 0 || taken < daemon->limit; taken++) {
        struct pollfd entry = {.fd = fake->peer, .events = POLLIN};

        if (daemon->count == HELD) {
            answer_some(fake, daemon, HELD / 2);
        }
        if (poll(&entry, 1, 0) == 0) { /* nobody may send more before these are answered */
            answer_some(fake, daemon, 0);
        }
        if (!fake_receive(fake, &request)) {
            break;
        }
        take(fake, daemon, &request);
    }
    fake_release(&request);
    if (daemon->limit != 0) {
        fake_close(fake);
        fake_sleep_ms(20);
        fake_kill(fake);
    }
}

static struct grd_transfer transfer_of(grd_region *region, unsigned slot, bool get)
{
    return (struct grd_transfer){
        .struct_size = sizeof(struct grd_transfer),
        .operation = get ? GRD_OPERATION_GET : GRD_OPERATION_SET,
        .key = "key",
        .key_length = 3,
        .window = {.region = region, .offset = slot * SLOT, .length = SLOT},
        .user_data = slot,
    };
}

/* --- one queue, many threads -------------------------------------------------------------------------------------- */

#define SUBMITTERS 4
#define REAPERS 3
#define OWN (SLOTS / SUBMITTERS)
#define ROUNDS 300

struct shared {
    grd_client *client;
    grd_region *region;
    grd_queue *queue;
    _Atomic int busy[SLOTS]; /* a transfer of the slot is submitted, or about to be */
    _Atomic unsigned submitted, reaped, wrong;
    _Atomic bool over;
};

struct submitter {
    pthread_t thread;
    struct shared *shared;
    unsigned number;
};

static unsigned choose(struct submitter *submitter, struct grd_transfer *transfers, unsigned round)
{
    struct shared *shared = submitter->shared;
    unsigned count = 0;

    for (unsigned i = 0; i < OWN && count < 1 + round % OWN; i++) {
        unsigned slot = submitter->number * OWN + i;

        if (!shared->busy[slot]) {
            shared->busy[slot] = 1;
            transfers[count++] = transfer_of(shared->region, slot, (round + i) % 2 == 0);
        }
    }
    return count;
}

static void *submit(void *argument)
{
    struct submitter *submitter = argument;
    struct shared *shared = submitter->shared;
    struct grd_transfer transfers[OWN];

    for (unsigned round = 0; round < ROUNDS;) {
        unsigned count = choose(submitter, transfers, round);
        size_t accepted;
        int code;

        if (count == 0) { /* all are busy: those that reap, or the daemon, have not had their turn yet */
            fake_sleep_ms(1);
            continue;
        }
        code = grd_submit(shared->queue, transfers, count, &accepted, NULL);

        shared->wrong += code != 0 && code != GRD_ERR_BUSY;
        shared->submitted += (unsigned)accepted;
        for (size_t i = accepted; i < count; i++) {
            shared->busy[transfers[i].user_data] = 0;
        }
        if (accepted > 0 && round % 5 == 0) {
            code = grd_cancel(shared->queue, transfers[accepted - 1].ticket, NULL);
            shared->wrong += code != 0 && code != GRD_ERR_BUSY;
        }
        round++;
    }
    return NULL;
}

static void *reap(void *argument)
{
    struct shared *shared = argument;
    struct grd_completion completions[3];
    size_t count;

    do {
        shared->wrong += grd_reap(shared->queue, completions, 3, 20, &count, NULL) != 0;
        for (size_t i = 0; i < count; i++) {
            shared->wrong += completions[i].code != 0 && completions[i].code != GRD_ERR_CANCELLED;
            shared->wrong += !shared->busy[completions[i].user_data];
            shared->busy[completions[i].user_data] = 0;
            shared->reaped++;
        }
    } while (!shared->over || grd_queue_pending(shared->queue) > 0);
    return NULL;
}

static void *ask(void *argument)
{
    struct shared *shared = argument;
    struct grd_key key = {"key", 3};
    struct grd_key_result result;

    while (!shared->over) {
        shared->wrong += grd_exists(shared->client, &key, 1, &result, NULL) != 0;
    }
    return NULL;
}

START_TEST(threads_share_one_queue)
{
    struct daemon daemon = {.seed = 1};
    struct shared shared = {0};
    struct submitter submitters[SUBMITTERS];
    pthread_t reapers[REAPERS], asker;
    struct fake fake;

    fake_start(&fake, script, &daemon);
    shared.client = fake_connect(&fake);
    shared.region = fake_region(shared.client, SLOTS * SLOT);
    ck_assert_int_eq(grd_queue_create(shared.client, &shared.queue, NULL), 0);
    if (_i == 1) {
        grd_queue_fd(shared.queue);
    }
    pthread_create(&asker, NULL, ask, &shared);
    for (unsigned i = 0; i < REAPERS; i++) {
        pthread_create(&reapers[i], NULL, reap, &shared);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.shared = &shared, .number = i};
        pthread_create(&submitters[i].thread, NULL, submit, &submitters[i]);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        pthread_join(submitters[i].thread, NULL);
    }
    shared.over = true;
    pthread_join(asker, NULL);
    for (unsigned i = 0; i < REAPERS; i++) {
        pthread_join(reapers[i], NULL);
    }
    ck_assert_uint_eq(shared.wrong, 0);
    ck_assert_uint_gt(shared.submitted, SLOTS);
    ck_assert_uint_eq(shared.reaped, shared.submitted);
    ck_assert_uint_eq(grd_queue_pending(shared.queue), 0);
    grd_queue_close(shared.queue);
    ck_assert_int_eq(grd_region_close(shared.region, NULL, NULL), 0);
    grd_close(shared.client);
    fake_stop(&fake);
}
END_TEST

/* --- loops that poll ---------------------------------------------------------------------------------------------- */

#define LOOPS 2
#define LOOP_SLOTS (SLOTS / LOOPS)
#define LOOP_TRANSFERS 10000

struct loop {
    pthread_t thread;
    struct shared *shared;
    unsigned number;
    unsigned submitted, reaped, polls, idle, timeouts;
    bool free[LOOP_SLOTS];
};

static void submit_free(struct loop *loop, grd_queue *queue)
{
    struct grd_transfer transfers[LOOP_SLOTS];
    size_t count = 0, accepted;
    int code;

    for (unsigned i = 0; i < LOOP_SLOTS && loop->submitted + count < LOOP_TRANSFERS; i++) {
        if (loop->free[i]) {
            transfers[count++] = transfer_of(loop->shared->region, loop->number * LOOP_SLOTS + i, i % 2 == 0);
        }
    }
    code = grd_submit(queue, transfers, count, &accepted, NULL);
    loop->shared->wrong += code != 0 && code != GRD_ERR_BUSY;
    for (size_t i = 0; i < accepted; i++) {
        loop->free[transfers[i].user_data % LOOP_SLOTS] = false;
    }
    loop->submitted += (unsigned)accepted;
}

/* One thread with a queue of its own, as an event loop has it. */
static void *run_loop(void *argument)
{
    struct loop *loop = argument;
    struct shared *shared = loop->shared;
    struct grd_completion completions[8];
    grd_queue *queue;
    size_t count;

    shared->wrong += grd_queue_create(shared->client, &queue, NULL) != 0;
    while (loop->reaped < LOOP_TRANSFERS && loop->timeouts == 0) {
        struct pollfd entry = {.fd = grd_queue_fd(queue), .events = POLLIN};

        submit_free(loop, queue);
        loop->timeouts += poll(&entry, 1, FAKE_PATIENCE_MS) != 1;
        loop->polls++;
        shared->wrong += grd_reap(queue, completions, 8, 0, &count, NULL) != 0;
        loop->idle += count == 0;
        for (size_t i = 0; i < count; i++) {
            shared->wrong += completions[i].code != 0 || loop->free[completions[i].user_data % LOOP_SLOTS];
            loop->free[completions[i].user_data % LOOP_SLOTS] = true;
        }
        loop->reaped += (unsigned)count;
    }
    grd_queue_close(queue);
    return NULL;
}

/* Alone, two beside each other, and with a thread that blocks all the time. */
START_TEST(loops_miss_nothing)
{
    struct daemon daemon = {.seed = 7};
    struct shared shared = {0};
    struct loop loops[LOOPS];
    pthread_t asker;
    unsigned count = _i == 0 ? 1 : LOOPS;
    struct fake fake;

    fake_start(&fake, script, &daemon);
    shared.client = fake_connect(&fake);
    shared.region = fake_region(shared.client, SLOTS * SLOT);
    if (_i == 2) {
        pthread_create(&asker, NULL, ask, &shared);
    }
    for (unsigned i = 0; i < count; i++) {
        loops[i] = (struct loop){.shared = &shared, .number = i};
        memset(loops[i].free, true, sizeof(loops[i].free));
        pthread_create(&loops[i].thread, NULL, run_loop, &loops[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(loops[i].thread, NULL);
        printf("# loop %u: %u transfers, %u polls, %u of them without a completion\n", i, loops[i].reaped,
               loops[i].polls, loops[i].idle);
        ck_assert_uint_eq(loops[i].timeouts, 0);
        ck_assert_uint_eq(loops[i].reaped, LOOP_TRANSFERS);
    }
    ck_assert_uint_eq(shared.wrong, 0);
    if (_i == 0) {
        ck_assert_uint_eq(loops[0].idle, 0);
    }
    shared.over = true;
    if (_i == 2) {
        pthread_join(asker, NULL);
    }
    ck_assert_int_eq(grd_region_close(shared.region, NULL, NULL), 0);
    grd_close(shared.client);
    fake_stop(&fake);
}
END_TEST

/* --- ends in the middle ------------------------------------------------------------------------------------------- */

static void *submit_until_over(void *argument)
{
    struct submitter *submitter = argument;
    struct shared *shared = submitter->shared;
    int code;

    do {
        struct grd_transfer transfer = transfer_of(shared->region, submitter->number, true);

        code = grd_submit(shared->queue, &transfer, 1, NULL, NULL);
        shared->submitted += code == 0;
    } while (code == 0 || code == GRD_ERR_OVERLAP || code == GRD_ERR_BUSY);
    shared->wrong += code != GRD_ERR_CLOSED && code != GRD_ERR_INTERRUPTED;
    return NULL;
}

static void *reap_until_over(void *argument)
{
    struct shared *shared = argument;
    struct grd_completion completions[4];
    size_t count;
    int code;

    while ((code = grd_reap(shared->queue, completions, 4, -1, &count, NULL)) == 0) {
        for (size_t i = 0; i < count; i++) {
            shared->wrong += completions[i].code != 0 && completions[i].code != GRD_ERR_CANCELLED &&
                             completions[i].code != GRD_ERR_INTERRUPTED;
        }
        shared->reaped += (unsigned)count;
    }
    shared->wrong += code != GRD_ERR_CLOSED && code != GRD_ERR_INTERRUPTED;
    return NULL;
}

/* 0: grd_close() under load; 1: the daemon dies under load. */
START_TEST(end_under_load)
{
    struct daemon daemon = {.seed = 3, .limit = _i == 1 ? 2000 : 0};
    struct shared shared = {0};
    struct submitter submitters[SUBMITTERS];
    pthread_t reapers[REAPERS];
    struct fake fake;

    fake_start(&fake, script, &daemon);
    shared.client = fake_connect(&fake);
    shared.region = fake_region(shared.client, SLOTS * SLOT);
    ck_assert_int_eq(grd_queue_create(shared.client, &shared.queue, NULL), 0);
    for (unsigned i = 0; i < REAPERS; i++) {
        pthread_create(&reapers[i], NULL, reap_until_over, &shared);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.shared = &shared, .number = i};
        pthread_create(&submitters[i].thread, NULL, submit_until_over, &submitters[i]);
    }
    if (_i == 0) {
        while (shared.submitted <= 100) { /* it is under load */
            fake_sleep_ms(1);
        }
        grd_close(shared.client);
    }
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        pthread_join(submitters[i].thread, NULL);
    }
    for (unsigned i = 0; i < REAPERS; i++) {
        pthread_join(reapers[i], NULL);
    }
    ck_assert_uint_eq(shared.wrong, 0);
    ck_assert_uint_gt(shared.submitted, 100);
    ck_assert_uint_eq(shared.reaped, shared.submitted);
    grd_queue_close(shared.queue);
    ck_assert_int_eq(grd_region_close(shared.region, NULL, NULL), 0);
    if (_i == 1) {
        grd_close(shared.client);
    }
    fake_stop(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_queue_load");
    TCase *cases = tcase_create("client_queue_load");

    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, threads_share_one_queue, 0, 2);
    tcase_add_loop_test(cases, loops_miss_nothing, 0, 3);
    tcase_add_loop_test(cases, end_under_load, 0, 2);
    suite_add_tcase(suite, cases);
    return unit_run(suite);
}
