/*
 * Draining: no new transfers and registrations, while those there are go on (docs/architecture.md, "Reload and drain").
 * An operator drains the daemon, which stays up, and may take it back; the daemon's stop drains for good. Loop thread
 * only.
 */
#ifndef GRD_LOCAL_DRAIN_H
#define GRD_LOCAL_DRAIN_H

#include "daemon/local/session.h"

void drains_init(struct service *service);

/* Answers whoever waits for a drain: before the loop ends. */
void drains_close(struct service *service);

/* Stops what is new and says so to every client. */
void drain_announce(struct service *service);

/* Why nothing new is taken, as part of a sentence. */
static inline const char *drain_reason(const struct service *service)
{
    return service->stopping ? "the daemon is stopping" : "the daemon was drained by its operator";
}

#endif
