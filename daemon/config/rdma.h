/*
 * What [valkey] says of connections over RDMA: made into rules, and refused where it contradicts itself, would do
 * nothing, or would send in clear what was to be kept secret. Pure.
 */
#ifndef GRD_CONFIG_RDMA_H
#define GRD_CONFIG_RDMA_H

#include "daemon/config/config.h"

/* Fills rdma_fallback and reach of a configuration whose address and seeds were checked. 0, or -EINVAL or -ENOMEM with
 * `why`. */
int config_check_rdma(struct valkey_config *valkey, char why[CONFIG_WHY_BYTES]);

#endif
