/*
 * What a shape is made of; for proto's own files only. methods.c fills the tables, shape*.c walk them.
 */
#ifndef GRD_PROTO_SHAPE_TABLE_H
#define GRD_PROTO_SHAPE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/shape.h"

enum proto_kind {
    PROTO_KIND_UINT,   /* uint64_t; min..max, default */
    PROTO_KIND_CODE,   /* int64_t; a proto_error, so below 0 */
    PROTO_KIND_BOOL,   /* bool; default */
    PROTO_KIND_TRISTATE, /* enum proto_tristate: left out, a boolean, or the text "unknown" */
    PROTO_KIND_TEXT,   /* char *, NUL-terminated; min..max bytes, words */
    PROTO_KIND_KEY,    /* struct proto_key; the members "key" or "key_b64" */
    PROTO_KIND_KEYS,   /* struct proto_keys; min..max entries */
    PROTO_KIND_OBJECT, /* json_t *, an object */
    PROTO_KIND_ARRAY,  /* json_t *, an array */
    PROTO_KIND_WHOLE,  /* json_t *: not a member but the whole object; the only row of its shape */
};

enum proto_need {
    PROTO_NEEDED,
    PROTO_OPTIONAL,  /* absent: the flag stays false, a text NULL */
    PROTO_DEFAULTED, /* absent: `fallback`, or the first of `words` */
};

struct proto_field {
    const char *name;
    enum proto_kind kind;
    enum proto_need need;
    size_t offset; /* of the value in the struct */
    size_t flag;   /* of the bool that says an optional number is there; others have none */
    uint64_t min, max;
    uint64_t fallback;
    const char *const *words; /* texts that parameters may hold, NULL-terminated; NULL: any */
};

struct proto_shape {
    size_t size; /* of the struct */
    size_t count;
    const struct proto_field *fields;
};

/* The rows of keys; `json` is borrowed, the result malloc'ed. 0, or a proto_error with `why`. */
int proto_key_decode_text(const char *name, const json_t *json, struct proto_key *key, char why[PROTO_WHY_BYTES]);
int proto_key_decode_b64(const char *name, const json_t *json, struct proto_key *key, char why[PROTO_WHY_BYTES]);
int proto_keys_decode(const struct proto_field *field, const json_t *json, struct proto_keys *keys,
                      char why[PROTO_WHY_BYTES]);
void proto_keys_free(struct proto_keys *keys);

/* "a text", "the integer -5": what came, for sentences. Returns `out`. */
const char *proto_describe(char *out, size_t capacity, const json_t *json);

#endif
