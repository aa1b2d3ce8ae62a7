/*
 * Over which transport a node is reached, and where: [valkey] transport, rdma_port and rdma_nodes.
 *
 * Servers name each other, in a cluster's map and in redirections, by the address and port of their TCP listener, never
 * by that of RDMA. So nodes are known by the former; these rules say who is reached over RDMA, and where that is not at
 * the same address and port. What is written behind rdma:// is an RDMA address already, and no rule changes it.
 *
 * Pure, thread safe; immutable.
 */
#ifndef GRD_VALKEY_REACH_H
#define GRD_VALKEY_REACH_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/valkey/topology.h"
#include "daemon/valkey/transport.h"

#define REACH_NODES_MAX TOPOLOGY_NODES

/* One entry of rdma_nodes. */
struct reach_rule {
    struct topology_endpoint node; /* as the cluster names it; port "": any */
    bool tcp;                      /* over TCP, whatever `transport` says */
    struct topology_endpoint at;   /* of its RDMA listener; host "": the node's; port "": that of `reach`, or the node's */
};

struct reach {
    bool rdma;    /* nodes that nothing else is said of */
    char port[6]; /* rdma_port; "": the node's own */
    size_t count;
    struct reach_rule rules[];
};

/*
 * `nodes`: "HOST[:PORT]", "HOST[:PORT]=RDMA_HOST[:RDMA_PORT]" or "HOST[:PORT]=tcp", separated by commas or blanks; or
 * NULL. 0 and a malloc'ed `reach`; -EINVAL or -ENOMEM with `why`.
 */
int reach_create(bool rdma, unsigned port, const char *nodes, struct reach **reach, char why[TRANSPORT_WHY_BYTES]);

/* Whether a rule leads to RDMA at all. */
bool reach_has_rdma(const struct reach *reach);

/*
 * True: over RDMA, at `at`. The rules are for addresses that do not say their transport themselves. `reach` NULL: there
 * are none. Of the rules that name the node, that with its port is meant.
 */
bool reach_over_rdma(const struct reach *reach, const struct transport_address *address, struct topology_endpoint *at);

#endif
