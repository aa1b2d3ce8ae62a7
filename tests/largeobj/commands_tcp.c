#include <string.h>

#include "blob.h"
#include "commands.h"
#include "reply.h"
#include "settings.h"
#include "transfer.h"

/* The append-only file is replayed by a client that cannot wait. */
static int store_now(struct vm_ctx *ctx, struct vm_string *key, struct blob *blob)
{
    const char *error;

    blob->crc = crc32c(blob->bytes, blob->len);
    error = transfer_store(ctx, key, blob);
    return error ? vm_ReplyWithError(ctx, error) : vm_ReplyWithSimpleString(ctx, "OK");
}

int command_tcp_set(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    struct transfer_request request = {.kind = TRANSFER_TCP_SET};
    bool loading = (vm_GetContextFlags(ctx) & VM_CTX_LOADING) != 0;
    struct blob *old;
    const char *denied;
    const char *bytes;
    size_t len;

    if (argc != 3)
        return vm_WrongArity(ctx);
    bytes = vm_StringPtrLen(argv[2], &len);
    if (blob_lookup(ctx, argv[1], &old) == BLOB_WRONG_TYPE)
        return vm_ReplyWithError(ctx, ERROR_WRONG_TYPE);
    if (len == 0)
        return vm_ReplyWithError(ctx, "ERR object length must be > 0");
    if (len > (uint64_t)settings.max_object_size)
        return vm_ReplyWithError(ctx, "ERR max object size exceeded");
    denied = loading ? NULL : blocking_denied(ctx);
    if (denied)
        return vm_ReplyWithError(ctx, denied);
    request.blob = blob_new(len);
    if (!request.blob)
        return vm_ReplyWithError(ctx, ERROR_OUT_OF_MEMORY);
    request.blob->arrival = blob_next_arrival();
    memcpy(request.blob->bytes, bytes, len);
    request.key = argv[1];
    if (loading)
        store_now(ctx, argv[1], request.blob);
    else
        transfer_start(ctx, &request);
    blob_unref(request.blob);
    return VM_OK;
}

int command_tcp_get(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    struct blob *blob = NULL;
    const char *denied;

    if (argc != 2)
        return vm_WrongArity(ctx);
    switch (blob_lookup(ctx, argv[1], &blob)) {
    case BLOB_MISSING:
        return vm_ReplyWithNull(ctx);
    case BLOB_WRONG_TYPE:
        return vm_ReplyWithError(ctx, ERROR_WRONG_TYPE);
    default:
        break;
    }
    /* It does not block here, but it may in the real module, which therefore refuses. */
    denied = blocking_denied(ctx);
    if (denied)
        return vm_ReplyWithError(ctx, denied);
    return vm_ReplyWithStringBuffer(ctx, (const char *)blob->bytes, blob->len);
}

int command_info(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    struct blob *blob = NULL;

    if (argc != 2 && argc != 3)
        return vm_WrongArity(ctx);
    switch (blob_lookup(ctx, argv[1], &blob)) {
    case BLOB_MISSING:
        return vm_ReplyWithNull(ctx);
    case BLOB_WRONG_TYPE:
        return vm_ReplyWithError(ctx, ERROR_WRONG_TYPE);
    default:
        break;
    }
    if (argc == 3) {
        if (word_is(argv[2], "LEN"))
            return vm_ReplyWithLongLong(ctx, (long long)blob->len);
        if (word_is(argv[2], "CRC"))
            return vm_ReplyWithLongLong(ctx, blob->crc);
        if (word_is(argv[2], "TIER"))
            return vm_ReplyWithSimpleString(ctx, "dram");
        return vm_ReplyWithError(ctx, "ERR invalid information field");
    }
    vm_ReplyWithArray(ctx, 6);
    vm_ReplyWithSimpleString(ctx, "len");
    vm_ReplyWithLongLong(ctx, (long long)blob->len);
    vm_ReplyWithSimpleString(ctx, "crc");
    vm_ReplyWithLongLong(ctx, blob->crc);
    vm_ReplyWithSimpleString(ctx, "tier");
    return vm_ReplyWithSimpleString(ctx, "dram");
}
