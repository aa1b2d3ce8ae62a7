#include "daemon/fabric/mapping.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/base/log.h"
#include "daemon/fabric/domain.h"

static int protect(const struct slice_mr *mr, int protection)
{
    int error;

    if (mprotect(mr->base, mr->length, protection) == 0) {
        return 0;
    }
    error = -errno;
    log_error("fabric: mprotect of %zu bytes: %s (%d); [fabric] mr_max_bytes must be a multiple of the page size",
              mr->length, strerrordesc_np(-error), error);
    return error;
}

int mapping_show(struct slice_mr *mr)
{
    struct slice_mapping *mapping = &mr->slice->mapping;
    int protection = (mr->access & FABRIC_REMOTE_WRITE) != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    int status = 0;

    pthread_mutex_lock(&mapping->lock);
    if (mapping->makers == 0) {
        status = protect(mr, protection);
    }
    if (status == 0) {
        mapping->makers++;
    }
    pthread_mutex_unlock(&mapping->lock);
    return status;
}

int mapping_hide(struct slice_mr *mr)
{
    struct slice_mapping *mapping = &mr->slice->mapping;
    int status = 0;

    pthread_mutex_lock(&mapping->lock);
    mapping->makers--;
    if (mapping->makers == 0) {
        status = protect(mr, PROT_NONE);
    }
    pthread_mutex_unlock(&mapping->lock);
    return status;
}
