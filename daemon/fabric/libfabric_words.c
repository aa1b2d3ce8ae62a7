#include "daemon/fabric/libfabric_words.h"

#include <stdio.h>

#include <rdma/fi_errno.h>

void libfabric_version(char *text, size_t size)
{
    uint32_t number = fi_version();

    snprintf(text, size, "%u.%u", FI_MAJOR(number), FI_MINOR(number));
}

const char *libfabric_text(int error)
{
    return fi_strerror(error < 0 ? -error : error);
}
