/*
 * A client with a region and a queue, and a daemon that does what the test says. After the region is registered the
 * test's own thread plays the daemon, with fake_receive() and fake_answer(): nothing of a queue waits, so one thread
 * can do both in a fixed order. From stage_serve() on, the daemon's thread answers by itself: it grants
 * transfer.cancel, forced closing included, and every call about keys.
 */
#ifndef GRD_TESTS_QUEUE_STAGE_H
#define GRD_TESTS_QUEUE_STAGE_H

#include "client_fake.h"

#define STAGE_SLOT ((uint64_t)4096)
#define STAGE_SLOTS 64
#define STAGE_OPEN 128

struct stage {
    struct fake fake;
    struct fake_request request; /* the last that the test received */
    grd_client *client;
    grd_region *region;
    grd_queue *queue;
    int requests;          /* for struct fake */
    _Atomic int state;     /* of the script, see queue_stage.c */
    int64_t open[STAGE_OPEN]; /* requests that the test left unanswered, for the time after stage_serve() */
    size_t open_count;
};

void stage_start(struct stage *stage, int requests);
void stage_serve(struct stage *stage);
/* Closes what is open, serving. */
void stage_stop(struct stage *stage);

/* A transfer of slot `slot` with user data slot + 100. */
struct grd_transfer stage_transfer(struct stage *stage, enum grd_operation operation, unsigned slot);

/* Submits one: its ticket. */
uint64_t stage_submit(struct stage *stage, enum grd_operation operation, unsigned slot);

/* Receives a request of the method, which must be ticket's; one that stays unanswered is remembered. */
void stage_expect(struct stage *stage, enum proto_method_id method, uint64_t ticket);
void stage_expect_unanswered(struct stage *stage, enum proto_method_id method, uint64_t ticket);

void stage_answer_set(struct stage *stage, uint64_t ticket);
void stage_answer_missing(struct stage *stage, uint64_t ticket);
void stage_refuse_cancelled(struct stage *stage, uint64_t ticket, bool may_have_run);

/* Is the queue's descriptor readable within so many ms? */
bool stage_readable(grd_queue *queue, int timeout_ms);

/* Reaps exactly one completion. */
struct grd_completion stage_reap(struct stage *stage);
/* Reaps without waiting, and nothing must come. */
void stage_reap_nothing(grd_queue *queue);

#endif
