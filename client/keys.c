/*
 * exists, delete, info, expire: any number of keys, in as many requests as the protocol needs.
 */
#include <stdlib.h>

#include "client/private.h"
#include "proto/errors.h"

/* One public call. */
struct listing {
    grd_client *client;
    enum proto_method_id method;
    const char *found_name; /* the member of an entry that becomes `found` */
    uint64_t ttl_ms;        /* expire */
    struct grd_key_result *results;
    struct grd_error *error;
};

static int check_keys(const struct grd_key *keys, size_t count, struct grd_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].data == NULL || keys[i].length == 0) {
            return error_set(error, GRD_ERR_INVALID_ARGUMENT, "key number %zu is empty", i);
        }
        if (keys[i].length > PROTO_KEY_BYTES) {
            return error_set(error, GRD_ERR_TOO_LARGE, "key number %zu has %zu bytes, at most %d are allowed", i,
                             keys[i].length, PROTO_KEY_BYTES);
        }
    }
    return 0;
}

static void fill(struct grd_key_result *results, size_t count, int code)
{
    for (size_t i = 0; i < count; i++) {
        results[i] = (struct grd_key_result){.code = code};
    }
}

/* The error of the first key that has no answer is the call's. */
static void keep_first(struct listing *listing, const struct grd_error *error)
{
    if (listing->error->code == 0) {
        *listing->error = *error;
    }
}

/* A key that failed alone. A name that is not known here came from a newer daemon. */
static void read_entry_error(struct listing *listing, json_t *wire, struct grd_key_result *result)
{
    const char *name = json_string_value(json_object_get(wire, "name"));
    int known = name != NULL ? proto_error_by_name(name) : 0;
    struct proto_answer answer = {
        .code = known != 0 ? known : GRD_ERR_SERVER_ERROR,
        .message = json_string_value(json_object_get(wire, "message")),
        .data = wire,
    };
    struct grd_error error;

    result->code = error_from_answer(&answer, &error);
    error.may_have_run |= result->code == GRD_ERR_LOST && (listing->method == PROTO_METHOD_KEYS_DELETE ||
                                                           listing->method == PROTO_METHOD_KEYS_EXPIRE);
    keep_first(listing, &error);
}

static void read_entry(struct listing *listing, json_t *entry, struct grd_key_result *result)
{
    json_t *wire_error = json_object_get(entry, "error");
    json_t *found = json_object_get(entry, listing->found_name);
    json_t *length, *crc32c;
    struct grd_error error;

    *result = (struct grd_key_result){.found = json_is_true(found)};
    if (json_is_object(wire_error)) {
        read_entry_error(listing, wire_error, result);
        return;
    }
    if (!json_is_boolean(found)) {
        result->code = error_set(&error, GRD_ERR_PROTOCOL, "the daemon's answer for a key has no member \"%s\"",
                                 listing->found_name);
        keep_first(listing, &error);
        return;
    }
    length = json_object_get(entry, "length");
    crc32c = json_object_get(entry, "crc32c");
    if (json_is_integer(length) && json_integer_value(length) >= 0) {
        result->length = (uint64_t)json_integer_value(length);
    }
    if (json_is_integer(crc32c) && json_integer_value(crc32c) >= 0 && json_integer_value(crc32c) <= UINT32_MAX) {
        result->has_crc32c = true;
        result->crc32c = (uint32_t)json_integer_value(crc32c);
    }
}

static int read_entries(struct listing *listing, json_t *entries, struct grd_key_result *results, size_t count)
{
    struct grd_error error;

    if (json_array_size(entries) != count) {
        error_set(&error, GRD_ERR_PROTOCOL, "the daemon answered %zu keys instead of %zu", json_array_size(entries),
                  count);
        keep_first(listing, &error);
        return GRD_ERR_PROTOCOL;
    }
    for (size_t i = 0; i < count; i++) {
        read_entry(listing, json_array_get(entries, i), &results[i]);
    }
    return 0;
}

static int request(struct listing *listing, struct proto_key *keys, size_t count, struct grd_key_result *results)
{
    struct proto_keys_params params = {.keys = {.items = keys, .count = count}};
    struct proto_expire_params expire = {.keys = params.keys, .ttl_ms = listing->ttl_ms};
    bool expires = listing->method == PROTO_METHOD_KEYS_EXPIRE;
    struct proto_list_result result;
    struct grd_error error = {0};
    int code = call_request(listing->client, listing->method, expires ? (const void *)&expire : &params, &result,
                            &error);

    if (code == 0) {
        code = read_entries(listing, result.keys, results, count);
        call_free_result(listing->method, &result);
        return code;
    }
    if (code != GRD_ERR_TOO_LARGE || count == 1) {
        keep_first(listing, &error);
    }
    return code;
}

static void borrow_keys(struct proto_key *to, const struct grd_key *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        union {
            const void *in;
            uint8_t *out; /* encoding only reads */
        } bytes = {.in = from[i].data};

        to[i] = (struct proto_key){.data = bytes.out, .length = from[i].length};
    }
}

/* A message that is too long is halved: how long keys get depends on their bytes, which the codec knows. */
static int request_all(struct listing *listing, const struct grd_key *keys, size_t count)
{
    struct proto_key borrowed[PROTO_KEYS];
    size_t at = 0, most = PROTO_KEYS;

    while (at < count) {
        size_t taken = count - at < most ? count - at : most;
        int code;

        borrow_keys(borrowed, keys + at, taken);
        code = request(listing, borrowed, taken, listing->results + at);
        if (code == GRD_ERR_TOO_LARGE && taken > 1) {
            most = taken / 2;
            continue;
        }
        if (code != 0) {
            fill(listing->results + at, count - at, code);
            break;
        }
        at += taken;
    }
    return listing->error->code;
}

static int list(struct listing *listing, const struct grd_key *keys, size_t count, struct grd_error *error)
{
    struct grd_error own;
    int code;

    listing->error = error != NULL ? error : &own;
    error_clear(listing->error);
    if (listing->client == NULL || (count > 0 && (keys == NULL || listing->results == NULL))) {
        if (listing->results != NULL) {
            fill(listing->results, count, GRD_ERR_INVALID_ARGUMENT);
        }
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no client, no keys, or no place for their results");
    }
    code = check_keys(keys, count, listing->error);
    if (code == 0) {
        code = client_enter(listing->client, listing->error);
    }
    if (code != 0) {
        fill(listing->results, count, code);
        return code;
    }
    code = request_all(listing, keys, count);
    client_leave(listing->client);
    return code;
}

int grd_exists(grd_client *client, const struct grd_key *keys, size_t count, struct grd_key_result *results,
               struct grd_error *error)
{
    struct listing listing = {client, PROTO_METHOD_KEYS_EXISTS, .found_name = "exists", .results = results};

    return list(&listing, keys, count, error);
}

int grd_delete(grd_client *client, const struct grd_key *keys, size_t count, struct grd_key_result *results,
               struct grd_error *error)
{
    struct listing listing = {client, PROTO_METHOD_KEYS_DELETE, .found_name = "deleted", .results = results};

    return list(&listing, keys, count, error);
}

int grd_info(grd_client *client, const struct grd_key *keys, size_t count, struct grd_key_result *results,
             struct grd_error *error)
{
    struct listing listing = {client, PROTO_METHOD_KEYS_INFO, .found_name = "found", .results = results};

    return list(&listing, keys, count, error);
}

int grd_expire(grd_client *client, const struct grd_key *keys, size_t count, uint64_t ttl_ms,
               struct grd_key_result *results, struct grd_error *error)
{
    struct listing listing = {client, PROTO_METHOD_KEYS_EXPIRE, .found_name = "expired", .results = results};

    if (ttl_ms == 0 || ttl_ms > PROTO_TTL_MS_MAX) {
        if (results != NULL) {
            fill(results, count, GRD_ERR_INVALID_ARGUMENT);
        }
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "a time to live of %llu ms: 1 to %llu are allowed",
                         (unsigned long long)ttl_ms, (unsigned long long)PROTO_TTL_MS_MAX);
    }
    listing.ttl_ms = ttl_ms;
    return list(&listing, keys, count, error);
}
