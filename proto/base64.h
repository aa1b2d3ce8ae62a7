/*
 * Base64 as RFC 4648 section 4 has it: standard alphabet, padding required, no line breaks, no unused bits set.
 * One byte string has exactly one encoding, so two different texts never name the same key. Thread safe.
 */
#ifndef GRD_PROTO_BASE64_H
#define GRD_PROTO_BASE64_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Characters that `length` bytes become, without a NUL. */
#define PROTO_BASE64_LENGTH(length) (((length) + 2) / 3 * 4)

/* Bytes that decoding `length` characters needs at most. */
#define PROTO_BASE64_BYTES(length) ((length) / 4 * 3)

/* Writes PROTO_BASE64_LENGTH(length) characters, no NUL; returns that number. */
size_t proto_base64_encode(const uint8_t *bytes, size_t length, char *out);

/* Writes at most PROTO_BASE64_BYTES(length) bytes; returns their number, or -1 when the text is no base64. */
ssize_t proto_base64_decode(const char *text, size_t length, uint8_t *out);

#endif
