/* Base64: the vectors of RFC 4648, every length, and everything that is not the one encoding of some bytes. */
#include <string.h>

#include "proto/base64.h"
#include "unit_main.h"

static const struct {
    const char *bytes, *text;
} vectors[] = {
    {"", ""},         {"f", "Zg=="},         {"fo", "Zm8="},         {"foo", "Zm9v"},
    {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"},
};

START_TEST(vectors_of_the_rfc)
{
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        char text[16];
        uint8_t bytes[16];
        size_t length = strlen(vectors[i].bytes);
        size_t characters = proto_base64_encode((const uint8_t *)vectors[i].bytes, length, text);
        ck_assert_uint_eq(characters, strlen(vectors[i].text));
        ck_assert_mem_eq(text, vectors[i].text, characters);
        ck_assert_int_eq(proto_base64_decode(text, characters, bytes), (ssize_t)length);
        ck_assert_mem_eq(bytes, vectors[i].bytes, length);
    }
}
END_TEST

START_TEST(every_byte_and_length_survives)
{
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (size_t length = 0; length <= sizeof(bytes); length++) {
        char text[PROTO_BASE64_LENGTH(sizeof(bytes))];
        uint8_t back[PROTO_BASE64_BYTES(sizeof(text))];
        size_t characters = proto_base64_encode(bytes, length, text);
        ck_assert_uint_eq(characters, PROTO_BASE64_LENGTH(length));
        ck_assert_int_eq(proto_base64_decode(text, characters, back), (ssize_t)length);
        ck_assert_mem_eq(back, bytes, length);
    }
}
END_TEST

START_TEST(anything_else_is_refused)
{
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zg===", "====", "=", "Z===", "Zm9v=", "Zm9vZg=", "Zg==Zg==", "Zm9v\n", " Zg==", "Zg= =",
        "Zm-v", "Zm_v", "Zm9*", "Z\xC3\xA9==", "Zh==", "Zm9=", "Zm8=Zm9v", "Zg=A", "Z=g=",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t bytes[32];
        ck_assert_msg(proto_base64_decode(bad[i], strlen(bad[i]), bytes) == -1, "accepted: %s", bad[i]);
    }
}
END_TEST

START_TEST(one_encoding_per_byte_string)
{
    /* Of all four-character groups, exactly 2^24 + 2^16 + 2^8 would decode; sample the padded ones in full. */
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t accepted = 0;
    for (size_t a = 0; a < 64; a++) {
        for (size_t b = 0; b < 64; b++) {
            char text[4] = {alphabet[a], alphabet[b], '=', '='};
            uint8_t bytes[3];
            accepted += proto_base64_decode(text, 4, bytes) == 1;
        }
    }
    ck_assert_uint_eq(accepted, 256);
}
END_TEST

UNIT_MAIN("proto_base64", vectors_of_the_rfc, every_byte_and_length_survives, anything_else_is_refused,
          one_encoding_per_byte_string)
