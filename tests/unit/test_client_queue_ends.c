/*
 * Queues and the ends of things: of the session, with and without a farewell; of the client, of the queue; forks. And a
 * blocking call in another thread, which reads the socket while the program waits on the queue's descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/errors.h"
#include "queue_stage.h"
#include "unit_main.h"

/* A set in slot 0 and a get in slot 1, both in the daemon's hands. */
static void open_two(struct stage *stage, uint64_t tickets[2])
{
    tickets[0] = stage_submit(stage, GRD_OPERATION_SET, 0);
    tickets[1] = stage_submit(stage, GRD_OPERATION_GET, 1);
    stage_expect_unanswered(stage, PROTO_METHOD_TRANSFER_SET, tickets[0]);
    stage_expect_unanswered(stage, PROTO_METHOD_TRANSFER_GET, tickets[1]);
}

/* Both come with GRD_ERR_INTERRUPTED; then nothing more can come, which the descriptor goes on to tell. */
static void check_interrupted(struct stage *stage, const char *text)
{
    struct grd_transfer transfer = stage_transfer(stage, GRD_OPERATION_SET, 0);
    struct grd_completion completions[3];
    struct grd_error error;
    unsigned seen = 0;
    size_t count;

    ck_assert_int_eq(grd_reap(stage->queue, completions, 3, -1, &count, &error), 0);
    ck_assert_uint_eq(count, 2);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(completions[i].code, GRD_ERR_INTERRUPTED);
        ck_assert(completions[i].error.may_have_run == (completions[i].operation == GRD_OPERATION_SET));
        ck_assert_ptr_nonnull(strstr(completions[i].error.message, text));
        seen |= 1U << (completions[i].user_data - 100);
    }
    ck_assert_uint_eq(seen, 3);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(grd_reap(stage->queue, completions, 3, -i, &count, &error), GRD_ERR_INTERRUPTED);
        ck_assert_uint_eq(count, 0);
        ck_assert(stage_readable(stage->queue, 0));
    }
    ck_assert_int_eq(grd_submit(stage->queue, &transfer, 1, NULL, &error), GRD_ERR_INTERRUPTED);
    ck_assert(!error.may_have_run);
    ck_assert_int_eq(grd_cancel(stage->queue, completions[0].ticket, &error), 0);
}

START_TEST(farewell)
{
    struct stage stage = {0};
    uint64_t tickets[2];

    stage_start(&stage, 0);
    open_two(&stage, tickets);
    ck_assert(!stage_readable(stage.queue, 0));
    fake_farewell(&stage.fake, PROTO_ERR_DRAINING, "stopping for an update");
    ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
    stage_reap_nothing(stage.queue); /* it is a word only: the daemon has not closed the stream */
    ck_assert(!stage_readable(stage.queue, 0));
    fake_close(&stage.fake);
    ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS)); /* although its process lives */
    check_interrupted(&stage, "stopping for an update");
    stage_stop(&stage);
}
END_TEST

START_TEST(silence_waits_for_the_process)
{
    struct stage stage = {0};
    struct grd_transfer other;
    struct grd_completion completion;
    struct grd_error error;
    uint64_t tickets[2], start_ms;
    size_t count;

    stage_start(&stage, 0);
    open_two(&stage, tickets);
    fake_close(&stage.fake);
    ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
    stage_reap_nothing(stage.queue);
    /* The loop sleeps, the memory stays locked. */
    ck_assert(!stage_readable(stage.queue, 100));
    start_ms = fake_now_ms();
    ck_assert_int_eq(grd_reap(stage.queue, &completion, 1, 100, &count, &error), 0);
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_ge(fake_now_ms() - start_ms, 100);
    ck_assert_int_eq(grd_region_close(stage.region, NULL, &error), GRD_ERR_BUSY);
    ck_assert_int_eq(grd_cancel(stage.queue, tickets[0], &error), 0);
    other = stage_transfer(&stage, GRD_OPERATION_SET, 3);
    ck_assert_int_eq(grd_submit(stage.queue, &other, 1, NULL, &error), GRD_ERR_INTERRUPTED);
    fake_kill(&stage.fake);
    ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
    check_interrupted(&stage, "without closing the session");
    stage_stop(&stage);
}
END_TEST

/* Nothing in flight: a loop is told that the session is over; and one that submits finds out by itself. */
START_TEST(idle_queue_sees_the_end)
{
    struct stage stage = {0};
    struct grd_transfer transfer;
    struct grd_completion completion;
    struct grd_error error;
    size_t count;

    stage_start(&stage, 0);
    transfer = stage_transfer(&stage, GRD_OPERATION_SET, 0);
    grd_queue_fd(stage.queue);
    fake_close(&stage.fake);
    if (_i == 0) {
        ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
        ck_assert_int_eq(grd_reap(stage.queue, &completion, 1, 0, &count, &error), GRD_ERR_INTERRUPTED);
    } else {
        ck_assert_int_eq(grd_submit(stage.queue, &transfer, 1, NULL, &error), GRD_ERR_INTERRUPTED);
        ck_assert_uint_eq(grd_queue_pending(stage.queue), 0);
        ck_assert_uint_eq(transfer.ticket, 0);
    }
    ck_assert(stage_readable(stage.queue, 0));
    fake_kill(&stage.fake); /* closing a region waits for that */
    stage_stop(&stage);
}
END_TEST

/* --- threads that wait -------------------------------------------------------------------------------------------- */

struct waiting {
    pthread_t thread;
    struct stage *stage;
    int timeout_ms;
    int code;
    size_t count;
    struct grd_completion completion;
};

static void *wait_in_reap(void *argument)
{
    struct waiting *waiting = argument;

    waiting->code =
        grd_reap(waiting->stage->queue, &waiting->completion, 1, waiting->timeout_ms, &waiting->count, NULL);
    return NULL;
}

static void start_waiting(struct waiting *waiting, struct stage *stage, int timeout_ms)
{
    *waiting = (struct waiting){.stage = stage, .timeout_ms = timeout_ms};
    ck_assert_int_eq(pthread_create(&waiting->thread, NULL, wait_in_reap, waiting), 0);
}

/* Until so many threads wait in the client, of which one reads for all. */
static void await_waiting(grd_client *client, unsigned count)
{
    unsigned there = 0;

    while (there < count) {
        const struct waiter *waiter;

        fake_sleep_ms(1);
        pthread_mutex_lock(&client->lock);
        there = client->has_leader ? 1 : 0;
        TAILQ_FOREACH (waiter, &client->waiting, entry) {
            there++;
        }
        pthread_mutex_unlock(&client->lock);
    }
}

/* Waits although nothing is pending; the queue's end cancels what is, and wakes leader and others. */
START_TEST(closing_the_queue)
{
    struct stage stage = {0};
    struct waiting waiting[3];
    struct grd_window window = {.length = STAGE_SLOT};
    uint64_t tickets[2];

    stage_start(&stage, 0);
    for (unsigned i = 0; i < 3; i++) {
        start_waiting(&waiting[i], &stage, -1);
    }
    await_waiting(stage.client, 3); /* the queue must not go while one is about to ask for it */
    open_two(&stage, tickets);
    await_waiting(stage.client, 3);
    stage_serve(&stage);
    grd_queue_close(stage.queue);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(waiting[i].thread, NULL);
        ck_assert_int_eq(waiting[i].code, GRD_ERR_CLOSED);
    }
    /* The windows are free, and what is in the socket of the cancelled ones confuses nobody. */
    window.region = stage.region;
    ck_assert_int_eq(grd_set("k", 1, window, NULL, NULL, NULL), 0);
    ck_assert_int_eq(grd_queue_create(stage.client, &stage.queue, NULL), 0);
    stage_stop(&stage);
}
END_TEST

static void *close_client(void *argument)
{
    grd_close(argument);
    return NULL;
}

/* grd_close() with one transfer answered and unread, two open, and threads in grd_reap(). */
START_TEST(closing_the_client)
{
    struct stage stage = {0};
    struct waiting waiting[2];
    struct grd_transfer transfer;
    struct grd_completion completions[3];
    struct grd_error error;
    uint64_t tickets[2], answered;
    pthread_t closer;
    size_t count;

    stage_start(&stage, 0);
    transfer = stage_transfer(&stage, GRD_OPERATION_SET, 5);
    if (_i == 1) {
        start_waiting(&waiting[0], &stage, -1);
        start_waiting(&waiting[1], &stage, 60000);
        await_waiting(stage.client, 2);
    }
    open_two(&stage, tickets);
    answered = stage_submit(&stage, GRD_OPERATION_SET, 2);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, answered);
    if (_i == 0) {
        stage_answer_set(&stage, answered);
    } else {
        stage.open[stage.open_count++] = (int64_t)answered;
    }
    ck_assert_int_eq(pthread_create(&closer, NULL, close_client, stage.client), 0);
    fake_sleep_ms(50);
    stage_serve(&stage);
    pthread_join(closer, NULL);
    if (_i == 1) {
        for (unsigned i = 0; i < 2; i++) {
            pthread_join(waiting[i].thread, NULL);
            ck_assert(waiting[i].code == 0 && waiting[i].count == 1);
            ck_assert_int_eq(waiting[i].completion.code, GRD_ERR_CLOSED);
        }
        ck_assert_uint_eq(grd_queue_pending(stage.queue), 1);
    } else {
        ck_assert(stage_readable(stage.queue, 0));
        ck_assert_uint_eq(grd_queue_pending(stage.queue), 3);
        ck_assert_int_eq(grd_reap(stage.queue, completions, 3, -1, &count, &error), 0);
        ck_assert_uint_eq(count, 3);
        for (unsigned i = 0; i < 3; i++) {
            ck_assert_int_eq(completions[i].code, completions[i].ticket == answered ? 0 : GRD_ERR_CLOSED);
        }
        ck_assert_int_eq(grd_reap(stage.queue, completions, 3, -1, &count, &error), GRD_ERR_CLOSED);
    }
    ck_assert_int_eq(grd_submit(stage.queue, &transfer, 1, NULL, &error), GRD_ERR_CLOSED);
    ck_assert_int_eq(grd_cancel(stage.queue, answered, &error), GRD_ERR_CLOSED);
    grd_queue_close(stage.queue);
    ck_assert_int_eq(grd_region_close(stage.region, NULL, NULL), 0);
    fake_stop(&stage.fake);
}
END_TEST

/* --- a blocking call beside --------------------------------------------------------------------------------------- */

static void *ask(void *argument)
{
    struct grd_key key = {"key", 3};
    struct grd_key_result result;

    return grd_exists(argument, &key, 1, &result, NULL) == 0 && result.found ? argument : NULL;
}

/* The loop of a program: until a completion comes, or the time is over. *idle counts the times that none did. */
static size_t poll_and_reap(struct stage *stage, int timeout_ms, unsigned *idle)
{
    struct grd_completion completion;
    size_t count = 0;

    *idle = 0;
    while (count == 0 && stage_readable(stage->queue, timeout_ms)) {
        ck_assert_int_eq(grd_reap(stage->queue, &completion, 1, 0, &count, NULL), 0);
        *idle += count == 0;
    }
    return count;
}

/*
 * While the blocking call waits, its thread reads the completions of the queue, and the descriptor tells. When it is
 * gone, the descriptor tells of packets again. The loop does not spin meanwhile.
 */
START_TEST(blocking_call_beside)
{
    struct stage stage = {0};
    struct grd_completion completion;
    pthread_t thread;
    uint64_t ticket;
    int64_t asked;
    unsigned idle;
    void *returned;
    size_t count;

    stage_start(&stage, 0);
    ck_assert_int_ge(grd_queue_fd(stage.queue), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, ask, stage.client), 0);
    fake_expect(&stage.fake, &stage.request, PROTO_METHOD_KEYS_EXISTS);
    asked = stage.request.parsed.id;
    await_waiting(stage.client, 1);
    for (unsigned i = 0; i < 20; i++) {
        ticket = stage_submit(&stage, GRD_OPERATION_GET, i);
        stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, ticket);
        stage_answer_missing(&stage, ticket);
        ck_assert_uint_eq(poll_and_reap(&stage, FAKE_PATIENCE_MS, &idle), 1);
        ck_assert_uint_le(idle, 2);
    }
    /* The packet is the leader's: the descriptor is quiet while the leader waits. */
    ck_assert(!stage_readable(stage.queue, 0));
    /* A transfer is open, and the leader leaves: the descriptor is about the socket again. */
    ticket = stage_submit(&stage, GRD_OPERATION_GET, 0);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, ticket);
    fake_answer(&stage.fake, asked, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    pthread_join(thread, &returned);
    ck_assert_ptr_nonnull(returned);
    ck_assert_uint_eq(poll_and_reap(&stage, 50, &idle), 0);
    stage_answer_missing(&stage, ticket);
    ck_assert_uint_eq(poll_and_reap(&stage, FAKE_PATIENCE_MS, &idle), 1);
    /* A thread that waits in grd_reap() is served by a leader of another kind, and by itself. */
    for (unsigned i = 0; i < 2; i++) {
        struct waiting waiting;

        if (i == 0) {
            ck_assert_int_eq(pthread_create(&thread, NULL, ask, stage.client), 0);
            fake_expect(&stage.fake, &stage.request, PROTO_METHOD_KEYS_EXISTS);
            asked = stage.request.parsed.id;
            await_waiting(stage.client, 1);
        }
        start_waiting(&waiting, &stage, -1);
        await_waiting(stage.client, i == 0 ? 2 : 1);
        ticket = stage_submit(&stage, GRD_OPERATION_GET, 0);
        stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, ticket);
        if (i == 0) {
            fake_answer(&stage.fake, asked, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
            pthread_join(thread, &returned);
        }
        stage_answer_missing(&stage, ticket);
        pthread_join(waiting.thread, NULL);
        ck_assert(waiting.code == 0 && waiting.count == 1 && waiting.completion.ticket == ticket);
    }
    ck_assert_int_eq(grd_reap(stage.queue, &completion, 1, 20, &count, NULL), 0);
    ck_assert_uint_eq(count, 0);
    stage_stop(&stage);
}
END_TEST

/* --- fork --------------------------------------------------------------------------------------------------------- */

static int child(struct stage *stage, uint64_t ticket, const int fds[2])
{
    struct grd_transfer transfer = stage_transfer(stage, GRD_OPERATION_SET, 9);
    struct grd_completion completion;
    struct grd_error error;
    grd_queue *other;
    size_t count;

    if (fcntl(fds[0], F_GETFD) >= 0 || fcntl(fds[1], F_GETFD) >= 0 || grd_queue_fd(stage->queue) != -1) {
        return 1;
    }
    if (grd_submit(stage->queue, &transfer, 1, NULL, &error) != GRD_ERR_FORKED ||
        grd_reap(stage->queue, &completion, 1, -1, &count, &error) != GRD_ERR_FORKED ||
        grd_cancel(stage->queue, ticket, &error) != GRD_ERR_FORKED || grd_queue_pending(stage->queue) != 0) {
        return 2;
    }
    if (grd_queue_create(stage->client, &other, &error) != GRD_ERR_FORKED || other != NULL) {
        return 3;
    }
    grd_queue_close(stage->queue);
    if (grd_region_close(stage->region, NULL, &error) != 0) {
        return 4;
    }
    grd_close(stage->client);
    return 0;
}

START_TEST(forked_child)
{
    struct stage stage = {0};
    uint64_t tickets[2];
    int status, fds[2];
    pid_t pid;

    stage_start(&stage, 0);
    open_two(&stage, tickets);
    fds[0] = grd_queue_fd(stage.queue);
    fds[1] = stage.queue->event;
    pthread_mutex_lock(&stage.client->lock);
    pid = fork();
    if (pid == 0) {
        _exit(child(&stage, tickets[0], fds));
    }
    pthread_mutex_unlock(&stage.client->lock);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
    stage_answer_set(&stage, tickets[0]);
    stage_answer_missing(&stage, tickets[1]);
    ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
    ck_assert_int_eq(stage_reap(&stage).code, 0);
    ck_assert_int_eq(stage_reap(&stage).code, 0);
    stage.open_count = 0;
    stage_stop(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_queue_ends");
    TCase *cases = tcase_create("client_queue_ends");

    tcase_set_timeout(cases, UNIT_SECONDS);
    tcase_add_test(cases, farewell);
    tcase_add_test(cases, silence_waits_for_the_process);
    tcase_add_loop_test(cases, idle_queue_sees_the_end, 0, 2);
    tcase_add_test(cases, closing_the_queue);
    tcase_add_loop_test(cases, closing_the_client, 0, 2);
    tcase_add_test(cases, blocking_call_beside);
    tcase_add_test(cases, forked_child);
    suite_add_tcase(suite, cases);
    return unit_run(suite);
}
