/*
 * JSON <-> struct by a table of fields (a shape).
 *
 * Decoding is strict for parameters: unknown names, missing ones, wrong types, floats and values out of range are
 * refused with a text that names the field, what came and what is allowed. For results unknown fields are ignored, so
 * that a newer daemon may say more. Not thread safe for one struct; shapes themselves are constant.
 */
#ifndef GRD_PROTO_SHAPE_H
#define GRD_PROTO_SHAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "proto/methods.h"

#define PROTO_WHY_BYTES 512

/*
 * Fills `out` (of the shape's struct) from `object` (borrowed; NULL counts as {}). Strings, keys and JSON values in
 * `out` become the caller's, who calls proto_shape_free. On error `out` needs no freeing.
 * 0, or a negative enum proto_error with a sentence in `why`: INVALID_PARAMS, TOO_LARGE, or NO_MEMORY (which never
 * travels: a daemon answers SYSTEM).
 */
int proto_shape_decode(const struct proto_shape *shape, json_t *object, bool strict, void *out,
                       char why[PROTO_WHY_BYTES]);

/*
 * New JSON object (caller's reference) of the struct's fields; NULL when out of memory. Borrows from `in`. Texts and
 * JSON values that are NULL, and optional numbers without their flag, are left out. Bytes of a text that are no UTF-8
 * are sent as U+FFFD; keys always travel unchanged.
 */
json_t *proto_shape_encode(const struct proto_shape *shape, const void *in);

/* Frees what decoding allocated inside; the struct itself stays the caller's. Harmless on a zeroed struct. */
void proto_shape_free(const struct proto_shape *shape, void *decoded);

/*
 * A key as a JSON value pair: adds "key" or "key_b64" to `object`, whichever is possible and, escapes counted, the
 * shorter on the wire: so every key of PROTO_KEY_BYTES fits a message. 0 or -1 when out of memory.
 */
int proto_key_encode(json_t *object, const struct proto_key *key);

/* New JSON array (caller's reference) of keys, in that way: texts, or objects with "key_b64". NULL: out of memory. */
json_t *proto_keys_encode(const struct proto_keys *keys);

/*
 * New JSON text (caller's reference) of bytes that may be anything, a server's error text for instance: what is no
 * UTF-8, and U+0000, becomes U+FFFD. NULL when out of memory. Thread safe.
 */
json_t *proto_text_json(const char *bytes, size_t length);

#endif
