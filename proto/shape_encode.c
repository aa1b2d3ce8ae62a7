/* Encoding: struct to JSON object. */
#include <string.h>

#include "proto/shape_table.h"

static const void *at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}

/* Takes `value` over. */
static int add(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new_nocheck(object, name, value);
}

static json_t *encode_uint(uint64_t value)
{
    /* What JSON integers here cannot hold goes out as their largest: the receiver then refuses it by its range. */
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static int encode_field(const struct proto_field *field, const void *in, json_t *object)
{
    const void *value = at(in, field->offset);
    switch (field->kind) {
    case PROTO_KIND_UINT:
        if (field->need == PROTO_OPTIONAL && !*(const bool *)at(in, field->flag)) {
            return 0;
        }
        return add(object, field->name, encode_uint(*(const uint64_t *)value));
    case PROTO_KIND_CODE:
        return add(object, field->name, json_integer(*(const int64_t *)value));
    case PROTO_KIND_BOOL:
        return add(object, field->name, json_boolean(*(const bool *)value));
    case PROTO_KIND_TRISTATE: {
        enum proto_tristate state = *(const enum proto_tristate *)value;
        return state == PROTO_ABSENT ? 0
                                     : add(object, field->name, state == PROTO_UNKNOWN ? json_string("unknown")
                                                                                       : json_boolean(state == PROTO_TRUE));
    }
    case PROTO_KIND_TEXT: {
        const char *text = *(char *const *)value;
        return text == NULL ? 0 : add(object, field->name, proto_text_json(text, strlen(text)));
    }
    case PROTO_KIND_KEY:
        return proto_key_encode(object, value);
    case PROTO_KIND_KEYS:
        return add(object, field->name, proto_keys_encode(value));
    default: {
        json_t *json = *(json_t *const *)value;
        return json == NULL ? 0 : add(object, field->name, json_incref(json));
    }
    }
}

json_t *proto_shape_encode(const struct proto_shape *shape, const void *in)
{
    if (shape->count == 1 && shape->fields[0].kind == PROTO_KIND_WHOLE) {
        json_t *whole = *(json_t *const *)at(in, shape->fields[0].offset);
        return whole != NULL ? json_incref(whole) : json_object();
    }
    json_t *object = json_object();
    if (object == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < shape->count; i++) {
        if (encode_field(&shape->fields[i], in, object) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}
