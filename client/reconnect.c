/*
 * A session that follows one that ended. There is no thread for it: whoever leads does the next step when it is due,
 * and nobody leads unless a call needs a session.
 *
 *   SESSION_ENDED --- an attempt is due: connect, send hello ---> SESSION_GREETING --- answered ---> SESSION_OPEN
 *         ^                       |                                     |
 *         +------ it failed: the next attempt is due later (backoff.h) -+
 *
 * SESSION_ENDED is the proof that nothing of the old session touches memory any more (session.c). No attempt is made
 * before it: the memory files must not be handed to a new daemon, nor windows be used, while the old one may still
 * write (docs/architecture.md, "The daemon's death").
 *
 * With SESSION_OPEN the regions are registered again (restore.c), and tickets that waited are sent (park.c). Threads
 * that wait in session_need() go on by themselves.
 */
#include <poll.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/errors.h"

bool session_wanted(const grd_client *client)
{
    return client->reconnects && !client->closing && (client->wanting > 0 || client->parked_count > 0);
}

bool session_has_work(const grd_client *client)
{
    return client->state != SESSION_ENDED || session_wanted(client);
}

uint64_t session_due(const grd_client *client)
{
    uint64_t due = client->parked_count > 0 ? client->parked_ms : WAIT_FOREVER;
    uint64_t own = WAIT_FOREVER;

    if (client->state == SESSION_ENDED && session_wanted(client)) {
        own = client->attempt_ms;
    } else if (client->state == SESSION_GREETING) {
        own = client->greeting_ms;
    }
    return own < due ? own : due;
}

/* --- senders ----------------------------------------------------------------------------------------------------- */

bool send_begin(grd_client *client, uint64_t epoch)
{
    if (client->epoch != epoch || client->state == SESSION_ENDED || client->state == SESSION_GREETING) {
        return false;
    }
    client->senders++;
    return true;
}

void send_end(grd_client *client)
{
    client->senders--;
    if (client->senders == 0) {
        pthread_cond_broadcast(&client->unsent);
    }
}

/* --- an attempt -------------------------------------------------------------------------------------------------- */

/* Where waiting changes nothing those who wait are told at once; a later call tries again. */
static bool is_hopeless(int code)
{
    return code == GRD_ERR_PROTOCOL || code == PROTO_ERR_INVALID_PARAMS || code == GRD_ERR_DENIED;
}

void session_attempt_failed(grd_client *client, const struct grd_error *error)
{
    client->state = SESSION_ENDED;
    if (client->greeting.id != 0 && !client->greeting.done) {
        call_withdraw(client, &client->greeting);
        client->greeting.done = true;
    }
    client->attempt_error = *error;
    client->attempt_ms = clock_ms() + backoff_next_ms(&client->backoff);
    queues_state_changed(client);
    hello_close(client);
    if (is_hopeless(error->code)) {
        client->hopeless++;
        parked_fail_all(client, error);
        lead_wake_queue(client, NULL, true);
    }
}

static void attempt(grd_client *client)
{
    struct grd_error error;

    /* They find the old socket dead, at once. */
    while (client->senders > 0) {
        pthread_cond_wait(&client->unsent, &client->lock);
    }
    if (client->state != SESSION_ENDED || !session_wanted(client)) {
        return;
    }
    hello_close(client);
    client->farewell = false;
    client->broken_code = 0;
    client->draining = false;
    call_open(client, &client->greeting, CALL_GREETING);
    client->state = SESSION_GREETING;
    client->greeting_ms = clock_ms() + client->timeout_ms;
    if (hello_send_again(client, &error) != 0) {
        session_attempt_failed(client, &error);
        return;
    }
    queues_state_changed(client);
}

static bool is_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, 0) > 0;
}

void session_tick(grd_client *client)
{
    struct grd_error error;
    uint64_t now;

    if (client->parked_count == 0 && (client->state == SESSION_OPEN || !session_has_work(client))) {
        return;
    }
    now = clock_ms();
    parked_expire(client, now);
    if (client->state == SESSION_GREETING && client->closing) {
        error_set(&error, GRD_ERR_CLOSED, "the client is being closed");
        session_attempt_failed(client, &error);
    } else if (client->state == SESSION_GREETING && now >= client->greeting_ms && !is_readable(client->socket)) {
        error_set(&error, GRD_ERR_NO_DAEMON, "the daemon did not answer the greeting in time");
        session_attempt_failed(client, &error);
    } else if (client->state == SESSION_ENDED && session_wanted(client) && now >= client->attempt_ms) {
        attempt(client);
    }
}

static void opened(grd_client *client)
{
    client->state = SESSION_OPEN;
    client->epoch++;
    client->attempt_error = (struct grd_error){0};
    parked_send(client);
    queues_state_changed(client);
    lead_wake_queue(client, NULL, true);
}

void session_greeted(grd_client *client)
{
    struct proto_answer answer = client->greeting.answer;
    struct grd_error error;

    client->greeting.answer.root = NULL;
    if (client->state == SESSION_GREETING && client->greeting.answered) {
        if (hello_read(client, &answer, &error) == 0) {
            opened(client);
        } else {
            session_attempt_failed(client, &error);
        }
    }
    json_decref(answer.root);
}

/* --- waiting for one --------------------------------------------------------------------------------------------- */

void session_start_limit(const grd_client *client, uint64_t *end_ms)
{
    if (*end_ms == 0) {
        *end_ms = clock_ms() + client->reconnect_ms;
    }
}

struct wait {
    grd_client *client;
    const struct need *need;
    unsigned hopeless;
    bool session; /* there was one already, and something of it is missing */
};

static bool is_session(const grd_client *client, const struct need *need)
{
    return client->state == SESSION_OPEN && client->epoch > need->after;
}

static bool is_decided(const struct need *need)
{
    const grd_region *region = need->region;

    return region == NULL || region->lost || region->registration == REGION_REGISTERED ||
           region->registration == REGION_REFUSED;
}

static bool has_changed(const void *subject)
{
    const struct wait *wait = subject;
    const grd_client *client = wait->client;

    return client->closing || client->hopeless != wait->hopeless ||
           (is_session(client, wait->need) ? is_decided(wait->need) : wait->session);
}

static int out_of_time(grd_client *client, const struct need *need, struct grd_error *error)
{
    if (clock_ms() >= need->deadline_ms) {
        return error_set(error, GRD_ERR_DEADLINE, "the deadline passed before there was a session with the daemon");
    }
    if (client->state == SESSION_MUTE) {
        return error_set(error, GRD_ERR_NO_DAEMON,
                         "the daemon ended the connection without goodbye %llu ms ago or more, and its process still "
                         "lives: no other is asked before it is gone",
                         (unsigned long long)client->reconnect_ms);
    }
    if (client->attempt_error.code != 0) {
        if (error != NULL) {
            *error = client->attempt_error;
        }
        return client->attempt_error.code;
    }
    return error_set(error, GRD_ERR_NO_DAEMON, "no session with the daemon within %llu ms",
                     (unsigned long long)client->reconnect_ms);
}

/* Until something has changed for the need. Registering in an open session takes its time, as for a new region. */
static int wait_for_change(grd_client *client, struct need *need, struct grd_error *error)
{
    struct wait wait = {
        .client = client, .need = need, .hopeless = client->hopeless, .session = is_session(client, need)};
    struct waiter waiter = {.ready = has_changed, .subject = &wait, .end_ms = need->deadline_ms};

    if (!is_session(client, need)) {
        session_start_limit(client, &need->end_ms);
        waiter.end_ms = need->end_ms < need->deadline_ms ? need->end_ms : need->deadline_ms;
    }
    client->wanting++;
    lead_wait(client, &waiter);
    client->wanting--;
    if (has_changed(&wait)) {
        if (client->hopeless == wait.hopeless || client->closing || wait.session || is_session(client, need)) {
            return 0;
        }
        *error = client->attempt_error;
        return error->code;
    }
    return is_session(client, need) && clock_ms() < need->deadline_ms ? 0 : out_of_time(client, need, error);
}

/* In an open session: 0, or what is wrong with the region; *wait: nothing yet. */
static int check_region(struct need *need, uint64_t epoch, bool *wait, struct grd_error *error)
{
    grd_region *region = need->region;

    *wait = false;
    if (region != NULL && region->lost) {
        return error_set(error, GRD_ERR_CLOSED, "the daemon closed (revoked) the region: %s", region->lost_reason);
    }
    if (region == NULL || region->registration == REGION_REGISTERED) {
        return 0;
    }
    if (region->registration == REGION_REFUSED && need->tried == epoch) {
        *error = region->refusal;
        return error->code;
    }
    need->tried = epoch;
    region_restore(region);
    *wait = true;
    return 0;
}

int session_need(grd_client *client, struct need *need, struct grd_error *error)
{
    for (;;) {
        bool wait = true;
        int code = 0;

        if (client->closing) {
            return error_set(error, GRD_ERR_CLOSED, "the client is being closed");
        }
        if (is_session(client, need)) {
            code = check_region(need, client->epoch, &wait, error);
        } else if (!client->reconnects) {
            return session_error(client, error);
        }
        if (code != 0 || !wait) {
            return code;
        }
        code = wait_for_change(client, need, error);
        if (code != 0) {
            return code;
        }
    }
}
