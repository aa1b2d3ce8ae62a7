/*
 * A cluster of scripted servers on the rig of the transfers: the nodes share the slots evenly and tell the same map.
 * What a node answers to transfers and to commands on keys is the test's to say; each command is noted with its node.
 */
#ifndef GRD_TESTS_CLUSTER_RIG_H
#define GRD_TESTS_CLUSTER_RIG_H

#include "tests/unit/transfers_rig.h"

#define NODES_MAX 6

struct cluster_node {
    struct stub stub;
    bool running;
    unsigned first, last; /* of its slots, as the map says; first > last: none */
    unsigned maps;        /* how often it was asked for the map */
    unsigned transfers;   /* that it got, and commands on keys */
};

struct cluster_rig {
    struct cluster_node nodes[NODES_MAX];
    unsigned count;
    /* What a node answers to a transfer or a command on keys; NULL (from it): nothing; no function: success. */
    const char *(*answer)(unsigned node, const redisReply *words);
    const char *map;     /* instead of the true one, if set */
    bool map_is_held;    /* CLUSTER SLOTS is not answered */
    unsigned resend_ms; /* before what was refused is sent again; 0: 1 ms */
    unsigned maps;       /* how often any node was asked for the map */
    unsigned maps_open;  /* questions that were not answered, now and at most */
    unsigned maps_open_most;
    char trace[8192];    /* "0:SET a 1:ASKING 1:SET a": commands in their order; BLOB.RDMA_ is left out */
    struct stub_peer *asked; /* the connection that the last ASKING came on */
    unsigned asked_reads;    /* its pieces until then */
};

extern struct cluster_rig cluster;

/* `answer` and so on are to be set after it. */
void cluster_start(unsigned nodes, unsigned connections);
/* The same without starting the deployment: rig.config and the map may be changed before start_deployment. */
void cluster_prepare(unsigned nodes, unsigned connections);
void cluster_end(void);

/* Until the deployment has read a map. */
void cluster_wait_map(void);

/* A key that the node serves when the slots are shared evenly; another one for each number. */
const char *cluster_key(unsigned node, unsigned number);

/* "MOVED slot host:port" and so on, for the key of `words`; static. */
const char *cluster_redirect(const char *word, const redisReply *words, unsigned target);

/* Gives all slots of a node to another. */
void cluster_take_over(unsigned node, unsigned by);

/* The node goes: its port is closed, its connections end. */
void cluster_kill(unsigned node);

/* It comes back under its address. */
void cluster_revive(unsigned node);

/* The success of a command. */
const char *cluster_success(const redisReply *words);

/* Members that the deployment has now. */
unsigned cluster_members(void);

#endif
