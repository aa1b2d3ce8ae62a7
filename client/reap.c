/*
 * Reaping: completions are taken off the queue under the lock, and made without it, for verification takes its time.
 */
#include "client/private.h"
#include "client/queue.h"

/* What one grd_reap() wants. */
struct wish {
    grd_queue *queue;
    size_t max;
};

static bool has_something(const void *subject)
{
    const struct wish *wish = subject;

    return wish->queue->finished_count > 0 || queue_is_closed(wish->queue) || queue_is_over(wish->queue);
}

/* Reading on would bring nothing that this call can return. */
static bool has_all(const void *subject)
{
    const struct wish *wish = subject;
    const grd_queue *queue = wish->queue;

    return queue->finished_count >= wish->max || (queue->finished_count > 0 && queue->open_count == 0);
}

/* Lock held, and on return. Waits if it has to, then reads what else is there. */
static void gather(struct wish *wish, int timeout_ms)
{
    grd_queue *queue = wish->queue;
    grd_client *client = queue->client;
    struct waiter waiter = {
        .ready = has_something,
        .subject = wish,
        .queue = queue,
        .end_ms = timeout_ms < 0 ? WAIT_FOREVER : clock_ms() + (uint64_t)timeout_ms,
    };

    if (timeout_ms != 0 && !has_something(wish)) {
        lead_wait(client, &waiter);
        if (queue->finished_count == 0) {
            return;
        }
    }
    if (!has_all(wish) && !lead_look(client, queue, has_all, wish)) {
        queue_arm(queue, false);
    }
}

/* Lock held. */
static size_t take(struct wish *wish, struct ticket_list *taken)
{
    grd_queue *queue = wish->queue;
    size_t count = 0;
    struct ticket *ticket;

    TAILQ_INIT(taken);
    while (count < wish->max && (ticket = TAILQ_FIRST(&queue->finished)) != NULL) {
        TAILQ_REMOVE(&queue->finished, ticket, entry);
        TAILQ_INSERT_TAIL(taken, ticket, entry);
        queue->finished_count--;
        count++;
    }
    queue->room = false;
    if (queue->source_failed) {
        queue_arm(queue, true);
    }
    if (queue->finished_count > 0) {
        lead_wake_queue(queue->client, queue, false);
    }
    queue_update(queue);
    return count;
}

/* Lock held. What a call that has nothing to return says. */
static int say_nothing(grd_queue *queue, struct grd_error *error)
{
    if (queue_is_closed(queue)) {
        return error_set(error, GRD_ERR_CLOSED, "the queue or its client is closed");
    }
    return queue_is_over(queue) ? session_error(queue->client, error) : 0;
}

static void complete(struct ticket *ticket, struct grd_completion *completion)
{
    *completion = (struct grd_completion){
        .user_data = ticket->user_data,
        .ticket = (uint64_t)ticket->call.id,
        .operation = ticket->transfer.writes ? GRD_OPERATION_GET : GRD_OPERATION_SET,
    };
    if (ticket->failure != NULL) {
        completion->error = *ticket->failure;
        completion->code = completion->error.code;
        return;
    }
    completion->code = transfer_complete(&ticket->transfer, &ticket->call, ticket->cancelled, &completion->receipt,
                                         &completion->error);
}

static void release(grd_queue *queue, struct ticket_list *taken, size_t count)
{
    struct ticket *ticket;

    pthread_mutex_lock(&queue->client->lock);
    TAILQ_FOREACH(ticket, taken, entry) {
        transfer_end(&ticket->transfer);
    }
    queue->pending -= count;
    pthread_mutex_unlock(&queue->client->lock);
    while ((ticket = TAILQ_FIRST(taken)) != NULL) {
        TAILQ_REMOVE(taken, ticket, entry);
        ticket_free(ticket);
    }
}

/* Inside the queue, and without the lock. */
static int reap(struct wish *wish, struct grd_completion *completions, int timeout_ms, size_t *count,
                struct grd_error *error)
{
    grd_queue *queue = wish->queue;
    struct ticket_list taken;
    struct ticket *ticket;
    size_t i = 0;
    int code = 0;

    pthread_mutex_lock(&queue->client->lock);
    gather(wish, timeout_ms);
    *count = take(wish, &taken);
    if (*count == 0) {
        code = say_nothing(queue, error);
    }
    pthread_mutex_unlock(&queue->client->lock);
    TAILQ_FOREACH(ticket, &taken, entry) {
        complete(ticket, &completions[i++]);
    }
    if (*count > 0) {
        release(queue, &taken, *count);
    }
    return code;
}

/* Unlike others, this enters a queue whose client is closed: what has come can be reaped still. */
static int enter(grd_queue *queue, struct grd_error *error)
{
    grd_client *client = queue->client;

    if (client_forked(client)) {
        return error_set(error, GRD_ERR_FORKED,
                         "this process was forked from the one that made the queue; connect in it, after the fork");
    }
    pthread_mutex_lock(&client->lock);
    if (queue->closing) {
        pthread_mutex_unlock(&client->lock);
        return error_set(error, GRD_ERR_CLOSED, "the queue is being closed");
    }
    queue->users++;
    client->active++;
    pthread_mutex_unlock(&client->lock);
    return 0;
}

int grd_reap(grd_queue *queue, struct grd_completion *completions, size_t max, int timeout_ms, size_t *count,
             struct grd_error *error)
{
    struct wish wish = {.queue = queue, .max = max};
    int code;

    error_clear(error);
    if (count != NULL) {
        *count = 0;
    }
    if (queue == NULL || completions == NULL || max == 0 || count == NULL) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no queue, or no place for completions and their number");
    }
    if (timeout_ms < -1) { /* a deadline that has passed, and not a wish to wait for ever */
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "a timeout of %d ms: -1 is without limit, 0 not at all",
                         timeout_ms);
    }
    code = enter(queue, error);
    if (code != 0) {
        return code;
    }
    code = reap(&wish, completions, timeout_ms, count, error);
    pthread_mutex_lock(&queue->client->lock);
    queue_leave(queue);
    return code;
}
