/* Decoding: JSON object to struct. */
#include "proto/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/errors.h"
#include "proto/shape_table.h"
#include "proto/text.h"

#define NAME_QUOTED 64 /* bytes of a foreign name that a sentence repeats */

static void *at(void *base, size_t offset)
{
    return (char *)base + offset;
}

const char *proto_describe(char *out, size_t capacity, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_INTEGER:
        snprintf(out, capacity, "the integer %" JSON_INTEGER_FORMAT, json_integer_value(json));
        break;
    case JSON_REAL:
        snprintf(out, capacity, "the number %.17g, which is written with a fraction or an exponent",
                 json_real_value(json));
        break;
    case JSON_STRING:
        snprintf(out, capacity, "a text of %zu bytes", json_string_length(json));
        break;
    case JSON_OBJECT:
        snprintf(out, capacity, "an object");
        break;
    case JSON_ARRAY:
        snprintf(out, capacity, "an array of %zu entries", json_array_size(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out, capacity, "a boolean");
        break;
    default:
        snprintf(out, capacity, "null");
        break;
    }
    return out;
}

static int refuse_type(const char *name, const char *wanted, const json_t *json, char why[PROTO_WHY_BYTES])
{
    char came[PROTO_WHY_BYTES / 2];
    snprintf(why, PROTO_WHY_BYTES, "\"%s\" must be %s, not %s", name, wanted, proto_describe(came, sizeof(came), json));
    return PROTO_ERR_INVALID_PARAMS;
}

static int decode_uint(const struct proto_field *field, const json_t *json, uint64_t *out, char why[PROTO_WHY_BYTES])
{
    json_int_t value = json_integer_value(json);
    if (!json_is_integer(json) || value < 0 || (uint64_t)value < field->min || (uint64_t)value > field->max) {
        char wanted[96];
        snprintf(wanted, sizeof(wanted), "an integer from %" PRIu64 " to %" PRIu64, field->min, field->max);
        return refuse_type(field->name, wanted, json, why);
    }
    *out = (uint64_t)value;
    return 0;
}

static int decode_code(const struct proto_field *field, const json_t *json, int64_t *out, char why[PROTO_WHY_BYTES])
{
    json_int_t value = json_integer_value(json);
    if (!json_is_integer(json) || value >= 0 || value < INT32_MIN) {
        return refuse_type(field->name, "a negative integer of 32 bits", json, why);
    }
    *out = value;
    return 0;
}

static int decode_bool(const struct proto_field *field, const json_t *json, bool *out, char why[PROTO_WHY_BYTES])
{
    if (!json_is_boolean(json)) {
        return refuse_type(field->name, "true or false", json, why);
    }
    *out = json_is_true(json);
    return 0;
}

/* Says which words are allowed and which came. */
static int refuse_word(const struct proto_field *field, const json_t *json, char why[PROTO_WHY_BYTES])
{
    char quoted[NAME_QUOTED];
    proto_text_quote(quoted, sizeof(quoted), json_string_value(json), json_string_length(json));
    size_t used = (size_t)snprintf(why, PROTO_WHY_BYTES, "\"%s\" is \"%s\"; allowed:", field->name, quoted);
    for (size_t i = 0; field->words[i] != NULL && used < PROTO_WHY_BYTES; i++) {
        used += (size_t)snprintf(why + used, PROTO_WHY_BYTES - used, "%s \"%s\"", i > 0 ? "," : "", field->words[i]);
    }
    return PROTO_ERR_INVALID_PARAMS;
}

static bool word_allowed(const struct proto_field *field, const char *text)
{
    for (size_t i = 0; field->words[i] != NULL; i++) {
        if (strcmp(field->words[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static int decode_text(const struct proto_field *field, const json_t *json, bool strict, char **out,
                       char why[PROTO_WHY_BYTES])
{
    size_t length = json_string_length(json);
    if (!json_is_string(json) || length < field->min || length > field->max) {
        char wanted[96];
        snprintf(wanted, sizeof(wanted), "a text of %" PRIu64 " to %" PRIu64 " bytes", field->min, field->max);
        return refuse_type(field->name, wanted, json, why);
    }
    if (strict && field->words != NULL && !word_allowed(field, json_string_value(json))) {
        return refuse_word(field, json, why);
    }
    *out = malloc(length + 1);
    if (*out == NULL) {
        snprintf(why, PROTO_WHY_BYTES, "out of memory");
        return PROTO_ERR_NO_MEMORY;
    }
    memcpy(*out, json_string_value(json), length + 1);
    return 0;
}

static int decode_json(const struct proto_field *field, json_t *json, json_t **out, char why[PROTO_WHY_BYTES])
{
    if (field->kind == PROTO_KIND_OBJECT && !json_is_object(json)) {
        return refuse_type(field->name, "an object", json, why);
    }
    if (field->kind == PROTO_KIND_ARRAY && (!json_is_array(json) || json_array_size(json) > field->max)) {
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "an array of at most %" PRIu64 " entries", field->max);
        return refuse_type(field->name, wanted, json, why);
    }
    *out = json_incref(json);
    return 0;
}

static int decode_key(const char *name, const json_t *json, struct proto_key *key, char why[PROTO_WHY_BYTES])
{
    if (key->data != NULL) {
        snprintf(why, PROTO_WHY_BYTES, "both \"key\" and \"key_b64\" are given; exactly one of them is allowed");
        return PROTO_ERR_INVALID_PARAMS;
    }
    return strcmp(name, "key") == 0 ? proto_key_decode_text(name, json, key, why)
                                    : proto_key_decode_b64(name, json, key, why);
}

static int decode_tristate(const struct proto_field *field, const json_t *json, enum proto_tristate *out,
                           char why[PROTO_WHY_BYTES])
{
    const char *text = json_string_value(json);
    if (!json_is_boolean(json) && (text == NULL || strcmp(text, "unknown") != 0)) {
        return refuse_type(field->name, "true, false or \"unknown\"", json, why);
    }
    *out = text != NULL ? PROTO_UNKNOWN : json_is_true(json) ? PROTO_TRUE : PROTO_FALSE;
    return 0;
}

static int decode_field(const struct proto_field *field, const char *name, json_t *json, bool strict, void *out,
                        char why[PROTO_WHY_BYTES])
{
    void *value = at(out, field->offset);
    switch (field->kind) {
    case PROTO_KIND_UINT:
        return decode_uint(field, json, value, why);
    case PROTO_KIND_CODE:
        return decode_code(field, json, value, why);
    case PROTO_KIND_BOOL:
        return decode_bool(field, json, value, why);
    case PROTO_KIND_TRISTATE:
        return decode_tristate(field, json, value, why);
    case PROTO_KIND_TEXT:
        return decode_text(field, json, strict, value, why);
    case PROTO_KIND_KEY:
        return decode_key(name, json, value, why);
    case PROTO_KIND_KEYS:
        return proto_keys_decode(field, json, value, why);
    default:
        return decode_json(field, json, value, why);
    }
}

static const struct proto_field *field_find(const struct proto_shape *shape, const char *name)
{
    for (size_t i = 0; i < shape->count; i++) {
        const struct proto_field *field = &shape->fields[i];
        if (strcmp(field->name, name) == 0 || (field->kind == PROTO_KIND_KEY && strcmp(name, "key_b64") == 0)) {
            return field;
        }
    }
    return NULL;
}

static int refuse_unknown(const struct proto_shape *shape, const char *name, char why[PROTO_WHY_BYTES])
{
    char quoted[NAME_QUOTED];
    proto_text_quote(quoted, sizeof(quoted), name, strlen(name));
    size_t used = (size_t)snprintf(why, PROTO_WHY_BYTES, "\"%s\" is no parameter of this method; allowed:%s", quoted,
                                   shape->count == 0 ? " none" : "");
    for (size_t i = 0; i < shape->count && used < PROTO_WHY_BYTES; i++) {
        const struct proto_field *field = &shape->fields[i];
        used += (size_t)snprintf(why + used, PROTO_WHY_BYTES - used, "%s \"%s\"%s", i > 0 ? "," : "", field->name,
                                 field->kind == PROTO_KIND_KEY ? " or \"key_b64\"" : "");
    }
    return PROTO_ERR_INVALID_PARAMS;
}

static int decode_absent(const struct proto_field *field, void *out, char why[PROTO_WHY_BYTES])
{
    if (field->need == PROTO_OPTIONAL) {
        return 0;
    }
    if (field->need == PROTO_NEEDED) {
        snprintf(why, PROTO_WHY_BYTES, "\"%s\"%s is missing", field->name,
                 field->kind == PROTO_KIND_KEY ? " or \"key_b64\"" : "");
        return PROTO_ERR_INVALID_PARAMS;
    }
    if (field->kind == PROTO_KIND_UINT) {
        memcpy(at(out, field->offset), &field->fallback, sizeof(field->fallback));
    } else if (field->kind == PROTO_KIND_BOOL) {
        bool fallback = field->fallback != 0;
        memcpy(at(out, field->offset), &fallback, sizeof(fallback));
    } else if (field->kind == PROTO_KIND_TEXT) {
        char *text = strdup(field->words[0]);
        if (text == NULL) {
            snprintf(why, PROTO_WHY_BYTES, "out of memory");
            return PROTO_ERR_NO_MEMORY;
        }
        memcpy(at(out, field->offset), &text, sizeof(text));
    }
    return 0;
}

static int decode_members(const struct proto_shape *shape, json_t *object, bool strict, void *out, uint32_t *seen,
                          char why[PROTO_WHY_BYTES])
{
    for (void *member = json_object_iter(object); member != NULL; member = json_object_iter_next(object, member)) {
        const char *name = json_object_iter_key(member);
        const struct proto_field *field = field_find(shape, name);
        if (field == NULL) {
            if (strict) {
                return refuse_unknown(shape, name, why);
            }
            continue;
        }
        int error = decode_field(field, name, json_object_iter_value(member), strict, out, why);
        if (error != 0) {
            return error;
        }
        *seen |= UINT32_C(1) << (field - shape->fields);
        if (field->kind == PROTO_KIND_UINT && field->need == PROTO_OPTIONAL) {
            *(bool *)at(out, field->flag) = true;
        }
    }
    return 0;
}

static bool shape_is_whole(const struct proto_shape *shape)
{
    return shape->count == 1 && shape->fields[0].kind == PROTO_KIND_WHOLE;
}

static int decode_whole(const struct proto_shape *shape, json_t *object, void *out, char why[PROTO_WHY_BYTES])
{
    json_t *whole = object != NULL ? json_incref(object) : json_object();
    if (whole == NULL) {
        snprintf(why, PROTO_WHY_BYTES, "out of memory");
        return PROTO_ERR_NO_MEMORY;
    }
    memcpy(at(out, shape->fields[0].offset), &whole, sizeof(whole)); /* NOLINT: the pointer itself */
    return 0;
}

int proto_shape_decode(const struct proto_shape *shape, json_t *object, bool strict, void *out,
                       char why[PROTO_WHY_BYTES])
{
    memset(out, 0, shape->size);
    why[0] = '\0';
    if (object != NULL && !json_is_object(object)) {
        char came[PROTO_WHY_BYTES / 2];
        snprintf(why, PROTO_WHY_BYTES, "an object is expected, not %s", proto_describe(came, sizeof(came), object));
        return PROTO_ERR_INVALID_PARAMS;
    }
    if (shape_is_whole(shape)) {
        return decode_whole(shape, object, out, why);
    }
    uint32_t seen = 0;
    int error = decode_members(shape, object, strict, out, &seen, why);
    for (size_t i = 0; i < shape->count && error == 0; i++) {
        if ((seen & UINT32_C(1) << i) == 0) {
            error = decode_absent(&shape->fields[i], out, why);
        }
    }
    if (error != 0) {
        proto_shape_free(shape, out);
    }
    return error;
}

static void free_field(const struct proto_field *field, void *value)
{
    switch (field->kind) {
    case PROTO_KIND_TEXT:
        free(*(char **)value);
        break;
    case PROTO_KIND_KEY:
        free(((struct proto_key *)value)->data);
        break;
    case PROTO_KIND_KEYS:
        proto_keys_free(value);
        break;
    case PROTO_KIND_OBJECT:
    case PROTO_KIND_ARRAY:
    case PROTO_KIND_WHOLE:
        json_decref(*(json_t **)value);
        break;
    default:
        break;
    }
}

void proto_shape_free(const struct proto_shape *shape, void *decoded)
{
    for (size_t i = 0; i < shape->count; i++) {
        free_field(&shape->fields[i], at(decoded, shape->fields[i].offset));
    }
    memset(decoded, 0, shape->size);
}
