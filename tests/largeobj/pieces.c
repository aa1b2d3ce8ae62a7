#include "pieces.h"

#include <errno.h>
#include <stdlib.h>

#include "blob.h"
#include "clock.h"
#include "fabric.h"
#include "transfer_state.h"

static void posted(struct fabric_op *op)
{
    struct transfer *t = ((struct piece *)op)->transfer;

    pthread_mutex_lock(&t->lock);
    t->posted++;
    if (t->watched)
        pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void ended(struct fabric_op *op, int error)
{
    struct transfer *t = ((struct piece *)op)->transfer;
    bool moved;

    pthread_mutex_lock(&t->lock);
    t->outstanding--;
    if (error == 0) {
        t->done_bytes += op->len;
    } else {
        if (t->error == 0)
            t->error = error;
        atomic_store(&t->cancelled, true);
    }
    moved = t->direct && t->outstanding == 0;
    if (!t->direct && (t->watched || t->outstanding == 0))
        pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (moved)
        transfer_moved(t);
}

static void released(struct fabric_op *op)
{
    transfer_unref(((struct piece *)op)->transfer);
}

static const struct fabric_op_events events = {
    .posted = posted,
    .ended = ended,
    .released = released,
};

/* Calls for every piece in order; with pieces NULL it only counts. */
static size_t cut(const struct transfer *t, struct piece *pieces, size_t max_message)
{
    size_t chunk_size = t->chunk_size < max_message ? t->chunk_size : max_message;
    size_t region = 0;
    size_t region_offset = 0;
    size_t offset = 0;
    size_t n = 0;

    while (offset < t->blob->len) {
        size_t chunk = offset / chunk_size;
        size_t len = chunk_size - offset % chunk_size;

        if (len > t->blob->len - offset)
            len = t->blob->len - offset;
        if (len > t->regions[region].len - region_offset)
            len = t->regions[region].len - region_offset;
        if (pieces) {
            pieces[n].chunk = chunk;
            pieces[n].op.buf = t->blob->bytes + offset;
            pieces[n].op.len = len;
            pieces[n].op.remote_addr = t->regions[region].addr + region_offset;
            pieces[n].op.remote_key = t->regions[region].rkey;
        }
        n++;
        offset += len;
        region_offset += len;
        if (region_offset == t->regions[region].len) {
            region++;
            region_offset = 0;
        }
    }
    return n;
}

static void shuffle(struct piece *pieces, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)random() % i;
        struct piece swap = pieces[i - 1];

        pieces[i - 1] = pieces[j];
        pieces[j] = swap;
    }
}

int pieces_cut(struct transfer *t)
{
    size_t max_message = fabric_max_message();

    t->piece_count = cut(t, NULL, max_message);
    t->pieces = calloc(t->piece_count, sizeof(*t->pieces));
    if (!t->pieces)
        return -ENOMEM;
    cut(t, t->pieces, max_message);
    if (t->faults.shuffle)
        shuffle(t->pieces, t->piece_count);
    for (size_t i = 0; i < t->piece_count; i++) {
        struct fabric_op *op = &t->pieces[i].op;

        t->pieces[i].transfer = t;
        op->events = &events;
        op->cancelled = &t->cancelled;
        op->peer = t->peer;
        op->write = t->kind == TRANSFER_RDMA_GET;
        op->eagain_timeout_ns = t->eagain_timeout_ns;
        op->op_timeout_ns = t->op_timeout_ns;
        op->max_in_flight = t->max_in_flight;
    }
    return 0;
}

size_t pieces_chunk_end(const struct transfer *t, size_t piece)
{
    size_t end = piece + 1;

    while (end < t->piece_count && t->pieces[end].chunk == t->pieces[piece].chunk)
        end++;
    return end;
}

void pieces_submit(struct transfer *t, size_t begin, size_t end)
{
    struct fabric_op_list lists[ENDPOINTS_MAX];
    unsigned int counts[ENDPOINTS_MAX] = {0};
    unsigned int endpoints = fabric_endpoint_count();
    size_t total = 0;

    for (unsigned int i = 0; i < endpoints; i++)
        TAILQ_INIT(&lists[i]);
    for (size_t i = begin; i < end; i++) {
        unsigned int at = fabric_pick(counts);

        if (t->faults.fail_operation > 0 && i + 1 == (size_t)t->faults.fail_operation) {
            /* As if the fabric had refused it; the others run and are waited for. */
            pthread_mutex_lock(&t->lock);
            t->error = -EIO;
            pthread_mutex_unlock(&t->lock);
            continue;
        }
        TAILQ_INSERT_TAIL(&lists[at], &t->pieces[i].op, entry);
        counts[at]++;
        total++;
    }
    /* Counted before the first can end. */
    pthread_mutex_lock(&t->lock);
    t->submitted += total;
    t->outstanding += total;
    pthread_mutex_unlock(&t->lock);
    atomic_fetch_add(&t->refs, (unsigned int)total);
    for (unsigned int i = 0; i < endpoints; i++) {
        if (counts[i] > 0)
            endpoint_submit(fabric_endpoint(i), &lists[i], counts[i]);
    }
}
