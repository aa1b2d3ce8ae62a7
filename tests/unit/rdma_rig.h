/*
 * A transport over RDMA on a loop, with the fake queue pair in place of the object that calls libfabric, and name
 * servers that are played: "both.example" has 192.0.2.1 and 192.0.2.2, "hung.example" is not answered before
 * rig_release. Link with --wrap=rdma_object_find,--wrap=getaddrinfo.
 */
#ifndef GRD_TESTS_RDMA_RIG_H
#define GRD_TESTS_RDMA_RIG_H

#include "daemon/valkey/rdma/stream.h"
#include "daemon/valkey/transport.h"
#include "tests/unit/fake_rdma.h"
#include "tests/unit/stub_valkey.h"

/* As WAIT, while the wire moves, and up to 60 s. */
#define RIG_WAIT(condition)                                                                                           \
    do {                                                                                                              \
        uint64_t rig_wait_end = uv_hrtime() + UINT64_C(60000000000);                                                  \
        while (rig_turn(), !(condition)) {                                                                            \
            ck_assert_msg(uv_hrtime() < rig_wait_end, "waited in vain for %s; %s", #condition, rig.why);              \
            bench_turn(&rig.bench);                                                                                   \
        }                                                                                                             \
    } while (0)

struct rdma_rig {
    struct bench bench;
    struct offload *offload;
    struct transport_address address;
    struct transport_settings settings;
    struct transport *transport;
    int connected, readable, writable, closed, error;
    char why[TRANSPORT_WHY_BYTES];
    uint8_t *read; /* all that ever came */
    size_t read_length, read_most; /* no more is read at once */
    const uint8_t *put; /* what `writable` gives away, as long as there is some */
    size_t put_length, put_used, put_piece;
    bool inside, stopped; /* the wire does not move */
    bool no_object;
    uint64_t charged, charged_ever;
    uint64_t budget; /* bytes; more cannot be charged */
    enum { CLOSE_NEVER, CLOSE_IN_CONNECTED, CLOSE_IN_READABLE, CLOSE_IN_WRITABLE } close_in;
};

extern struct rdma_rig rig;

void rig_start(void);
/* "rdma://..."; 0, or what open says, with rig.why. */
int rig_open(const char *text);
/* Opens to an address where a server is, and waits for the connection. */
void rig_connect(void);
/* The server's end of the connection. */
struct rdma_queue_pair *rig_pair(void);
void rig_turn(void);
/* write of the class: once, now. */
ssize_t rig_write(const void *bytes, size_t length);
/* Gives bytes away by write and, as far as that took less, by `writable`. They must live on. */
void rig_put(const void *bytes, size_t length);
void rig_hang_up(void);
/* Lets the look-up of "hung.example", or the opening that fake_rdma_before_open = rig_hang has held, go on. */
void rig_release(void);
void rig_hang(const char *host);
/* Closes everything: every queue pair must be closed and every charge given back. */
void rig_stop(void);

#endif
