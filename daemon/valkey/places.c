#include "daemon/valkey/places.h"

#include <errno.h>

#include "daemon/base/log.h"
#include "daemon/fabric/nics.h"
#include "daemon/valkey/node_private.h"

void places_init(struct places *places, const struct fabric *fabric)
{
    *places = (struct places){.fabric = fabric};
    for (int want = 0; want < PLACES_WANTS; want++) {
        TAILQ_INIT(&places->waiting[want].nodes);
    }
    TAILQ_INIT(&places->idle);
}

/*
 * As lane_open() would decide now, or a carrier would be made over and over for a lane that is refused: a NIC that is left
 * out has no more room than it has lanes, unless there is no other. A carrier that has no lane yet is counted on no NIC:
 * lane_open() may still refuse it, see places_refused().
 */
static bool is_full(const struct places *places, uint32_t nics)
{
    const struct fabric *fabric = places->fabric;
    bool others = nics_choose_working(fabric, nics) != -ENETDOWN;
    uint64_t room = 0;

    for (unsigned i = 0; i < fabric->nic_count; i++) {
        room += others && fabric_nic_left_out(fabric, i) ? fabric->nic_lanes[i] : fabric->config->lanes_max;
    }
    return places->taken >= room || nics_choose(fabric, nics) == -ENOSPC;
}

static unsigned waiting(const struct places *places)
{
    return places->waiting[PLACES_HAS_NONE].count + places->waiting[PLACES_WANTS_MORE].count;
}

static void wait_for_place(struct node *node)
{
    enum places_want want = node_carriers(node) == 0 ? PLACES_HAS_NONE : PLACES_WANTS_MORE;

    if (node->wants_place && node->want != want) { /* it has lost its last carrier meanwhile */
        places_leave(node);
    }
    if (!node->wants_place) {
        struct places_queue *queue = &node->places->waiting[want];
        TAILQ_INSERT_TAIL(&queue->nodes, node, place_link);
        queue->count++;
        node->want = want;
        node->wants_place = true;
        node->wants_since = uv_now(node->loop);
    }
    places_evict(node->places);
}

void places_leave(struct node *node)
{
    if (node->wants_place) {
        struct places_queue *queue = &node->places->waiting[node->want];
        TAILQ_REMOVE(&queue->nodes, node, place_link);
        queue->count--;
        node->wants_place = false;
    }
}

static struct node *first_waiting(struct places *places)
{
    struct node *node = TAILQ_FIRST(&places->waiting[PLACES_HAS_NONE].nodes);

    return node != NULL ? node : TAILQ_FIRST(&places->waiting[PLACES_WANTS_MORE].nodes);
}

void places_refused(struct node *node)
{
    wait_for_place(node);
}

bool places_take(struct node *node, uint32_t nics, bool wait)
{
    if (is_full(node->places, nics)) {
        if (wait) {
            wait_for_place(node);
        }
        return false;
    }
    node->places->taken++;
    return true;
}

void places_dying(struct places *places)
{
    places->dying++;
}

void places_give(struct places *places, bool was_dying)
{
    struct node *node;

    places->taken--;
    places->dying -= was_dying ? 1 : 0;
    /*
     * One that has changed its mind passes the place on. Room is looked for where the node would, else it might find
     * none, wait again, and be called again for ever.
     */
    while ((node = first_waiting(places)) != NULL && !is_full(places, node_wish(node))) {
        places_leave(node);
        node_settle(node);
    }
}

void places_idle(struct carrier *carrier)
{
    TAILQ_INSERT_TAIL(&carrier->node->places->idle, carrier, idle_link);
}

void places_not_idle(struct carrier *carrier)
{
    TAILQ_REMOVE(&carrier->node->places->idle, carrier, idle_link);
}

bool places_claim(struct carrier *carrier)
{
    const struct node *node = carrier->node;
    const struct places *places = node->places;
    const struct node *first = TAILQ_FIRST(&places->waiting[PLACES_HAS_NONE].nodes);

    if (node->waiting == 0) {
        return places->dying < waiting(places);
    }
    return first != NULL && places->dying < places->waiting[PLACES_HAS_NONE].count &&
           uv_now(node->loop) - first->wants_since >= PLACES_TURN_MS;
}

/* Of those on a NIC that helps the first who waits. */
static struct carrier *idle_for_longest(struct places *places)
{
    const struct node *first = first_waiting(places);
    struct carrier *carrier;

    TAILQ_FOREACH (carrier, &places->idle, idle_link) {
        if ((carrier->nics & first->nics) != 0) {
            break;
        }
    }
    return carrier;
}

void places_evict(struct places *places)
{
    struct carrier *carrier;

    while (places->dying < waiting(places) && (carrier = idle_for_longest(places)) != NULL) {
        log_info("valkey %s, %s: idle for longest, gives its lane to another node", carrier->node->address->text,
                 carrier->name);
        carrier_dispose(carrier, NULL, NULL);
    }
}
