/*
 * What the files of glide-rdmad-fabric.so share. Included by libfabric_*.c only: nothing else in the project sees a
 * libfabric header.
 */
#ifndef GRD_FABRIC_LIBFABRIC_OBJECT_H
#define GRD_FABRIC_LIBFABRIC_OBJECT_H

#include <stdbool.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "daemon/fabric/libfabric_words.h"
#include "daemon/fabric/ops.h"

struct provider {
    const char *name;        /* in the configuration */
    const char *prov_name;   /* matched exactly: asking for "tcp" also lists "tcp;ofi_rxm" */
    const char *fabric_name; /* NULL: any */
    bool by_address;         /* a local address chooses the interface */
    bool polled;             /* bytes move only while the CQ is read: a wait descriptor is needed */
    bool one_nic;            /* the host counts as one NIC */
};

struct fabric_domain {
    const struct provider *provider;
    struct fi_info *info; /* owned */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
};

/* NULL for a name that is no provider of ours. */
const struct provider *provider_find(const char *name);

/* The description of the NIC to open, to be freed with fi_freeinfo; negative with `why`. */
int info_pick(const struct fabric_settings *settings, struct fi_info **info, char why[FABRIC_WHY_BYTES]);

int fabric_query(const struct fabric_settings *settings, struct fabric_nic *nics, size_t capacity,
                 char why[FABRIC_WHY_BYTES]);

/* The endpoint functions of the table. */
int endpoint_open(struct fabric_domain *domain, struct fabric_endpoint **endpoint,
                  uint8_t address[FABRIC_ADDRESS_BYTES], size_t *address_length, char why[FABRIC_WHY_BYTES]);
int endpoint_close(struct fabric_endpoint *endpoint);
int endpoint_free(struct fabric_endpoint *endpoint);
int endpoint_add_peer(struct fabric_endpoint *endpoint, const uint8_t *address, size_t length);
int endpoint_wait_fd(struct fabric_endpoint *endpoint);
int endpoint_progress(struct fabric_endpoint *endpoint);
int endpoint_try_wait(struct fabric_endpoint *endpoint);

/* "what: the library's words" in `why`; returns the error. */
int fail(char why[FABRIC_WHY_BYTES], const char *what, long error);

#endif
