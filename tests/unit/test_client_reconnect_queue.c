/*
 * Queues across restarts: a program that only polls the descriptor and reaps, never waiting, gets through. What was in
 * flight, what is submitted meanwhile, and when it is given up.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "client/private.h"
#include "client/queue.h"
#include "client_fake.h"
#include "proto/errors.h"
#include "unit_main.h"

#define SLOT ((uint64_t)4096)
#define SLOTS 64

/* --- a program ---------------------------------------------------------------------------------------------------- */

struct program {
    struct fake fake;
    _Atomic int step; /* of the script, see there */
    int requests;     /* limits.requests of the second session */
    unsigned sets;    /* that the script received, in all sessions */
    grd_client *client;
    grd_region *region;
    grd_queue *queue;
    struct grd_completion done[SLOTS];
    size_t done_count;
    unsigned idle; /* wake-ups of the loop that brought nothing */
};

static void need(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void wait_for_step(struct program *program, int step)
{
    while (program->step != step) {
        fake_sleep_ms(1);
    }
}

static void start(struct program *program, fake_script *script, uint64_t reconnect_ms)
{
    fake_start(&program->fake, script, program);
    program->client = fake_connect_lasting(&program->fake, reconnect_ms);
    program->region = fake_region(program->client, SLOTS * SLOT);
    ck_assert_int_eq(grd_queue_create(program->client, &program->queue, NULL), 0);
    ck_assert_int_ge(grd_queue_fd(program->queue), 0);
}

static void stop(struct program *program)
{
    grd_queue_close(program->queue);
    ck_assert_int_eq(grd_region_close(program->region, NULL, NULL), 0);
    grd_close(program->client);
    fake_stop(&program->fake);
}

static struct grd_transfer transfer(struct program *program, enum grd_operation operation, unsigned slot)
{
    return (struct grd_transfer){
        .struct_size = sizeof(struct grd_transfer),
        .operation = operation,
        .key = "key",
        .key_length = 3,
        .window = {.region = program->region, .offset = slot * SLOT, .length = SLOT},
        .user_data = slot,
    };
}

static uint64_t submit(struct program *program, enum grd_operation operation, unsigned slot)
{
    struct grd_transfer wanted = transfer(program, operation, slot);
    struct grd_error error;

    ck_assert_msg(grd_submit(program->queue, &wanted, 1, NULL, &error) == 0, "%s", error.message);
    return wanted.ticket;
}

/* Polls and reaps without waiting, until so many completions are there, or so many ms have passed. */
static void run_loop(struct program *program, size_t count, unsigned ms)
{
    uint64_t end_ms = fake_now_ms() + ms, now;

    while (program->done_count < count && (now = fake_now_ms()) < end_ms) {
        struct pollfd entry = {.fd = grd_queue_fd(program->queue), .events = POLLIN};
        size_t came;

        if (poll(&entry, 1, (int)(end_ms - now)) == 0) {
            return;
        }
        ck_assert_int_eq(grd_reap(program->queue, program->done + program->done_count, SLOTS - program->done_count, 0,
                                  &came, NULL),
                         0);
        program->idle += came == 0;
        program->done_count += came;
    }
}

static const struct grd_completion *completion(const struct program *program, unsigned slot)
{
    for (size_t i = 0; i < program->done_count; i++) {
        if (program->done[i].user_data == slot) {
            return &program->done[i];
        }
    }
    ck_abort_msg("no completion of slot %u", slot);
    return NULL;
}

/* --- scripts ------------------------------------------------------------------------------------------------------ */

/* Answers all, and counts sets. */
static void serve(struct program *program)
{
    struct fake_request request = {0};

    while (fake_receive(&program->fake, &request)) {
        program->sets += fake_is(&request, PROTO_METHOD_TRANSFER_SET);
        fake_serve_one(&program->fake, &request);
    }
    fake_release(&request);
}

static void greet_and_register(struct program *program)
{
    struct fake_request request = {0};

    fake_greet(&program->fake);
    fake_expect(&program->fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(&program->fake, &request);
    fake_release(&request);
}

/* Dies with a set and a get in flight, in silence; the process lives a while longer. */
static void dying_script(struct fake *fake)
{
    struct program *program = fake->argument;
    struct fake_request request = {0};

    greet_and_register(program);
    for (int i = 0; i < 2; i++) {
        need(fake_receive(fake, &request));
        program->sets += fake_is(&request, PROTO_METHOD_TRANSFER_SET);
    }
    fake_release(&request);
    fake_close(fake);
    need(!fake_is_asked(fake, 1000));
    fake_unlisten(fake);
    fake_kill(fake);
    fake_sleep_ms(100);
    fake_revive(fake);
    fake_listen(fake);
    greet_and_register(program);
    serve(program);
}

START_TEST(loop_gets_through_a_restart)
{
    struct program program = {0};

    start(&program, dying_script, 0);
    submit(&program, GRD_OPERATION_SET, 0);
    submit(&program, GRD_OPERATION_GET, 1);
    run_loop(&program, 2, FAKE_PATIENCE_MS);
    ck_assert_uint_eq(program.done_count, 2);
    ck_assert_int_eq(completion(&program, 0)->code, GRD_ERR_INTERRUPTED);
    ck_assert(completion(&program, 0)->error.may_have_run);
    ck_assert_int_eq(completion(&program, 1)->code, 0);
    ck_assert_uint_le(program.idle, 30); /* some for each attempt; it does not spin */
    ck_assert_uint_eq(grd_queue_pending(program.queue), 0);
    stop(&program);
    ck_assert_uint_eq(program.sets, 1);
}
END_TEST

/* Stops, with a set and a get in its queue: it answers both that it did not, or no more. */
static void draining_script(struct fake *fake)
{
    struct program *program = fake->argument;
    struct fake_request request = {0};

    greet_and_register(program);
    for (int i = 0; i < 2; i++) {
        need(fake_receive(fake, &request));
        fake_refuse(fake, request.parsed.id,
                    fake_is(&request, PROTO_METHOD_TRANSFER_SET) ? PROTO_ERR_DRAINING : PROTO_ERR_INTERRUPTED,
                    "stopping", NULL);
    }
    fake_release(&request);
    program->step = 1;
    wait_for_step(program, 2);
    fake_farewell(fake, PROTO_ERR_DRAINING, "stopping");
    fake_restart(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    fake_release(&request);
    serve(program);
}

/* While the daemon stops they wait, the program asleep; and where no other comes in time, its answer is what counts. */
START_TEST(draining_daemon)
{
    struct program program = {0};

    start(&program, draining_script, _i == 0 ? 0 : 100);
    submit(&program, GRD_OPERATION_SET, 0);
    submit(&program, GRD_OPERATION_GET, 1);
    wait_for_step(&program, 1);
    run_loop(&program, 2, _i == 0 ? 50 : FAKE_PATIENCE_MS);
    ck_assert_uint_eq(program.done_count, _i == 0 ? 0 : 2);
    ck_assert_uint_le(program.idle, 6);
    program.step = 2;
    run_loop(&program, 2, FAKE_PATIENCE_MS);
    ck_assert_int_eq(completion(&program, 0)->code, _i == 0 ? 0 : GRD_ERR_DRAINING);
    ck_assert_int_eq(completion(&program, 1)->code, _i == 0 ? 0 : GRD_ERR_INTERRUPTED);
    program.client->reconnect_ms = 10000;
    submit(&program, GRD_OPERATION_GET, 2); /* into the old session, or the next */
    program.done_count = 0;
    run_loop(&program, 1, FAKE_PATIENCE_MS);
    ck_assert_int_eq(completion(&program, 2)->code, 0);
    stop(&program);
}
END_TEST

/* Gone, and back when the test says so, with few requests at once. */
static void absent_script(struct fake *fake)
{
    struct program *program = fake->argument;

    greet_and_register(program);
    fake_unlisten(fake);
    fake_close(fake);
    fake_kill(fake);
    program->step = 1;
    while (program->step < 2) {
        fake_sleep_ms(1);
    }
    if (program->step == 3) {
        return; /* the test is over */
    }
    fake_revive(fake);
    fake->requests = program->requests;
    fake_listen(fake);
    greet_and_register(program);
    serve(program);
}

/* Sets too: none has left. The library has noticed the end before (1), or finds out by the first (0). */
START_TEST(submitted_without_a_session)
{
    struct program program = {.requests = 3};
    struct grd_error error;
    uint64_t start_ms;

    start(&program, absent_script, 0);
    wait_for_step(&program, 1);
    if (_i == 1) {
        uint64_t end_ms = fake_now_ms() + FAKE_PATIENCE_MS;

        do { /* the ends of the stream and of the process, each a wake-up */
            run_loop(&program, 1, 50);
        } while (program.client->state != SESSION_ENDED && fake_now_ms() < end_ms);
        ck_assert_uint_le(program.idle, 4);
        ck_assert(!program.done_count && program.client->state == SESSION_ENDED);
    }
    start_ms = fake_now_ms();
    for (unsigned i = 0; i < 20; i++) {
        submit(&program, i % 2 == 0 ? GRD_OPERATION_SET : GRD_OPERATION_GET, i);
    }
    ck_assert_uint_lt(fake_now_ms() - start_ms, FAKE_PATIENCE_MS / 2); /* it waits for nobody */
    run_loop(&program, 1, 100);
    ck_assert_uint_eq(program.done_count, 0);
    ck_assert_uint_le(program.idle, 25); /* attempts, with their waits */
    ck_assert_int_eq(grd_region_close(program.region, NULL, &error), GRD_ERR_BUSY);
    program.step = 2;
    run_loop(&program, 20, FAKE_PATIENCE_MS);
    ck_assert_uint_eq(program.done_count, 20);
    for (unsigned i = 0; i < 20; i++) {
        ck_assert_int_eq(completion(&program, i)->code, 0);
    }
    stop(&program);
    ck_assert_uint_eq(program.sets, 10);
}
END_TEST

/* Given up: after reconnect_ms, at a deadline, by grd_cancel(), by grd_close(), by grd_queue_close(). */
START_TEST(given_up)
{
    struct program program = {0};
    struct grd_transfer wanted;
    struct grd_error error;
    uint64_t ticket, start_ms;
    size_t count;

    start(&program, absent_script, 1000);
    wait_for_step(&program, 1);
    start_ms = fake_now_ms();
    submit(&program, GRD_OPERATION_SET, 0);
    wanted = transfer(&program, GRD_OPERATION_GET, 1);
    wanted.deadline_ms = 300;
    ck_assert_int_eq(grd_submit(program.queue, &wanted, 1, NULL, &error), 0);
    ticket = submit(&program, GRD_OPERATION_SET, 2);
    ck_assert_int_eq(grd_cancel(program.queue, ticket, &error), 0);
    ck_assert_int_eq(grd_cancel(program.queue, ticket, &error), 0);
    run_loop(&program, 1, FAKE_PATIENCE_MS);
    ck_assert_int_eq(completion(&program, 2)->code, GRD_ERR_CANCELLED);
    ck_assert(!completion(&program, 2)->error.may_have_run);
    run_loop(&program, 2, FAKE_PATIENCE_MS);
    ck_assert_int_eq(completion(&program, 1)->code, GRD_ERR_DEADLINE);
    ck_assert_uint_ge(fake_now_ms() - start_ms, 299);
    run_loop(&program, 3, FAKE_PATIENCE_MS);
    ck_assert_int_eq(completion(&program, 0)->code, GRD_ERR_NO_DAEMON);
    ck_assert(!completion(&program, 0)->error.may_have_run);
    ck_assert_uint_ge(fake_now_ms() - start_ms, 999);
    ck_assert_uint_lt(fake_now_ms() - start_ms, FAKE_PATIENCE_MS / 2);
    program.client->reconnect_ms = FAKE_PATIENCE_MS; /* the others are to end otherwise */
    submit(&program, GRD_OPERATION_SET, 3);
    submit(&program, GRD_OPERATION_GET, 4);
    if (_i == 0) {
        grd_queue_close(program.queue);
        ck_assert_int_eq(grd_queue_create(program.client, &program.queue, &error), 0);
        program.step = 2;
        submit(&program, GRD_OPERATION_GET, 4); /* its window is free again */
        program.client->reconnect_ms = 20000;
        while (program.done_count == 3 || program.done[program.done_count - 1].code == GRD_ERR_NO_DAEMON) {
            program.done_count = 3;
            run_loop(&program, 4, FAKE_PATIENCE_MS);
            ck_assert_uint_eq(program.done_count, 4);
            if (program.done[3].code != 0) {
                submit(&program, GRD_OPERATION_GET, 4);
            }
        }
        stop(&program);
        return;
    }
    grd_close(program.client);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(grd_reap(program.queue, program.done, 1, -1, &count, &error), 0);
        ck_assert(count == 1 && program.done[0].code == GRD_ERR_CLOSED);
    }
    ck_assert_int_eq(grd_reap(program.queue, program.done, 1, -1, &count, &error), GRD_ERR_CLOSED);
    grd_queue_close(program.queue);
    ck_assert_int_eq(grd_region_close(program.region, NULL, NULL), 0);
    program.step = 3;
    fake_stop(&program.fake);
}
END_TEST

/* --- who makes the session ---------------------------------------------------------------------------------------- */

struct reaper {
    pthread_t thread;
    struct program *program;
    int code;
    size_t count;
    struct grd_completion completion;
};

static void *reap(void *argument)
{
    struct reaper *reaper = argument;

    reaper->code = grd_reap(reaper->program->queue, &reaper->completion, 1, -1, &reaper->count, NULL);
    return NULL;
}

/* A thread that has waited in grd_reap() since before; two, of which one leads and the other sleeps. */
START_TEST(waiting_threads_make_it)
{
    struct program program = {0};
    struct reaper reapers[2];

    start(&program, absent_script, 0);
    for (unsigned i = 0; i < 2; i++) {
        reapers[i] = (struct reaper){.program = &program};
        ck_assert_int_eq(pthread_create(&reapers[i].thread, NULL, reap, &reapers[i]), 0);
    }
    wait_for_step(&program, 1);
    fake_sleep_ms(30); /* they have seen the end, and sleep */
    submit(&program, GRD_OPERATION_SET, 0);
    submit(&program, GRD_OPERATION_GET, 1);
    fake_sleep_ms(30);
    program.step = 2;
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(reapers[i].thread, NULL);
        ck_assert_int_eq(reapers[i].code, 0);
        ck_assert(reapers[i].count == 1 && reapers[i].completion.code == 0);
    }
    stop(&program);
}
END_TEST

static void *ask(void *argument)
{
    struct program *program = argument;
    struct grd_key key = {"key", 3};
    struct grd_key_result result;

    return grd_exists(program->client, &key, 1, &result, NULL) == 0 ? argument : NULL;
}

static void await_leader(grd_client *client)
{
    bool there = false;

    while (!there) {
        fake_sleep_ms(1);
        pthread_mutex_lock(&client->lock);
        there = client->has_leader && client->wanting > 0;
        pthread_mutex_unlock(&client->lock);
    }
}

/* A blocking call makes it, while the program sleeps on the descriptor: no spinning, and the completions come. */
START_TEST(blocking_call_makes_it)
{
    struct program program = {0};
    pthread_t thread;
    void *returned;

    start(&program, absent_script, 0);
    wait_for_step(&program, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, ask, &program), 0);
    await_leader(program.client); /* else the program would make it */
    submit(&program, GRD_OPERATION_SET, 0);
    submit(&program, GRD_OPERATION_GET, 1);
    run_loop(&program, 1, 100);
    ck_assert_uint_le(program.idle, 4);
    program.step = 2;
    run_loop(&program, 2, FAKE_PATIENCE_MS);
    ck_assert_uint_eq(program.done_count, 2);
    ck_assert(completion(&program, 0)->code == 0 && completion(&program, 1)->code == 0);
    pthread_join(thread, &returned);
    ck_assert_ptr_nonnull(returned);
    stop(&program);
}
END_TEST

/* --- a region that is refused ------------------------------------------------------------------------------------- */

static void refusing_script(struct fake *fake)
{
    struct program *program = fake->argument;
    struct fake_request request = {0};

    greet_and_register(program);
    fake_restart(fake);
    for (int i = 0; i < 2; i++) {
        fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
        fake_refuse(fake, request.parsed.id, PROTO_ERR_OVER_BUDGET, "no room for it", NULL);
    }
    fake_release(&request);
    serve(program);
}

START_TEST(refused_region_ends_its_transfers)
{
    struct program program = {0};

    start(&program, refusing_script, 0);
    for (unsigned i = 0; i < 3; i++) {
        /* The first, perhaps sent to the old daemon, is refused with the session; each of the others tries again. */
        submit(&program, i == 0 ? GRD_OPERATION_GET : GRD_OPERATION_SET, i);
        run_loop(&program, i + 1, FAKE_PATIENCE_MS);
        ck_assert_uint_eq(program.done_count, i + 1);
        ck_assert_int_eq(completion(&program, i)->code, i < 2 ? GRD_ERR_OVER_BUDGET : 0);
    }
    stop(&program);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_reconnect_queue");
    TCase *cases = tcase_create("client_reconnect_queue");

    tcase_set_timeout(cases, UNIT_SECONDS);
    tcase_add_test(cases, loop_gets_through_a_restart);
    tcase_add_loop_test(cases, draining_daemon, 0, 2);
    tcase_add_loop_test(cases, submitted_without_a_session, 0, 2);
    tcase_add_loop_test(cases, given_up, 0, 2);
    tcase_add_test(cases, waiting_threads_make_it);
    tcase_add_test(cases, blocking_call_makes_it);
    tcase_add_test(cases, refused_region_ends_its_transfers);
    suite_add_tcase(suite, cases);
    return unit_run(suite);
}
