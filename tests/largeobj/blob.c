#include "blob.h"

#include <stdlib.h>
#include <string.h>

#include <isa-l.h>

#include "buffers.h"
#include "stats.h"

#define ENCODING_VERSION 0
#define CRC_STEP ((size_t)1 << 30)

static struct vm_type *blob_type;
static uint64_t arrivals;

struct blob *blob_new(size_t len)
{
    struct blob *blob = calloc(1, sizeof(*blob));

    if (!blob)
        return NULL;
    blob->bytes = buffer_get(len);
    if (!blob->bytes) {
        free(blob);
        return NULL;
    }
    atomic_init(&blob->refs, 1);
    blob->len = len;
    return blob;
}

struct blob *blob_ref(struct blob *blob)
{
    atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
    return blob;
}

void blob_unref(struct blob *blob)
{
    if (!blob || atomic_fetch_sub_explicit(&blob->refs, 1, memory_order_acq_rel) != 1)
        return;
    buffer_put(blob->bytes, blob->len);
    free(blob);
}

uint32_t crc32c(const void *bytes, size_t len)
{
    uintptr_t at = (uintptr_t)bytes;
    uint32_t crc = 0xffffffff;

    /* The library counts in int and neither inverts the start value nor the result. */
    while (len > 0) {
        size_t step = len < CRC_STEP ? len : CRC_STEP;

        crc = crc32_iscsi((unsigned char *)at, (int)step, crc);
        at += step;
        len -= step;
    }
    return ~crc;
}

uint64_t blob_next_arrival(void)
{
    return ++arrivals;
}

static void *rdb_load(struct vm_io *io, int encoding_version)
{
    struct blob *blob = NULL;
    uint32_t crc;
    size_t len;
    char *bytes;

    if (encoding_version != ENCODING_VERSION)
        return NULL;
    crc = (uint32_t)vm_LoadUnsigned(io);
    bytes = vm_LoadStringBuffer(io, &len);
    if (!bytes)
        return NULL;
    if (len > 0)
        blob = blob_new(len);
    if (blob) {
        memcpy(blob->bytes, bytes, len);
        blob->crc = crc;
        blob->arrival = blob_next_arrival();
        atomic_fetch_add(&stats.objects, 1);
    }
    vm_Free(bytes);
    return blob;
}

static void rdb_save(struct vm_io *io, void *value)
{
    const struct blob *blob = value;

    vm_SaveUnsigned(io, blob->crc);
    vm_SaveStringBuffer(io, (const char *)blob->bytes, blob->len);
}

static void aof_rewrite(struct vm_io *io, struct vm_string *key, void *value)
{
    const struct blob *blob = value;

    vm_EmitAOF(io, "BLOB.TCP_SET", "sb", key, (const char *)blob->bytes, blob->len);
}

static size_t mem_usage(const void *value)
{
    const struct blob *blob = value;

    return sizeof(*blob) + blob->len;
}

static void digest(struct vm_digest *digest, void *value)
{
    const struct blob *blob = value;

    vm_DigestAddStringBuffer(digest, (const char *)blob->bytes, blob->len);
    vm_DigestEndSequence(digest);
}

static void type_free(void *value)
{
    atomic_fetch_sub(&stats.objects, 1);
    blob_unref(value);
}

static void *copy(struct vm_string *from, struct vm_string *to, const void *value)
{
    const struct blob *blob = value;
    struct blob *twin = blob_new(blob->len);

    if (!twin)
        return NULL;
    memcpy(twin->bytes, blob->bytes, blob->len);
    twin->crc = blob->crc;
    twin->arrival = blob_next_arrival();
    atomic_fetch_add(&stats.objects, 1);
    return twin;
}

int blob_type_register(struct vm_ctx *ctx)
{
    struct vm_type_methods methods = {
        .version = VM_TYPE_METHODS_VERSION,
        .rdb_load = rdb_load,
        /* The server calls rdb_save without looking whether there is one. */
        .rdb_save = rdb_save,
        .aof_rewrite = aof_rewrite,
        .mem_usage = mem_usage,
        .digest = digest,
        .free = type_free,
        .copy = copy,
    };

    blob_type = vm_CreateDataType(ctx, "largeob-k", ENCODING_VERSION, &methods);
    return blob_type ? VM_OK : VM_ERR;
}

enum blob_lookup blob_lookup(struct vm_ctx *ctx, struct vm_string *name, struct blob **blob)
{
    struct vm_key *key = vm_OpenKey(ctx, name, VM_KEY_READ);
    enum blob_lookup found = BLOB_WRONG_TYPE;

    if (!key)
        return BLOB_MISSING;
    if (vm_KeyType(key) == VM_KEYTYPE_EMPTY) {
        found = BLOB_MISSING;
    } else if (vm_ModuleTypeGetType(key) == blob_type) {
        *blob = vm_ModuleTypeGetValue(key);
        found = BLOB_FOUND;
    }
    vm_CloseKey(key);
    return found;
}

enum blob_store blob_store(struct vm_ctx *ctx, struct vm_string *name, struct blob *blob)
{
    struct vm_key *key = vm_OpenKey(ctx, name, VM_KEY_READ | VM_KEY_WRITE);
    enum blob_store result = BLOB_STORED;

    if (!key)
        return BLOB_STORE_FAILED;
    if (vm_KeyType(key) != VM_KEYTYPE_EMPTY) {
        if (vm_ModuleTypeGetType(key) != blob_type)
            result = BLOB_STORE_WRONG_TYPE;
        else if (((const struct blob *)vm_ModuleTypeGetValue(key))->arrival > blob->arrival)
            result = BLOB_STALE;
    }
    if (result == BLOB_STORED) {
        if (vm_ModuleTypeSetValue(key, blob_type, blob_ref(blob)) == VM_OK) {
            atomic_fetch_add(&stats.objects, 1);
        } else {
            blob_unref(blob);
            result = BLOB_STORE_FAILED;
        }
    }
    vm_CloseKey(key);
    if (result == BLOB_STALE)
        atomic_fetch_add(&stats.stale_sets, 1);
    return result;
}
