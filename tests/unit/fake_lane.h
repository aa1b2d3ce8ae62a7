/*
 * A fake of the lane functions that daemon/valkey uses, linked in place of daemon/fabric's: answers come later from the
 * loop as the real ones do, can be held back, and can fail.
 */
#ifndef GRD_TESTS_FAKE_LANE_H
#define GRD_TESTS_FAKE_LANE_H

#include "daemon/fabric/lane.h"

struct fake_lanes {
    /* Set by the test. */
    int open_status;    /* what lane_open returns */
    int opened_status;  /* what `opened` says */
    int peers_status;
    int destroy_status;
    bool hold_open, hold_peers, hold_destroy;
    unsigned limit; /* lane_open: -ENOSPC at so many lanes; 0: none */

    /* Counted. */
    unsigned opens, peers, destroys; /* calls */
    unsigned alive;                  /* opening to destroyed */
    unsigned on_nic[FABRIC_NICS];    /* of them */
    uint32_t nics;                   /* of the last lane_open */
    char bind[64];                   /* of the last lane_open */
    uint8_t peer[FABRIC_ADDRESS_BYTES];
    size_t peer_count;
};

extern struct fake_lanes fake_lanes;

/* Lets everything go on that a `hold` has stopped, and clears the holds. */
void fake_lanes_go(void);

#endif
