/* Requests, answers and notifications: what is read, what is refused with which words, what is written. */
#include <stdio.h>
#include <string.h>

#include "proto/envelope.h"
#include "proto/errors.h"
#include "unit_main.h"

static char why[PROTO_WHY_BYTES];

/* Parses and releases; gives back the code, and the id that could be read. */
static int parse(const char *text, int64_t *id)
{
    struct proto_request request;
    int error = proto_request_parse(text, strlen(text), &request, why);
    *id = request.id;
    json_decref(request.root);
    return error;
}

static const struct {
    const char *text;
    int error;
    int64_t id;
    const char *words; /* that `why` must hold */
} refused[] = {
    {"", PROTO_ERR_PARSE, 0, "empty"},
    {"{", PROTO_ERR_PARSE, 0, "JSON"},
    {"hello", PROTO_ERR_PARSE, 0, "JSON"},
    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"} x", PROTO_ERR_PARSE, 0, "end of file"},
    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}{}", PROTO_ERR_PARSE, 0, "end of file"},
    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"a\"}", PROTO_ERR_PARSE, 0, "duplicate"},
    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xC3\x28\"}", PROTO_ERR_PARSE, 0, "UTF-8"},
    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\u0000b\"}", PROTO_ERR_PARSE, 0, "U+0000"},
    {"{\"jsonrpc\":\"2.0\",\"id\":18446744073709551616,\"method\":\"a\"}", PROTO_ERR_PARSE, 0, "integer"},
    {"[]", PROTO_ERR_INVALID_REQUEST, 0, "batch"},
    {"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]", PROTO_ERR_INVALID_REQUEST, 0, "batch"},
    {"7", PROTO_ERR_INVALID_REQUEST, 0, "object"},
    {"\"x\"", PROTO_ERR_INVALID_REQUEST, 0, "object"},
    {"null", PROTO_ERR_INVALID_REQUEST, 0, "object"},
    {"{}", PROTO_ERR_INVALID_REQUEST, 0, "\"id\" is missing"},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "notifications"},
    {"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "2^53-1"},
    {"{\"jsonrpc\":\"2.0\",\"id\":-4,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "2^53-1"},
    {"{\"jsonrpc\":\"2.0\",\"id\":9007199254740992,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "2^53-1"},
    {"{\"jsonrpc\":\"2.0\",\"id\":1.0,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "integer"},
    {"{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "integer"},
    {"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "integer"},
    {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 0, "integer"},
    {"{\"id\":5,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 5, "\"jsonrpc\" is missing"},
    {"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 5, "\"2.0\""},
    {"{\"jsonrpc\":2.0,\"id\":5,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 5, "\"2.0\""},
    {"{\"jsonrpc\":\"2.0\",\"id\":5}", PROTO_ERR_INVALID_REQUEST, 5, "\"method\" is missing"},
    {"{\"method\":7,\"jsonrpc\":\"2.0\",\"id\":5}", PROTO_ERR_INVALID_REQUEST, 5, "\"method\" must be"},
    {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"a\",\"params\":[1]}", PROTO_ERR_INVALID_REQUEST, 5, "position"},
    {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"a\",\"params\":null}", PROTO_ERR_INVALID_REQUEST, 5, "object"},
    {"{\"x\\ny\":1,\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"a\"}", PROTO_ERR_INVALID_REQUEST, 5, "\"x?y\""},
};

START_TEST(refusals_name_the_id_and_the_reason)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        int64_t id;
        int error = parse(refused[i].text, &id);
        ck_assert_msg(error == refused[i].error && id == refused[i].id && strstr(why, refused[i].words) != NULL,
                      "%s\n  gave %d, id %lld: %s", refused[i].text, error, (long long)id, why);
    }
}
END_TEST

START_TEST(nul_bytes_are_refused_wherever_they_stand)
{
    static const char good[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}";
    char text[sizeof(good)];
    struct proto_request request;
    for (size_t at = 0; at < sizeof(good); at++) { /* the last round: a NUL behind a complete message */
        memcpy(text, good, sizeof(good));
        text[at] = '\0';
        ck_assert_int_eq(proto_request_parse(text, sizeof(text), &request, why), PROTO_ERR_PARSE);
        ck_assert_ptr_nonnull(strstr(why, "NUL byte at offset"));
        json_decref(request.root);
    }
}
END_TEST

START_TEST(a_request_is_read)
{
    static const char text[] =
        " {\"params\":{\"a\":1},\"method\":\"transfer.get\",\"id\":9007199254740991,\"jsonrpc\":\"2.0\"}\n";
    struct proto_request request;
    ck_assert_int_eq(proto_request_parse(text, sizeof(text) - 1, &request, why), 0);
    ck_assert_str_eq(why, "");
    ck_assert_int_eq(request.id, PROTO_ID_MAX);
    ck_assert_str_eq(request.method, "transfer.get");
    ck_assert_int_eq(json_integer_value(json_object_get(request.params, "a")), 1);
    json_decref(request.root);
}
END_TEST

/* The text that a writer left, for comparison. */
static char written[PROTO_MESSAGE_BYTES + 1];

static const char *ended(int length)
{
    ck_assert_int_ge(length, 0);
    written[length] = '\0';
    return written;
}

START_TEST(messages_are_written_exactly)
{
    json_t *object = json_pack("{s:i, s:s}", "need", 5, "t", "a\"b");
    ck_assert_str_eq(ended(proto_write_request(written, sizeof(written), 3, "status", NULL)),
                     "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"status\"}");
    ck_assert_str_eq(ended(proto_write_request(written, sizeof(written), 3, "a\"b", object)),
                     "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"a\\\"b\",\"params\":{\"need\":5,\"t\":\"a\\\"b\"}}");
    ck_assert_str_eq(ended(proto_write_result(written, sizeof(written), 3, NULL)),
                     "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}");
    ck_assert_str_eq(ended(proto_write_result(written, sizeof(written), 3, object)),
                     "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"need\":5,\"t\":\"a\\\"b\"}}");
    ck_assert_str_eq(ended(proto_write_notification(written, sizeof(written), "region.closed", object)),
                     "{\"jsonrpc\":\"2.0\",\"method\":\"region.closed\",\"params\":{\"need\":5,\"t\":\"a\\\"b\"}}");
    ck_assert_str_eq(ended(proto_write_error(written, sizeof(written), 0, PROTO_ERR_BUSY, "a \"b\"\n", NULL)),
                     "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-1,\"message\":\"a \\\"b\\\"\\n\","
                     "\"data\":{\"name\":\"busy\"}}}");
    ck_assert_str_eq(
        ended(proto_write_error(written, sizeof(written), 8, PROTO_ERR_NEED_LARGER_WINDOW, "x", object)),
        "{\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-5,\"message\":\"x\",\"data\":"
        "{\"name\":\"need_larger_window\",\"need\":5,\"t\":\"a\\\"b\"}}}");
    json_decref(object);
}
END_TEST

START_TEST(error_data_has_one_name)
{
    json_t *named = json_pack("{s:s, s:i}", "name", "lost", "x", 1);
    json_t *empty = json_object();
    ck_assert_str_eq(ended(proto_write_error(written, sizeof(written), 8, PROTO_ERR_LOST, "x", named)),
                     "{\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-13,\"message\":\"x\",\"data\":"
                     "{\"name\":\"lost\",\"x\":1}}}");
    ck_assert_str_eq(ended(proto_write_error(written, sizeof(written), 8, PROTO_ERR_LOST, "x", empty)),
                     "{\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-13,\"message\":\"x\",\"data\":"
                     "{\"name\":\"lost\"}}}");
    json_decref(named);
    json_decref(empty);
}
END_TEST

START_TEST(too_small_a_buffer_is_said_at_every_size)
{
    json_t *object = json_pack("{s:i}", "need", 5);
    int whole = proto_write_error(written, sizeof(written), 8, PROTO_ERR_LOST, "message", NULL);
    int with_data = proto_write_error(written, sizeof(written), 8, PROTO_ERR_LOST, "message", object);
    int result = proto_write_result(written, sizeof(written), 8, object);
    ck_assert_int_gt(with_data, whole);
    for (int capacity = 0; capacity <= with_data; capacity++) {
        char *exact = malloc(capacity > 0 ? (size_t)capacity : 1); /* address sanitizer watches its end */
        int length = proto_write_error(exact, (size_t)capacity, 8, PROTO_ERR_LOST, "message", object);
        ck_assert_int_eq(length, capacity < whole       ? PROTO_ERR_TOO_LARGE
                                 : capacity < with_data ? whole /* the answer goes out without its details */
                                                        : with_data);
        length = proto_write_result(exact, (size_t)capacity, 8, object);
        ck_assert_int_eq(length, capacity < result ? PROTO_ERR_TOO_LARGE : result);
        free(exact);
    }
    json_decref(object);
}
END_TEST

START_TEST(error_answers_always_fit_a_packet)
{
    /* The worst message: every byte becomes six; and data that alone fills the packet. */
    static char message[100000];
    memset(message, 1, sizeof(message) - 1);
    json_t *data = json_object();
    json_object_set_new(data, "server_text", proto_text_json(message, sizeof(message) - 1));
    int length = proto_write_error(written, PROTO_MESSAGE_BYTES, 8, PROTO_ERR_SERVER_ERROR, message, data);
    ck_assert_int_gt(length, 0);
    ck_assert_int_le(length, PROTO_MESSAGE_BYTES);
    struct proto_answer answer;
    ck_assert_int_eq(proto_answer_parse(written, (size_t)length, &answer), 0);
    ck_assert_int_eq(answer.code, PROTO_ERR_SERVER_ERROR);
    ck_assert_str_eq(json_string_value(json_object_get(answer.data, "name")), "server_error");
    json_decref(answer.root);
    json_decref(data);
}
END_TEST

START_TEST(foreign_bytes_in_messages_stay_json)
{
    struct proto_answer answer;
    int length = proto_write_error(written, sizeof(written), 8, PROTO_ERR_SERVER_ERROR, "a\xFF\xC3z\xED\xA0\x80", NULL);
    ck_assert_int_gt(length, 0);
    ck_assert_int_eq(proto_answer_parse(written, (size_t)length, &answer), 0);
    ck_assert_str_eq(answer.message, "a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    json_decref(answer.root);
}
END_TEST

START_TEST(answers_are_read)
{
    struct proto_answer answer;
    static const char success[] = "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"a\":1},\"new\":2}";
    ck_assert_int_eq(proto_answer_parse(success, sizeof(success) - 1, &answer), 0);
    ck_assert_int_eq(answer.id, 4);
    ck_assert_ptr_nonnull(answer.result);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_ptr_null(answer.method);
    json_decref(answer.root);

    static const char error[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"m\"}}";
    ck_assert_int_eq(proto_answer_parse(error, sizeof(error) - 1, &answer), 0);
    ck_assert_int_eq(answer.id, 0);
    ck_assert_int_eq(answer.code, PROTO_ERR_PARSE);
    ck_assert_str_eq(answer.message, "m");
    ck_assert_ptr_null(answer.data);
    json_decref(answer.root);

    static const char notification[] = "{\"jsonrpc\":\"2.0\",\"method\":\"region.closed\",\"params\":{\"region\":1}}";
    ck_assert_int_eq(proto_answer_parse(notification, sizeof(notification) - 1, &answer), 0);
    ck_assert_str_eq(answer.method, "region.closed");
    ck_assert_ptr_nonnull(answer.params);
    json_decref(answer.root);
}
END_TEST

START_TEST(other_answers_are_refused)
{
    static const char *const bad[] = {
        "", "1", "[]", "{}", "{\"jsonrpc\":\"2.0\"}", "{\"jsonrpc\":\"2.0\",\"id\":1}",
        "{\"id\":1,\"result\":{}}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":5}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}", "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{\"code\":-1,\"message\":\"\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":0,\"message\":\"\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-99999999999,\"message\":\"\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1}}",
        "{\"jsonrpc\":\"2.0\",\"method\":5}", "{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":[]}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct proto_answer answer;
        ck_assert_msg(proto_answer_parse(bad[i], strlen(bad[i]), &answer) == PROTO_ERR_PARSE, "accepted: %s", bad[i]);
        json_decref(answer.root);
    }
}
END_TEST

UNIT_MAIN("proto_envelope", refusals_name_the_id_and_the_reason, nul_bytes_are_refused_wherever_they_stand,
          a_request_is_read, messages_are_written_exactly, error_data_has_one_name,
          too_small_a_buffer_is_said_at_every_size, error_answers_always_fit_a_packet,
          foreign_bytes_in_messages_stay_json, answers_are_read, other_answers_are_refused)
