/* A node against the scripted server, and what its events said; for the tests of daemon/valkey's pool. */
#ifndef GRD_TESTS_NODE_RIG_H
#define GRD_TESTS_NODE_RIG_H

#include "daemon/valkey/deployment.h"
#include "daemon/valkey/places.h"
#include "proto/errors.h"
#include "tests/unit/stub_valkey.h"

struct transfer_probe {
    struct carrier_request request;
    struct carrier *carrier;
    int calls;
    bool has_reply, may_have_run, revoke_inside, release_inside;
    struct blob_reply reply;
    char why[256];
};

struct command_probe {
    struct resp_request request;
    int replies, losses;
    bool may_have_run;
    char text[256];
};

struct node_rig {
    struct bench bench;
    struct stub stub;
    struct fabric_config fabric_config;
    struct fabric fabric;
    struct places places;
    struct valkey_config config;
    struct transport_address address;
    struct node *node;
    struct deployment *deployment; /* of tests that start one themselves */
    int idle, unavailable, code, stopped, stop_status;
    bool later; /* with `code` */
    char why[NODE_WHY_BYTES];
    bool inside; /* a call of the node is running: no event may come */
    const char *hello; /* what the script answers to HELLO; NULL: nothing */
    const char *transfer; /* to SET and GET */
    const char *other; /* to everything else */
    unsigned hello_twice; /* connections that said HELLO more than once */
};

extern struct node_rig rig;

/* Loop, server and configuration; change them, then rig_node. */
void rig_prepare(const char *unix_path);
void rig_node(void);
/* Stops the node (if still there) and all else; fails when anything is left. */
void rig_end(void);
void rig_stop_node(void);

struct carrier *rig_acquire(unsigned waiting);
/* Acquires, waiting as long as it takes. */
struct carrier *rig_carrier(void);

void rig_get(struct transfer_probe *probe, struct carrier *carrier);
void rig_set(struct transfer_probe *probe, struct carrier *carrier, uint64_t ttl_ms);
int rig_command(struct command_probe *probe, const char *word);
void rig_on_gone(void *count, int status);
struct node_health rig_health(void);

#endif
