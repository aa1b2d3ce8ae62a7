#include "proto/base64.h"

#define BAD 0xFF

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t proto_base64_encode(const uint8_t *bytes, size_t length, char *out)
{
    char *start = out;
    for (; length >= 3; bytes += 3, length -= 3) {
        *out++ = alphabet[bytes[0] >> 2];
        *out++ = alphabet[(bytes[0] & 3) << 4 | bytes[1] >> 4];
        *out++ = alphabet[(bytes[1] & 15) << 2 | bytes[2] >> 6];
        *out++ = alphabet[bytes[2] & 63];
    }
    if (length > 0) {
        unsigned second = length == 2 ? bytes[1] : 0;
        *out++ = alphabet[bytes[0] >> 2];
        *out++ = alphabet[(bytes[0] & 3U) << 4 | second >> 4];
        *out++ = length == 2 ? alphabet[(second & 15) << 2] : '=';
        *out++ = '=';
    }
    return (size_t)(out - start);
}

static unsigned value_of(char character)
{
    if (character >= 'A' && character <= 'Z') {
        return (unsigned)(character - 'A');
    }
    if (character >= 'a' && character <= 'z') {
        return (unsigned)(character - 'a') + 26;
    }
    if (character >= '0' && character <= '9') {
        return (unsigned)(character - '0') + 52;
    }
    return character == '+' ? 62 : character == '/' ? 63 : BAD;
}

/* The last group, which alone may be padded: bytes written, or -1. */
static int decode_tail(const char *text, uint8_t *out)
{
    int padding = text[3] != '=' ? 0 : text[2] != '=' ? 1 : 2;
    unsigned a = value_of(text[0]);
    unsigned b = value_of(text[1]);
    unsigned c = padding == 2 ? 0 : value_of(text[2]);
    unsigned d = padding >= 1 ? 0 : value_of(text[3]);
    if (a == BAD || b == BAD || c == BAD || d == BAD) {
        return -1;
    }
    if ((padding == 2 && (b & 15) != 0) || (padding == 1 && (c & 3) != 0)) {
        return -1;
    }
    out[0] = (uint8_t)(a << 2 | b >> 4);
    if (padding < 2) {
        out[1] = (uint8_t)(b << 4 | c >> 2);
    }
    if (padding < 1) {
        out[2] = (uint8_t)(c << 6 | d);
    }
    return 3 - padding;
}

ssize_t proto_base64_decode(const char *text, size_t length, uint8_t *out)
{
    if (length % 4 != 0) {
        return -1;
    }
    if (length == 0) {
        return 0;
    }
    uint8_t *start = out;
    for (; length > 4; text += 4, length -= 4) {
        unsigned a = value_of(text[0]);
        unsigned b = value_of(text[1]);
        unsigned c = value_of(text[2]);
        unsigned d = value_of(text[3]);
        if (a == BAD || b == BAD || c == BAD || d == BAD) {
            return -1;
        }
        *out++ = (uint8_t)(a << 2 | b >> 4);
        *out++ = (uint8_t)(b << 4 | c >> 2);
        *out++ = (uint8_t)(c << 6 | d);
    }
    int tail = decode_tail(text, out);
    return tail < 0 ? -1 : out - start + tail;
}
