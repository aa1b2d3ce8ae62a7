/* What happened to a queue pair: completions and events of the connection, as one sequence. */
#include <errno.h>
#include <string.h>

#include "daemon/valkey/rdma/libfabric_pair.h"

#define ENTRIES_A_READ 16

/* Work completion status of what was posted when the queue pair ended. */
#define STATUS_FLUSHED 5

/* The last event of a queue pair. */
static void end(struct rdma_queue_pair *pair, struct rdma_event *event, enum rdma_event_kind kind, int status,
                int provider_status)
{
    *event = (struct rdma_event){.kind = kind, .status = status, .provider_status = provider_status};
    pair->state = PAIR_OVER;
}

/* A SEND fills the receive, a write with immediate only uses it up. Posts it again at once. */
static void take_receive(struct rdma_queue_pair *pair, const struct fi_cq_data_entry *entry, struct rdma_event *event)
{
    uint8_t *buffer = entry->op_context;
    int error;

    if ((entry->flags & FI_REMOTE_WRITE) != 0) {
        *event = (struct rdma_event){.kind = RDMA_PAYLOAD, .immediate = (uint32_t)entry->data};
    } else {
        size_t length = entry->len < RDMA_CONTROL_BYTES ? entry->len : RDMA_CONTROL_BYTES;
        *event = (struct rdma_event){.kind = RDMA_MESSAGE, .length = entry->len};
        memcpy(event->message, buffer, length);
    }
    error = pair_post_receive(pair, buffer);
    if (error != 0) {
        end(pair, event, RDMA_FAILED, error, 0);
    }
}

static void take(struct rdma_queue_pair *pair, const struct fi_cq_data_entry *entry, struct rdma_event *event)
{
    if ((entry->flags & (FI_RECV | FI_REMOTE_WRITE)) != 0) {
        take_receive(pair, entry, event);
    } else {
        const struct pair_slot *slot = entry->op_context;
        *event = (struct rdma_event){.kind = RDMA_SENT, .token = slot->token};
        pair->under_way--;
    }
}

/* The number of events made of an entry with an error: what was flushed is none. */
static size_t take_error(struct rdma_queue_pair *pair, struct rdma_event *event)
{
    struct fi_cq_err_entry entry = {0};
    ssize_t n = fi_cq_readerr(pair->cq, &entry, 0);

    if (n == -FI_EAGAIN) {
        return 0;
    }
    if (n > 0 && entry.prov_errno == STATUS_FLUSHED) {
        pair->flushed = true;
        return 0;
    }
    end(pair, event, RDMA_FAILED, n > 0 ? -entry.err : (int)n, n > 0 ? entry.prov_errno : 0);
    return 1;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Fewer than `capacity`: the queue is empty, or the connection is over. */
static size_t read_completions(struct rdma_queue_pair *pair, struct rdma_event *events, size_t capacity)
{
    struct fi_cq_data_entry entries[ENTRIES_A_READ];
    size_t count = 0;

    while (count < capacity && pair->state == PAIR_CONNECTED) {
        ssize_t n = fi_cq_read(pair->cq, entries, least(ENTRIES_A_READ, capacity - count));
        if (n == -FI_EAVAIL) {
            count += take_error(pair, &events[count]);
        } else if (n == -FI_EAGAIN || n == 0) {
            break;
        } else if (n < 0) {
            end(pair, &events[count++], RDMA_FAILED, (int)n, 0);
        }
        for (ssize_t i = 0; i < n && pair->state == PAIR_CONNECTED; i++) {
            take(pair, &entries[i], &events[count++]);
        }
    }
    return count;
}

/* What librdmacm says of a connection that fell while it was being established; an errno is negative too, but not this
 * one. */
#define STATUS_TAKEN_BACK (-1)

/* Only these carry what the connection manager said: a reason of the peer's, or a negative errno of the kernel's. */
static int cm_status(const struct fi_eq_err_entry *entry)
{
    return entry->err == ECONNREFUSED || entry->err == ETIMEDOUT ? -entry->prov_errno : 0;
}

static struct rdma_event taken_back(enum rdma_event_kind kind)
{
    return (struct rdma_event){.kind = kind, .status = -ECONNABORTED};
}

static void take_cm_error(struct rdma_queue_pair *pair, ssize_t error, enum rdma_event_kind kind,
                          struct rdma_event *event)
{
    struct fi_eq_err_entry entry = {0};

    if (error == -FI_EAVAIL && fi_eq_readerr(pair->eq, &entry, 0) > 0) {
        int status = cm_status(&entry);
        *event = status == STATUS_TAKEN_BACK
                     ? taken_back(kind)
                     : (struct rdma_event){.kind = kind, .status = -entry.err, .provider_status = status};
    } else {
        *event = (struct rdma_event){.kind = kind, .status = (int)error};
    }
}

bool pair_read_connecting(struct rdma_queue_pair *pair, struct rdma_event *outcome)
{
    struct fi_eq_cm_entry entry;
    uint32_t kind = 0;
    ssize_t n = fi_eq_read(pair->eq, &kind, &entry, sizeof(entry), 0);

    if (n == -FI_EAGAIN || n == 0) {
        return false;
    }
    if (n < 0) {
        take_cm_error(pair, n, RDMA_REFUSED, outcome);
    } else if (kind == FI_CONNECTED) {
        *outcome = (struct rdma_event){.kind = RDMA_CONNECTED};
    } else {
        *outcome = taken_back(RDMA_REFUSED);
    }
    return true;
}

/* 0 or 1 event: the way to the connection has an end. */
static size_t poll_connecting(struct rdma_queue_pair *pair, struct rdma_event *event)
{
    const struct rdma_event *outcome = connector_outcome(pair);
    int error;

    if (outcome == NULL) {
        return 0;
    }
    *event = *outcome;
    pair->state = outcome->kind == RDMA_CONNECTED ? PAIR_CONNECTED : PAIR_OVER;
    error = pair->state == PAIR_CONNECTED ? connector_hand_over(pair) : 0;
    if (error != 0) {
        end(pair, event, RDMA_REFUSED, error, 0);
    }
    return 1;
}

/* 0 or 1 event; the end of the connection is noted, but is not told before the completions. */
static size_t read_cm_event(struct rdma_queue_pair *pair, struct rdma_event *event)
{
    struct fi_eq_cm_entry entry;
    uint32_t kind = 0;
    ssize_t n = fi_eq_read(pair->eq, &kind, &entry, sizeof(entry), 0);

    if (n == -FI_EAGAIN || n == 0) {
        return 0;
    }
    if (n < 0) {
        take_cm_error(pair, n, RDMA_FAILED, event);
        pair->state = PAIR_OVER;
        return 1;
    }
    pair->disconnected = pair->disconnected || kind == FI_SHUTDOWN;
    return 0;
}

/*
 * Completions first: an event of the connection, which costs a system call, is looked for once there are none. It may
 * have come after completions that came meanwhile, so these are read again before the end is told.
 */
static size_t poll_connected(struct rdma_queue_pair *pair, struct rdma_event *events, size_t capacity)
{
    size_t count = read_completions(pair, events, capacity);

    if (count > 0 || pair->state == PAIR_OVER) {
        return count;
    }
    if (!pair->disconnected) {
        count = read_cm_event(pair, events);
    }
    if (count > 0) {
        return count;
    }
    if (pair->disconnected) {
        count = read_completions(pair, events, capacity);
        if (count < capacity && pair->state == PAIR_CONNECTED) {
            end(pair, &events[count++], RDMA_DISCONNECTED, 0, 0);
        }
    } else if (pair->flushed && !pair->disconnecting) {
        end(pair, &events[count++], RDMA_FAILED, -ECONNRESET, STATUS_FLUSHED);
    }
    return count;
}

size_t pair_poll(struct rdma_queue_pair *pair, struct rdma_event *events, size_t capacity)
{
    if (capacity > 0 && pair->state == PAIR_CONNECTING) {
        return poll_connecting(pair, events);
    }
    return capacity > 0 && pair->state == PAIR_CONNECTED ? poll_connected(pair, events, capacity) : 0;
}

int pair_try_wait(struct rdma_queue_pair *pair)
{
    struct fid *queues[2] = {&pair->eq->fid, &pair->cq->fid};

    if (pair->state == PAIR_CONNECTING) {
        return connector_outcome(pair) != NULL ? -EAGAIN : 0;
    }
    return pair->state == PAIR_CONNECTED ? fi_trywait(pair->fabric, queues, 2) : 0;
}
