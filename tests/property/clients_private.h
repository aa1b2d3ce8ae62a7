/* The inside of the clients, shared by clients.c (what they get) and requests.c (what they ask for). */
#ifndef GRD_TESTS_PROPERTY_CLIENTS_PRIVATE_H
#define GRD_TESTS_PROPERTY_CLIENTS_PRIVATE_H

#include "tests/property/model.h"
#include "tests/rig/daemon.h"

struct client {
    int fd, life;     /* -1: not connected; readable at the daemon's side when the process has ended */
    uint64_t session; /* serial number of the connection, in the round */
    bool listens;     /* to the end */
    bool said_closed;
    int64_t next_id;
};

extern struct client clients[CLIENTS];
extern struct model_region regions[REGIONS];
extern struct model_request requests[REQUESTS];
extern unsigned region_count, request_count;
extern uint64_t session_count; /* connections of the round */

void client_disconnect(struct client *client);
/* It has gone without listening: nobody waits for its answers. */
void client_abandon(const struct client *client);

/* Whether a lane that could not be closed may still reach a part of a window. */
bool window_lost(unsigned file, uint64_t start, uint64_t end);

#endif
