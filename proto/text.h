/*
 * Text helpers of the codec: UTF-8, JSON escapes, and foreign bytes made fit for messages. Thread safe.
 */
#ifndef GRD_PROTO_TEXT_H
#define GRD_PROTO_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 sequence at `bytes` (1 to 4), or 0 when there is none. `length` must be > 0. */
size_t proto_utf8_sequence(const uint8_t *bytes, size_t length);

/* Bytes that a character below 0x80 takes inside a JSON text: 1, 2 or 6. */
size_t proto_json_escape_length(uint8_t character);

/*
 * Copies foreign bytes for use in a sentence: printable ASCII stays, all else becomes '?', and what is longer than
 * the buffer ends in "...". Log lines and error texts can so not be forged. Returns `out`.
 */
const char *proto_text_quote(char *out, size_t capacity, const char *bytes, size_t length);

/*
 * The same for bytes that shall be told apart: all but printable ASCII, quotes and backslashes become \xNN, and what
 * does not fit ends in "...". `capacity` is 8 or more. Returns `out`.
 */
const char *proto_text_escape(char *out, size_t capacity, const char *bytes, size_t length);

#endif
