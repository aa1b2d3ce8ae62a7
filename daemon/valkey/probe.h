/*
 * Whether RDMA works again, for a node whose connections are made over TCP meanwhile (dial.h): a connection over RDMA
 * that carries nothing but AUTH. When it is ready all connections are made anew; when it fails nobody has waited for
 * it. Made when somebody uses the node, and only then: an idle daemon sleeps. Loop thread only. Private to valkey/.
 */
#ifndef GRD_VALKEY_PROBE_H
#define GRD_VALKEY_PROBE_H

#include "daemon/valkey/dial.h"

struct node;

/* 0 or -ENOMEM. `config` and `address` must outlive it. */
int probe_init(struct node *node, const struct valkey_config *config, const struct transport_address *address);
/* Somebody uses the node: begins one if it is time. */
void probe_if_due(struct node *node);
/* Ends one that is under way; then, when no connection is left: frees what probe_init made. */
void probe_stop(struct node *node);
void probe_end(struct node *node);

#endif
