/* Shapes: every method's parameters and results there and back, and what strict decoding refuses. */
#include <string.h>

#include "proto/envelope.h"
#include "proto/errors.h"
#include "proto/shape_table.h"
#include "unit_main.h"

static char why[PROTO_WHY_BYTES];

static int decode(enum proto_method_id method, const char *text, union proto_any_params *params)
{
    json_t *json = json_loads(text, 0, NULL);
    ck_assert_msg(json != NULL, "the test's own JSON is wrong: %s", text);
    int error = proto_shape_decode(proto_methods[method].params, json, true, params, why);
    json_decref(json);
    return error;
}

static void free_params(enum proto_method_id method, union proto_any_params *params)
{
    proto_shape_free(proto_methods[method].params, params);
}

START_TEST(defaults_are_filled_in)
{
    union proto_any_params params;
    ck_assert_int_eq(decode(PROTO_METHOD_REGION_REGISTER, "{\"type\":\"memfd\",\"size\":4096}", &params), 0);
    ck_assert_str_eq(params.region_register.type, "memfd");
    ck_assert_uint_eq(params.region_register.size, 4096);
    ck_assert_uint_eq(params.region_register.offset, 0);
    ck_assert_str_eq(params.region_register.access, "rw");
    ck_assert(!params.region_register.populate);
    ck_assert_ptr_null(params.region_register.label);
    free_params(PROTO_METHOD_REGION_REGISTER, &params);

    ck_assert_int_eq(decode(PROTO_METHOD_ADMIN_REGIONS, "{}", &params), 0);
    ck_assert_uint_eq(params.page.after, 0);
    ck_assert_uint_eq(params.page.limit, PROTO_PAGE_ENTRIES);

    ck_assert_int_eq(decode(PROTO_METHOD_REGION_CLOSE, "{\"region\":3}", &params), 0);
    ck_assert(!params.region_close.force);
}
END_TEST

START_TEST(everything_given_is_taken)
{
    union proto_any_params params;
    ck_assert_int_eq(decode(PROTO_METHOD_REGION_REGISTER,
                            "{\"type\":\"memfd\",\"size\":9007199254740991,\"offset\":8192,\"access\":\"r\","
                            "\"populate\":true,\"label\":\"\xC3\xA9\"}", &params), 0);
    ck_assert_uint_eq(params.region_register.size, PROTO_SIZE_MAX);
    ck_assert_uint_eq(params.region_register.offset, 8192);
    ck_assert_str_eq(params.region_register.access, "r");
    ck_assert(params.region_register.populate);
    ck_assert_str_eq(params.region_register.label, "\xC3\xA9");
    free_params(PROTO_METHOD_REGION_REGISTER, &params);

    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_SET,
                            "{\"region\":1,\"offset\":0,\"length\":1,\"key\":\"k\",\"crc32c\":0,\"deadline_ms\":1}",
                            &params), 0);
    ck_assert(params.set.has_crc32c && params.set.crc32c == 0);
    ck_assert(params.set.has_deadline_ms && params.set.deadline_ms == 1);
    free_params(PROTO_METHOD_TRANSFER_SET, &params);

    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, "{\"region\":1,\"offset\":0,\"length\":1,\"key\":\"k\"}",
                            &params), 0);
    ck_assert(!params.get.has_deadline_ms && params.get.retry);
    free_params(PROTO_METHOD_TRANSFER_GET, &params);
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET,
                            "{\"region\":1,\"offset\":0,\"length\":1,\"key\":\"k\",\"retry\":false}", &params), 0);
    ck_assert(!params.get.retry);
    free_params(PROTO_METHOD_TRANSFER_GET, &params);
}
END_TEST

#define GET "{\"region\":1,\"offset\":0,\"key\":\"k\",\"length\":"

static const struct {
    enum proto_method_id method;
    const char *text;
    const char *words[2]; /* that the sentence must hold: what came, what is allowed */
} refused[] = {
    {PROTO_METHOD_TRANSFER_GET, GET "0}", {"the integer 0", "1 to 9007199254740991"}},
    {PROTO_METHOD_TRANSFER_GET, GET "-5}", {"the integer -5", "1 to 9007199254740991"}},
    {PROTO_METHOD_TRANSFER_GET, GET "9007199254740992}", {"9007199254740992", "\"length\""}},
    {PROTO_METHOD_TRANSFER_GET, GET "1.5}", {"1.5", "fraction"}},
    {PROTO_METHOD_TRANSFER_GET, GET "4096.0}", {"4096", "fraction or an exponent"}},
    {PROTO_METHOD_TRANSFER_GET, GET "1e3}", {"1000", "integer"}},
    {PROTO_METHOD_TRANSFER_GET, GET "true}", {"a boolean", "integer"}},
    {PROTO_METHOD_TRANSFER_GET, GET "\"5\"}", {"a text of 1 bytes", "integer"}},
    {PROTO_METHOD_TRANSFER_GET, GET "null}", {"null", "integer"}},
    {PROTO_METHOD_TRANSFER_GET, GET "[5]}", {"an array of 1 entries", "integer"}},
    {PROTO_METHOD_TRANSFER_GET, GET "{}}", {"an object", "integer"}},
    {PROTO_METHOD_TRANSFER_GET, "{\"region\":1,\"offset\":0,\"key\":\"k\"}", {"\"length\"", "missing"}},
    {PROTO_METHOD_TRANSFER_GET, "{\"region\":1,\"offset\":0,\"length\":1}", {"\"key\" or \"key_b64\"", "missing"}},
    {PROTO_METHOD_TRANSFER_GET, GET "1,\"surplus\":1}", {"\"surplus\"", "\"key\" or \"key_b64\""}},
    {PROTO_METHOD_TRANSFER_GET, GET "1,\"crc32c\":1}", {"\"crc32c\"", "no parameter"}},
    {PROTO_METHOD_TRANSFER_GET, GET "1,\"deadline_ms\":0}", {"the integer 0", "1 to 2592000000"}},
    {PROTO_METHOD_TRANSFER_GET, GET "1,\"deadline_ms\":2592000001}", {"2592000001", "1 to 2592000000"}},
    {PROTO_METHOD_TRANSFER_SET, GET "1,\"crc32c\":4294967296}", {"4294967296", "0 to 4294967295"}},
    {PROTO_METHOD_REGION_CLOSE, "{\"region\":1,\"force\":1}", {"true or false", "the integer 1"}},
    {PROTO_METHOD_REGION_CLOSE, "{\"region\":1,\"force\":\"yes\"}", {"true or false", "a text"}},
    {PROTO_METHOD_REGION_REGISTER, "{\"type\":\"dmabuf\",\"size\":1}", {"\"dmabuf\"", "allowed: \"memfd\""}},
    {PROTO_METHOD_REGION_REGISTER, "{\"type\":\"memfd\",\"size\":1,\"access\":\"w\"}", {"\"w\"", "\"rw\", \"r\""}},
    {PROTO_METHOD_REGION_REGISTER, "{\"type\":\"memfd\",\"size\":0}", {"the integer 0", "1 to"}},
    {PROTO_METHOD_STATUS, "{\"x\":1}", {"\"x\"", "allowed: none"}},
    {PROTO_METHOD_ADMIN_REGIONS, "{\"limit\":257}", {"257", "1 to 256"}},
    {PROTO_METHOD_HELLO, "{\"protocol\":0}", {"the integer 0", "1 to"}},
    {PROTO_METHOD_HELLO, "{\"protocol\":1,\"client\":5}", {"a text", "the integer 5"}},
    {PROTO_METHOD_HELLO, "{\"protocol\":1,\"a\\nb\\u001b\":5}", {"\"a?b?\"", "no parameter"}},
    {PROTO_METHOD_HELLO, "[]", {"an array", "object"}},
};

START_TEST(strict_decoding_says_what_is_wrong)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        union proto_any_params params;
        int error = decode(refused[i].method, refused[i].text, &params);
        ck_assert_msg(error == PROTO_ERR_INVALID_PARAMS && strstr(why, refused[i].words[0]) != NULL &&
                          strstr(why, refused[i].words[1]) != NULL,
                      "%s\n  gave %d: %s", refused[i].text, error, why);
    }
}
END_TEST

START_TEST(long_texts_are_refused)
{
    union proto_any_params params;
    char text[600];
    char name[400];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(text, sizeof(text), "{\"protocol\":1,\"client\":\"%.256s\"}", name);
    ck_assert_int_eq(decode(PROTO_METHOD_HELLO, text, &params), 0);
    free_params(PROTO_METHOD_HELLO, &params);
    snprintf(text, sizeof(text), "{\"protocol\":1,\"client\":\"%.257s\"}", name);
    ck_assert_int_eq(decode(PROTO_METHOD_HELLO, text, &params), PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "0 to 256 bytes"));
    snprintf(text, sizeof(text), "{\"protocol\":1,\"%s\":1}", name);
    ck_assert_int_eq(decode(PROTO_METHOD_HELLO, text, &params), PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "nnn...\""));
}
END_TEST

START_TEST(absent_params_count_as_empty)
{
    union proto_any_params params;
    ck_assert_int_eq(proto_shape_decode(proto_methods[PROTO_METHOD_STATUS].params, NULL, true, &params, why), 0);
    ck_assert_int_eq(proto_shape_decode(proto_methods[PROTO_METHOD_HELLO].params, NULL, true, &params, why),
                     PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "\"protocol\" is missing"));
}
END_TEST

START_TEST(a_failed_decode_leaves_a_harmless_struct)
{
    union proto_any_params params;
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_SET, "{\"key\":\"k\",\"region\":1,\"length\":0}", &params),
                     PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_null(params.set.key.data);
    free_params(PROTO_METHOD_TRANSFER_SET, &params);
    free_params(PROTO_METHOD_TRANSFER_SET, &params);
}
END_TEST

/* Writes a result, reads it as the library does, and decodes it with a surplus member. */
static void round_trip(const struct proto_shape *shape, const void *in, void *out)
{
    char text[PROTO_MESSAGE_BYTES];
    struct proto_answer answer;
    json_t *json = proto_shape_encode(shape, in);
    ck_assert_ptr_nonnull(json);
    ck_assert_int_eq(json_object_set_new(json, "from_a_newer_daemon", json_true()), 0);
    int length = proto_write_result(text, sizeof(text), 1, json);
    json_decref(json);
    ck_assert_int_gt(length, 0);
    ck_assert_int_eq(proto_answer_parse(text, (size_t)length, &answer), 0);
    int error = proto_shape_decode(shape, answer.result, false, out, why);
    ck_assert_msg(error == 0, "%s", why);
    json_decref(answer.root);
}

START_TEST(results_survive_and_newer_members_are_ignored)
{
    char rdma[] = "rdma";
    struct proto_get_result get = {.found = true, .length = PROTO_SIZE_MAX, .has_crc32c = true, .crc32c = UINT32_MAX,
                                   .path = rdma};
    struct proto_get_result get_back;
    const struct proto_shape *shape = proto_methods[PROTO_METHOD_TRANSFER_GET].result;
    round_trip(shape, &get, &get_back);
    ck_assert(get_back.found && get_back.has_crc32c);
    ck_assert_uint_eq(get_back.length, PROTO_SIZE_MAX);
    ck_assert_uint_eq(get_back.crc32c, UINT32_MAX);
    ck_assert_str_eq(get_back.path, "rdma");
    proto_shape_free(shape, &get_back);

    struct proto_get_result missing = {.found = false};
    round_trip(shape, &missing, &get_back);
    ck_assert(!get_back.found && !get_back.has_crc32c);
    ck_assert_ptr_null(get_back.path);
    proto_shape_free(shape, &get_back);

    struct proto_register_result made = {.region = 7, .capacity = 4096, .page_size = 4096, .shared = true};
    struct proto_register_result made_back;
    round_trip(proto_methods[PROTO_METHOD_REGION_REGISTER].result, &made, &made_back);
    ck_assert_uint_eq(made_back.region, 7);
    ck_assert_uint_eq(made_back.capacity, 4096);
    ck_assert_uint_eq(made_back.page_size, 4096);
    ck_assert(made_back.shared);
}
END_TEST

START_TEST(json_members_survive)
{
    char server[] = "glide-rdmad 0.1.0";
    struct proto_hello_result hello = {.protocol = 1, .server = server, .usable = true,
                                       .limits = json_pack("{s:i}", "message_bytes", PROTO_MESSAGE_BYTES),
                                       .fabric = json_pack("{s:[s]}", "interfaces", "eth0")};
    struct proto_hello_result hello_back;
    const struct proto_shape *shape = proto_methods[PROTO_METHOD_HELLO].result;
    round_trip(shape, &hello, &hello_back);
    ck_assert(json_equal(hello.limits, hello_back.limits) && json_equal(hello.fabric, hello_back.fabric));
    ck_assert_ptr_null(hello_back.why);
    proto_shape_free(shape, &hello_back);
    json_decref(hello.limits);
    json_decref(hello.fabric);

    struct proto_json_result status = {.object = json_pack("{s:{}}", "daemon")};
    struct proto_json_result status_back;
    shape = proto_methods[PROTO_METHOD_STATUS].result;
    round_trip(shape, &status, &status_back);
    ck_assert_ptr_nonnull(json_object_get(status_back.object, "daemon"));
    proto_shape_free(shape, &status_back);
    json_decref(status.object);
}
END_TEST

START_TEST(notifications_survive)
{
    char reason[] = "the daemon stops";
    struct proto_session_closed closed = {.code = PROTO_ERR_DRAINING, .reason = reason};
    struct proto_session_closed closed_back;
    round_trip(&proto_shape_session_closed, &closed, &closed_back);
    ck_assert_int_eq(closed_back.code, PROTO_ERR_DRAINING);
    ck_assert_str_eq(closed_back.reason, reason);
    proto_shape_free(&proto_shape_session_closed, &closed_back);

    struct proto_region_closed region = {.region = 9, .reason = reason, .memory_released = true};
    struct proto_region_closed region_back;
    round_trip(&proto_shape_region_closed, &region, &region_back);
    ck_assert_uint_eq(region_back.region, 9);
    ck_assert(region_back.memory_released);
    proto_shape_free(&proto_shape_region_closed, &region_back);

    struct proto_daemon_draining draining = {.deadline_ms = 0};
    round_trip(&proto_shape_daemon_draining, &draining, &draining);
}
END_TEST

START_TEST(wrong_results_are_refused_too)
{
    static const char *const bad[] = {"{}", "{\"memory_released\":1}", "{\"memory_released\":null}", "[]", "5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct proto_close_result result;
        json_t *json = json_loads(bad[i], JSON_DECODE_ANY, NULL);
        ck_assert_int_eq(proto_shape_decode(proto_methods[PROTO_METHOD_REGION_CLOSE].result, json, false, &result,
                                            why), PROTO_ERR_INVALID_PARAMS);
        ck_assert_str_ne(why, "");
        json_decref(json);
    }
}
END_TEST

START_TEST(foreign_bytes_in_texts_are_replaced)
{
    char client[] = "bad\xFFname";
    struct proto_hello_params hello = {.protocol = 1, .client = client};
    json_t *json = proto_shape_encode(proto_methods[PROTO_METHOD_HELLO].params, &hello);
    ck_assert_str_eq(json_string_value(json_object_get(json, "client")), "bad\xEF\xBF\xBDname");
    json_decref(json);
}
END_TEST

START_TEST(numbers_beyond_json_are_refused_by_the_receiver)
{
    struct proto_register_params in = {.type = (char[]){"memfd"}, .size = UINT64_MAX};
    union proto_any_params out;
    json_t *json = proto_shape_encode(proto_methods[PROTO_METHOD_REGION_REGISTER].params, &in);
    ck_assert_int_eq(proto_shape_decode(proto_methods[PROTO_METHOD_REGION_REGISTER].params, json, true, &out, why),
                     PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "9223372036854775807"));
    json_decref(json);
}
END_TEST

/* Memory comes as a descriptor, and nothing else is opened for a client: no request can name a file. */
START_TEST(no_request_names_a_file)
{
    static const char *const words[] = {"path", "file", "dir", "folder", "socket"};

    for (int method = 0; method < PROTO_METHOD_COUNT; method++) {
        const struct proto_shape *params = proto_methods[method].params;
        for (size_t i = 0; params != NULL && i < params->count; i++) {
            for (size_t word = 0; word < sizeof(words) / sizeof(words[0]); word++) {
                ck_assert_msg(strstr(params->fields[i].name, words[word]) == NULL, "%s: %s", proto_methods[method].name,
                              params->fields[i].name);
            }
        }
    }
}
END_TEST

UNIT_MAIN("proto_shape", defaults_are_filled_in, everything_given_is_taken, strict_decoding_says_what_is_wrong,
          long_texts_are_refused, absent_params_count_as_empty, a_failed_decode_leaves_a_harmless_struct,
          results_survive_and_newer_members_are_ignored, json_members_survive, notifications_survive,
          wrong_results_are_refused_too, foreign_bytes_in_texts_are_replaced,
          numbers_beyond_json_are_refused_by_the_receiver, no_request_names_a_file)
