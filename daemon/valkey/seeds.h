/*
 * The seeds of a cluster: the nodes that are asked for its map when no other is known. Pure, thread safe.
 */
#ifndef GRD_VALKEY_SEEDS_H
#define GRD_VALKEY_SEEDS_H

#include "daemon/valkey/topology.h"
#include "daemon/valkey/transport.h"

#define SEEDS_MAX 64

struct seed {
    struct topology_endpoint endpoint;
    enum transport_kind kind; /* what it says of its transport, which holds for the node that the map names so, too */
};

/* Reads "host:port, rdma://host:port". 0 and a malloc'ed list of `count` seeds; or -EINVAL or -ENOMEM, with `why`. */
int seeds_parse(const char *text, struct seed **seeds, size_t *count, char why[TRANSPORT_WHY_BYTES]);

/* Of the seed at an endpoint; TRANSPORT_UNSAID where there is none. `text` was read by seeds_parse before. */
enum transport_kind seeds_kind(const char *text, const struct topology_endpoint *endpoint);

#endif
