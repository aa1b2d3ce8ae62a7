/*
 * Slots of keys. The checksum's check value is that of CRC-16/XMODEM; the slots were computed by Python's
 * binascii.crc_hqx, another implementation of it; the integration tests ask a real server (CLUSTER KEYSLOT).
 */
#include <string.h>

#include "daemon/valkey/slots.h"
#include "tests/unit/unit_main.h"

START_TEST(check_value)
{
    ck_assert_uint_eq(slot_crc16("123456789", 9), 0x31c3);
    ck_assert_uint_eq(slot_crc16("", 0), 0);
}
END_TEST

/* The checksum bit by bit, as the polynomial says. */
static uint16_t crc_by_bits(const uint8_t *bytes, size_t length)
{
    uint16_t crc = 0;

    for (size_t i = 0; i < length; i++) {
        crc ^= (uint16_t)(bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint16_t)((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
        }
    }
    return crc;
}

START_TEST(every_byte)
{
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            uint8_t bytes[] = {(uint8_t)first, (uint8_t)second};
            ck_assert_uint_eq(slot_crc16(bytes, 2), crc_by_bits(bytes, 2));
        }
    }
}
END_TEST

START_TEST(slots_of_keys)
{
    static const struct {
        const char *key;
        unsigned slot;
    } keys[] = {
        {"", 0},
        {"a", 15495},
        {"foo", 12182},
        {"key:1", 6657},
        {"{user1000}.following", 3443},
        {"foo{}{bar}", 8363},
        {"foo{{bar}}zap", 4015},
        {"foo{bar}{zap}", 5061},
        {"meta-llama/Llama-3@0x1f@9f86d081884c7d65", 4286},
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        ck_assert_uint_eq(slot_of_key(keys[i].key, strlen(keys[i].key)), keys[i].slot);
    }
    ck_assert_uint_eq(slot_of_key("\0\xff\x80", 3), 4727);
}
END_TEST

START_TEST(only_the_hashtag_counts)
{
    static const char *const same[] = {"{tag}", "{tag}1", "1{tag}", "a{tag}b{other}", "}{tag}", "tag"};
    static const char *const whole[] = {"{}tag", "{tag", "tag}", "a{}b{tag}"};
    unsigned slot = slot_of_key("tag", 3);

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        ck_assert_uint_eq(slot_of_key(same[i], strlen(same[i])), slot);
    }
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        ck_assert_uint_eq(slot_of_key(whole[i], strlen(whole[i])),
                          slot_crc16(whole[i], strlen(whole[i])) % SLOTS);
    }
    /* Not beyond the end of the key. */
    ck_assert_uint_eq(slot_of_key("{tag}", 4), slot_crc16("{tag", 4) % SLOTS);
    ck_assert_uint_eq(slot_of_key("{", 1), slot_crc16("{", 1) % SLOTS);
}
END_TEST

UNIT_MAIN("slots", check_value, every_byte, slots_of_keys, only_the_hashtag_counts)
