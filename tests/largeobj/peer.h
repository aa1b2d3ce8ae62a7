/*
 * Clients' fabric addresses, each inserted once in the address vector of every endpoint.
 *
 * Several connections may name one address; a peer is counted, by sessions and by operations, and leaves the address
 * vectors with its last reference. So one that goes away keeps its entry until its operations are over, because
 * removing it earlier would flush other work. Counting is safe on any thread.
 */
#ifndef LARGEOBJ_PEER_H
#define LARGEOBJ_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include <rdma/fabric.h>

struct peer;

/* Returns 0 with a reference in *peer, or a negative errno with the index of the endpoint that refused. */
int peer_get(const unsigned char *addr, size_t len, struct peer **peer, unsigned int *refused_by);
struct peer *peer_ref(struct peer *peer);
void peer_unref(struct peer *peer);

fi_addr_t peer_address(const struct peer *peer, unsigned int endpoint);

/* Whether the peer took nothing in this round of an endpoint's thread. For that thread only. */
bool peer_blocked(const struct peer *peer, unsigned int endpoint, unsigned int round);
void peer_set_blocked(struct peer *peer, unsigned int endpoint, unsigned int round);

#endif
