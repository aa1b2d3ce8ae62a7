/*
 * The shared object that fills the table of ops.h, loaded when the first connection asks for RDMA.
 */
#ifndef GRD_VALKEY_RDMA_OBJECT_H
#define GRD_VALKEY_RDMA_OBJECT_H

#include "daemon/valkey/rdma/ops.h"

/*
 * The table, which lives for ever; NULL with a sentence in `why` that says what is missing and what to do. Thread safe.
 * Blocks while files are read, so call it on a worker. What was found stays; what was not is looked for again, since it
 * may be installed by then.
 */
const struct rdma_ops *rdma_object_find(char why[RDMA_WHY_BYTES]);

#endif
