/*
 * The map of a cluster: which primary serves which slot, as a node tells it (CLUSTER SLOTS), and where a redirection
 * points. What a server sends here is not trusted: everything is bounded, and a map that contradicts itself is none.
 *
 * Pure, thread safe; a map is immutable but for topology_move.
 */
#ifndef GRD_VALKEY_TOPOLOGY_H
#define GRD_VALKEY_TOPOLOGY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "daemon/valkey/slots.h"

#define TOPOLOGY_NODES 1024      /* primaries of a cluster */
#define TOPOLOGY_HOST_BYTES 256  /* of a host, its zero byte counted */
#define TOPOLOGY_WHY_BYTES 256

struct topology_endpoint {
    char host[TOPOLOGY_HOST_BYTES];
    char port[6];
};

/* A primary. */
struct topology_node {
    struct topology_endpoint endpoint;
    unsigned slots, replicas;
};

struct topology {
    size_t count;
    struct topology_node nodes[TOPOLOGY_NODES];
    uint16_t owners[SLOTS]; /* index into nodes; TOPOLOGY_NODES: the slot is served by nobody */
    unsigned covered;       /* slots that somebody serves */
};

/*
 * Reads the reply of CLUSTER SLOTS from the node at `asked`, which is the host of entries that name none. 0 and a
 * malloc'ed map; else `why`: -EREMOTEIO (an error reply; its words), -EPROTO (no map, or one that is not true) or
 * -ENOMEM. Entries whose host the server does not know ("?") count as slots that nobody serves.
 */
int topology_parse(const redisReply *reply, const struct topology_endpoint *asked, struct topology **map,
                   char why[TOPOLOGY_WHY_BYTES]);

/* Whether every slot has the same primary in both. */
bool topology_same(const struct topology *one, const struct topology *other);

/* Enters that a slot is served at `endpoint`. 0, or -ENOSPC when that would be one node too many. */
int topology_move(struct topology *map, unsigned slot, const struct topology_endpoint *endpoint);

bool topology_endpoint_same(const struct topology_endpoint *one, const struct topology_endpoint *other);

/*
 * Splits "host:port" as a redirection names it: the port follows the last colon, an IPv6 address may stand without
 * brackets, an empty host is that of `asked`. 0, or -EPROTO.
 */
int topology_endpoint_parse(const char *text, size_t length, const struct topology_endpoint *asked,
                            struct topology_endpoint *endpoint);

/* "host:port", with brackets around an IPv6 address: what transport_address_parse reads. */
#define TOPOLOGY_TEXT_BYTES (TOPOLOGY_HOST_BYTES + 8)
void topology_endpoint_text(const struct topology_endpoint *endpoint, char text[TOPOLOGY_TEXT_BYTES]);

#endif
