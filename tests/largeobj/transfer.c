#include "transfer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "blob.h"
#include "clock.h"
#include "journal.h"
#include "peer.h"
#include "pieces.h"
#include "pool.h"
#include "reply.h"
#include "settings.h"
#include "stats.h"
#include "transfer_state.h"

#define DIRECT_MAX ((size_t)1024 * 1024)
#define HASH_AT_ENDPOINT_MAX ((size_t)64 * 1024)

static struct vm_ctx *main_ctx; /* for work on the main thread outside a command */
static LIST_HEAD(, transfer) never_answered = LIST_HEAD_INITIALIZER(never_answered);

void transfer_init(struct vm_ctx *ctx)
{
    main_ctx = vm_GetDetachedThreadSafeContext(ctx);
}

void transfer_unref(struct transfer *t)
{
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    blob_unref(t->blob);
    peer_unref(t->peer);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t->pieces);
    free(t->regions);
    free(t->key);
    free(t);
}

/* Unblocks the client. A second call does nothing, so that an early answer is the only one. Any thread. */
static void answer(struct transfer *t, const struct reply *reply)
{
    struct reply *copy;

    if (!t->blocked)
        return;
    copy = malloc(sizeof(*copy));
    if (!copy)
        abort(); /* what a server does without memory */
    *copy = *reply;
    vm_UnblockClient(t->blocked, copy);
    t->blocked = NULL;
}

static void answer_error(struct transfer *t, const char *error)
{
    answer(t, &(struct reply){.kind = REPLY_ERROR, .error = error});
}

/* Main thread. The connection is closed from the event loop a moment later; its client gets no byte before. */
static void drop_connection(struct transfer *t)
{
    vm_DeauthenticateAndCloseClient(main_ctx, t->client_id);
    answer(t, &(struct reply){.kind = REPLY_NOTHING});
}

static void drop_on_main(void *arg)
{
    struct transfer *t = arg;

    drop_connection(t);
    pthread_mutex_lock(&t->lock);
    t->dropped = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static const char *failure_text(const struct transfer *t, int error)
{
    if (error == -ETIMEDOUT)
        return "ERR RDMA timeout";
    if (error == -ENOMEM)
        return ERROR_OUT_OF_MEMORY;
    return t->kind == TRANSFER_RDMA_GET ? "ERR RDMA write failed" : "ERR RDMA read failed";
}

static bool early_wanted(const struct transfer *t)
{
    return t->faults.error_while_running || t->faults.drop_while_running;
}

/* With the lock held, which it gives up in between. */
static void answer_early(struct transfer *t)
{
    t->early_done = true;
    pthread_mutex_unlock(&t->lock);
    if (t->faults.drop_while_running)
        vm_EventLoopAddOneShot(drop_on_main, t);
    else
        answer_error(t, failure_text(t, -EIO));
    pthread_mutex_lock(&t->lock);
    while (t->faults.drop_while_running && !t->dropped)
        pthread_cond_wait(&t->changed, &t->lock);
}

/* With the lock held. Returns when the early answer is due: INT64_MAX for not yet or not at all. */
static int64_t early_at(struct transfer *t)
{
    size_t wanted = t->submitted < t->max_in_flight ? t->submitted : t->max_in_flight;

    if (t->early_done || !early_wanted(t))
        return INT64_MAX;
    if (t->early_at == 0) {
        if (t->posted < wanted || t->posted == 0 || t->done_bytes < (size_t)t->faults.error_after_bytes)
            return INT64_MAX;
        t->early_at = now_ns() + t->faults.error_delay_ms * NS_PER_MS;
    }
    return t->early_at;
}

/* Waits to a point in time, or with INT64_MAX until every submitted piece has ended and no early answer is due any
 * more. Answers early when that is due. */
static void wait_for_pieces(struct transfer *t, int64_t until)
{
    pthread_mutex_lock(&t->lock);
    for (;;) {
        int64_t early = early_at(t);
        int64_t wake = early < until ? early : until;
        int64_t now = now_ns();

        if (now >= early) {
            answer_early(t);
            continue;
        }
        if (until == INT64_MAX ? t->outstanding == 0 && early == INT64_MAX : now >= until)
            break;
        if (wake == INT64_MAX) {
            pthread_cond_wait(&t->changed, &t->lock);
        } else {
            struct timespec at = ns_to_timespec(wake);

            pthread_cond_timedwait(&t->changed, &t->lock, &at);
        }
    }
    pthread_mutex_unlock(&t->lock);
}

static void pause_ms(struct transfer *t, long long ms)
{
    if (ms > 0)
        wait_for_pieces(t, now_ns() + ms * NS_PER_MS);
}

/* Moves the value. Returns 0 or a negative errno; every piece has ended then. */
static int move(struct transfer *t)
{
    size_t next = 0;
    int rc = pieces_cut(t);

    if (rc)
        return rc;
    while (next < t->piece_count) {
        size_t end = t->faults.delay_between_chunks_ms > 0 ? pieces_chunk_end(t, next) : t->piece_count;

        pieces_submit(t, next, end);
        next = end;
        if (next < t->piece_count)
            pause_ms(t, t->faults.delay_between_chunks_ms);
    }
    wait_for_pieces(t, INT64_MAX);
    pthread_mutex_lock(&t->lock);
    if (early_wanted(t) && !t->early_done)
        answer_early(t);
    rc = t->error;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

const char *transfer_store(struct vm_ctx *ctx, struct vm_string *key, struct blob *blob)
{
    switch (blob_store(ctx, key, blob)) {
    case BLOB_STORED:
    case BLOB_STALE:
        journal_kept(ctx, key, blob);
        return NULL;
    case BLOB_STORE_WRONG_TYPE:
        return ERROR_WRONG_TYPE;
    default:
        return "ERR failed to set key";
    }
}

static void count(const struct transfer *t, bool ok)
{
    if (t->kind == TRANSFER_RDMA_GET) {
        atomic_fetch_add(ok ? &stats.writes : &stats.write_errors, 1);
        if (ok)
            atomic_fetch_add(&stats.write_bytes, t->blob->len);
    } else if (t->kind == TRANSFER_RDMA_SET) {
        atomic_fetch_add(ok ? &stats.reads : &stats.read_errors, 1);
        if (ok)
            atomic_fetch_add(&stats.read_bytes, t->blob->len);
    }
}

static void finish(struct transfer *t)
{
    /* Before the answer, so that whoever has it finds the counters right. */
    count(t, !t->failure);
    atomic_fetch_sub(&stats.transfers, 1);
    if (t->failure)
        answer_error(t, t->failure);
    else if (t->kind == TRANSFER_RDMA_GET)
        answer(t, &(struct reply){
                      .kind = REPLY_OBJECT,
                      .len = t->blob->len,
                      .crc = t->blob->crc ^ (t->faults.wrong_crc ? 1 : 0),
                      .window = t->window,
                      .shape = (int)t->faults.get_reply,
                  });
    else
        answer(t, &(struct reply){.kind = REPLY_OK, .shape = (int)t->faults.set_reply});
    transfer_unref(t);
}

static void finish_on_main(void *arg)
{
    struct transfer *t = arg;
    bool told_failed = t->early_done && t->faults.error_while_running && !t->faults.drop_while_running;

    /* The client may have left; the commit happens all the same. */
    if (!t->failure && t->kind != TRANSFER_RDMA_GET && !told_failed) {
        struct vm_string *key = vm_CreateString(NULL, t->key, t->key_len);

        vm_SelectDb(main_ctx, t->db);
        t->failure = transfer_store(main_ctx, key, t->blob);
        vm_FreeString(NULL, key);
    }
    if (t->faults.drop_before_reply) {
        drop_connection(t);
    } else if (t->faults.never_answer && t->blocked) {
        LIST_INSERT_HEAD(&never_answered, t, parked);
        return;
    }
    finish(t);
}

/* The second half of a transfer, when all pieces have ended. */
static void conclude(struct transfer *t, int error)
{
    if (error) {
        t->failure = failure_text(t, error);
    } else if (t->kind != TRANSFER_RDMA_GET) {
        t->blob->crc = crc32c(t->blob->bytes, t->blob->len);
        if (t->check_crc && t->blob->crc != t->want_crc) {
            atomic_fetch_add(&stats.crc_mismatches, 1);
            t->failure = "ERR crc mismatch";
        }
    }
    pause_ms(t, t->faults.delay_before_reply_ms);
    if ((t->kind == TRANSFER_RDMA_GET || t->failure) && !t->faults.drop_before_reply && !t->faults.never_answer)
        finish(t);
    else
        vm_EventLoopAddOneShot(finish_on_main, t);
}

static void run(void *arg)
{
    struct transfer *t = arg;
    int error = 0;

    pause_ms(t, t->faults.delay_before_transfer_ms);
    if (t->kind != TRANSFER_TCP_SET)
        error = move(t);
    conclude(t, error);
}

static void conclude_moved(void *arg)
{
    struct transfer *t = arg;

    conclude(t, t->error);
}

/* Small transfers without a pause do without a worker, which would cost more than their bytes: the main thread hands
 * the pieces over and the endpoint that ends the last one goes on. */
static bool is_direct(const struct transfer *t)
{
    const struct faults *f = &t->faults;

    return t->kind != TRANSFER_TCP_SET && t->blob->len <= DIRECT_MAX && f->delay_before_transfer_ms == 0 &&
           f->delay_between_chunks_ms == 0 && f->delay_before_reply_ms == 0 && f->fail_operation == 0 &&
           !early_wanted(t);
}

static void run_direct(struct transfer *t)
{
    int rc = pieces_cut(t);

    if (rc)
        conclude(t, rc);
    else
        pieces_submit(t, 0, t->piece_count);
}

void transfer_moved(struct transfer *t)
{
    bool hash = t->kind == TRANSFER_RDMA_SET && t->error == 0 && t->blob->len > HASH_AT_ENDPOINT_MAX;

    if (!hash || pool_run(conclude_moved, t) != 0)
        conclude_moved(t);
}

void transfer_client_left(uint64_t client_id)
{
    struct transfer *t = LIST_FIRST(&never_answered);

    while (t) {
        struct transfer *next = LIST_NEXT(t, parked);

        if (t->client_id == client_id) {
            LIST_REMOVE(t, parked);
            finish(t);
        }
        t = next;
    }
}

static struct transfer *transfer_new(struct vm_ctx *ctx, const struct transfer_request *request)
{
    struct transfer *t = calloc(1, sizeof(*t));
    pthread_condattr_t attr;
    const char *key;

    if (!t)
        return NULL;
    key = vm_StringPtrLen(request->key, &t->key_len);
    t->key = malloc(t->key_len + 1);
    t->regions = calloc(request->region_count + 1, sizeof(*t->regions));
    if (!t->key || !t->regions) {
        free(t->key);
        free(t->regions);
        free(t);
        return NULL;
    }
    memcpy(t->key, key, t->key_len);
    t->region_count = request->region_count;
    for (size_t i = 0; i < request->region_count; i++) {
        t->regions[i] = request->regions[i];
        t->window = t->regions[i].len > SIZE_MAX - t->window ? SIZE_MAX : t->window + t->regions[i].len;
    }
    atomic_init(&t->refs, 1);
    t->kind = request->kind;
    t->client_id = vm_GetClientId(ctx);
    t->db = vm_GetSelectedDb(ctx);
    t->blob = blob_ref(request->blob);
    t->peer = request->peer ? peer_ref(request->peer) : NULL;
    t->check_crc = request->check_crc;
    t->want_crc = request->crc;
    t->chunk_size = (size_t)settings.chunk_size;
    t->max_in_flight = (unsigned int)settings.max_in_flight;
    t->op_timeout_ns = settings.op_timeout_ms * NS_PER_MS;
    t->eagain_timeout_ns = settings.eagain_timeout_ms * NS_PER_MS;
    if (t->kind != TRANSFER_TCP_SET) {
        t->faults = faults;
        faults.fail_operation = 0;
    }
    t->watched = early_wanted(t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &attr);
    pthread_condattr_destroy(&attr);
    return t;
}

void transfer_start(struct vm_ctx *ctx, const struct transfer_request *request)
{
    struct transfer *t = transfer_new(ctx, request);

    if (!t) {
        vm_ReplyWithError(ctx, ERROR_OUT_OF_MEMORY);
        return;
    }
    /* With a timeout callback CLIENT UNBLOCK can answer the client while bytes move, without one it cannot. */
    t->blocked = vm_BlockClient(ctx, reply_send, settings.timeout_callback ? reply_timed_out : NULL, reply_free, 0);
    atomic_fetch_add(&stats.transfers, 1);
    t->direct = is_direct(t);
    if (t->direct) {
        run_direct(t);
    } else if (pool_run(run, t) != 0) {
        t->failure = ERROR_OUT_OF_MEMORY;
        finish(t);
    }
}
