/*
 * What the service manager hears while the daemon serves: WATCHDOG=1 from the event loop at half of $WATCHDOG_USEC, and
 * STATUS= with nodes, regions and registered bytes, when they have changed and not more often than STATUS_MS.
 *
 * The loop wakes up for the watchdog only. A change is noticed in the turn of the loop that brings it. Loop thread
 * only.
 */
#ifndef GRD_HEARTBEAT_H
#define GRD_HEARTBEAT_H

#include "daemon/local/service.h"

#define STATUS_MS 3000
#define STATUS_BYTES (NODE_WHY_BYTES + 512)

/* What STATUS= tells, to be compared. */
struct heartbeat_facts {
    unsigned nodes, nodes_up, regions;
    uint64_t pinned_bytes;
    bool usable, draining;
};

struct heartbeat {
    struct service *service;
    uv_timer_t watchdog;
    uv_check_t look;  /* after each turn */
    uv_timer_t status; /* until the next STATUS= may be sent; runs only while there is something to say */
    struct heartbeat_facts told;
    uint64_t told_at; /* ms, the loop's clock */
};

/* The words of STATUS=, on one line. */
void heartbeat_status(const struct service *service, char text[STATUS_BYTES]);

/* Begins; what `heartbeat_status` says now has been told. */
void heartbeat_start(struct heartbeat *heartbeat, struct service *service);

/* The handles are closed by the loop's next turns. */
void heartbeat_stop(struct heartbeat *heartbeat);

#endif
