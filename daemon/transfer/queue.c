#include "daemon/transfer/queue.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/* What has passed is forgotten, so many for each transfer that is taken. */
#define FORGOTTEN_AT_ONCE 2

TAILQ_HEAD(queue_sessions, queue_session);

/* The place of a user in one queue. */
struct queue_user {
    struct turn turn; /* among queue->users; it waits while a session of it does */
    LIST_ENTRY(queue_user) link; /* among the user's places */
    TAILQ_ENTRY(queue_user) rest; /* among queue->resting */
    bool rests;
    struct queue *queue;
    struct transfer_user *owner;
    struct turns sessions;          /* in turn */
    struct queue_sessions held;     /* they wait for in_flight to fall; those that may go on soonest stand first */
    struct queue_sessions resting;  /* without transfers, and ahead of their turns */
    unsigned queued;
    unsigned running; /* taken out of this queue, and not ended */
    unsigned wanted;  /* its part of what queue.wanted says */
};

/* The place of a session in one queue. */
struct queue_session {
    struct turn turn; /* among its user's sessions */
    TAILQ_ENTRY(queue_session) link_out; /* in one of the user's lists of those out of turn */
    bool is_held, rests;
    LIST_ENTRY(queue_session) link; /* among the session's places */
    struct queue_user *user;
    struct transfer_session *owner;
    struct transfer_list queued[TRANSFER_KINDS];
};

void queue_init(struct queue *queue, struct queue_list *ready, struct member *member)
{
    *queue = (struct queue){.ready = ready, .member = member};
    turns_init(&queue->users);
    TAILQ_INIT(&queue->resting);
}

void queue_mark_ready(struct queue *queue)
{
    if (!queue->is_ready)
        TAILQ_INSERT_TAIL(queue->ready, queue, ready_link);
    queue->is_ready = true;
}

void queue_unmark_ready(struct queue *queue)
{
    if (queue->is_ready)
        TAILQ_REMOVE(queue->ready, queue, ready_link);
    queue->is_ready = false;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static struct queue_user *user_of(struct turn *turn)
{
    return turn != NULL ? (struct queue_user *)((char *)turn - offsetof(struct queue_user, turn)) : NULL;
}

static struct queue_session *session_of(struct turn *turn)
{
    return turn != NULL ? (struct queue_session *)((char *)turn - offsetof(struct queue_session, turn)) : NULL;
}

/* How many of a user's could be sent now, if there were connections for them. Not exact for other queues than the one
 * that something happened in: it says how many connections are worth making. */
static void count_wanted(struct queue_user *user)
{
    const struct queue_session *first = session_of(turns_first(&user->sessions));
    uint64_t in_flight = user->owner->in_flight;
    uint64_t room = first != NULL && in_flight < first->owner->in_flight ? first->owner->in_flight - in_flight : 0;
    user->queue->wanted -= user->wanted;
    user->wanted = (unsigned)(user->queued < room ? user->queued : room);
    user->queue->wanted += user->wanted;
}

static void join_turns(struct queue_session *session)
{
    struct queue_user *user = session->user;
    session->is_held = false;
    turns_enter(&user->sessions, &session->turn);
    if (!user->turn.waits)
        turns_enter(&user->queue->users, &user->turn);
}

static void user_leaves(struct queue_user *user)
{
    if (user->turn.waits && turns_first(&user->sessions) == NULL)
        turns_leave(&user->queue->users, &user->turn);
}

/* Out of turn until transfers of the user end. Mostly all sessions have the same quota, and the place is the last. */
static void hold(struct queue_session *session)
{
    struct queue_user *user = session->user;
    turns_leave(&user->sessions, &session->turn);
    session->is_held = true;
    struct queue_session *before = TAILQ_LAST(&user->held, queue_sessions);
    while (before != NULL && before->owner->in_flight < session->owner->in_flight)
        before = TAILQ_PREV(before, queue_sessions, link_out);
    if (before != NULL)
        TAILQ_INSERT_AFTER(&user->held, before, session, link_out);
    else
        TAILQ_INSERT_HEAD(&user->held, session, link_out);
    user_leaves(user);
    count_wanted(user);
}

/* A session whose user has room again goes back into turn, one at most: for each place that gets free. */
static void relieve(struct queue_user *user)
{
    struct queue_session *first = TAILQ_FIRST(&user->held);
    if (first == NULL || user->owner->in_flight >= first->owner->in_flight)
        return;
    TAILQ_REMOVE(&user->held, first, link_out);
    join_turns(first);
    queue_mark_ready(user->queue);
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Found or made; NULL: out of memory. */
static struct queue_user *user_place(struct queue *queue, struct transfer_user *owner)
{
    struct queue_user *user;
    LIST_FOREACH (user, &owner->places, link)
        if (user->queue == queue)
            return user;
    if ((user = calloc(1, sizeof *user)) == NULL)
        return NULL;
    user->queue = queue;
    user->owner = owner;
    turns_init(&user->sessions);
    TAILQ_INIT(&user->held);
    TAILQ_INIT(&user->resting);
    LIST_INSERT_HEAD(&owner->places, user, link);
    return user;
}

static void free_user(struct queue_user *user)
{
    if (user->rests)
        TAILQ_REMOVE(&user->queue->resting, user, rest);
    LIST_REMOVE(user, link);
    free(user);
}

/* It has nothing in the queue: the place is kept while it says more than a new one would. */
static void settle_user(struct queue_user *user)
{
    struct queue *queue = user->queue;
    if (user->queued > 0 || user->running > 0)
        return;
    if (!turns_is_ahead(&queue->users, &user->turn)) {
        free_user(user);
    } else if (!user->rests) {
        TAILQ_INSERT_TAIL(&queue->resting, user, rest);
        user->rests = true;
    }
}

static struct queue_session *session_place(struct queue *queue, struct transfer_session *owner)
{
    struct queue_session *session;
    struct queue_user *user;
    LIST_FOREACH (session, &owner->places, link)
        if (session->user->queue == queue)
            return session;
    if ((user = user_place(queue, owner->user)) == NULL)
        return NULL;
    if ((session = calloc(1, sizeof *session)) == NULL) {
        settle_user(user);
        return NULL;
    }
    session->user = user;
    session->owner = owner;
    for (int kind = 0; kind < TRANSFER_KINDS; kind++)
        TAILQ_INIT(&session->queued[kind]);
    LIST_INSERT_HEAD(&owner->places, session, link);
    return session;
}

static bool session_empty(const struct queue_session *session)
{
    for (int kind = 0; kind < TRANSFER_KINDS; kind++)
        if (!TAILQ_EMPTY(&session->queued[kind]))
            return false;
    return true;
}

static void free_session(struct queue_session *session)
{
    if (session->rests)
        TAILQ_REMOVE(&session->user->resting, session, link_out);
    LIST_REMOVE(session, link);
    free(session);
}

/* It has got its first transfer. */
static void wake(struct queue_session *session)
{
    struct queue_user *user = session->user;
    if (session->rests)
        TAILQ_REMOVE(&user->resting, session, link_out);
    session->rests = false;
    if (user->rests)
        TAILQ_REMOVE(&user->queue->resting, user, rest);
    user->rests = false;
    join_turns(session);
}

/* Its last transfer has gone. */
static void leave_turns(struct queue_session *session)
{
    struct queue_user *user = session->user;
    if (session->is_held)
        TAILQ_REMOVE(&user->held, session, link_out);
    else
        turns_leave(&user->sessions, &session->turn);
    session->is_held = false;
    session->rests = true;
    TAILQ_INSERT_TAIL(&user->resting, session, link_out);
    if (turns_first(&user->sessions) == NULL) /* the place that it was let into turn for is not taken by it */
        relieve(user);
    user_leaves(user);
}

/* Looks at some of those that have nothing in the queue; at all of them when nobody has. */
static void forget_sessions(struct queue_user *user)
{
    struct queue_session *session;
    if (user->queued == 0)
        turns_begin_anew(&user->sessions);
    for (int i = 0; user->queued == 0 || i < FORGOTTEN_AT_ONCE; i++) {
        if ((session = TAILQ_FIRST(&user->resting)) == NULL)
            return;
        TAILQ_REMOVE(&user->resting, session, link_out);
        session->rests = false;
        if (turns_is_ahead(&user->sessions, &session->turn)) {
            TAILQ_INSERT_TAIL(&user->resting, session, link_out);
            session->rests = true;
        } else {
            free_session(session);
        }
    }
}

static void forget_users(struct queue *queue)
{
    struct queue_user *user;
    if (queue->length == 0)
        turns_begin_anew(&queue->users);
    for (int i = 0; queue->length == 0 || i < FORGOTTEN_AT_ONCE; i++) {
        if ((user = TAILQ_FIRST(&queue->resting)) == NULL)
            return;
        TAILQ_REMOVE(&queue->resting, user, rest);
        user->rests = false;
        settle_user(user);
    }
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

int queue_add(struct queue *queue, struct transfer *transfer, bool first)
{
    struct queue_session *session = session_place(queue, transfer->session);
    if (session == NULL)
        return -ENOMEM;
    if (session_empty(session))
        wake(session);
    transfer->place = session;
    if (first)
        TAILQ_INSERT_HEAD(&session->queued[transfer->kind], transfer, queue_link);
    else
        TAILQ_INSERT_TAIL(&session->queued[transfer->kind], transfer, queue_link);
    queue->length++;
    queue->waiting += session->user->queued == 0 ? 1 : 0;
    session->user->queued++;
    session->user->owner->queued++;
    count_wanted(session->user);
    return 0;
}

void queue_remove(struct transfer *transfer)
{
    struct queue_session *session = transfer->place;
    struct queue_user *user = session->user;
    struct queue *queue = user->queue;
    TAILQ_REMOVE(&session->queued[transfer->kind], transfer, queue_link);
    transfer->place = NULL;
    queue->length--;
    user->queued--;
    user->owner->queued--;
    queue->waiting -= user->queued == 0 ? 1 : 0;
    if (session_empty(session))
        leave_turns(session);
    count_wanted(user);
    forget_sessions(user);
    settle_user(user);
    forget_users(queue);
}

/* The user's first session that may send; holds those before it that may not. */
static struct queue_session *session_in_turn(struct queue_user *user)
{
    struct queue_session *session;
    while ((session = session_of(turns_first(&user->sessions))) != NULL &&
           user->owner->in_flight >= session->owner->in_flight)
        hold(session);
    return session;
}

static struct turn *turn_after(const struct queue *queue, const struct transfer *after)
{
    return after != NULL ? turns_next(&queue->users, &after->place->user->turn) : turns_first(&queue->users);
}

struct transfer *queue_look(struct queue *queue, const struct transfer *after)
{
    struct turn *turn = turn_after(queue, after);
    while (turn != NULL) {
        struct queue_user *user = user_of(turn);
        struct queue_session *session = session_in_turn(user);
        struct transfer *next = NULL;
        for (int kind = 0; session != NULL && next == NULL && kind < TRANSFER_KINDS; kind++)
            next = TAILQ_FIRST(&session->queued[kind]);
        if (next != NULL) {
            count_wanted(user); /* transfers for other nodes have ended or begun meanwhile */
            return next;
        }
        /* Held, it is not in turn any more. */
        turn = turn_after(queue, after);
    }
    return NULL;
}

bool queue_ready(struct queue *queue)
{
    return queue_look(queue, NULL) != NULL;
}

void queue_take(struct transfer *transfer)
{
    struct queue_session *session = transfer->place;
    struct queue_user *user = session->user;
    turns_charge(&user->sessions, &session->turn, transfer->window.length);
    turns_charge(&user->queue->users, &user->turn, transfer->window.length);
    transfer->in_flight = true;
    transfer->taken_at = user;
    user->owner->in_flight++;
    user->running++;
    queue_remove(transfer);
}

void queue_sent_ends(struct transfer *transfer)
{
    struct transfer_user *owner = transfer->session->user;
    struct queue_user *user;
    if (!transfer->in_flight)
        return;
    transfer->in_flight = false;
    owner->in_flight--;
    user = transfer->taken_at;
    transfer->taken_at = NULL;
    user->running--;
    settle_user(user);
    LIST_FOREACH (user, &owner->places, link) {
        relieve(user);
        count_wanted(user);
    }
}

unsigned queue_running(const struct transfer *transfer)
{
    return transfer->place->user->running;
}

bool queue_same_round(const struct transfer *a, const struct transfer *b)
{
    return turns_same_round(&a->place->user->turn, &b->place->user->turn);
}

void queue_forget_session(struct transfer_session *owner)
{
    struct queue_session *session;
    while ((session = LIST_FIRST(&owner->places)) != NULL)
        free_session(session);
}

void queue_forget_user(struct transfer_user *owner)
{
    struct queue_user *user;
    while ((user = LIST_FIRST(&owner->places)) != NULL)
        free_user(user);
}

bool queue_user_in_turn(const struct transfer_user *owner)
{
    const struct queue_user *user;
    LIST_FOREACH (user, &owner->places, link)
        if (user->turn.waits)
            return true;
    return false;
}

void queue_limit(struct transfer_session *owner, uint64_t in_flight)
{
    struct queue_session *session;
    owner->in_flight = in_flight;
    LIST_FOREACH (session, &owner->places, link) {
        if (session->is_held) {
            TAILQ_REMOVE(&session->user->held, session, link_out);
            join_turns(session);
        }
        count_wanted(session->user);
        queue_mark_ready(session->user->queue);
    }
}
