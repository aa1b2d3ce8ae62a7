/*
 * Reading the socket for everybody, and doing what a new session takes. One waiter at a time is the leader.
 *
 * No waiter is left behind: when nobody leads and some wait, at least one of them has been woken. A woken one either
 * leads, or, on its way out, passes on. With the last of them the queues get the socket back.
 */
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/channel.h"

enum read_outcome { READ_NOTHING, READ_PACKET, READ_END };

uint64_t clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool is_over(const struct waiter *waiter)
{
    return waiter->ready(waiter->subject) || (waiter->end_ms != WAIT_FOREVER && clock_ms() >= waiter->end_ms);
}

void lead_wake(struct waiter *waiter)
{
    if (!waiter->woken) {
        waiter->woken = true;
        pthread_cond_signal(&waiter->wake);
    }
}

void lead_wake_queue(grd_client *client, const grd_queue *queue, bool all)
{
    struct waiter *waiter;

    TAILQ_FOREACH(waiter, &client->waiting, entry) {
        if ((queue == NULL || waiter->queue == queue) && !waiter->woken) {
            lead_wake(waiter);
            if (!all) {
                return;
            }
        }
    }
}

/* Nobody leads now. Lock held. */
static void pass_on(grd_client *client)
{
    struct waiter *waiter, *sleeping = NULL;

    if (TAILQ_EMPTY(&client->waiting)) {
        queues_rearm(client);
        return;
    }
    TAILQ_FOREACH(waiter, &client->waiting, entry) {
        if (waiter->woken && !waiter->ready(waiter->subject)) {
            return; /* it is going to lead */
        }
        if (!waiter->woken && sleeping == NULL) {
            sleeping = waiter;
        }
    }
    if (sleeping != NULL) {
        lead_wake(sleeping);
    }
}

void lead_kick(grd_client *client)
{
    uint64_t count = 1;
    ssize_t done;

    if (client->has_leader) {
        done = write(client->bell, &count, sizeof(count));
        (void)done;
    } else {
        pass_on(client);
    }
}

static void take_lead(grd_client *client, grd_queue *queue)
{
    client->has_leader = true;
    client->leader_queue = queue;
}

static void resign(grd_client *client)
{
    client->has_leader = false;
    client->leader_queue = NULL;
    pass_on(client);
}

static int milliseconds_left(uint64_t end_ms)
{
    uint64_t now;

    if (end_ms == WAIT_FOREVER) {
        return -1;
    }
    now = clock_ms();
    return now >= end_ms ? 0 : end_ms - now > 60000 ? 60000 : (int)(end_ms - now);
}

/*
 * Blocks until the descriptor (-1: none) is readable or at its end: true. False: a signal, the time is over, the bell,
 * or an interrupt.
 */
static bool wait_readable(const grd_client *client, int fd, int interrupt, uint64_t end_ms)
{
    struct pollfd entries[3] = {{.fd = fd, .events = POLLIN},
                                {.fd = client->bell, .events = POLLIN},
                                {.fd = interrupt, .events = POLLIN}};
    int rc = poll(entries, interrupt >= 0 ? 3 : 2, milliseconds_left(end_ms));
    uint64_t count;

    if (rc > 0 && entries[1].revents != 0 && read(client->bell, &count, sizeof(count)) < 0) {
        return false;
    }
    return rc > 0 ? entries[0].revents != 0 : rc < 0 && errno != EINTR && errno != EAGAIN && errno != ENOMEM;
}

/* Without the lock; only the leader. */
static enum read_outcome read_packet(grd_client *client, bool greeting)
{
    struct channel_packet packet;
    struct proto_answer answer = {0};
    bool understood;
    int received = greeting ? hello_receive(client, &packet)
                            : channel_receive(client->socket, client->receive_buffer, sizeof(client->receive_buffer),
                                              &packet);

    if (received == -EAGAIN || received == -ENOMEM || received == -ENOBUFS) {
        return READ_NOTHING;
    }
    if (received <= 0) {
        return READ_END;
    }
    channel_close_fds(&packet); /* `hello` alone brings one */
    understood = !packet.truncated && proto_answer_parse(client->receive_buffer, packet.length, &answer) == 0;
    pthread_mutex_lock(&client->lock);
    session_packet(client, understood ? &answer : NULL);
    pthread_mutex_unlock(&client->lock);
    json_decref(answer.root);
    return READ_PACKET;
}

static bool reads_socket(enum session_state state)
{
    return state == SESSION_OPEN || state == SESSION_BROKEN || state == SESSION_GREETING;
}

/* What was read, or found readable, in `state`. Lock held. */
static void note_end(grd_client *client, enum session_state state, enum read_outcome outcome, bool readable)
{
    if (state == SESSION_MUTE && readable) {
        session_end(client);
    } else if (outcome == READ_END) {
        session_stream_ended(client);
    }
}

/* One step of the leader's, which waits for a packet unless the last receive brought one. Lock held, and on return. */
static enum read_outcome step(grd_client *client, const struct waiter *waiter, enum read_outcome last)
{
    enum session_state state = client->state;
    int interrupt = waiter->queue != NULL ? waiter->queue->event : -1;
    int source = reads_socket(state) ? client->socket : state == SESSION_MUTE ? client->pidfd : -1;
    uint64_t due = session_due(client), end_ms = waiter->end_ms < due ? waiter->end_ms : due;
    enum read_outcome outcome = READ_NOTHING;
    bool readable = true;

    pthread_mutex_unlock(&client->lock);
    /* An answer takes a while: one poll() is cheaper than a receive that finds nothing and a poll() after it. */
    if (!reads_socket(state) || last != READ_PACKET) {
        readable = wait_readable(client, source, interrupt, end_ms);
    }
    if (reads_socket(state) && readable) {
        outcome = read_packet(client, state == SESSION_GREETING);
    }
    pthread_mutex_lock(&client->lock);
    note_end(client, state, outcome, readable);
    return outcome;
}

static void lead(grd_client *client, struct waiter *waiter)
{
    enum read_outcome outcome = READ_NOTHING;

    take_lead(client, waiter->queue);
    waiter->woken = false;
    for (;;) {
        session_tick(client);
        if (is_over(waiter) || !session_has_work(client)) {
            break;
        }
        outcome = step(client, waiter, outcome);
    }
    waiter->woken = false; /* by its own answer */
    resign(client);
}

static void sleep_until_woken(grd_client *client, struct waiter *waiter)
{
    waiter->woken = false;
    TAILQ_INSERT_TAIL(&client->waiting, waiter, entry);
    if (waiter->end_ms == WAIT_FOREVER) {
        pthread_cond_wait(&waiter->wake, &client->lock);
    } else {
        struct timespec end = {.tv_sec = (time_t)(waiter->end_ms / 1000),
                               .tv_nsec = (long)(waiter->end_ms % 1000) * 1000000};

        pthread_cond_clockwait(&waiter->wake, &client->lock, CLOCK_MONOTONIC, &end);
    }
    TAILQ_REMOVE(&client->waiting, waiter, entry);
}

void lead_wait(grd_client *client, struct waiter *waiter)
{
    waiter->woken = false;
    pthread_cond_init(&waiter->wake, NULL);
    while (!is_over(waiter)) {
        if (!client->has_leader && session_has_work(client)) {
            lead(client, waiter);
        } else {
            sleep_until_woken(client, waiter);
        }
    }
    if (waiter->woken && !client->has_leader) {
        pass_on(client);
    }
    pthread_cond_destroy(&waiter->wake);
}

/* As step(), without waiting. False: there is nothing more to see. Lock held, and on return. */
static bool glance(grd_client *client)
{
    enum session_state state = client->state;
    enum read_outcome outcome = READ_NOTHING;
    bool readable = false;

    if (reads_socket(state)) {
        pthread_mutex_unlock(&client->lock);
        outcome = read_packet(client, state == SESSION_GREETING);
        pthread_mutex_lock(&client->lock);
    } else if (state == SESSION_MUTE) {
        readable = wait_readable(client, client->pidfd, -1, 0);
    }
    note_end(client, state, outcome, readable);
    return readable || outcome != READ_NOTHING;
}

bool lead_look(grd_client *client, grd_queue *queue, bool (*enough)(const void *), const void *subject)
{
    if (client->has_leader) {
        return false;
    }
    if (!session_has_work(client)) {
        return true;
    }
    take_lead(client, queue);
    do {
        session_tick(client);
    } while (session_has_work(client) && glance(client) && (enough == NULL || !enough(subject)));
    resign(client);
    return true;
}
