#include "daemon/valkey/slots.h"

#include <string.h>

/* What four bits shifted out of the checksum put back in. */
static const uint16_t nibbles[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
};

uint16_t slot_crc16(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint16_t crc = 0;

    for (size_t i = 0; i < length; i++) {
        crc = (uint16_t)((crc << 4) ^ nibbles[(crc >> 12) ^ (at[i] >> 4)]);
        crc = (uint16_t)((crc << 4) ^ nibbles[(crc >> 12) ^ (at[i] & 15)]);
    }
    return crc;
}

unsigned slot_of_key(const void *key, size_t length)
{
    const char *start = key, *open = memchr(key, '{', length);

    if (open != NULL) {
        const char *tag = open + 1;
        const char *close = memchr(tag, '}', length - (size_t)(tag - start));
        if (close != NULL && close > tag) {
            return slot_crc16(tag, (size_t)(close - tag)) % SLOTS;
        }
    }
    return slot_crc16(key, length) % SLOTS;
}
