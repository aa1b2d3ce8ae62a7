/*
 * A queue of waiting transfers: users in turn, sessions in turn inside a user, gets before sets inside a session.
 * There is one for each member of the deployment, so that nobody waits behind a transfer for another node. Turns are
 * counted in bytes (turns.h): of the window, since a get's value may be as large.
 *
 * A user or session has a place in a queue while it has a transfer there, and as long after as it is ahead of its
 * turns: who sends one transfer at a time does not begin anew with each. In a queue without transfers all are
 * forgotten. It looks for its place among the queues where it has one, at most as many as there are nodes. A session
 * whose user has as many transfers in flight, at all nodes together, as the session's quota allows is held: out of
 * turn until one of them ends. For each that ends one session of the user is let back into turn in each of its queues,
 * so that a node that does not answer keeps nobody from another. All else is O(1), but that sessions of one user with
 * different quotas of in_flight are held in the order of these.
 *
 * Private to transfer/. Loop thread only.
 */
#ifndef GRD_TRANSFER_QUEUE_H
#define GRD_TRANSFER_QUEUE_H

#include "daemon/transfer/transfer.h"

/* `ready`: where it is listed when a transfer of it may go on that could not before; `member` NULL: those without. */
void queue_init(struct queue *queue, struct queue_list *ready, struct member *member);

/* Puts it on the list of those to be looked at; takes it from there. */
void queue_mark_ready(struct queue *queue);
void queue_unmark_ready(struct queue *queue);

/* At the end; or, for one that is sent again, at the head of its session's of the same kind. 0 or -ENOMEM. */
int queue_add(struct queue *queue, struct transfer *transfer, bool first);

/* Takes one out. */
void queue_remove(struct transfer *transfer);

/* Whether there is one that may be sent now. */
bool queue_ready(struct queue *queue);

/* Whose turn it is, or who comes after that one, without taking it out; holds the sessions before it that may not send
 * more now. NULL: nobody. */
struct transfer *queue_look(struct queue *queue, const struct transfer *after);

/* Takes out one that queue_look showed, and charges it: its user and session have their next turns when it is paid for.
 * It is in flight until queue_sent_ends. */
void queue_take(struct transfer *transfer);

/* Of a queued transfer's user: how many were taken out of the same queue and have not ended. */
unsigned queue_running(const struct transfer *transfer);

/* A transfer, or an attempt of it, ends: it is in flight no longer, if it was. What may be sent then is marked
 * ready. */
void queue_sent_ends(struct transfer *transfer);

/* Whether something of the user's is in turn in some queue (tests). */
bool queue_user_in_turn(const struct transfer_user *user);

/* Another quota of in_flight for a session. */
void queue_limit(struct transfer_session *session, uint64_t in_flight);

/* Whether the users of both have their turns in the same round (turns.h). */
bool queue_same_round(const struct transfer *a, const struct transfer *b);

/* The session's places, the user's. Nothing of it is queued or in flight any more; of a user, nor has it sessions. */
void queue_forget_session(struct transfer_session *session);
void queue_forget_user(struct transfer_user *user);

#endif
