#include <stdio.h>
#include <string.h>

#include "blob.h"
#include "commands.h"
#include "fabric.h"
#include "fabric_lib.h"
#include "peer.h"
#include "reply.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "transfer.h"

#define REGIONS_MAX 256
#define ADDRESS_MAX 64

static const char no_session[] = "ERR no RDMA session (call BLOB.RDMA_HELLO first)";

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Returns the number of bytes, of which no more than ADDRESS_MAX are stored, or -1 for bad hex. */
static ssize_t parse_hex(const struct vm_string *s, unsigned char out[ADDRESS_MAX])
{
    size_t len;
    const char *p = vm_StringPtrLen(s, &len);

    if (len % 2 != 0)
        return -1;
    for (size_t i = 0; i < len; i += 2) {
        int high = hex_value(p[i]);
        int low = hex_value(p[i + 1]);

        if (high < 0 || low < 0)
            return -1;
        if (i / 2 < ADDRESS_MAX)
            out[i / 2] = (unsigned char)(high << 4 | low);
    }
    return (ssize_t)(len / 2);
}

static int session_refused(struct vm_ctx *ctx, unsigned int service, const char *why)
{
    char text[FAULT_TEXT_MAX];

    snprintf(text, sizeof(text), "ERR session create: service %u: %s", service, why);
    return vm_ReplyWithError(ctx, text);
}

static int send_addresses(struct vm_ctx *ctx)
{
    unsigned int count = fabric_endpoint_count();
    char hex[FABRIC_HEX_MAX];

    if (faults.hello_garbage == HELLO_INTEGER)
        return vm_ReplyWithLongLong(ctx, count);
    if (faults.hello_garbage == HELLO_EMPTY_ARRAY)
        return vm_ReplyWithArray(ctx, 0);
    vm_ReplyWithArray(ctx, count);
    for (unsigned int i = 0; i < count; i++) {
        fabric_address_hex(i, hex);
        if (faults.hello_garbage == HELLO_NOT_HEX)
            snprintf(hex, sizeof(hex), "not hexadecimal");
        else if (faults.hello_garbage == HELLO_BAD_ADDRESS && i == count - 1)
            snprintf(hex, sizeof(hex), "00");
        vm_ReplyWithStringBuffer(ctx, hex, strlen(hex));
    }
    return VM_OK;
}

int command_rdma_hello(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    uint64_t client_id = vm_GetClientId(ctx);
    unsigned char addr[ADDRESS_MAX];
    struct peer *peer = NULL;
    unsigned int refused_by = 0;
    ssize_t len;
    int rc;

    if (argc != 2)
        return vm_WrongArity(ctx);
    if (fabric_endpoint_count() == 0)
        return vm_ReplyWithError(ctx, "ERR RDMA provider unavailable on this instance");
    len = parse_hex(argv[1], addr);
    if (len < 0)
        return vm_ReplyWithError(ctx, "ERR invalid rdma address hex");
    if (len == 0)
        return vm_ReplyWithError(ctx, "ERR rdma address must not be empty");
    if (session_peer(client_id))
        return vm_ReplyWithError(ctx, "ERR RDMA session already established");
    if (faults.refuse_hello > 0) {
        faults.refuse_hello--;
        return session_refused(ctx, 0, "refused by test switch");
    }
    rc = peer_get(addr, (size_t)len, &peer, &refused_by);
    if (rc == 0) {
        rc = session_add(client_id, peer);
        if (rc)
            peer_unref(peer);
    }
    if (rc)
        return session_refused(ctx, refused_by, fabric_lib.strerror(-rc));
    atomic_fetch_add(&stats.hellos, 1);
    return send_addresses(ctx);
}

/* Left to right: the first thing wrong decides. Returns an error text or NULL. */
static const char *parse_regions(struct vm_string **argv, int argc, struct region *regions, size_t *count)
{
    if (argc % 3 != 0)
        return "ERR memory address args must be rkey, addr, len triples";
    if (argc / 3 > REGIONS_MAX)
        return "ERR too many memory addresses (max 256)";
    *count = (size_t)argc / 3;
    for (size_t i = 0; i < *count; i++) {
        if (!parse_u64(argv[3 * i], &regions[i].rkey))
            return "ERR invalid rkey";
        if (!parse_u64(argv[3 * i + 1], &regions[i].addr))
            return "ERR invalid memory address";
        if (!parse_u64(argv[3 * i + 2], &regions[i].len) || regions[i].len == 0)
            return "ERR invalid memory address len";
    }
    return NULL;
}

/* Writes an error text and returns false when the regions do not hold an object of this length. */
static bool regions_cover(const struct region *regions, size_t count, uint64_t len, char text[FAULT_TEXT_MAX])
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        if (__builtin_add_overflow(sum, regions[i].len, &sum))
            sum = UINT64_MAX;
    }
    if (sum >= len)
        return true;
    snprintf(text, FAULT_TEXT_MAX, "ERR client memory address length %llu smaller than object length %llu",
             (unsigned long long)sum, (unsigned long long)len);
    return false;
}

static bool answered_by_test(struct vm_ctx *ctx)
{
    if (faults.answer_error_count <= 0 || !faults.answer_error[0])
        return false;
    faults.answer_error_count--;
    vm_ReplyWithError(ctx, faults.answer_error);
    return true;
}

int command_rdma_get(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    struct region regions[REGIONS_MAX];
    struct transfer_request request = {.kind = TRANSFER_RDMA_GET, .regions = regions};
    char text[FAULT_TEXT_MAX];
    const char *error;

    if (argc < 5)
        return vm_WrongArity(ctx);
    if (answered_by_test(ctx))
        return VM_OK;
    if (faults.get_null)
        return vm_ReplyWithNull(ctx);
    /* A missing key comes before everything else, also before the session and bad regions. */
    switch (blob_lookup(ctx, argv[1], &request.blob)) {
    case BLOB_MISSING:
        return vm_ReplyWithNull(ctx);
    case BLOB_WRONG_TYPE:
        return vm_ReplyWithError(ctx, ERROR_WRONG_TYPE);
    default:
        break;
    }
    error = parse_regions(argv + 2, argc - 2, regions, &request.region_count);
    if (error)
        return vm_ReplyWithError(ctx, error);
    if (!regions_cover(regions, request.region_count, request.blob->len, text))
        return vm_ReplyWithError(ctx, text);
    /* Before the session, because a script runs as a client of its own, which has none. */
    error = blocking_denied(ctx);
    if (error)
        return vm_ReplyWithError(ctx, error);
    request.peer = session_peer(vm_GetClientId(ctx));
    if (!request.peer)
        return vm_ReplyWithError(ctx, no_session);
    request.key = argv[1];
    transfer_start(ctx, &request);
    return VM_OK;
}

int command_rdma_set(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    struct region regions[REGIONS_MAX];
    struct transfer_request request = {.kind = TRANSFER_RDMA_SET, .regions = regions};
    char text[FAULT_TEXT_MAX];
    const char *error;
    struct blob *old;
    uint64_t crc;
    uint64_t len;
    int first = 3;

    if (argc < 6)
        return vm_WrongArity(ctx);
    if (answered_by_test(ctx))
        return VM_OK;
    if (!parse_u64(argv[2], &len))
        return vm_ReplyWithError(ctx, "ERR invalid len");
    if (word_is(argv[3], "CRC")) {
        if (argc < 8)
            return vm_WrongArity(ctx);
        if (!parse_u64(argv[4], &crc) || crc > UINT32_MAX)
            return vm_ReplyWithError(ctx, "ERR invalid crc");
        request.check_crc = true;
        request.crc = (uint32_t)crc;
        first = 5;
    }
    error = parse_regions(argv + first, argc - first, regions, &request.region_count);
    if (error)
        return vm_ReplyWithError(ctx, error);
    if (!regions_cover(regions, request.region_count, len, text))
        return vm_ReplyWithError(ctx, text);
    /* Before the session, because a script runs as a client of its own, which has none. */
    error = blocking_denied(ctx);
    if (error)
        return vm_ReplyWithError(ctx, error);
    request.peer = session_peer(vm_GetClientId(ctx));
    if (!request.peer)
        return vm_ReplyWithError(ctx, no_session);
    if (len == 0)
        return vm_ReplyWithError(ctx, "ERR object length must be > 0");
    if (len > (uint64_t)settings.max_object_size)
        return vm_ReplyWithError(ctx, "ERR max object size exceeded");
    if (blob_lookup(ctx, argv[1], &old) == BLOB_WRONG_TYPE)
        return vm_ReplyWithError(ctx, ERROR_WRONG_TYPE);
    request.blob = blob_new(len);
    if (!request.blob)
        return vm_ReplyWithError(ctx, ERROR_OUT_OF_MEMORY);
    request.blob->arrival = blob_next_arrival();
    request.key = argv[1];
    transfer_start(ctx, &request);
    blob_unref(request.blob);
    return VM_OK;
}
