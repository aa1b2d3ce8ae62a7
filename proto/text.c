#include "proto/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/shape.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
#define REPLACEMENT_LENGTH (sizeof(replacement) - 1)

static bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t proto_utf8_sequence(const uint8_t *bytes, size_t length)
{
    uint8_t first = bytes[0];
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xC2 || first > 0xF4) {
        return 0;
    }
    size_t need = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length < need) {
        return 0;
    }
    for (size_t i = 1; i < need; i++) {
        if (!continues(bytes[i])) {
            return 0;
        }
    }
    /* Overlong forms, surrogates and what lies above U+10FFFF show in the second byte. */
    if ((first == 0xE0 && bytes[1] < 0xA0) || (first == 0xED && bytes[1] > 0x9F) ||
        (first == 0xF0 && bytes[1] < 0x90) || (first == 0xF4 && bytes[1] > 0x8F)) {
        return 0;
    }
    return need;
}

size_t proto_json_escape_length(uint8_t character)
{
    switch (character) {
    case '"':
    case '\\':
    case '\b':
    case '\f':
    case '\n':
    case '\r':
    case '\t':
        return 2;
    default:
        return character < 0x20 ? 6 : 1;
    }
}

/* Bytes of the sequence that may stay as it is, or 0. */
static size_t acceptable(const char *bytes, size_t length)
{
    return bytes[0] == '\0' ? 0 : proto_utf8_sequence((const uint8_t *)bytes, length);
}

static size_t acceptable_prefix(const char *bytes, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t step = acceptable(bytes + at, length - at);
        if (step == 0) {
            break;
        }
        at += step;
    }
    return at;
}

json_t *proto_text_json(const char *bytes, size_t length)
{
    size_t good = acceptable_prefix(bytes, length);
    if (good == length) {
        return json_stringn_nocheck(bytes, length);
    }
    char *clean = malloc(length * REPLACEMENT_LENGTH);
    if (clean == NULL) {
        return NULL;
    }
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        size_t step = acceptable(bytes + at, length - at);
        memcpy(clean + used, step > 0 ? bytes + at : replacement, step > 0 ? step : REPLACEMENT_LENGTH);
        used += step > 0 ? step : REPLACEMENT_LENGTH;
        at += step > 0 ? step : 1;
    }
    json_t *text = json_stringn_nocheck(clean, used);
    free(clean);
    return text;
}

const char *proto_text_quote(char *out, size_t capacity, const char *bytes, size_t length)
{
    static const char dots[] = "...";
    bool whole = length < capacity;
    size_t keep = whole ? length : capacity - sizeof(dots);
    for (size_t i = 0; i < keep; i++) {
        out[i] = bytes[i] >= 0x20 && bytes[i] < 0x7F ? bytes[i] : '?';
    }
    memcpy(out + keep, whole ? "" : dots, whole ? 1 : sizeof(dots));
    return out;
}

const char *proto_text_escape(char *out, size_t capacity, const char *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef", dots[] = "...";
    size_t used = 0, whole = 0; /* whole: up to here there is room for the dots behind it */
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        bool plain = byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
        if (used + (plain ? 1 : 4) >= capacity) {
            memcpy(out + whole, dots, sizeof(dots));
            return out;
        }
        if (plain) {
            out[used++] = (char)byte;
        } else {
            const char escape[] = {'\\', 'x', digits[byte >> 4], digits[byte & 0xF]};
            memcpy(out + used, escape, sizeof(escape));
            used += sizeof(escape);
        }
        whole = used + sizeof(dots) <= capacity ? used : whole;
    }
    out[used] = '\0';
    return out;
}
