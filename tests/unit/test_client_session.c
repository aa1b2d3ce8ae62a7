/*
 * The ends of a session: with a farewell, in silence, with garbage, by grd_close(). What a call in flight gets, and
 * above all when: its memory must be safe before.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/private.h"
#include "client_fake.h"
#include "proto/errors.h"
#include "proto/shape.h"
#include "unit_main.h"

#define SIZE ((uint64_t)1 << 16)

/* One transfer in a thread of its own. */
struct caller {
    pthread_t thread;
    grd_region *region;
    bool get;
    struct grd_receipt receipt;
    struct grd_error error;
    uint64_t ended_ms;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    struct grd_window window = {.region = caller->region, .offset = caller->get ? SIZE / 2 : 0, .length = SIZE / 2};

    if (caller->get) {
        grd_get("key", 3, window, NULL, &caller->receipt, &caller->error);
    } else {
        grd_set("key", 3, window, NULL, &caller->receipt, &caller->error);
    }
    caller->ended_ms = fake_now_ms();
    return NULL;
}

static void start_calls(struct caller callers[2], grd_region *region)
{
    for (int i = 0; i < 2; i++) {
        callers[i] = (struct caller){.region = region, .get = i == 1};
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
}

static void join_calls(struct caller callers[2])
{
    pthread_join(callers[0].thread, NULL);
    pthread_join(callers[1].thread, NULL);
}

/* A script's common start: a region, and two transfers in flight. */
static void take_two_transfers(struct fake *fake, struct fake_request *request)
{
    fake_greet(fake);
    fake_expect(fake, request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, request);
    fake_receive(fake, request);
    fake_receive(fake, request);
}

/* --- farewell: answered at once ---------------------------------------------------------------------------------- */

static void farewell_script(struct fake *fake)
{
    struct fake_request request = {0};

    take_two_transfers(fake, &request);
    fake_release(&request);
    fake_farewell(fake, PROTO_ERR_DRAINING, "stopping for an update");
}

START_TEST(farewell_answers_at_once)
{
    struct grd_set_options compute = {.struct_size = sizeof(compute), .checksum = GRD_CHECKSUM_COMPUTE};
    struct fake fake;
    struct caller callers[2];
    struct grd_error error;
    grd_client *client;
    grd_region *region;
    struct grd_window window;
    bool released = false;

    fake_start(&fake, farewell_script, NULL);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    start_calls(callers, region);
    join_calls(callers); /* the daemon's process lives: this would last for ever otherwise */
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(callers[i].error.code, GRD_ERR_INTERRUPTED);
        ck_assert_ptr_nonnull(strstr(callers[i].error.message, "stopping for an update"));
        ck_assert_ptr_nonnull(strstr(callers[i].error.message, "draining"));
    }
    ck_assert(callers[0].error.may_have_run);
    ck_assert(!callers[1].error.may_have_run);
    /* Later calls too, and without touching the window. */
    grd_region_window(region, 0, SIZE, &window, NULL);
    ck_assert_int_eq(mprotect(grd_region_data(region), SIZE, PROT_NONE), 0);
    ck_assert_int_eq(grd_set("key", 3, window, &compute, NULL, &error), GRD_ERR_INTERRUPTED);
    ck_assert(!error.may_have_run);
    ck_assert_int_eq(grd_region_close(region, &released, &error), 0);
    ck_assert(released);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- silence: answered when the process is gone ------------------------------------------------------------------ */

static void silent_script(struct fake *fake)
{
    struct fake_request request = {0};

    take_two_transfers(fake, &request);
    fake_release(&request);
    fake_close(fake);
    fake_sleep_ms(1000);
    *(uint64_t *)fake->argument = fake_now_ms();
    fake_kill(fake);
}

START_TEST(silence_waits_for_the_process)
{
    struct fake fake;
    struct caller callers[2];
    uint64_t killed_ms = 0;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, silent_script, &killed_ms);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    start_calls(callers, region);
    join_calls(callers);
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    grd_close(client);
    fake_stop(&fake);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(callers[i].error.code, GRD_ERR_INTERRUPTED);
        ck_assert_uint_ge(callers[i].ended_ms, killed_ms);
        ck_assert_uint_gt(killed_ms, 0);
        ck_assert(callers[i].error.may_have_run == !callers[i].get);
    }
}
END_TEST

/* A call that starts after the silent end had nothing in flight: it returns at once, the process alive. */
static void early_end_script(struct fake *fake)
{
    fake_greet(fake);
    fake_close(fake);
    *(_Atomic int *)fake->argument = 1;
}

START_TEST(new_call_after_silence_returns_at_once)
{
    struct fake fake;
    struct grd_key key = {"key", 3};
    struct grd_key_result result;
    struct grd_error error;
    _Atomic int ended = 0;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, early_end_script, &ended);
    client = fake_connect(&fake);
    while (ended == 0) {
        fake_sleep_ms(1);
    }
    ck_assert_int_eq(grd_exists(client, &key, 1, &result, &error), GRD_ERR_INTERRUPTED);
    ck_assert_int_eq(result.code, GRD_ERR_INTERRUPTED);
    ck_assert_int_eq(grd_delete(client, &key, 1, &result, &error), GRD_ERR_INTERRUPTED);
    ck_assert(!error.may_have_run);
    ck_assert_int_eq(grd_region_create(client, SIZE, NULL, &region, &error), GRD_ERR_INTERRUPTED);
    ck_assert_ptr_null(region);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- garbage ----------------------------------------------------------------------------------------------------- */

static const char *const garbage[] = {
    "no json",
    "{}",
    "{\"jsonrpc\":\"2.0\",\"id\":9999,\"result\":{}}",
    "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"what?\"}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"session.closed\",\"params\":{\"code\":\"x\"}}",
};

/* One transfer is answered properly after the garbage; the other waits for the end, which comes late. */
static void garbage_script(struct fake *fake)
{
    struct fake_request request = {0};
    int64_t get_id = 0;

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    for (int i = 0; i < 2; i++) {
        fake_receive(fake, &request);
        if (fake_is(&request, PROTO_METHOD_TRANSFER_GET)) {
            get_id = request.parsed.id;
        }
    }
    fake_send_text(fake, fake->argument);
    fake_answer(fake, get_id, json_pack("{s:b, s:i}", "found", 0, "length", 0));
    /* The library shuts its side down. */
    if (fake_receive(fake, &request)) {
        abort();
    }
    fake_sleep_ms(100);
    fake_farewell(fake, PROTO_ERR_CANCELLED, "the client ended");
    fake_release(&request);
}

START_TEST(garbage_ends_the_session)
{
    struct fake fake;
    struct caller callers[2];
    struct grd_error error;
    grd_client *client;
    grd_region *region;
    union {
        const char *in;
        void *out;
    } text = {.in = garbage[_i]};

    fake_start(&fake, garbage_script, text.out);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    start_calls(callers, region);
    join_calls(callers);
    ck_assert_int_eq(callers[0].error.code, GRD_ERR_PROTOCOL);
    ck_assert(callers[0].error.may_have_run);
    ck_assert_int_eq(callers[1].error.code, 0);
    ck_assert_int_eq(grd_region_create(client, SIZE, NULL, &callers[0].region, &error), GRD_ERR_PROTOCOL);
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- connecting -------------------------------------------------------------------------------------------------- */

enum greeting { WITHOUT_PIDFD, REFUSED, WRONG_VERSION, GARBAGE, SILENT, CLOSED, ERROR_ANSWER };

static void greeting_script(struct fake *fake)
{
    struct fake_request request = {0};
    json_t *result;

    fake_accept(fake);
    fake_expect(fake, &request, PROTO_METHOD_HELLO);
    switch (*(int *)fake->argument) {
    case WITHOUT_PIDFD:
        fake_answer_hello(fake, request.parsed.id, false);
        break;
    case REFUSED:
        fake_farewell(fake, PROTO_ERR_OVER_QUOTA, "too many sessions of uid 1000");
        break;
    case WRONG_VERSION:
        result = fake_hello_result();
        json_object_set_new(result, "protocol", json_integer(99));
        fake_answer(fake, request.parsed.id, result);
        break;
    case GARBAGE:
        fake_send_text(fake, "HTTP/1.1 400 Bad Request");
        break;
    case SILENT:
        fake_sleep_ms(300);
        break;
    case ERROR_ANSWER:
        fake_refuse(fake, request.parsed.id, PROTO_ERR_DRAINING, "stopping", NULL);
        break;
    default:
        break;
    }
    fake_release(&request);
}

START_TEST(greetings_that_fail)
{
    static const int expected[] = {GRD_ERR_PROTOCOL, GRD_ERR_OVER_QUOTA, GRD_ERR_PROTOCOL, GRD_ERR_PROTOCOL,
                                   GRD_ERR_NO_DAEMON, GRD_ERR_NO_DAEMON, GRD_ERR_DRAINING};
    struct grd_connect_options options = {.struct_size = sizeof(options),
                                          .timeout_ms = _i == SILENT ? 100 : FAKE_PATIENCE_MS};
    struct grd_error error;
    grd_client *client;
    struct fake fake;
    int kind = _i;

    fake_start(&fake, greeting_script, &kind);
    options.socket_path = fake.path;
    ck_assert_int_eq(grd_connect(&options, &client, &error), expected[_i]);
    ck_assert_ptr_null(client);
    ck_assert_uint_gt(strlen(error.message), 0);
    fake_stop(&fake);
}
END_TEST

START_TEST(nobody_listens)
{
    struct grd_connect_options options = {.struct_size = sizeof(options), .socket_path = "/nonexistent/socket"};
    char long_path[300];
    struct grd_error error;
    grd_client *client;

    ck_assert_int_eq(grd_connect(&options, &client, &error), GRD_ERR_NO_DAEMON);
    ck_assert_ptr_nonnull(strstr(error.message, "/nonexistent/socket"));
    ck_assert_int_ne(error.os_errno, 0);
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    options.socket_path = "";
    ck_assert_int_eq(grd_connect(&options, &client, &error), GRD_ERR_INVALID_ARGUMENT);
    options.socket_path = long_path;
    ck_assert_int_eq(grd_connect(&options, &client, &error), GRD_ERR_INVALID_ARGUMENT);
    options.struct_size = 0;
    ck_assert_int_eq(grd_connect(&options, &client, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_connect(&options, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    setenv("GLIDE_RDMAD_SOCKET", "/nonexistent/from/environment", 1);
    ck_assert_int_eq(grd_connect(NULL, &client, &error), GRD_ERR_NO_DAEMON);
    ck_assert_ptr_nonnull(strstr(error.message, "/nonexistent/from/environment"));
}
END_TEST

static void info_script(struct fake *fake)
{
    struct fake_request request = {0};

    fake_greet(fake);
    fake_notify(fake, PROTO_NOTIFY_DAEMON_DRAINING, json_pack("{s:i}", "deadline_ms", 1000));
    fake_notify(fake, "something.new", json_object());
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_answer(fake, request.parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_notify(fake, PROTO_NOTIFY_DAEMON_RESUMED, NULL);
    fake_answer(fake, request.parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    while (fake_receive(fake, &request)) {
    }
}

START_TEST(what_the_daemon_said)
{
    struct grd_client_info info = {.struct_size = sizeof(info)}, small;
    struct grd_key key = {"key", 3};
    struct grd_key_result result;
    struct grd_error error;
    struct fake fake;
    grd_client *client;

    fake_start(&fake, info_script, NULL);
    client = fake_connect(&fake);
    ck_assert_int_eq(grd_exists(client, &key, 1, &result, &error), 0);
    ck_assert_int_eq(grd_client_info(client, &info, &error), 0);
    ck_assert_str_eq(info.server, "glide-rdmad fake");
    ck_assert_str_eq(info.provider, "tcp");
    ck_assert_str_eq(info.why, "");
    ck_assert(info.usable && info.draining);
    ck_assert_uint_eq(info.protocol, 1);
    ck_assert_uint_eq(info.regions_max, 64);
    ck_assert_uint_eq(info.value_bytes_max, (uint64_t)1 << 29);
    memset(&small, 0x55, sizeof(small));
    small.struct_size = offsetof(struct grd_client_info, usable);
    ck_assert_int_eq(grd_client_info(client, &small, NULL), 0);
    ck_assert_uint_eq(small.protocol, 1);
    ck_assert_uint_eq(small.regions_max, 0x5555555555555555);
    ck_assert_int_eq(grd_client_info(client, NULL, NULL), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_exists(client, &key, 1, &result, &error), 0);
    ck_assert_int_eq(grd_client_info(client, &info, &error), 0);
    ck_assert(!info.draining);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- grd_close --------------------------------------------------------------------------------------------------- */

/* Cancelled transfers are answered before the forced close is, as the protocol says. */
static void close_script(struct fake *fake)
{
    struct fake_request request = {0};
    int64_t ids[2];

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    for (int i = 0; i < 2; i++) {
        fake_receive(fake, &request);
        ids[i] = request.parsed.id;
    }
    *(_Atomic int *)fake->argument = 1;
    fake_expect(fake, &request, PROTO_METHOD_REGION_CLOSE);
    if (!json_is_true(json_object_get(request.parsed.params, "force"))) {
        abort();
    }
    fake_sleep_ms(50);
    fake_refuse(fake, ids[0], PROTO_ERR_CANCELLED, "cancelled", json_pack("{s:b}", "may_have_run", 1));
    fake_refuse(fake, ids[1], PROTO_ERR_CANCELLED, "cancelled", NULL);
    fake_answer(fake, request.parsed.id, json_pack("{s:b}", "memory_released", 1));
    while (fake_receive(fake, &request)) {
    }
}

START_TEST(close_cancels_calls_in_flight)
{
    struct fake fake;
    struct caller callers[2];
    _Atomic int in_flight = 0;
    grd_client *client;
    grd_region *region;
    struct grd_window window;

    fake_start(&fake, close_script, &in_flight);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    start_calls(callers, region);
    while (in_flight == 0) {
        fake_sleep_ms(1);
    }
    grd_close(client);
    join_calls(callers);
    ck_assert_int_eq(callers[0].error.code, GRD_ERR_CLOSED);
    ck_assert_int_eq(callers[1].error.code, GRD_ERR_CLOSED);
    ck_assert(callers[0].error.may_have_run != callers[1].error.may_have_run); /* as the daemon said of the first */
    grd_region_window(region, 0, SIZE, &window, NULL);
    ck_assert_int_eq(grd_set("key", 3, window, NULL, NULL, NULL), GRD_ERR_CLOSED);
    ((char *)grd_region_data(region))[SIZE - 1] = 1;
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    fake_stop(&fake);
}
END_TEST

/* The answers were on their way when the client was closed: both transfers have happened. */
static void late_success_script(struct fake *fake)
{
    struct fake_request request = {0};
    int64_t set = 0, get = 0;

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    for (int i = 0; i < 2; i++) {
        fake_receive(fake, &request);
        *(strcmp(request.parsed.method, "transfer.set") == 0 ? &set : &get) = request.parsed.id;
    }
    *(_Atomic int *)fake->argument = 1;
    fake_expect(fake, &request, PROTO_METHOD_REGION_CLOSE);
    fake_answer(fake, set, json_pack("{s:s}", "path", "rdma"));
    fake_answer(fake, get, json_pack("{s:b,s:i}", "found", 0, "length", 0));
    fake_answer(fake, request.parsed.id, json_pack("{s:b}", "memory_released", 1));
    while (fake_receive(fake, &request)) {
    }
}

START_TEST(a_success_wins_over_closing)
{
    struct fake fake;
    struct caller callers[2];
    _Atomic int in_flight = 0;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, late_success_script, &in_flight);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    start_calls(callers, region);
    while (in_flight == 0) {
        fake_sleep_ms(1);
    }
    grd_close(client);
    join_calls(callers);
    ck_assert_int_eq(callers[0].error.code, 0);
    ck_assert_int_eq(callers[1].error.code, 0);
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    fake_stop(&fake);
}
END_TEST

/* A daemon that does not know forced closing: our end of the stream cancels everything, its farewell proves it. */
static void old_daemon_script(struct fake *fake)
{
    struct fake_request request = {0};

    take_two_transfers(fake, &request);
    *(_Atomic int *)fake->argument = 1;
    fake_expect(fake, &request, PROTO_METHOD_REGION_CLOSE);
    fake_refuse(fake, request.parsed.id, PROTO_ERR_INVALID_PARAMS, "no force here", NULL);
    while (fake_receive(fake, &request)) {
    }
    fake_farewell(fake, PROTO_ERR_CANCELLED, "the client ended");
}

START_TEST(close_falls_back_to_ending_the_stream)
{
    struct fake fake;
    struct caller callers[2];
    _Atomic int in_flight = 0;
    grd_client *client;
    grd_region *region;

    fake_start(&fake, old_daemon_script, &in_flight);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    start_calls(callers, region);
    while (in_flight == 0) {
        fake_sleep_ms(1);
    }
    grd_close(client);
    join_calls(callers);
    ck_assert_int_eq(callers[0].error.code, GRD_ERR_CLOSED);
    ck_assert(callers[0].error.may_have_run);
    ck_assert_int_eq(callers[1].error.code, GRD_ERR_CLOSED);
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    fake_stop(&fake);
}
END_TEST

/* A call without a window cannot be cancelled, and is waited for: the client must not be gone under it. */
struct slow {
    _Atomic int in_flight, answered;
};

static void slow_script(struct fake *fake)
{
    struct slow *slow = fake->argument;
    struct fake_request request = {0};

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    slow->in_flight = 1;
    fake_sleep_ms(200);
    slow->answered = 1;
    fake_answer(fake, request.parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    while (fake_receive(fake, &request)) {
    }
}

struct asker {
    pthread_t thread;
    grd_client *client;
    struct grd_key_result result;
    struct grd_error error;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    struct grd_key key = {"key", 3};

    grd_exists(asker->client, &key, 1, &asker->result, &asker->error);
    return NULL;
}

START_TEST(close_waits_for_every_call)
{
    struct fake fake;
    struct asker asker = {0};
    struct slow slow = {0};

    fake_start(&fake, slow_script, &slow);
    asker.client = fake_connect(&fake);
    ck_assert_int_eq(pthread_create(&asker.thread, NULL, ask, &asker), 0);
    while (slow.in_flight == 0) {
        fake_sleep_ms(1);
    }
    grd_close(asker.client);
    ck_assert_int_eq(slow.answered, 1);
    pthread_join(asker.thread, NULL);
    ck_assert_int_eq(asker.error.code, 0);
    ck_assert(asker.result.found);
    fake_stop(&fake);
}
END_TEST

/* A call that was on its way when grd_close() started is not sent any more; those of grd_close() itself are. */
START_TEST(nothing_is_sent_while_closing)
{
    struct proto_key key = {.data = (uint8_t[]){'k'}, .length = 1};
    struct proto_keys_params params = {.keys = {.items = &key, .count = 1}};
    struct request request = {.method = PROTO_METHOD_KEYS_EXISTS, .pass_fd = -1};
    struct proto_list_result result;
    struct grd_error error;
    struct fake fake;
    struct slow slow = {0};
    grd_client *client;

    fake_start(&fake, slow_script, &slow);
    client = fake_connect(&fake);
    client->closing = true;
    request.params = proto_shape_encode(proto_methods[PROTO_METHOD_KEYS_EXISTS].params, &params);
    ck_assert_int_eq(call_run(client, &request, &result, &error), GRD_ERR_CLOSED);
    ck_assert_int_eq(slow.in_flight, 0);
    request.now = true;
    ck_assert_int_eq(call_run(client, &request, &result, &error), 0);
    json_decref(request.params);
    call_free_result(PROTO_METHOD_KEYS_EXISTS, &result);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_session");
    TCase *cases = tcase_create("client_session");

    tcase_set_timeout(cases, UNIT_SECONDS);
    tcase_add_test(cases, farewell_answers_at_once);
    tcase_add_test(cases, silence_waits_for_the_process);
    tcase_add_test(cases, new_call_after_silence_returns_at_once);
    tcase_add_loop_test(cases, garbage_ends_the_session, 0, sizeof(garbage) / sizeof(garbage[0]));
    tcase_add_loop_test(cases, greetings_that_fail, 0, ERROR_ANSWER + 1);
    tcase_add_test(cases, nobody_listens);
    tcase_add_test(cases, what_the_daemon_said);
    tcase_add_test(cases, close_cancels_calls_in_flight);
    tcase_add_test(cases, a_success_wins_over_closing);
    tcase_add_test(cases, close_falls_back_to_ending_the_stream);
    tcase_add_test(cases, close_waits_for_every_call);
    tcase_add_test(cases, nothing_is_sent_while_closing);
    suite_add_tcase(suite, cases);
    return unit_run(suite);
}
