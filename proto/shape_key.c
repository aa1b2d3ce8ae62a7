/* Keys: any bytes, as text where they are one, else as base64. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base64.h"
#include "proto/errors.h"
#include "proto/shape_table.h"
#include "proto/text.h"

#define KEY_CHARACTERS ((size_t)PROTO_BASE64_LENGTH(PROTO_KEY_BYTES))

static int refuse_type(const char *name, const char *wanted, const json_t *json, char why[PROTO_WHY_BYTES])
{
    char came[PROTO_WHY_BYTES / 2];
    snprintf(why, PROTO_WHY_BYTES, "\"%s\" must be %s, not %s", name, wanted, proto_describe(came, sizeof(came), json));
    return PROTO_ERR_INVALID_PARAMS;
}

static int out_of_memory(char why[PROTO_WHY_BYTES])
{
    snprintf(why, PROTO_WHY_BYTES, "out of memory");
    return PROTO_ERR_NO_MEMORY;
}

/* 0 when a key may be as long as that. */
static int check_length(const char *name, size_t length, char why[PROTO_WHY_BYTES])
{
    if (length >= 1 && length <= PROTO_KEY_BYTES) {
        return 0;
    }
    snprintf(why, PROTO_WHY_BYTES, "\"%s\" holds a key of %zu bytes; 1 to %d bytes are allowed", name, length,
             PROTO_KEY_BYTES);
    return length == 0 ? PROTO_ERR_INVALID_PARAMS : PROTO_ERR_TOO_LARGE;
}

int proto_key_decode_text(const char *name, const json_t *json, struct proto_key *key, char why[PROTO_WHY_BYTES])
{
    if (!json_is_string(json)) {
        return refuse_type(name, "a text", json, why);
    }
    size_t length = json_string_length(json);
    int error = check_length(name, length, why);
    if (error != 0) {
        return error;
    }
    key->data = malloc(length);
    if (key->data == NULL) {
        return out_of_memory(why);
    }
    memcpy(key->data, json_string_value(json), length);
    key->length = length;
    return 0;
}

int proto_key_decode_b64(const char *name, const json_t *json, struct proto_key *key, char why[PROTO_WHY_BYTES])
{
    if (!json_is_string(json)) {
        return refuse_type(name, "a base64 text", json, why);
    }
    size_t characters = json_string_length(json);
    uint8_t *data = malloc(PROTO_BASE64_BYTES(characters) + 1); /* never 0 bytes */
    if (data == NULL) {
        return out_of_memory(why);
    }
    ssize_t length = proto_base64_decode(json_string_value(json), characters, data);
    if (length < 0) {
        free(data);
        snprintf(why, PROTO_WHY_BYTES,
                 "\"%s\" is no base64: RFC 4648 section 4 with padding, without line breaks, is expected", name);
        return PROTO_ERR_INVALID_PARAMS;
    }
    int error = check_length(name, (size_t)length, why);
    if (error != 0) {
        free(data);
        return error;
    }
    key->data = data;
    key->length = (size_t)length;
    return 0;
}

/* One entry of "keys": a text, or {"key_b64": "..."}. */
static int decode_entry(size_t index, const json_t *json, struct proto_key *key, char why[PROTO_WHY_BYTES])
{
    char name[48];
    if (json_is_object(json)) {
        const json_t *encoded = json_object_get(json, "key_b64");
        if (encoded == NULL || json_object_size(json) != 1) {
            snprintf(why, PROTO_WHY_BYTES, "\"keys[%zu]\" is an object, which must hold \"key_b64\" and nothing else",
                     index);
            return PROTO_ERR_INVALID_PARAMS;
        }
        snprintf(name, sizeof(name), "keys[%zu].key_b64", index);
        return proto_key_decode_b64(name, encoded, key, why);
    }
    snprintf(name, sizeof(name), "keys[%zu]", index);
    if (!json_is_string(json)) {
        return refuse_type(name, "a text or {\"key_b64\": \"...\"}", json, why);
    }
    return proto_key_decode_text(name, json, key, why);
}

int proto_keys_decode(const struct proto_field *field, const json_t *json, struct proto_keys *keys,
                      char why[PROTO_WHY_BYTES])
{
    size_t count = json_array_size(json);
    if (!json_is_array(json) || count < field->min || count > field->max) {
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "an array of %" PRIu64 " to %" PRIu64 " keys", field->min, field->max);
        return refuse_type(field->name, wanted, json, why);
    }
    keys->items = calloc(count, sizeof(*keys->items));
    if (keys->items == NULL) {
        return out_of_memory(why);
    }
    keys->count = count;
    for (size_t i = 0; i < count; i++) {
        int error = decode_entry(i, json_array_get(json, i), &keys->items[i], why);
        if (error != 0) {
            return error; /* the caller frees the struct, and so what is decoded already */
        }
    }
    return 0;
}

void proto_keys_free(struct proto_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        free(keys->items[i].data);
    }
    free(keys->items);
}

/* True when the bytes can travel as a JSON text that is no longer than their base64. */
static bool fits_text(const struct proto_key *key)
{
    size_t cost = 0;
    for (size_t at = 0; at < key->length;) {
        size_t step = proto_utf8_sequence(key->data + at, key->length - at);
        if (step == 0 || key->data[at] == 0) {
            return false;
        }
        cost += step == 1 ? proto_json_escape_length(key->data[at]) : step;
        at += step;
    }
    return cost <= PROTO_BASE64_LENGTH(key->length);
}

static json_t *encode_text(const struct proto_key *key)
{
    return json_stringn_nocheck((const char *)key->data, key->length);
}

static json_t *encode_b64(const struct proto_key *key)
{
    char stack[1024];
    size_t length = PROTO_BASE64_LENGTH(key->length);
    char *characters = length <= sizeof(stack) ? stack : malloc(length);
    if (characters == NULL) {
        return NULL;
    }
    proto_base64_encode(key->data, key->length, characters);
    json_t *text = json_stringn_nocheck(characters, length);
    if (characters != stack) {
        free(characters);
    }
    return text;
}

int proto_key_encode(json_t *object, const struct proto_key *key)
{
    if (fits_text(key)) {
        return json_object_set_new_nocheck(object, "key", encode_text(key));
    }
    return json_object_set_new_nocheck(object, "key_b64", encode_b64(key));
}

static json_t *encode_entry(const struct proto_key *key)
{
    if (fits_text(key)) {
        return encode_text(key);
    }
    json_t *object = json_object();
    if (json_object_set_new_nocheck(object, "key_b64", encode_b64(key)) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *proto_keys_encode(const struct proto_keys *keys)
{
    json_t *list = json_array();
    for (size_t i = 0; i < keys->count; i++) {
        if (json_array_append_new(list, encode_entry(&keys->items[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
