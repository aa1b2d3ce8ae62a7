/*
 * Queues: made and closed, and their descriptor.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/private.h"
#include "client/queue.h"

int queue_enter(grd_queue *queue, struct grd_error *error)
{
    grd_client *client = queue->client;
    int code;

    if (client_forked(client)) {
        return error_set(error, GRD_ERR_FORKED,
                         "this process was forked from the one that made the queue; connect in it, after the fork");
    }
    pthread_mutex_lock(&client->lock);
    code = queue->closing ? error_set(error, GRD_ERR_CLOSED, "the queue is being closed")
                          : client_enter_locked(client, error);
    if (code != 0) {
        pthread_mutex_unlock(&client->lock);
        return code;
    }
    queue->users++;
    return 0;
}

void queue_leave(grd_queue *queue)
{
    grd_client *client = queue->client;

    queue->users--;
    if (queue->closing && queue->users == 0) {
        pthread_cond_signal(&queue->idle);
    }
    client_leave_locked(client);
    pthread_mutex_unlock(&client->lock);
}

/* --- the descriptor ---------------------------------------------------------------------------------------------- */

bool queue_is_over(const grd_queue *queue)
{
    enum session_state state = queue->client->state;

    return !queue->client->reconnects && (state == SESSION_MUTE || state == SESSION_ENDED) && queue->open_count == 0;
}

/* grd_close() cancels what is open: that still comes. */
bool queue_is_closed(const grd_queue *queue)
{
    return queue->closing || (queue->client->closing && queue->open_count == 0);
}

/* Neither call blocks or fails: an eventfd of EFD_NONBLOCK that holds 0 or 1. */
void queue_update(grd_queue *queue)
{
    bool something = queue->finished_count > 0 || queue->room || queue->source_failed || queue_is_over(queue);
    bool wanted = queue_is_closed(queue) || (something && (queue->polled || queue->client->leader_queue == queue));
    uint64_t count = 1;
    ssize_t done;

    if (wanted == queue->raised) {
        return;
    }
    done = wanted ? write(queue->event, &count, sizeof(count)) : read(queue->event, &count, sizeof(count));
    (void)done;
    queue->raised = wanted;
}

static int source_of(const grd_client *client)
{
    switch (client->state) {
    case SESSION_OPEN:
    case SESSION_BROKEN:
    case SESSION_GREETING:
        return client->socket;
    case SESSION_MUTE:
        return client->pidfd;
    default:
        return -1;
    }
}

/* Absolute, so that it is set once for each time that is due. */
static void set_timer(grd_queue *queue, bool armed)
{
    bool needed = armed && queue->polled && queue->parked_count > 0;
    uint64_t due = needed ? session_due(queue->client) : WAIT_FOREVER;
    uint64_t wanted = due == WAIT_FOREVER ? 0 : due > 0 ? due : 1;
    struct itimerspec time = {.it_value = {.tv_sec = (time_t)(wanted / 1000),
                                           .tv_nsec = (long)(wanted % 1000) * 1000000}};

    if (wanted != queue->timer_ms) {
        timerfd_settime(queue->timer, TFD_TIMER_ABSTIME, &time, NULL);
        queue->timer_ms = wanted;
    }
}

/* Taken out, not set to no events: the end of a stream is reported even then. */
void queue_arm(grd_queue *queue, bool armed)
{
    int source = armed && queue->polled ? source_of(queue->client) : -1;
    struct epoll_event event = {.events = EPOLLIN};

    set_timer(queue, armed);
    if (source == queue->source) {
        return;
    }
    if (queue->source >= 0) {
        epoll_ctl(queue->epoll, EPOLL_CTL_DEL, queue->source, &event);
    }
    queue->source_failed = source >= 0 && epoll_ctl(queue->epoll, EPOLL_CTL_ADD, source, &event) != 0;
    queue->source = queue->source_failed ? -1 : source;
    queue_update(queue);
}

void queues_rearm(grd_client *client)
{
    grd_queue *queue;

    LIST_FOREACH(queue, &client->queues, entry) {
        queue_arm(queue, true);
    }
}

void queues_state_changed(grd_client *client)
{
    grd_queue *queue;

    LIST_FOREACH(queue, &client->queues, entry) {
        /* Where somebody leads, the last leader puts the new source in. */
        queue_arm(queue, !client->has_leader);
        queue_update(queue);
        lead_wake_queue(client, queue, true);
    }
    if (client->closing) {
        lead_wake_queue(client, NULL, true);
    }
}

void queue_wants_room(grd_queue *queue)
{
    queue->crowded = true;
    queue->client->crowded = true;
    if (queue->client->open_calls + queue->client->parked_count == 0) { /* the last answer came meanwhile */
        queues_room(queue->client);
    }
}

void queues_room(grd_client *client)
{
    grd_queue *queue;

    client->crowded = false;
    LIST_FOREACH(queue, &client->queues, entry) {
        queue->room |= queue->crowded;
        queue->crowded = false;
        queue_update(queue);
    }
}

void queue_finish(struct ticket *ticket, bool by_leader)
{
    grd_queue *queue = ticket->queue;
    grd_client *client = queue->client;

    if (ticket->sending) {
        return;
    }
    if (ticket_is_for_the_next(ticket)) {
        ticket_park(ticket, client->epoch);
        return;
    }
    TAILQ_REMOVE(&queue->open, ticket, entry);
    TAILQ_INSERT_TAIL(&queue->finished, ticket, entry);
    queue->open_count--;
    queue->finished_count++;
    if (queue->closing || client->closing) {
        lead_wake_queue(client, NULL, true);
    }
    if (by_leader && client->leader_queue == queue) {
        return;
    }
    lead_wake_queue(client, queue, false);
    queue_update(queue);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

int grd_queue_create(grd_client *client, grd_queue **queue, struct grd_error *error)
{
    grd_queue *made;
    int code, os_errno;

    error_clear(error);
    if (queue != NULL) {
        *queue = NULL;
    }
    if (client == NULL || queue == NULL) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no client, or no place for the queue");
    }
    code = client_enter(client, error);
    if (code != 0) {
        return code;
    }
    made = calloc(1, sizeof(*made));
    os_errno = ENOMEM;
    if (made != NULL) {
        made->client = client;
        made->source = -1;
        os_errno = fork_watch_queue(made);
    }
    if (os_errno != 0) {
        free(made);
        client_leave(client);
        return error_system(error, GRD_ERR_NO_MEMORY, os_errno, "cannot make a queue");
    }
    client_hold(client);
    TAILQ_INIT(&made->open);
    TAILQ_INIT(&made->finished);
    pthread_cond_init(&made->idle, NULL);
    pthread_mutex_lock(&client->lock);
    LIST_INSERT_HEAD(&client->queues, made, entry);
    client_leave_locked(client);
    pthread_mutex_unlock(&client->lock);
    *queue = made;
    return 0;
}

int grd_queue_fd(grd_queue *queue)
{
    grd_client *client;

    if (queue == NULL || client_forked(queue->client)) {
        return -1;
    }
    client = queue->client;
    pthread_mutex_lock(&client->lock);
    if (!queue->polled) {
        queue->polled = true;
        queue_arm(queue, true);
        queue_update(queue);
    }
    pthread_mutex_unlock(&client->lock);
    return queue->epoll;
}

size_t grd_queue_pending(const grd_queue *queue)
{
    size_t pending;

    if (queue == NULL || client_forked(queue->client)) {
        return 0;
    }
    pthread_mutex_lock(&queue->client->lock);
    pending = queue->pending;
    pthread_mutex_unlock(&queue->client->lock);
    return pending;
}

void ticket_free(struct ticket *ticket)
{
    json_decref(ticket->call.answer.root);
    json_decref(ticket->params);
    free(ticket->failure);
    free(ticket);
}

/* What closing waits for: fewer open transfers than `open`, or none. */
struct fewer {
    const grd_queue *queue;
    size_t open;
};

static bool are_fewer(const void *subject)
{
    const struct fewer *fewer = subject;

    return fewer->queue->open_count < fewer->open || fewer->queue->open_count == 0;
}

/* Cancels as many as the socket takes; true: all. Lock held, and on return; not while sending. */
static bool cancel_all(grd_queue *queue)
{
    struct ticket *ticket = TAILQ_FIRST(&queue->open);

    while (ticket != NULL) {
        if (ticket->cancelled) {
            ticket = TAILQ_NEXT(ticket, entry);
        } else if (ticket_cancel(ticket, NULL) == 0) {
            ticket = TAILQ_FIRST(&queue->open); /* anything may have ended meanwhile */
        } else {
            return false;
        }
    }
    return true;
}

/* Lock held, and on return. */
static void drain(grd_queue *queue)
{
    struct fewer fewer = {.queue = queue};
    struct waiter waiter = {.ready = are_fewer, .subject = &fewer, .end_ms = WAIT_FOREVER};

    while (queue->open_count > 0) {
        /* Where the socket is full, an answer makes room. */
        fewer.open = cancel_all(queue) ? 0 : queue->open_count;
        lead_wait(queue->client, &waiter);
    }
}

static void drop_finished(grd_queue *queue)
{
    struct ticket *ticket;

    while ((ticket = TAILQ_FIRST(&queue->finished)) != NULL) {
        TAILQ_REMOVE(&queue->finished, ticket, entry);
        transfer_end(&ticket->transfer);
        ticket_free(ticket);
    }
}

static void close_here(grd_queue *queue)
{
    grd_client *client = queue->client;

    pthread_mutex_lock(&client->lock);
    client->active++;
    queue->closing = true;
    queue_update(queue);
    lead_wake_queue(client, queue, true);
    while (queue->users > 0) {
        pthread_cond_wait(&queue->idle, &client->lock);
    }
    drain(queue);
    drop_finished(queue);
    LIST_REMOVE(queue, entry);
    client_leave_locked(client);
    pthread_mutex_unlock(&client->lock);
    fork_unwatch_queue(queue);
    pthread_cond_destroy(&queue->idle);
}

void grd_queue_close(grd_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    /* In a forked child the lists may be in the middle of a change: what is in them is left. */
    if (!client_forked(queue->client)) {
        close_here(queue);
    }
    client_release(queue->client);
    free(queue);
}
