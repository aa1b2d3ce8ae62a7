/*
 * The value: bytes that never change once they are in the key space, with their CRC-32C.
 *
 * A blob is counted. The key space holds one reference, each running transfer one more, so DEL or an overwrite takes
 * nothing away from a GET that runs. Counting is safe on any thread; the bytes belong to the transfer that fills them
 * until blob_type takes the blob.
 */
#ifndef LARGEOBJ_BLOB_H
#define LARGEOBJ_BLOB_H

#include <stdatomic.h>
#include <stdbool.h>

#include "module_api.h"

struct blob {
    atomic_uint refs;
    uint32_t crc;
    uint64_t arrival; /* number of the SET that made it, in order of arrival */
    size_t len;
    unsigned char *bytes;
};

/* Returns a blob with one reference and unset bytes, or NULL without memory. */
struct blob *blob_new(size_t len);
struct blob *blob_ref(struct blob *blob);
void blob_unref(struct blob *blob);

uint32_t crc32c(const void *bytes, size_t len);

/* Number for the next SET. Main thread. */
uint64_t blob_next_arrival(void);

/* Registers the value type; for OnLoad. Returns VM_OK or VM_ERR. */
int blob_type_register(struct vm_ctx *ctx);

enum blob_lookup {
    BLOB_FOUND,
    BLOB_MISSING,
    BLOB_WRONG_TYPE,
};

/* Looks at a key without keeping it open; *blob is borrowed from the key space, and set for BLOB_FOUND only. */
enum blob_lookup blob_lookup(struct vm_ctx *ctx, struct vm_string *name, struct blob **blob);

enum blob_store {
    BLOB_STORED,
    BLOB_STALE,
    BLOB_STORE_WRONG_TYPE,
    BLOB_STORE_FAILED,
};

/* Makes the blob the value of a key in the context's database, taking a reference of its own, unless the key holds a
 * blob of a later arrival. */
enum blob_store blob_store(struct vm_ctx *ctx, struct vm_string *name, struct blob *blob);

#endif
