/*
 * Requests and their answers. Any number of calls are in flight and share the socket: those that a thread waits for,
 * and those of tickets. A lone call costs three system calls: send, poll, receive.
 *
 * A call belongs to one session and ends with it at the latest. A request may outlive it, and then becomes a call of
 * the next one: where it provably never left, where the daemon answered that it stops, and, if it changes nothing,
 * where its answer is missing.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/channel.h"
#include "proto/shape.h"

struct call *call_find(grd_client *client, int64_t id)
{
    struct call *call;

    if (id <= 0) {
        return NULL;
    }
    LIST_FOREACH(call, &client->calls[(uint64_t)id % CLIENT_CALL_BUCKETS], entry) {
        if (call->id == id) {
            return call;
        }
    }
    return NULL;
}

void call_open(grd_client *client, struct call *call, enum call_kind kind)
{
    *call = (struct call){.id = ++client->last_id, .kind = kind};
    call_open_again(client, call);
}

void call_open_again(grd_client *client, struct call *call)
{
    call->done = false;
    call->answered = false;
    LIST_INSERT_HEAD(&client->calls[(uint64_t)call->id % CLIENT_CALL_BUCKETS], call, entry);
    client->open_calls++;
    client->open_tickets += call->kind == CALL_TICKET;
}

/* Takes the call off the list of those that wait for an answer. */
static void call_close(grd_client *client, struct call *call)
{
    LIST_REMOVE(call, entry);
    client->open_calls--;
    client->open_tickets -= call->kind == CALL_TICKET;
    if (client->crowded && (call->done || call->kind != CALL_FORGOTTEN)) {
        queues_room(client); /* not for a transfer.cancel that found none itself */
    }
    if (client->parked_blocked && client->state == SESSION_OPEN) {
        parked_send(client);
    }
}

void call_finish(grd_client *client, struct call *call)
{
    call->done = true;
    call->ended_with = call->answered ? 0 : client->end_error.code;
    call_close(client, call);
    switch (call->kind) {
    case CALL_WAITED:
        if (call->waiter != NULL) {
            lead_wake(call->waiter);
        }
        break;
    case CALL_TICKET:
        queue_finish((struct ticket *)call, client->has_leader);
        break;
    case CALL_FORGOTTEN:
        json_decref(call->answer.root);
        free(call);
        break;
    case CALL_GREETING:
        session_greeted(client);
        break;
    case CALL_RESTORE:
        region_restored(call);
        break;
    }
}

void call_withdraw(grd_client *client, struct call *call)
{
    if (!call->done) {
        call_close(client, call);
    }
    json_decref(call->answer.root);
    call->answer = (struct proto_answer){0};
    if (call->kind == CALL_FORGOTTEN) {
        free(call);
    }
}

static bool call_is_done(const void *subject)
{
    return ((const struct call *)subject)->done;
}

/* Lock held; it is released while waiting. */
static void call_wait(grd_client *client, struct call *call)
{
    struct waiter waiter = {.ready = call_is_done, .subject = call, .end_ms = WAIT_FOREVER};

    call->waiter = &waiter;
    lead_wait(client, &waiter);
    call->waiter = NULL;
}

int message_write(struct message *message, int64_t id, enum proto_method_id method, json_t *params)
{
    const char *name = proto_methods[method].name;
    int length = proto_write_request(message->small, sizeof(message->small), id, name, params);

    message->large = NULL;
    message->text = message->small;
    if (length == GRD_ERR_TOO_LARGE) {
        message->large = malloc(PROTO_MESSAGE_BYTES);
        if (message->large == NULL) {
            return GRD_ERR_NO_MEMORY;
        }
        message->text = message->large;
        length = proto_write_request(message->large, PROTO_MESSAGE_BYTES, id, name, params);
    }
    if (length < 0) {
        return length;
    }
    message->length = (size_t)length;
    return 0;
}

/* The daemon reads slowly: while this thread waits for room, threads with calls in flight read the answers. */
static int send_message(grd_client *client, const struct message *message, int pass_fd)
{
    struct pollfd entry = {.fd = client->socket, .events = POLLOUT};
    int sent;

    while ((sent = channel_send(client->socket, message->text, message->length, pass_fd)) == -EAGAIN) {
        poll(&entry, 1, -1);
    }
    return sent;
}

/* A daemon that said farewell before did so in the socket. */
int call_not_sent(grd_client *client, uint64_t epoch, int reason, struct grd_error *error)
{
    if (reason != -EPIPE) {
        return error_system(error, reason == -EMSGSIZE ? GRD_ERR_TOO_LARGE : GRD_ERR_NO_MEMORY, -reason,
                            "cannot send a request to the daemon");
    }
    lead_look(client, NULL, NULL, NULL);
    if (client->state == SESSION_OPEN && client->epoch == epoch) {
        session_break(client, GRD_ERR_INTERRUPTED, "the daemon stopped reading");
    }
    return session_error(client, error);
}

static bool changes_server(enum proto_method_id method)
{
    return method == PROTO_METHOD_TRANSFER_SET || method == PROTO_METHOD_KEYS_DELETE ||
           method == PROTO_METHOD_KEYS_EXPIRE;
}

static bool only_reads(enum proto_method_id method)
{
    return method == PROTO_METHOD_KEYS_EXISTS || method == PROTO_METHOD_KEYS_INFO || method == PROTO_METHOD_STATUS;
}

/* `draining`: nothing was begun. `interrupted`: it was. */
bool call_was_postponed(const struct call *call, bool again)
{
    return call->answered && call->answer.result == NULL &&
           (call->answer.code == GRD_ERR_DRAINING || (again && call->answer.code == GRD_ERR_INTERRUPTED));
}

static int read_answer(const struct call *call, enum proto_method_id method, void *result, struct grd_error *error)
{
    char why[PROTO_WHY_BYTES];

    if (call->answer.result == NULL) {
        return error_from_answer(&call->answer, error);
    }
    if (proto_shape_decode(proto_methods[method].result, call->answer.result, false, result, why) != 0) {
        return error_set(error, GRD_ERR_PROTOCOL, "the daemon's answer to %s cannot be read: %s",
                         proto_methods[method].name, why);
    }
    return 0;
}

int call_read(grd_client *client, struct call *call, enum proto_method_id method, void *result,
              struct grd_error *error)
{
    int code;

    if (!call->answered) {
        pthread_mutex_lock(&client->lock);
        *error = client->end_error;
        pthread_mutex_unlock(&client->lock);
        code = call->ended_with;
        if (error->code != code) { /* a later session has ended meanwhile */
            error_set(error, code, "the session ended before the answer");
        }
        error->may_have_run = changes_server(method);
        return code;
    }
    code = read_answer(call, method, result, error);
    json_decref(call->answer.root);
    call->answer.root = NULL;
    return code;
}

/* --- a request and its calls ------------------------------------------------------------------------------------- */

/* What differs from one call to the next of a request. */
struct try {
    struct call call;
    uint64_t region;
    struct need need;
    struct grd_error first; /* of a call that is to be followed by another, for the case that there is none; code 0 */
};

/* Goes on in the next session: no code of the library's or the daemon's. */
#define AGAIN 1

/* Lock held, and on return. */
static int open_now(grd_client *client, const struct request *request, struct grd_error *error)
{
    if (client->state != SESSION_OPEN) {
        return session_error(client, error);
    }
    return request->region != NULL && request->region->id == 0
               ? error_set(error, GRD_ERR_NO_REGION, "the region is not registered")
               : 0;
}

/* What the request says when no session comes for it: how it ended, if it had begun. */
static int give_up(const struct try *try, struct grd_error *error)
{
    if (try->first.code != 0 && error->code == GRD_ERR_NO_DAEMON) {
        *error = try->first;
    }
    return error->code;
}

static int open_try(grd_client *client, struct request *request, struct try *try, struct grd_error *error)
{
    int code;

    pthread_mutex_lock(&client->lock);
    code = request->now ? open_now(client, request, error) : session_need(client, &try->need, error);
    if (code != 0) {
        code = give_up(try, error);
    } else {
        call_open(client, &try->call, CALL_WAITED);
        request->epoch = client->epoch;
        send_begin(client, client->epoch);
        try->region = request->region != NULL ? request->region->id : 0;
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

int request_complete(json_t *params, uint64_t region, uint64_t deadline_ms)
{
    uint64_t now = clock_ms();
    json_int_t left = deadline_ms > now ? (json_int_t)(deadline_ms - now) : 1;
    int rc = 0;

    if (region != 0) {
        rc |= json_object_set_new(params, "region", json_integer((json_int_t)region));
    }
    if (deadline_ms != WAIT_FOREVER) {
        rc |= json_object_set_new(params, "deadline_ms", json_integer(left));
    }
    return rc == 0 ? 0 : GRD_ERR_NO_MEMORY;
}

static int send_request(grd_client *client, struct request *request, struct try *try)
{
    struct message message = {.large = NULL};
    int written = request_complete(request->params, try->region, try->need.deadline_ms);
    int sent;

    if (written == 0) {
        written = message_write(&message, try->call.id, request->method, request->params);
    }
    sent = written == 0 ? send_message(client, &message, request->pass_fd)
                        : written == GRD_ERR_TOO_LARGE ? -EMSGSIZE : -ENOMEM;
    free(message.large);
    return sent;
}

/* Sends the request of an open call and waits until the call is done. 0, AGAIN, or a code where it was not sent. */
static int exchange(grd_client *client, struct request *request, struct try *try, struct grd_error *error)
{
    int sent = send_request(client, request, try);
    int code = 0;

    pthread_mutex_lock(&client->lock);
    send_end(client);
    if (sent < 0) {
        call_withdraw(client, &try->call);
        code = call_not_sent(client, request->epoch, sent, error);
        if (sent == -EPIPE && client->reconnects && !request->now && !client->closing) {
            code = AGAIN;
        }
    } else {
        call_wait(client, &try->call);
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

/* The call is done. May, and should, the request be sent to the daemon that comes next? */
static bool is_for_the_next(grd_client *client, const struct request *request, const struct try *try)
{
    const struct call *call = &try->call;

    if (!client->reconnects || request->now) {
        return false;
    }
    return call->answered ? call_was_postponed(call, request->again)
                          : request->again && call->ended_with == GRD_ERR_INTERRUPTED;
}

/* One call of the request: 0, a code, or AGAIN. */
static int run_once(grd_client *client, struct request *request, struct try *try, void *result,
                    struct grd_error *error)
{
    int code = open_try(client, request, try, error);
    bool again;

    if (code == 0) {
        code = exchange(client, request, try, error);
        try->need.after = request->epoch;
    }
    if (code != 0) {
        return code;
    }
    again = is_for_the_next(client, request, try);
    code = call_read(client, &try->call, request->method, result, error);
    if (again) {
        try->first = *error;
        code = AGAIN;
    }
    return code;
}

int call_run(grd_client *client, struct request *request, void *result, struct grd_error *error)
{
    struct try try = {
        .need = {.region = request->region,
                 .deadline_ms = request->deadline_ms != 0 ? clock_ms() + request->deadline_ms : WAIT_FOREVER},
    };
    int code;

    while ((code = run_once(client, request, &try, result, error)) == AGAIN) {
        session_start_limit(client, &try.need.end_ms);
    }
    if (code == 0) {
        error_clear(error); /* of a call before */
    }
    return code;
}

int call_request(grd_client *client, enum proto_method_id method, const void *params, void *result,
                 struct grd_error *error)
{
    json_t *json = proto_shape_encode(proto_methods[method].params, params);
    struct request request = {.method = method, .params = json, .pass_fd = -1, .again = only_reads(method)};
    int code;

    if (json == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for a request");
    }
    code = call_run(client, &request, result, error);
    json_decref(json);
    return code;
}

void call_free_result(enum proto_method_id method, void *result)
{
    proto_shape_free(proto_methods[method].result, result);
}

void session_wait_proof(grd_client *client)
{
    struct call call;

    pthread_mutex_lock(&client->lock);
    if (client->state == SESSION_MUTE) {
        /* A call that is never sent, and finished with the session. */
        call_open(client, &call, CALL_WAITED);
        call_wait(client, &call);
    }
    pthread_mutex_unlock(&client->lock);
}
