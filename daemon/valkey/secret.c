#include "daemon/valkey/secret.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t round_up(size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (length + page - 1) / page * page;
}

void *secret_alloc(size_t length)
{
    size_t size = round_up(length);
    void *secret = aligned_alloc((size_t)sysconf(_SC_PAGESIZE), size);

    if (secret != NULL) {
        memset(secret, 0, size);
        madvise(secret, size, MADV_DONTDUMP); /* a kernel without it has no core files that matter */
    }
    return secret;
}

void secret_free(void *secret, size_t length)
{
    size_t size = round_up(length);

    if (secret == NULL) {
        return;
    }
    explicit_bzero(secret, size);
    madvise(secret, size, MADV_DODUMP); /* the allocator gives it to others */
    free(secret);
}
