/*
 * The places for lanes, shared by all nodes of a deployment: as many as [fabric] lanes_max allows on all NICs together.
 *
 * Concepts. A carrier takes a place before it connects and gives it back when its lane is gone, so lane_open() finds
 * room, unless the NICs that it can use are full. A node that finds no place waits for one: first those that have no
 * carrier at all, then those that want one more, each first come first served. For each that waits one carrier is given
 * up: of those that are idle the one idle for longest; where none is idle, the next one that is released by a node that
 * has nothing more to send, or by any node once one that has no carrier has waited for PLACES_TURN_MS. So a busy node
 * cannot keep another from the fabric. No timer: at the cap, releases come by themselves. Loop thread only.
 */
#ifndef GRD_VALKEY_PLACES_H
#define GRD_VALKEY_PLACES_H

#include <stdbool.h>
#include <sys/queue.h>

#include "daemon/fabric/fabric.h"

/* Giving a place up costs a lane and a session: a few milliseconds on both sides. */
#define PLACES_TURN_MS 50

struct node;
struct carrier;

/* What a node that waits has. */
enum places_want { PLACES_HAS_NONE, PLACES_WANTS_MORE, PLACES_WANTS };

struct places {
    const struct fabric *fabric;
    unsigned taken;
    unsigned dying;                   /* of these, by carriers that are on their way out */
    struct places_queue {
        TAILQ_HEAD(, node) nodes; /* first come first */
        unsigned count;
    } waiting[PLACES_WANTS];
    TAILQ_HEAD(, carrier) idle; /* of all nodes, idle for longest first */
};

void places_init(struct places *places, const struct fabric *fabric);

/* Private to valkey/. */

/* Takes a place for a carrier of the node on one of `nics`; false: there is none, and the node waits for one, so that
 * node_settle() follows (with `wait` false it does not). */
bool places_take(struct node *node, uint32_t nics, bool wait);
/* lane_open() found the NICs full that the node's carrier could use; the carrier is gone. The node waits. */
void places_refused(struct node *node);
/* A carrier begins to go. */
void places_dying(struct places *places);
/* Its place is free; `was_dying` as told before. */
void places_give(struct places *places, bool was_dying);
/* The node waits no more. */
void places_leave(struct node *node);

void places_idle(struct carrier *carrier);
void places_not_idle(struct carrier *carrier);

/* A carrier is about to be idle: true when its place is needed elsewhere, and the carrier is to be given up. */
bool places_claim(struct carrier *carrier);
/* Gives up idle carriers as long as more nodes wait than carriers are on their way out. */
void places_evict(struct places *places);

#endif
