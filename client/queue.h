/*
 * Transfers and queues.
 *
 * A transfer locks its window, is encoded, carried as a call, and ends with its answer read, its bytes verified and the
 * window unlocked. grd_set() and grd_get() do all of that in one thread. In a queue the steps fall apart: grd_submit()
 * does the first two, the leader, whoever that is, finishes the call, and grd_reap() does the rest. In between the
 * transfer is part of a ticket.
 *
 *   submitted -> open (queue->open) -> finished (queue->finished) -> reaped, and freed
 *
 * An open ticket is a call of the session, or parked: see park.c.
 *
 * The queue's descriptor is an epoll descriptor over three others:
 *
 *   event    an eventfd, raised under the lock for as long as grd_reap() would return something that is known already:
 *            what others have read, the end of the session, a closed client. It also interrupts a leader that waits to
 *            reap this queue.
 *   source   what a leader would poll: the socket, or the daemon's pidfd once the stream has ended in silence. While
 *            another thread leads, its packets are not ours to read: the first grd_reap() that finds a leader takes the
 *            source out, so that the program's loop does not spin, and the last leader puts it back (queues_rearm).
 *            Both are level-triggered: whatever came in between is seen when it is put back.
 *   timer    a timerfd, set while tickets are parked and nobody leads: the next attempt to connect, or the end of a
 *            ticket's time, is due.
 */
#ifndef GRD_CLIENT_QUEUE_H
#define GRD_CLIENT_QUEUE_H

#include "client/private.h"

struct transfer {
    bool writes; /* get */
    struct grd_window window;
    struct window_use use;
    uint64_t region_id; /* in the session that it is sent in */
    uint64_t deadline_ms, ttl_ms;
    enum grd_checksum_mode checksum;
    uint32_t crc32c;
    bool no_verify, no_retry;
};

/* All that can be checked without the lock. */
int transfer_check(const struct transfer *transfer, const void *key, size_t key_length, struct grd_error *error);

/* Locks the window. Client lock held, and the caller is inside the client. */
int transfer_begin(struct transfer *transfer, struct grd_error *error);

/* Computes the checksum, if it has to be sent, and encodes the parameters; *json is the caller's. Without the lock. */
int transfer_encode(struct transfer *transfer, const void *key, size_t key_length, json_t **json,
                    struct grd_error *error);

/*
 * Reads the answer of a finished call, verifies, fills *receipt (zero after an error). `cancelled`: by the program, not
 * by grd_close(). Without the lock.
 */
int transfer_complete(const struct transfer *transfer, struct call *call, bool cancelled, struct grd_receipt *receipt,
                      struct grd_error *error);

/* Unlocks the window. Client lock held. */
void transfer_end(struct transfer *transfer);

enum proto_method_id transfer_method(const struct transfer *transfer);

/* A window that the caller has locked, with others like it, until its completion is reaped. */
struct ticket {
    struct call call; /* first: a CALL_TICKET is cast to its ticket */
    TAILQ_ENTRY(ticket) entry; /* in queue->open or queue->finished */
    grd_queue *queue;
    struct transfer transfer;
    uint64_t user_data;
    json_t *params;      /* for sending it again, or NULL */
    uint64_t deadline_ms; /* as clock_ms() tells; WAIT_FOREVER */
    TAILQ_ENTRY(ticket) parked_entry;
    bool parked;         /* in client->parked; not a call */
    uint64_t parked_after; /* it needs a session later than this epoch */
    uint64_t parked_end_ms; /* when it is given up */
    struct grd_error *failure; /* its error where that is no answer's; of a parked one: if nothing better comes */
    bool sending;   /* grd_submit() owns it still: it finishes it if the call is done when it was sent */
    bool cancelled; /* transfer.cancel was sent */
};

TAILQ_HEAD(ticket_list, ticket);

struct grd_queue {
    grd_client *client; /* held */
    LIST_ENTRY(grd_queue) entry;      /* in client->queues */
    LIST_ENTRY(grd_queue) fork_entry; /* of all queues, under the fork lock */
    int epoll, event, timer;          /* written under the fork lock */

    /* under the client's lock: */
    struct ticket_list open, finished;
    size_t open_count, finished_count;
    size_t pending;      /* accepted, and not reaped */
    unsigned users;      /* public functions inside the queue, but for grd_queue_close() */
    pthread_cond_t idle; /* users has become 0 while closing */
    bool closing;        /* grd_queue_close() has started */
    bool polled;         /* the program has the descriptor */
    bool raised;         /* the event is */
    bool crowded, room;  /* a transfer was refused for lack of room; there is some again */
    int source;          /* in the epoll set, or -1 */
    size_t parked_count; /* tickets of this queue that are parked */
    uint64_t timer_ms;   /* what the timer is set to; 0: it is not */
    bool source_failed;  /* the kernel had no memory for it: tried again by each grd_reap() */
};

/* Enters for a public function; queue_leave must follow a 0. The client's lock is held after a 0. */
int queue_enter(grd_queue *queue, struct grd_error *error);
/* Lock held; released on return. */
void queue_leave(grd_queue *queue);

/*
 * A ticket's call is done: its completion can be reaped. Lock held. `by_leader`: this thread leads, and looks after the
 * queue for which it does.
 */
void queue_finish(struct ticket *ticket, bool by_leader);

/* Is nothing more to come, because the session is over, or because the queue or its client is closed? Lock held. */
bool queue_is_over(const grd_queue *queue);
bool queue_is_closed(const grd_queue *queue);

/* Raises or clears the event. Lock held. */
void queue_update(grd_queue *queue);

/* Puts the source into the epoll set, or takes it out. Lock held. */
void queue_arm(grd_queue *queue, bool armed);

/* Submitting was refused for lack of room: the descriptor is to tell when there is some. Lock held. */
void queue_wants_room(grd_queue *queue);

/* For all queues of a client, lock held: nobody leads or waits; the session's state has changed; there is room. */
void queues_rearm(grd_client *client);
void queues_state_changed(grd_client *client);
void queues_room(grd_client *client);

/* Sends transfer.cancel, unless that was done or is of no more use: 0, or GRD_ERR_BUSY (the socket is full),
 * GRD_ERR_NO_MEMORY. Lock held, and on return. */
int ticket_cancel(struct ticket *ticket, struct grd_error *error);

/* --- park.c: all with the lock held ------------------------------------------------------------------------------ */

/* The ticket's call is done, or was never sent: should it be sent in the next session? */
bool ticket_is_for_the_next(const struct ticket *ticket);

/* Parks an open ticket that is no call (any more). */
void ticket_park(struct ticket *ticket, uint64_t after);

/* Ends a parked ticket with the error. */
void ticket_fail(struct ticket *ticket, const struct grd_error *error);

struct ticket *parked_find(const grd_client *client, int64_t id);

/* Sends what can be sent in the session that is open. */
void parked_send(grd_client *client);

/* Gives up those whose time is over. */
void parked_expire(grd_client *client, uint64_t now_ms);
/* The session ended: the times of all count. */
void parked_session_ended(grd_client *client);

/* Gives up all, those of a region whose registration was refused, or all because the client is closed. */
void parked_fail_all(grd_client *client, const struct grd_error *error);
void parked_fail_region(grd_region *region);
void parked_close(grd_client *client);

/* Releases a ticket that is in no list any more. */
void ticket_free(struct ticket *ticket);

#endif
