#include "client/ctl/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"
#include "proto/text.h"

/* C1 controls, and the marks and overrides of writing direction. */
static bool steers(const uint8_t *sequence, size_t length)
{
    if (length == 1) {
        return sequence[0] < 0x20 || sequence[0] == 0x7F;
    }
    if (length == 2) {
        return sequence[0] == 0xC2 && sequence[1] < 0xA0;
    }
    return length == 3 && sequence[0] == 0xE2 &&
           ((sequence[1] == 0x80 && sequence[2] >= 0x8B && sequence[2] <= 0x8F) ||
            (sequence[1] == 0x80 && sequence[2] >= 0xA8 && sequence[2] <= 0xAE) ||
            (sequence[1] == 0x81 && sequence[2] >= 0xA0 && sequence[2] <= 0xAF));
}

char *text_safe(const char *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    char *safe = need_memory(malloc(4 * length + 1));
    char *out = safe;
    size_t at = 0;

    while (at < length) {
        const uint8_t *next = (const uint8_t *)bytes + at;
        size_t sequence = proto_utf8_sequence(next, length - at);

        if (sequence > 0 && !steers(next, sequence)) {
            memcpy(out, next, sequence);
            out += sequence;
            at += sequence;
        } else {
            *out++ = '\\';
            *out++ = 'x';
            *out++ = digits[*next >> 4];
            *out++ = digits[*next & 15];
            at++;
        }
    }
    *out = '\0';
    return safe;
}

size_t text_width(const char *safe)
{
    size_t width = 0;

    for (; *safe != '\0'; safe++) {
        width += ((unsigned char)*safe & 0xC0) != 0x80;
    }
    return width;
}

const char *text_bytes(char out[TEXT_NUMBER_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    /* 1023.96 would be printed as 1024.0. */
    while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(out, TEXT_NUMBER_BYTES, "%.*f %s", unit == 0 ? 0 : 1, value, units[unit]);
    return out;
}

const char *text_duration(char out[TEXT_NUMBER_BYTES], uint64_t microseconds)
{
    uint64_t seconds = microseconds / 1000000, minutes = seconds / 60, hours = minutes / 60;

    if (microseconds < 1000) {
        snprintf(out, TEXT_NUMBER_BYTES, "%" PRIu64 " us", microseconds);
    } else if (seconds < 1) {
        snprintf(out, TEXT_NUMBER_BYTES, "%.1f ms", (double)microseconds / 1e3);
    } else if (seconds < 60) {
        snprintf(out, TEXT_NUMBER_BYTES, "%.1f s", (double)microseconds / 1e6);
    } else if (hours < 1) {
        snprintf(out, TEXT_NUMBER_BYTES, "%" PRIu64 " min %" PRIu64 " s", minutes, seconds % 60);
    } else if (hours < 24) {
        snprintf(out, TEXT_NUMBER_BYTES, "%" PRIu64 " h %" PRIu64 " min", hours, minutes % 60);
    } else {
        snprintf(out, TEXT_NUMBER_BYTES, "%" PRIu64 " d %" PRIu64 " h", hours / 24, hours % 24);
    }
    return out;
}
