/*
 * The reply of a blocked command, carried from the thread that knows it to the main thread that sends it.
 */
#ifndef LARGEOBJ_REPLY_H
#define LARGEOBJ_REPLY_H

#include <stddef.h>
#include <stdint.h>

#include "module_api.h"

#define ERROR_WRONG_TYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define ERROR_OUT_OF_MEMORY "OOM command not allowed when used memory > 'maxmemory'."

enum reply_kind {
    REPLY_NOTHING, /* the connection is being closed */
    REPLY_OK,
    REPLY_OBJECT,
    REPLY_ERROR,
};

struct reply {
    enum reply_kind kind;
    const char *error; /* a literal */
    size_t len;
    uint32_t crc;
    size_t window;
    int shape; /* enum get_reply or enum set_reply: how to answer a success wrongly */
};

/* Callbacks for vm_BlockClient, with a malloc'd struct reply as private data. */
int reply_send(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int reply_timed_out(struct vm_ctx *ctx, struct vm_string **argv, int argc);
void reply_free(struct vm_ctx *ctx, void *private_data);

#endif
