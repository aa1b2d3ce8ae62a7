/*
 * Transfers against a scripted server and fakes of the lane and window functions; for the tests of daemon/transfer. Two
 * users, the first with two sessions and the second with one.
 */
#ifndef GRD_TESTS_TRANSFERS_RIG_H
#define GRD_TESTS_TRANSFERS_RIG_H

#include "daemon/transfer/transfer.h"
#include "tests/unit/fake_lane.h"
#include "tests/unit/node_rig.h"

#define MANY 64
/* A deadline that no transfer meets before it was sent, however slow the machine is: bench_skip() lets it pass. */
#define DEADLINE_MS 5000

struct probe {
    struct transfer transfer;
    char key[16];
    int ended, released, windows_released, quarantined;
    enum transfer_outcome outcome;
    bool may_have_run, memory_kept;
    unsigned attempts;
    unsigned lanes; /* alive when it was answered */
    uint32_t nics;  /* that its memory may be on; 0: any */
    uint32_t refuse; /* NICs that cannot register it: taken out of `nics` when they were tried */
    unsigned nic;   /* that it was sent on */
    char text[NODE_WHY_BYTES];
};

extern struct transfers transfers;
extern struct transfer_user users[2];
extern struct transfer_session sessions[3]; /* two of the first user, one of the second */
extern struct probe probes[MANY];
extern char order[256];             /* keys as they reached the server */
extern unsigned sent;
extern struct stub_peer *carrying;  /* the connection that the last of them came on */
extern void (*on_sent)(void);       /* answers in place of rig.transfer; NULL: none */

extern unsigned host_nics;          /* set before `start`; 1 */

/* Everything anew. `reply` NULL: the server says nothing to a transfer. */
void start(unsigned connections, const char *reply, uint64_t grace_ms);

/* The two parts of it: what is set in between (rig.config) is what the deployment begins with. */
void start_rig(unsigned connections, const char *reply, uint64_t grace_ms);
void start_deployment(void);

/* Each is answered once, with its window released before, and nothing is left. */
void end(void);

struct probe *submit(int session, enum transfer_kind kind, const char *key, uint64_t deadline_ms);
/* One whose memory may be on some NICs only. */
struct probe *submit_on(int session, const char *key, uint32_t nics, uint32_t refuse);
struct probe *submit_new(int session, enum transfer_kind kind, const char *key, uint64_t deadline_ms, bool no_retry);

#endif
