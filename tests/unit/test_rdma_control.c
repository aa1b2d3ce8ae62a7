/* The control messages of Valkey over RDMA, byte by byte, and what is no message. */
#include <errno.h>
#include <string.h>

#include "daemon/valkey/rdma/control_message.h"
#include "tests/unit/unit_main.h"

static void expect_bytes(const struct control_message *message, const uint8_t expected[RDMA_CONTROL_BYTES])
{
    uint8_t bytes[RDMA_CONTROL_BYTES];
    struct control_message again;
    char why[CONTROL_WHY_BYTES];

    memset(bytes, 0xEE, sizeof(bytes));
    control_encode(message, bytes);
    ck_assert_mem_eq(bytes, expected, RDMA_CONTROL_BYTES);
    ck_assert_int_eq(control_decode(bytes, RDMA_CONTROL_BYTES, &again, why), 0);
    ck_assert_int_eq(again.opcode, message->opcode);
    ck_assert_uint_eq(again.select, message->select);
    ck_assert_uint_eq(again.features, message->features);
    ck_assert_uint_eq(again.address, message->address);
    ck_assert_uint_eq(again.length, message->length);
    ck_assert_uint_eq(again.rkey, message->rkey);
}

START_TEST(every_opcode)
{
    expect_bytes(&(struct control_message){.opcode = CONTROL_WINDOW, .address = 0x1122334455667788,
                                           .length = 0x00010000, .rkey = 0xA1B2C3D4},
                 (const uint8_t[RDMA_CONTROL_BYTES]){[1] = 3, [16] = 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
                                                     0, 1, 0, 0, 0xA1, 0xB2, 0xC3, 0xD4});
    expect_bytes(&(struct control_message){.opcode = CONTROL_KEEPALIVE},
                 (const uint8_t[RDMA_CONTROL_BYTES]){[1] = 2});
    expect_bytes(&(struct control_message){.opcode = CONTROL_GET_SERVER_FEATURE, .select = 0x0102, .features = 0x80},
                 (const uint8_t[RDMA_CONTROL_BYTES]){[2] = 1, 2, [31] = 0x80});
    expect_bytes(&(struct control_message){.opcode = CONTROL_SET_CLIENT_FEATURE, .select = 1, .features = UINT64_MAX},
                 (const uint8_t[RDMA_CONTROL_BYTES]){[1] = 1, [3] = 1, [24] = 255, 255, 255, 255, 255, 255, 255, 255});
}
END_TEST

START_TEST(what_is_no_message)
{
    struct control_message message;
    char why[CONTROL_WHY_BYTES];

    for (size_t length = 0; length < 100; length++) {
        const uint8_t bytes[RDMA_CONTROL_BYTES] = {[1] = 2};
        int status = control_decode(bytes, length, &message, why);

        ck_assert_int_eq(status, length == RDMA_CONTROL_BYTES ? 0 : -EPROTO);
    }
    ck_assert_str_eq(why, "a control message has 99 bytes instead of 32");
    for (unsigned opcode = 4; opcode <= UINT16_MAX; opcode++) {
        const uint8_t bytes[RDMA_CONTROL_BYTES] = {(uint8_t)(opcode >> 8), (uint8_t)opcode};

        ck_assert_int_eq(control_decode(bytes, RDMA_CONTROL_BYTES, &message, why), -EPROTO);
    }
    ck_assert_str_eq(why, "a control message has the unknown opcode 65535");
}
END_TEST

/* A later version may use what is zero today. */
START_TEST(unused_bytes_are_not_looked_at)
{
    uint8_t bytes[RDMA_CONTROL_BYTES];
    struct control_message message;
    char why[CONTROL_WHY_BYTES];

    memset(bytes, 0x5A, sizeof(bytes));
    bytes[0] = 0;
    bytes[1] = CONTROL_KEEPALIVE;
    ck_assert_int_eq(control_decode(bytes, RDMA_CONTROL_BYTES, &message, why), 0);
    ck_assert_int_eq(message.opcode, CONTROL_KEEPALIVE);
    ck_assert_uint_eq(message.length, 0);
}
END_TEST

UNIT_MAIN("RDMA control messages", every_opcode, what_is_no_message, unused_bytes_are_not_looked_at)
