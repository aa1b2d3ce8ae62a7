/* Objects that the loader must refuse: of another interface, or bound to a libfabric that is too old. */
#include <stdio.h>

#include "daemon/fabric/ops.h"

static void version(char *text, size_t size)
{
    snprintf(text, size, "%s", FAKE_VERSION);
}

static const struct fabric_ops table = {.abi = FAKE_ABI, .version = version};

__attribute__((visibility("default"))) const struct fabric_ops *glide_rdmad_fabric_ops(void);

const struct fabric_ops *glide_rdmad_fabric_ops(void)
{
    return &table;
}
