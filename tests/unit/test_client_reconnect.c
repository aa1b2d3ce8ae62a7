/*
 * Calls across the ends of sessions: what is run again and what is not, when a new connection is made, what becomes of
 * the regions, and every way in which connecting again can fail.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/private.h"
#include "client_fake.h"
#include "proto/errors.h"
#include "unit_main.h"

#define SIZE ((uint64_t)1 << 16)

static struct grd_window half(grd_region *region, bool second)
{
    return (struct grd_window){.region = region, .offset = second ? SIZE / 2 : 0, .length = SIZE / 2};
}

static int set(grd_region *region, struct grd_error *error)
{
    return grd_set("key", 3, half(region, false), NULL, NULL, error);
}

static int get(grd_region *region, struct grd_error *error)
{
    struct grd_receipt receipt;

    return grd_get("key", 3, half(region, true), NULL, &receipt, error);
}

static int exists(grd_client *client, struct grd_error *error)
{
    struct grd_key key = {"key", 3};
    struct grd_key_result result;

    return grd_exists(client, &key, 1, &result, error);
}

/* Common ends of tests and scripts. */
static void finish(struct fake *fake, grd_client *client, grd_region *region)
{
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    grd_close(client);
    fake_stop(fake);
}

static void greet_and_register(struct fake *fake, struct fake_request *request)
{
    fake_greet(fake);
    fake_expect(fake, request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, request);
}

static void need(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* --- regions ------------------------------------------------------------------------------------------------------ */

/* The daemon is restarted while nothing is in flight; its numbers begin anew. */
static void restart_script(struct fake *fake)
{
    struct fake_request request = {0};
    struct stat first, second;

    greet_and_register(fake, &request);
    need(fstat(fake->last_fd, &first) == 0);
    fake_close(fake);
    fake_kill(fake);
    *(_Atomic int *)fake->argument = 1;
    need(!fake_is_asked(fake, 100)); /* nobody calls, nobody connects */
    fake_revive(fake);
    fake->next_region = 40;
    *(_Atomic int *)fake->argument = 2;
    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    need(fstat(fake->last_fd, &second) == 0 && first.st_ino == second.st_ino);
    need(fake_number(&request, "size") == (json_int_t)SIZE && fake_number(&request, "offset") == 4096);
    need(strcmp(fake_text(&request, "access"), "r") == 0 && strcmp(fake_text(&request, "label"), "cache") == 0);
    fake_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_SET);
    need(fake_number(&request, "region") == 41);
    fake_serve_one(fake, &request);
    fake_release(&request);
    fake_serve(fake);
}

START_TEST(regions_follow_under_their_handles)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .label = "cache", .access = GRD_ACCESS_READ};
    struct fake fake;
    struct grd_error error;
    _Atomic int step = 0;
    grd_client *client;
    grd_region *region;
    int fd;

    fake_start(&fake, restart_script, &step);
    client = fake_connect_lasting(&fake, 0);
    ck_assert_int_eq(memory_create(2 * SIZE, NULL, &fd, &error), 0);
    options.flags = GRD_REGION_POPULATE;
    ck_assert_int_eq(grd_region_register(client, fd, 4096, SIZE, &options, &region, &error), 0);
    close(fd);
    while (step != 2) {
        fake_sleep_ms(1);
    }
    ck_assert_msg(set(region, &error) == 0, "%s", error.message);
    finish(&fake, client, region);
}
END_TEST

static void refuse_region(struct fake *fake, struct fake_request *request)
{
    fake_refuse(fake, request->parsed.id, PROTO_ERR_OVER_BUDGET, "no room for it",
                json_pack("{s:s, s:i, s:i, s:i}", "budget", "memlock", "used", 3, "limit", 4, "asked", 2));
}

/* Of two regions the new daemon refuses the larger one, twice; the third time it takes it. */
static void refusing_script(struct fake *fake)
{
    struct fake_request request = {0};
    unsigned refused = 0;

    fake_greet(fake);
    for (int i = 0; i < 2; i++) {
        fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
        fake_register(fake, &request);
    }
    fake_restart(fake);
    while (fake_receive(fake, &request)) {
        if (fake_is(&request, PROTO_METHOD_REGION_REGISTER) && fake_number(&request, "size") > (json_int_t)SIZE &&
            refused < 2) {
            refused++;
            refuse_region(fake, &request);
        } else {
            fake_serve_one(fake, &request);
        }
    }
}

START_TEST(refused_region_does_not_harm_others)
{
    struct fake fake;
    struct grd_error error;
    grd_client *client;
    grd_region *small, *large;

    fake_start(&fake, refusing_script, NULL);
    client = fake_connect_lasting(&fake, 0);
    small = fake_region(client, SIZE);
    large = fake_region(client, 2 * SIZE);
    ck_assert_int_eq(get(small, &error), 0);
    ck_assert_int_eq(get(large, &error), GRD_ERR_OVER_BUDGET);
    ck_assert_str_eq(error.budget, "memlock");
    ck_assert(error.used == 3 && error.limit == 4 && error.asked == 2);
    ck_assert_int_eq(set(small, &error), 0);
    ck_assert_msg(get(large, &error) == 0, "%s", error.message);
    ck_assert_int_eq(grd_region_close(large, NULL, NULL), 0);
    finish(&fake, client, small);
}
END_TEST

/* A region that the old daemon took away, and one that was closed while there was no daemon. */
static void revoking_script(struct fake *fake)
{
    struct fake_request request = {0};

    fake_greet(fake);
    for (int i = 0; i < 2; i++) {
        fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
        fake_register(fake, &request);
    }
    fake_notify(fake, PROTO_NOTIFY_REGION_CLOSED,
                json_pack("{s:i, s:s, s:b}", "region", 1, "reason", "by the operator", "memory_released", 1));
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_serve_one(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS); /* the program has seen that region 1 is gone */
    fake_close(fake);
    fake_kill(fake);
    fake_revive(fake);
    while (*(_Atomic int *)fake->argument == 0) {
        fake_sleep_ms(1);
    }
    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    need(fake_number(&request, "size") == (json_int_t)SIZE);
    fake_register(fake, &request);
    fake_release(&request);
    fake_serve(fake);
}

START_TEST(lost_and_closed_regions)
{
    struct grd_connect_options options = {.struct_size = sizeof(options), .reconnect_ms = 20,
                                          .timeout_ms = FAKE_PATIENCE_MS};
    struct fake fake;
    struct grd_error error;
    _Atomic int closed = 0;
    grd_client *client;
    grd_region *region, *other;

    fake_start(&fake, revoking_script, &closed);
    options.socket_path = fake.path;
    ck_assert_int_eq(grd_connect(&options, &client, &error), 0);
    region = fake_region(client, SIZE);
    other = fake_region(client, 2 * SIZE);
    ck_assert_int_eq(exists(client, &error), 0);
    ck_assert_int_eq(get(region, &error), GRD_ERR_CLOSED);
    ck_assert_ptr_nonnull(strstr(error.message, "by the operator"));
    /* Nobody accepts: the greeting stays without an answer. */
    ck_assert_int_eq(exists(client, &error), GRD_ERR_INTERRUPTED);
    ck_assert_int_eq(grd_region_close(other, NULL, &error), 0);
    closed = 1;
    while (get(region, &error) != 0) {
        ck_assert_msg(error.code == GRD_ERR_NO_DAEMON || error.code == GRD_ERR_CLOSED, "%s", error.message);
    }
    finish(&fake, client, region);
}
END_TEST

/* --- calls in flight ---------------------------------------------------------------------------------------------- */

enum how { FAREWELL, SILENCE, DRAINED };

struct caller {
    pthread_t thread;
    grd_region *region;
    int (*call)(grd_region *, struct grd_error *);
    struct grd_error error;
};

static void *run_caller(void *argument)
{
    struct caller *caller = argument;

    caller->call(caller->region, &caller->error);
    return NULL;
}

static void start_caller(struct caller *caller, grd_region *region, int (*call)(grd_region *, struct grd_error *))
{
    *caller = (struct caller){.region = region, .call = call};
    ck_assert_int_eq(pthread_create(&caller->thread, NULL, run_caller, caller), 0);
}

/* Ends the session with two transfers in flight. A set that comes after it came twice, unless it was drained. */
static void in_flight_script(struct fake *fake)
{
    struct fake_request request = {0};
    enum how how = *(enum how *)fake->argument;

    greet_and_register(fake, &request);
    for (int i = 0; i < 2; i++) {
        need(fake_receive(fake, &request));
        if (how == DRAINED) {
            fake_refuse(fake, request.parsed.id,
                        fake_is(&request, PROTO_METHOD_TRANSFER_SET) ? PROTO_ERR_DRAINING : PROTO_ERR_INTERRUPTED,
                        "stopping", NULL);
        }
    }
    if (how == SILENCE) {
        fake_close(fake);
        need(!fake_is_asked(fake, 1000)); /* the process lives: no other daemon is asked */
        fake_kill(fake);
        fake_revive(fake);
    } else {
        fake_farewell(fake, PROTO_ERR_DRAINING, "stopping for an update");
        fake_close(fake);
    }
    greet_and_register(fake, &request);
    while (fake_receive(fake, &request)) {
        need(how == DRAINED || !fake_is(&request, PROTO_METHOD_TRANSFER_SET));
        fake_serve_one(fake, &request);
    }
}

START_TEST(gets_are_run_again_and_sets_never)
{
    struct fake fake;
    struct caller getter, setter;
    grd_client *client;
    grd_region *region;
    enum how how = (enum how)_i;

    fake_start(&fake, in_flight_script, &how);
    client = fake_connect_lasting(&fake, 0);
    region = fake_region(client, SIZE);
    start_caller(&getter, region, get);
    start_caller(&setter, region, set);
    pthread_join(getter.thread, NULL);
    pthread_join(setter.thread, NULL);
    ck_assert_msg(getter.error.code == 0, "%s", getter.error.message);
    if (how == DRAINED) {
        ck_assert_msg(setter.error.code == 0, "%s", setter.error.message);
    } else {
        ck_assert_int_eq(setter.error.code, GRD_ERR_INTERRUPTED);
        ck_assert(setter.error.may_have_run);
    }
    finish(&fake, client, region);
}
END_TEST

/* The same without permission, and keys: reading is run again, changing is not. */
static void keys_script(struct fake *fake)
{
    struct fake_request request = {0};

    greet_and_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_GET);
    fake_restart(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_restart(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_serve_one(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_DELETE);
    fake_restart(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_serve_one(fake, &request);
    fake_release(&request);
    fake_serve(fake);
}

START_TEST(what_may_be_run_again)
{
    struct grd_get_options options = {.struct_size = sizeof(options), .no_retry = true};
    struct grd_key key = {"key", 3};
    struct grd_key_result result;
    struct grd_receipt receipt;
    struct fake fake;
    struct grd_error error;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, keys_script, NULL);
    client = fake_connect_lasting(&fake, 0);
    region = fake_region(client, SIZE);
    ck_assert_int_eq(grd_get("key", 3, half(region, true), &options, &receipt, &error), GRD_ERR_INTERRUPTED);
    ck_assert(!error.may_have_run);
    ck_assert_msg(exists(client, &error) == 0, "%s", error.message);
    ck_assert_int_eq(grd_delete(client, &key, 1, &result, &error), GRD_ERR_INTERRUPTED);
    ck_assert(error.may_have_run);
    ck_assert_int_eq(exists(client, &error), 0);
    finish(&fake, client, region);
}
END_TEST

/* The daemon has long been gone when the set is called: it never left, and is sent to the next. */
static void unsent_script(struct fake *fake)
{
    struct fake_request request = {0};

    greet_and_register(fake, &request);
    fake_close(fake);
    fake_kill(fake);
    fake_revive(fake);
    *(_Atomic int *)fake->argument = 1;
    greet_and_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_SET);
    fake_serve_one(fake, &request);
    need(!fake_receive(fake, &request) || fake_is(&request, PROTO_METHOD_REGION_CLOSE));
    fake_serve_one(fake, &request);
    fake_release(&request);
}

START_TEST(set_that_never_left_is_sent)
{
    struct fake fake;
    struct grd_error error;
    _Atomic int gone = 0;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, unsent_script, &gone);
    client = fake_connect_lasting(&fake, 0);
    region = fake_region(client, SIZE);
    while (gone == 0) {
        fake_sleep_ms(1);
    }
    ck_assert_msg(set(region, &error) == 0, "%s", error.message);
    finish(&fake, client, region);
}
END_TEST

/* --- attempts that fail ------------------------------------------------------------------------------------------- */

enum failure { CLOSED, FULL, STOPPING, SILENT, DIES_IN_REGISTER, WRONG_VERSION, GARBAGE, NO_PIDFD, FAILURES };

static void fail_once(struct fake *fake, enum failure failure, struct fake_request *request)
{
    json_t *result;

    fake_accept(fake);
    fake_expect(fake, request, PROTO_METHOD_HELLO);
    switch (failure) {
    case FULL:
        fake_farewell(fake, PROTO_ERR_OVER_QUOTA, "too many sessions of uid 1000");
        break;
    case STOPPING:
        fake_refuse(fake, request->parsed.id, PROTO_ERR_DRAINING, "stopping", NULL);
        break;
    case SILENT:
        need(!fake_receive(fake, request)); /* until the library has enough of it */
        break;
    case DIES_IN_REGISTER:
        fake_answer_hello(fake, request->parsed.id, true);
        fake_expect(fake, request, PROTO_METHOD_REGION_REGISTER);
        fake_close(fake); /* before the fork, which would keep it open */
        fake_kill(fake);
        fake_revive(fake);
        break;
    case WRONG_VERSION:
        result = fake_hello_result();
        json_object_set_new(result, "protocol", json_integer(99));
        fake_answer(fake, request->parsed.id, result);
        break;
    case GARBAGE:
        fake_send_text(fake, "HTTP/1.1 400 Bad Request");
        break;
    case NO_PIDFD:
        fake_answer_hello(fake, request->parsed.id, false);
        break;
    default:
        break;
    }
    fake_close(fake);
}

/* Greets the first that still is there: a library with little patience may have gone meanwhile, and comes again. */
static void greet_who_stays(struct fake *fake, struct fake_request *request)
{
    for (;;) {
        fake_accept(fake);
        fake_expect(fake, request, PROTO_METHOD_HELLO);
        fake_answer_hello(fake, request->parsed.id, true);
        if (fake_receive(fake, request)) {
            need(fake_is(request, PROTO_METHOD_REGION_REGISTER));
            fake_register(fake, request);
            return;
        }
        fake_close(fake);
    }
}

static void failing_script(struct fake *fake)
{
    struct fake_request request = {0};

    greet_and_register(fake, &request);
    fake_close(fake);
    fake_kill(fake);
    fake_revive(fake);
    for (int i = 0; i < 2; i++) {
        fail_once(fake, *(enum failure *)fake->argument, &request);
    }
    greet_who_stays(fake, &request);
    fake_release(&request);
    fake_serve(fake);
}

/* What may pass is tried again; what will not is told at once, and tried again by the next call. */
START_TEST(attempts_that_fail)
{
    enum failure failure = (enum failure)_i;
    struct fake fake;
    struct grd_error error;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, failing_script, &failure);
    client = fake_connect_lasting(&fake, 0);
    region = fake_region(client, SIZE);
    if (failure == SILENT) {
        client->timeout_ms = 100; /* the others are answered: only this one is to run out */
    }
    for (int i = 0; i < 2 && failure >= WRONG_VERSION; i++) {
        ck_assert_int_eq(get(region, &error), GRD_ERR_PROTOCOL);
    }
    ck_assert_msg(get(region, &error) == 0, "%s", error.message);
    finish(&fake, client, region);
}
END_TEST

/* Nobody listens: ENOENT. The socket of a daemon that is gone: ECONNREFUSED. */
static void absent_script(struct fake *fake)
{
    struct fake_request request = {0};

    greet_and_register(fake, &request);
    fake_release(&request);
    if (*(_Atomic int *)fake->argument == 0) {
        fake_unlisten(fake);
    } else {
        close(fake->listener);
    }
    fake_close(fake);
    fake_kill(fake);
    fake_revive(fake);
    *(_Atomic int *)fake->argument = 2;
    while (*(_Atomic int *)fake->argument != 3) {
        fake_sleep_ms(1);
    }
    unlink(fake->path);
    fake_listen(fake);
    greet_and_register(fake, &request);
    fake_release(&request);
    fake_serve(fake);
}

START_TEST(absent_daemon_is_waited_for)
{
    struct grd_get_options options = {.struct_size = sizeof(options), .deadline_ms = 30};
    struct grd_receipt receipt;
    struct fake fake;
    struct caller caller;
    struct grd_error error;
    _Atomic int step = _i;
    grd_client *client;
    grd_region *region;
    uint64_t start_ms;

    fake_start(&fake, absent_script, &step);
    client = fake_connect_lasting(&fake, 100);
    region = fake_region(client, SIZE);
    while (step != 2) {
        fake_sleep_ms(1);
    }
    start_ms = fake_now_ms();
    ck_assert_int_eq(set(region, &error), GRD_ERR_NO_DAEMON);
    ck_assert(!error.may_have_run);
    ck_assert_int_ne(error.os_errno, 0);
    ck_assert_uint_ge(fake_now_ms() - start_ms, 99);
    ck_assert_uint_lt(fake_now_ms() - start_ms, 15000); /* nor the standard wait, which is longer */
    start_ms = fake_now_ms();
    ck_assert_int_eq(grd_get("key", 3, half(region, true), &options, &receipt, &error), GRD_ERR_DEADLINE);
    ck_assert_uint_ge(fake_now_ms() - start_ms, 29);
    client->reconnect_ms = 20000;
    start_caller(&caller, region, get);
    fake_sleep_ms(20);
    step = 3;
    pthread_join(caller.thread, NULL);
    ck_assert_msg(caller.error.code == 0, "%s", caller.error.message);
    finish(&fake, client, region);
}
END_TEST

/* --- what else changes with the session --------------------------------------------------------------------------- */

static void other_script(struct fake *fake)
{
    struct fake_request request = {0};

    fake_greet(fake);
    fake_close(fake);
    fake_kill(fake);
    fake_revive(fake);
    fake->requests = 7;
    fake_greet(fake);
    fake_serve(fake);
    fake_release(&request);
}

/* What the daemon says of itself is the new one's; texts that the program holds stay. A forked child gets nothing. */
START_TEST(information_and_forks)
{
    struct grd_client_info before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
    struct fake fake;
    struct grd_error error;
    grd_client *client;
    int status;
    pid_t pid;

    fake_start(&fake, other_script, NULL);
    client = fake_connect_lasting(&fake, 0);
    ck_assert_int_eq(grd_client_info(client, &before, NULL), 0);
    ck_assert_msg(exists(client, &error) == 0, "%s", error.message);
    ck_assert_int_eq(grd_client_info(client, &after, NULL), 0);
    ck_assert_uint_eq(before.requests_max, 0);
    ck_assert_uint_eq(after.requests_max, 7);
    ck_assert_ptr_eq(before.server, after.server);
    pid = fork();
    if (pid == 0) {
        bool closed = fcntl(client->socket, F_GETFD) < 0 && client->bell < 0 && client->pidfd < 0;
        bool refused = exists(client, &error) == GRD_ERR_FORKED;

        grd_close(client);
        _exit(closed && refused ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
    ck_assert_int_eq(exists(client, &error), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- grd_close() meanwhile ---------------------------------------------------------------------------------------- */

enum stop { NO_SOCKET, NO_GREETING, NO_PROOF, NO_REGISTRATION, STOPS, GONE };

struct stopped {
    _Atomic int stop; /* where to, then GONE, then STOPS */
    _Atomic bool saw_closing; /* NO_REGISTRATION */
    grd_client *client; /* set before the region is registered */
};

static void stopped_script(struct fake *fake)
{
    struct fake_request request = {0};
    struct stopped *stopped = fake->argument;
    enum stop stop = (enum stop)stopped->stop;

    greet_and_register(fake, &request);
    if (stop == NO_SOCKET) {
        fake_unlisten(fake);
    }
    fake_close(fake);
    if (stop != NO_PROOF) {
        fake_kill(fake);
        fake_revive(fake);
    }
    stopped->stop = GONE;
    if (stop == NO_GREETING || stop == NO_REGISTRATION) {
        fake_accept(fake);
        fake_expect(fake, &request, PROTO_METHOD_HELLO);
    }
    if (stop == NO_REGISTRATION) {
        fake_answer_hello(fake, request.parsed.id, true);
        fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    }
    fake_sleep_ms(50);
    stopped->stop = STOPS;
    if (stop == NO_REGISTRATION) {
        fake_await_closing(stopped->client); /* earlier the transfers would be sent */
        stopped->saw_closing = true;
        fake_register(fake, &request);
    }
    while (fake->peer >= 0 && fake_receive(fake, &request)) {
        fake_serve_one(fake, &request);
    }
    fake_release(&request);
}

START_TEST(closing_ends_every_wait)
{
    struct fake fake;
    struct caller callers[2];
    struct stopped stopped = {.stop = _i};
    grd_client *client;
    grd_region *region;
    uint64_t start_ms;

    fake_start(&fake, stopped_script, &stopped);
    client = stopped.client = fake_connect_lasting(&fake, 0);
    region = fake_region(client, SIZE);
    /* Nothing is in flight, which would have to be waited for. */
    while (stopped.stop != GONE && stopped.stop != STOPS) {
        fake_sleep_ms(1);
    }
    start_caller(&callers[0], region, get);
    while (stopped.stop != STOPS) {
        fake_sleep_ms(1);
    }
    start_caller(&callers[1], region, set);
    fake_sleep_ms(20);
    start_ms = fake_now_ms();
    grd_close(client);
    for (int i = 0; i < 2; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].error.code, GRD_ERR_CLOSED);
        ck_assert(!callers[i].error.may_have_run);
    }
    ck_assert_uint_lt(fake_now_ms() - start_ms, FAKE_PATIENCE_MS / 2); /* it waits for no answer to a greeting */
    while (_i == NO_REGISTRATION && !stopped.saw_closing) { /* the script looks at the client */
        fake_sleep_ms(1);
    }
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    fake_stop(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_reconnect");
    TCase *cases = tcase_create("client_reconnect");

    tcase_set_timeout(cases, UNIT_SECONDS);
    tcase_add_test(cases, regions_follow_under_their_handles);
    tcase_add_test(cases, refused_region_does_not_harm_others);
    tcase_add_test(cases, lost_and_closed_regions);
    tcase_add_loop_test(cases, gets_are_run_again_and_sets_never, FAREWELL, DRAINED + 1);
    tcase_add_test(cases, what_may_be_run_again);
    tcase_add_test(cases, set_that_never_left_is_sent);
    tcase_add_loop_test(cases, attempts_that_fail, 0, FAILURES);
    tcase_add_loop_test(cases, absent_daemon_is_waited_for, 0, 2);
    tcase_add_test(cases, information_and_forks);
    tcase_add_loop_test(cases, closing_ends_every_wait, 0, STOPS);
    suite_add_tcase(suite, cases);
    return unit_run(suite);
}
