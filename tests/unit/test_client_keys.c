/*
 * exists, delete, expire, info: any number of keys of any bytes, in packets that the protocol allows, one result for
 * each.
 */
#include <string.h>

#include "client_fake.h"
#include "proto/errors.h"
#include "proto/limits.h"
#include "proto/shape.h"
#include "unit_main.h"

/* Counts the requests; a key exists when its first byte is odd, and info gives its length. */
static void keys_script(struct fake *fake)
{
    struct fake_request request = {0};
    int *requests = fake->argument;
    char why[PROTO_WHY_BYTES];

    fake_greet(fake);
    while (fake_receive(fake, &request)) {
        struct proto_keys_params params;
        json_t *entries = json_array();

        if (fake_is(&request, PROTO_METHOD_KEYS_EXPIRE)) {
            if (fake_number(&request, "ttl_ms") != 123456) {
                abort();
            }
            json_object_del(request.parsed.params, "ttl_ms");
        }
        if (proto_shape_decode(proto_methods[PROTO_METHOD_KEYS_INFO].params, request.parsed.params, true, &params,
                               why) != 0) {
            abort();
        }
        for (size_t i = 0; i < params.keys.count; i++) {
            int odd = params.keys.items[i].data[0] & 1;
            json_t *entry;

            if (fake_is(&request, PROTO_METHOD_KEYS_EXISTS)) {
                entry = json_pack("{s:b}", "exists", odd);
            } else if (fake_is(&request, PROTO_METHOD_KEYS_DELETE)) {
                entry = json_pack("{s:b}", "deleted", odd);
            } else if (fake_is(&request, PROTO_METHOD_KEYS_EXPIRE)) {
                entry = json_pack("{s:b}", "expired", odd);
            } else if (odd) {
                entry = json_pack("{s:b, s:I, s:I, s:s}", "found", 1, "length", (json_int_t)params.keys.items[i].length,
                                  "crc32c", (json_int_t)0xFFFFFFFF, "tier", "dram");
            } else {
                entry = json_pack("{s:b}", "found", 0);
            }
            json_array_append_new(entries, entry);
        }
        proto_shape_free(proto_methods[PROTO_METHOD_KEYS_INFO].params, &params);
        fake_answer(fake, request.parsed.id, json_pack("{s:o}", "keys", entries));
        ++*requests;
    }
}

START_TEST(many_keys)
{
    enum { COUNT = 1000 };
    static unsigned char names[COUNT][4];
    static struct grd_key keys[COUNT];
    static struct grd_key_result results[COUNT];
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    int requests = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        names[i][0] = (unsigned char)i;
        names[i][1] = (unsigned char)(i >> 8);
        keys[i] = (struct grd_key){.data = names[i], .length = 1 + i % 4};
    }
    fake_start(&fake, keys_script, &requests);
    client = fake_connect(&fake);
    ck_assert_int_eq(grd_exists(client, keys, COUNT, results, &error), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        ck_assert_int_eq(results[i].code, 0);
        ck_assert(results[i].found == ((i & 1) != 0));
    }
    ck_assert_int_eq(grd_delete(client, keys, 2, results, &error), 0);
    ck_assert(!results[0].found && results[1].found);
    ck_assert_int_eq(grd_expire(client, keys, COUNT, 123456, results, &error), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        ck_assert(results[i].found == ((i & 1) != 0));
    }
    ck_assert_int_eq(grd_expire(client, keys, 2, 0, results, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(results[1].code, GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_expire(client, keys, 2, UINT64_MAX, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_info(client, keys, COUNT, results, &error), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        ck_assert(results[i].found == ((i & 1) != 0));
        ck_assert_uint_eq(results[i].length, (i & 1) != 0 ? 1 + i % 4 : 0);
        ck_assert(results[i].has_crc32c == ((i & 1) != 0));
    }
    ck_assert_int_eq(grd_exists(client, NULL, 0, NULL, &error), 0);
    grd_close(client);
    fake_stop(&fake);
    ck_assert_int_eq(requests, 4 + 1 + 4 + 4);
}
END_TEST

/* The largest keys, of bytes that grow most in a message. */
START_TEST(large_keys)
{
    enum { COUNT = 9 };
    static unsigned char names[COUNT][PROTO_KEY_BYTES];
    static const int fillings[] = {'a', '"', 0x01, 0xff, 0x7f};
    struct grd_key keys[COUNT];
    struct grd_key_result results[COUNT];
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    int requests = 0;

    fake_start(&fake, keys_script, &requests);
    client = fake_connect(&fake);
    for (size_t f = 0; f < sizeof(fillings) / sizeof(fillings[0]); f++) {
        memset(names, fillings[f], sizeof(names));
        for (unsigned i = 0; i < COUNT; i++) {
            names[i][0] = 'a';
        }
        for (unsigned i = 0; i < COUNT; i++) {
            keys[i] = (struct grd_key){.data = names[i], .length = PROTO_KEY_BYTES - i % 2};
        }
        ck_assert_msg(grd_info(client, keys, COUNT, results, &error) == 0, "%#x: %s", (unsigned)fillings[f],
                      error.message);
        for (unsigned i = 0; i < COUNT; i++) {
            ck_assert(results[i].found);
            ck_assert_uint_eq(results[i].length, PROTO_KEY_BYTES - i % 2);
        }
    }
    grd_close(client);
    fake_stop(&fake);
    ck_assert_int_ge(requests, 3 * (int)(sizeof(fillings) / sizeof(fillings[0])));
}
END_TEST

static void failing_script(struct fake *fake)
{
    struct fake_request request = {0};

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_INFO);
    fake_answer(fake, request.parsed.id,
                json_pack("{s:[{s:b,s:i},{s:{s:s,s:s}},{s:{s:s,s:s}},{s:b}]}", "keys", "found", 1, "length", 5, "error",
                          "name", "wrong_type", "message", "WRONGTYPE", "error", "name", "from_the_future", "message",
                          "?", "nothing", 1));
    fake_expect(fake, &request, PROTO_METHOD_KEYS_DELETE);
    fake_answer(fake, request.parsed.id,
                json_pack("{s:[{s:b},{s:{s:s,s:s}}]}", "keys", "deleted", 1, "error", "name", "lost", "message",
                          "gone"));
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_answer(fake, request.parsed.id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    fake_expect(fake, &request, PROTO_METHOD_KEYS_EXISTS);
    fake_refuse(fake, request.parsed.id, PROTO_ERR_SERVER_DOWN, "no server", NULL);
    fake_expect(fake, &request, PROTO_METHOD_KEYS_DELETE);
    fake_release(&request);
    fake_farewell(fake, PROTO_ERR_DRAINING, "bye");
}

START_TEST(failures_of_one_and_of_all)
{
    struct grd_key keys[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}};
    struct grd_key bad[] = {{"a", 1}, {"", 0}};
    struct grd_key_result results[4];
    struct grd_error error;
    struct fake fake;
    grd_client *client;

    fake_start(&fake, failing_script, NULL);
    client = fake_connect(&fake);
    ck_assert_int_eq(grd_info(client, keys, 4, results, &error), GRD_ERR_WRONG_TYPE);
    ck_assert_str_eq(error.message, "WRONGTYPE");
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_uint_eq(results[0].length, 5);
    ck_assert_int_eq(results[1].code, GRD_ERR_WRONG_TYPE);
    ck_assert_int_eq(results[2].code, GRD_ERR_SERVER_ERROR);
    ck_assert_int_eq(results[3].code, GRD_ERR_PROTOCOL);
    ck_assert_int_eq(grd_delete(client, keys, 2, results, &error), GRD_ERR_LOST);
    ck_assert(error.may_have_run);
    ck_assert(results[0].found);
    ck_assert_int_eq(grd_exists(client, keys, 2, results, &error), GRD_ERR_PROTOCOL); /* one answer for two */
    ck_assert_int_eq(grd_exists(client, keys, 2, results, &error), GRD_ERR_SERVER_DOWN);
    ck_assert_int_eq(results[1].code, GRD_ERR_SERVER_DOWN);
    ck_assert_int_eq(grd_exists(client, bad, 2, results, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(results[0].code, GRD_ERR_INVALID_ARGUMENT);
    memset(results, 0, sizeof(results));
    ck_assert_int_eq(grd_exists(NULL, keys, 2, results, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(results[1].code, GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_delete(client, keys, 2, results, &error), GRD_ERR_INTERRUPTED);
    ck_assert(error.may_have_run);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

UNIT_MAIN("client_keys", many_keys, large_keys, failures_of_one_and_of_all)
