/* Keys: any bytes there and back, their limits, and the two ways to write them. */
#include <string.h>

#include "proto/base64.h"
#include "proto/envelope.h"
#include "proto/errors.h"
#include "proto/text.h"
#include "unit_main.h"

static char why[PROTO_WHY_BYTES];

static int decode(enum proto_method_id method, json_t *json, union proto_any_params *params)
{
    int error = proto_shape_decode(proto_methods[method].params, json, true, params, why);
    json_decref(json);
    return error;
}

static json_t *get_with(const char *name, json_t *key)
{
    json_t *json = json_pack("{s:i, s:i, s:i}", "region", 1, "offset", 0, "length", 1);
    json_object_set_new(json, name, key);
    return json;
}

static json_t *repeated(char byte, size_t count)
{
    static char bytes[2 * PROTO_KEY_BYTES];
    memset(bytes, byte, count);
    return json_stringn(bytes, count);
}

/* Through encode, a packet, parse and decode; says in which form it travelled. */
static const char *round_trip(const uint8_t *bytes, size_t length)
{
    static char text[PROTO_MESSAGE_BYTES];
    struct proto_get_params in = {.region = 1, .length = 1};
    in.key.data = (uint8_t *)(uintptr_t)bytes;
    in.key.length = length;
    json_t *json = proto_shape_encode(proto_methods[PROTO_METHOD_TRANSFER_GET].params, &in);
    ck_assert_ptr_nonnull(json);
    int size = proto_write_request(text, sizeof(text), 1, "transfer.get", json);
    ck_assert_int_gt(size, 0);
    const char *form = json_object_get(json, "key") != NULL ? "key" : "key_b64";
    json_decref(json);

    struct proto_request request;
    union proto_any_params out;
    ck_assert_int_eq(proto_request_parse(text, (size_t)size, &request, why), 0);
    int error = proto_shape_decode(proto_methods[PROTO_METHOD_TRANSFER_GET].params, request.params, true, &out, why);
    ck_assert_msg(error == 0, "%s", why);
    ck_assert_uint_eq(out.get.key.length, length);
    ck_assert_mem_eq(out.get.key.data, bytes, length);
    proto_shape_free(proto_methods[PROTO_METHOD_TRANSFER_GET].params, &out);
    json_decref(request.root);
    return form;
}

#define TRIP(text) round_trip((const uint8_t *)(text), sizeof(text) - 1)

START_TEST(the_form_follows_the_bytes)
{
    ck_assert_str_eq(TRIP("user:1"), "key");
    ck_assert_str_eq(TRIP("caf\xC3\xA9 \xF0\x9F\x98\x80"), "key");
    ck_assert_str_eq(TRIP("a \"quoted\\\" key, long enough"), "key");
    ck_assert_str_eq(TRIP("nul\0inside"), "key_b64");
    ck_assert_str_eq(TRIP("\0"), "key_b64");
    ck_assert_str_eq(TRIP("\xFF"), "key_b64");
    ck_assert_str_eq(TRIP("half\xC3"), "key_b64");
    ck_assert_str_eq(TRIP("overlong\xC0\xAF"), "key_b64");
    ck_assert_str_eq(TRIP("surrogate\xED\xA0\x80"), "key_b64");
    ck_assert_str_eq(TRIP("above\xF4\x90\x80\x80"), "key_b64");
    ck_assert_str_eq(TRIP("\x01\x02\x03"), "key_b64"); /* a text would need 18 bytes for it */
}
END_TEST

START_TEST(the_longest_keys_of_every_byte_fit_a_packet)
{
    static uint8_t bytes[PROTO_KEY_BYTES];
    for (int byte = 0; byte < 256; byte++) {
        memset(bytes, byte, sizeof(bytes));
        round_trip(bytes, sizeof(bytes));
    }
}
END_TEST

START_TEST(limits_name_what_came_and_what_is_allowed)
{
    union proto_any_params params;
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key", repeated('k', PROTO_KEY_BYTES)), &params), 0);
    ck_assert_uint_eq(params.get.key.length, PROTO_KEY_BYTES);
    proto_shape_free(proto_methods[PROTO_METHOD_TRANSFER_GET].params, &params);

    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key", repeated('k', PROTO_KEY_BYTES + 1)), &params),
                     PROTO_ERR_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(why, "16385 bytes; 1 to 16384"));
    /* 16386 bytes in base64 */
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key_b64", repeated('A', 21848)), &params),
                     PROTO_ERR_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(why, "16386 bytes; 1 to 16384"));
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key", json_string("")), &params),
                     PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "0 bytes; 1 to 16384"));
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key_b64", json_string("")), &params),
                     PROTO_ERR_INVALID_PARAMS);
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key_b64", json_string("Zh==")), &params),
                     PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "RFC 4648"));
    ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, get_with("key", json_integer(5)), &params),
                     PROTO_ERR_INVALID_PARAMS);
}
END_TEST

START_TEST(exactly_one_form_is_allowed)
{
    union proto_any_params params;
    for (int order = 0; order < 2; order++) {
        json_t *json = get_with(order == 0 ? "key" : "key_b64", json_string("Zg=="));
        json_object_set_new(json, order == 0 ? "key_b64" : "key", json_string("Zg=="));
        ck_assert_int_eq(decode(PROTO_METHOD_TRANSFER_GET, json, &params), PROTO_ERR_INVALID_PARAMS);
        ck_assert_ptr_nonnull(strstr(why, "exactly one"));
    }
}
END_TEST

START_TEST(lists_of_keys)
{
    union proto_any_params params;
    json_t *json = json_pack("{s:[s, {s:s}, s]}", "keys", "one", "key_b64", "AP8=", "three");
    ck_assert_int_eq(decode(PROTO_METHOD_KEYS_EXISTS, json, &params), 0);
    ck_assert_uint_eq(params.keys.keys.count, 3);
    ck_assert_mem_eq(params.keys.keys.items[0].data, "one", 3);
    ck_assert_uint_eq(params.keys.keys.items[1].length, 2);
    ck_assert_mem_eq(params.keys.keys.items[1].data, "\x00\xFF", 2);

    json_t *again = proto_shape_encode(proto_methods[PROTO_METHOD_KEYS_EXISTS].params, &params);
    json_t *expected = json_pack("{s:[s, {s:s}, s]}", "keys", "one", "key_b64", "AP8=", "three");
    ck_assert(json_equal(again, expected));
    json_decref(again);
    json_decref(expected);
    proto_shape_free(proto_methods[PROTO_METHOD_KEYS_EXISTS].params, &params);
}
END_TEST

static json_t *many(size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_string("k"));
    }
    return json_pack("{s:o}", "keys", list);
}

START_TEST(lists_have_limits)
{
    union proto_any_params params;
    ck_assert_int_eq(decode(PROTO_METHOD_KEYS_INFO, many(PROTO_KEYS), &params), 0);
    ck_assert_uint_eq(params.keys.keys.count, PROTO_KEYS);
    proto_shape_free(proto_methods[PROTO_METHOD_KEYS_INFO].params, &params);
    ck_assert_int_eq(decode(PROTO_METHOD_KEYS_INFO, many(PROTO_KEYS + 1), &params), PROTO_ERR_INVALID_PARAMS);
    ck_assert_ptr_nonnull(strstr(why, "1 to 256 keys, not an array of 257 entries"));
    ck_assert_int_eq(decode(PROTO_METHOD_KEYS_INFO, many(0), &params), PROTO_ERR_INVALID_PARAMS);
}
END_TEST

START_TEST(wrong_entries_are_named)
{
    static const struct {
        const char *text, *words;
        int error;
    } bad[] = {
        {"[\"a\", 5]", "\"keys[1]\" must be a text", PROTO_ERR_INVALID_PARAMS},
        {"[\"a\", null]", "\"keys[1]\"", PROTO_ERR_INVALID_PARAMS},
        {"[\"a\", \"\"]", "\"keys[1]\" holds a key of 0 bytes", PROTO_ERR_INVALID_PARAMS},
        {"[{}]", "\"keys[0]\" is an object", PROTO_ERR_INVALID_PARAMS},
        {"[{\"key\":\"a\"}]", "\"keys[0]\" is an object", PROTO_ERR_INVALID_PARAMS},
        {"[{\"key_b64\":\"AA==\",\"x\":1}]", "nothing else", PROTO_ERR_INVALID_PARAMS},
        {"[{\"key_b64\":\"AA=\"}]", "\"keys[0].key_b64\" is no base64", PROTO_ERR_INVALID_PARAMS},
        {"[{\"key_b64\":7}]", "\"keys[0].key_b64\" must be", PROTO_ERR_INVALID_PARAMS},
        {"\"a\"", "an array of 1 to 256 keys", PROTO_ERR_INVALID_PARAMS},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        union proto_any_params params;
        json_t *list = json_loads(bad[i].text, JSON_DECODE_ANY, NULL);
        int error = decode(PROTO_METHOD_KEYS_DELETE, json_pack("{s:o}", "keys", list), &params);
        ck_assert_msg(error == bad[i].error && strstr(why, bad[i].words) != NULL, "%s gave %d: %s", bad[i].text,
                      error, why);
    }
}
END_TEST

START_TEST(escapes_show_every_byte_and_fit)
{
    static const struct {
        const char *bytes;
        size_t length, capacity;
        const char *shown;
    } cases[] = {
        {"", 0, 8, ""},
        {"plain", 5, 8, "plain"},
        {"seven by", 7, 8, "seven b"},
        {"eight by", 8, 8, "eigh..."},
        {"a\n\0\"\\\xff", 6, 64, "a\\x0a\\x00\\x22\\x5c\\xff"},
        {"abc\n", 4, 8, "abc\\x0a"},
        {"abcd\n", 5, 8, "abcd..."},
        {"\n\n", 2, 8, "\\x0a..."},
        {"a\n\n", 3, 8, "a..."}, /* an escape is never cut */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[64];
        memset(out, '#', sizeof out);
        proto_text_escape(out, cases[i].capacity, cases[i].bytes, cases[i].length);
        ck_assert_str_eq(out, cases[i].shown);
        ck_assert_int_eq(out[cases[i].capacity < sizeof out ? cases[i].capacity : sizeof out - 1], '#');
    }
}
END_TEST

UNIT_MAIN("proto_keys", the_form_follows_the_bytes, the_longest_keys_of_every_byte_fit_a_packet,
          limits_name_what_came_and_what_is_allowed, exactly_one_form_is_allowed, lists_of_keys, lists_have_limits,
          wrong_entries_are_named, escapes_show_every_byte_and_fit)
