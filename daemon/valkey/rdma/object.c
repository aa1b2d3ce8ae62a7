#include "daemon/valkey/rdma/object.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/base/shared_object.h"

static const struct shared_object object = {
    .name = "glide-rdmad-valkey-rdma.so",
    .folder = "valkey",
    .variable = "GLIDE_RDMAD_VALKEY_RDMA_OBJECT",
    .symbol = RDMA_OPS_SYMBOL,
};

/* Libraries belong to the process: one for all connections, whichever thread asks first. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct rdma_ops *found;

static const struct rdma_ops *load(char why[RDMA_WHY_BYTES])
{
    char path[PATH_MAX] = "", version[64] = "";
    rdma_ops_function function;
    const struct rdma_ops *ops;

    snprintf(why, RDMA_WHY_BYTES, "RDMA to Valkey is not available: libfabric.so.1 of version 2 or newer is needed");
    *(void **)&function = shared_object_load(&object, path, sizeof(path), why, RDMA_WHY_BYTES);
    ops = function != NULL ? function() : NULL;
    if (ops == NULL) {
        return NULL;
    }
    if (ops->abi != RDMA_OPS_ABI) {
        snprintf(why, RDMA_WHY_BYTES, "%.200s has interface %u, this program needs %d: they are of different versions "
                 "of glide-rdmad", path, ops->abi, RDMA_OPS_ABI);
        return NULL;
    }
    ops->version(version, sizeof(version));
    log_info("valkey: RDMA by libfabric %s (%s)", version, path);
    return ops;
}

const struct rdma_ops *rdma_object_find(char why[RDMA_WHY_BYTES])
{
    const struct rdma_ops *ops;

    pthread_mutex_lock(&lock);
    if (found == NULL) {
        found = load(why);
    }
    ops = found;
    pthread_mutex_unlock(&lock);
    return ops;
}
