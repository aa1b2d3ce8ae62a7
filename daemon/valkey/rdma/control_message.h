/*
 * Control messages of Valkey Over RDMA: SENDs of exactly RDMA_CONTROL_BYTES, every number big-endian, what is unused
 * zero. Pure functions; a peer's message is looked at in our own copy of it.
 */
#ifndef GRD_VALKEY_RDMA_CONTROL_MESSAGE_H
#define GRD_VALKEY_RDMA_CONTROL_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/valkey/rdma/ops.h"

enum control_opcode {
    CONTROL_GET_SERVER_FEATURE = 0, /* we ask; the server's answer has the same opcode */
    CONTROL_SET_CLIENT_FEATURE = 1, /* from client to server only, no answer */
    CONTROL_KEEPALIVE = 2,          /* no answer */
    CONTROL_WINDOW = 3,             /* "this is my window; write from its begin" */
};

struct control_message {
    enum control_opcode opcode;
    uint16_t select;     /* opcodes 0 and 1 */
    uint64_t features;   /* opcodes 0 and 1 */
    uint64_t address;    /* opcode 3, with the two below */
    uint32_t length;     /* bytes */
    uint32_t rkey;
};

#define CONTROL_WHY_BYTES 96

/* Members that the opcode does not have are not written. */
void control_encode(const struct control_message *message, uint8_t bytes[RDMA_CONTROL_BYTES]);

/*
 * `length`: of the SEND that came, of which `bytes` holds the begin. 0; -EPROTO with `why` for another length than
 * RDMA_CONTROL_BYTES or an opcode that is none of the above. Bytes that are unused today are not looked at.
 */
int control_decode(const uint8_t bytes[RDMA_CONTROL_BYTES], size_t length, struct control_message *message,
                   char why[CONTROL_WHY_BYTES]);

#endif
