/*
 * The daemon between played surroundings: sessions, memory, transfers, node and lanes as they are, over a fake fabric,
 * a fake server, a fake host and no threads, wired as daemon/main.c does. One at a time; everything on one thread.
 */
#ifndef GRD_TESTS_RIG_DAEMON_H
#define GRD_TESTS_RIG_DAEMON_H

#include "daemon/fabric/ops.h"
#include "daemon/local/session.h"

/* What may be chosen of the daemon. */
struct rig_options {
    bool real_nics;  /* one domain for each NIC, as on verbs; else one for each lane, as on tcp */
    bool efa_direct; /* with real_nics: revocations close registrations too */
    bool virtual_addresses, two_nics, no_fabric;
    bool warm, password;
    bool small_slices; /* windows over many registrations */
    bool quotas;       /* small ones of every kind */
};

extern struct service rig_service;
extern struct config rig_config;

/* Once for the process. */
void rig_init(void);

/* Surroundings in which nothing goes wrong, and rig_config as the options ask for; the caller may change it. */
void rig_configure(const struct rig_options *options);
/* Adds a quota for everybody to rig_config; each key once. */
void rig_quota(enum policy_key key, uint64_t limit);
/* Wires the daemon up. `ops` must outlive it. */
void rig_begin(const struct fabric_ops *ops);

/* A turn of the loop without waiting. */
void rig_loop(void);
/* Everything that can happen without the clock, once. False: nothing did. */
bool rig_turn(void);
/* The same until nothing happens. */
void rig_settle(void);
/* The clock goes on to the next timer, and by that much `waited`, ms. False: there is none, or it has taken longer than
 * anything should. */
bool rig_advance(uint64_t *waited);

/* The node is stopped and no session left: what is still there ends. Nothing of the loop may stay. */
void rig_end(void);

/* Of the program that links this: the clients read what has come. False: nothing had. */
bool clients_read(void);

#endif
