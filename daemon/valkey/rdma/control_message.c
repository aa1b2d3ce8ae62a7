#include "daemon/valkey/rdma/control_message.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Where the members stand. */
#define AT_OPCODE 0
#define AT_SELECT 2
#define AT_FEATURES 24
#define AT_ADDRESS 16
#define AT_LENGTH 24
#define AT_RKEY 28

static void put16(uint8_t *at, uint16_t value)
{
    value = htobe16(value);
    memcpy(at, &value, sizeof(value));
}

static void put32(uint8_t *at, uint32_t value)
{
    value = htobe32(value);
    memcpy(at, &value, sizeof(value));
}

static void put64(uint8_t *at, uint64_t value)
{
    value = htobe64(value);
    memcpy(at, &value, sizeof(value));
}

static uint16_t get16(const uint8_t *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof(value));
    return be16toh(value);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return be32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return be64toh(value);
}

void control_encode(const struct control_message *message, uint8_t bytes[RDMA_CONTROL_BYTES])
{
    memset(bytes, 0, RDMA_CONTROL_BYTES);
    put16(bytes + AT_OPCODE, (uint16_t)message->opcode);
    switch (message->opcode) {
    case CONTROL_GET_SERVER_FEATURE:
    case CONTROL_SET_CLIENT_FEATURE:
        put16(bytes + AT_SELECT, message->select);
        put64(bytes + AT_FEATURES, message->features);
        break;
    case CONTROL_WINDOW:
        put64(bytes + AT_ADDRESS, message->address);
        put32(bytes + AT_LENGTH, message->length);
        put32(bytes + AT_RKEY, message->rkey);
        break;
    case CONTROL_KEEPALIVE:
        break;
    }
}

int control_decode(const uint8_t bytes[RDMA_CONTROL_BYTES], size_t length, struct control_message *message,
                   char why[CONTROL_WHY_BYTES])
{
    unsigned opcode;

    if (length != RDMA_CONTROL_BYTES) {
        snprintf(why, CONTROL_WHY_BYTES, "a control message has %zu bytes instead of %d", length, RDMA_CONTROL_BYTES);
        return -EPROTO;
    }
    opcode = get16(bytes + AT_OPCODE);
    if (opcode > CONTROL_WINDOW) {
        snprintf(why, CONTROL_WHY_BYTES, "a control message has the unknown opcode %u", opcode);
        return -EPROTO;
    }
    *message = (struct control_message){.opcode = (enum control_opcode)opcode};
    if (message->opcode == CONTROL_WINDOW) {
        message->address = get64(bytes + AT_ADDRESS);
        message->length = get32(bytes + AT_LENGTH);
        message->rkey = get32(bytes + AT_RKEY);
    } else if (message->opcode != CONTROL_KEEPALIVE) {
        message->select = get16(bytes + AT_SELECT);
        message->features = get64(bytes + AT_FEATURES);
    }
    return 0;
}
