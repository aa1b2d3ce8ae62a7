#include "reply.h"

#include <stdlib.h>

#include "settings.h"

static int pair(struct vm_ctx *ctx, long long len, long long crc)
{
    vm_ReplyWithArray(ctx, 2);
    vm_ReplyWithLongLong(ctx, len);
    return vm_ReplyWithLongLong(ctx, crc);
}

static int send_object(struct vm_ctx *ctx, const struct reply *reply)
{
    long long len = (long long)reply->len;

    switch (reply->shape) {
    case GET_REPLY_INTEGER:
        return vm_ReplyWithLongLong(ctx, len);
    case GET_REPLY_ARRAY_OF_3:
        vm_ReplyWithArray(ctx, 3);
        vm_ReplyWithLongLong(ctx, len);
        vm_ReplyWithLongLong(ctx, reply->crc);
        return vm_ReplyWithLongLong(ctx, 0);
    case GET_REPLY_NEGATIVE_LENGTH:
        return pair(ctx, -len, reply->crc);
    case GET_REPLY_CRC_OVER_32_BITS:
        return pair(ctx, len, reply->crc + (1LL << 32));
    case GET_REPLY_LENGTH_OVER_WINDOW:
        return pair(ctx, (long long)reply->window + 1, reply->crc);
    case GET_REPLY_BULK_STRING:
        return vm_ReplyWithStringBuffer(ctx, "surprise", 8);
    default:
        return pair(ctx, len, reply->crc);
    }
}

static int send_ok(struct vm_ctx *ctx, const struct reply *reply)
{
    switch (reply->shape) {
    case SET_REPLY_INTEGER:
        return vm_ReplyWithLongLong(ctx, 1);
    case SET_REPLY_OTHER_STATUS:
        return vm_ReplyWithSimpleString(ctx, "SURPRISE");
    case SET_REPLY_NULL:
        return vm_ReplyWithNull(ctx);
    case SET_REPLY_ARRAY:
        vm_ReplyWithArray(ctx, 1);
        return vm_ReplyWithSimpleString(ctx, "OK");
    default:
        return vm_ReplyWithSimpleString(ctx, "OK");
    }
}

int reply_send(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    const struct reply *reply = vm_GetBlockedClientPrivateData(ctx);

    switch (reply->kind) {
    case REPLY_OK:
        return send_ok(ctx, reply);
    case REPLY_OBJECT:
        return send_object(ctx, reply);
    case REPLY_ERROR:
        return vm_ReplyWithError(ctx, reply->error);
    default:
        return VM_OK;
    }
}

int reply_timed_out(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    return vm_ReplyWithNull(ctx);
}

void reply_free(struct vm_ctx *ctx, void *private_data)
{
    free(private_data);
}
