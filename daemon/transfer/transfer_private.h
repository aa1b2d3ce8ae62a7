/*
 * The inside of a transfer's life, shared by transfer.c (submitting, ends that somebody asks for, and the timer),
 * send.c
 * (from queues to carriers) and ending.c (from an outcome to the answer). Private to transfer/. Loop thread only.
 */
#ifndef GRD_TRANSFER_TRANSFER_PRIVATE_H
#define GRD_TRANSFER_TRANSFER_PRIVATE_H

#include "daemon/transfer/transfer.h"

/* --- transfer.c --- */

/* Into the queue of the member that serves it, which transfers_send_ready then looks at; out of memory: ends it. */
void transfer_enter(struct transfer *transfer, bool first);

/* An attempt is over, nothing of it is left, and another one follows. The window stays taken, the place in flight does
 * not. */
void transfer_wait_for_next_attempt(struct transfer *transfer);

/* --- send.c --- */

/* Sends what waits at queues that are marked ready, as far as there are carriers. */
void transfers_send_ready(struct transfers *transfers);

/* The same, with the member's queue (NULL: none) among them. */
void transfers_kick(struct transfers *transfers, struct member *member);

/* --- ending.c --- */

/* Sets the outcome; the last one that is set before the answer counts. */
void transfer_decide(struct transfer *transfer, enum transfer_outcome outcome);

/* For the end of an attempt, not one that somebody asked for: perhaps not the last. */
void transfer_decide_attempt(struct transfer *transfer, enum transfer_outcome outcome);

/* For one that has no command under way; says how the attempt before ended, if there was one. */
void transfer_decide_waiting(struct transfer *transfer, enum transfer_outcome outcome);

/* From a decided outcome on. After each of these the transfer may be the submitter's again. */

/* Its carrier is gone, or it had none: nothing of the transfer is under way. The answer, or the next attempt. */
void transfer_settle(struct transfer *transfer);

/* The answer. Everything of the transfer is at rest: it waits nowhere, its carrier is gone or idle. */
void transfer_finish(struct transfer *transfer);

/* Its carrier is idle, and goes to the next. */
void transfer_release_and_settle(struct transfer *transfer);

/* Rule 1: its carrier's lane is destroyed first; the answer comes after, from the loop. */
void transfer_take_back(struct transfer *transfer);

/* It waits nowhere, and could not be queued (again). */
void transfer_end_without_memory(struct transfer *transfer);

/* The server's answer, or the connection's end: carrier_request.done. */
void transfer_replied(struct carrier_request *request, const struct blob_reply *reply, bool may_have_run,
                      const char *why);

#endif
