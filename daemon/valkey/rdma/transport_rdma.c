/*
 * RESP over RDMA: stream.c on the loop. The layers are link.c (queue pair, workers, descriptors), stream.c (the
 * protocol), and this file (when what is done, and the class of transport.h).
 *
 * Bytes are taken only at the end of a turn of the loop, when `writable` is called: what many requests brought leaves
 * in one message then, and what write() has taken has been posted, whereas before it takes none. So what counts as
 * unsent has not left.
 *
 * Everything that a descriptor announces is handled at once, up to a bound, and the completions are armed again before
 * the loop sleeps: a descriptor is silent about what it has announced already. Answers that came before the end of a
 * connection are read before the end is told.
 *
 * The timer limits the way to a connection, until the server's window is known; afterwards it is the stream's tick.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/valkey/rdma/link.h"
#include "daemon/valkey/rdma/stream.h"
#include "daemon/valkey/resolve.h"
#include "daemon/valkey/transport.h"

#define EVENTS 16
#define EVENTS_OF_A_TURN 4096 /* then others have theirs */

enum phase {
    PHASE_LOOKING_UP, /* or between two addresses */
    PHASE_OPENING,    /* a worker has the link */
    PHASE_CONNECTING, /* until established */
    PHASE_OPEN,
    PHASE_OVER,   /* `closed` was called or is about to be */
    PHASE_CLOSED, /* close was called: not a callback more */
};

struct rdma {
    struct transport base;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_idle_t soon; /* the end of this turn of the loop: has work */
    unsigned handles;
    struct offload *offload;
    const struct transport_address *address;
    const struct transport_settings *settings;
    const struct transport_events *events;
    void *context;
    enum phase phase;

    struct resolve resolve;
    struct rdma_link *link;
    struct rdma_stream stream; /* of the link, once that is open */

    bool held;       /* not to be told of bytes that can be read */
    bool want_write; /* the owner has more to write */
    bool taking;     /* the end of a turn: write() takes bytes */
    bool unfinished; /* events are left for the next turn */
    int error;
    char why[TRANSPORT_WHY_BYTES];
};

static void on_timeout(uv_timer_t *timer);
static const struct rdma_link_events link_events;

static struct rdma *rdma_of(struct transport *transport)
{
    return (struct rdma *)transport;
}

__attribute__((format(printf, 3, 4))) static int explain(struct rdma *rdma, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(rdma->why, sizeof(rdma->why), format, arguments);
    va_end(arguments);
    rdma->error = error;
    return error;
}

static void drop_link(struct rdma *rdma)
{
    if (rdma->link != NULL) {
        rdma_link_end(rdma->link);
        rdma->link = NULL;
        uv_idle_stop(&rdma->soon);
        rdma->unfinished = false;
    }
}

/* From a callback of the loop: the end. The owner closes, maybe inside. */
static void report(struct rdma *rdma)
{
    rdma->phase = PHASE_OVER;
    uv_timer_stop(&rdma->timer);
    drop_link(rdma);
    rdma->events->closed(rdma->context, rdma->error, rdma->why);
}

/* --- the end of a turn, and events --- */

static void on_soon(uv_idle_t *idle);

static void do_soon(struct rdma *rdma)
{
    uv_idle_start(&rdma->soon, on_soon);
}

/* Events until there are none, and the queues armed; or as many as a turn may have. */
static void take_events(struct rdma *rdma)
{
    const struct rdma_ops *ops = rdma_link_ops(rdma->link);
    struct rdma_queue_pair *pair = rdma_link_pair(rdma->link);
    struct rdma_event events[EVENTS];
    size_t count, taken = 0;
    bool armed = false;

    while (!armed && !rdma->stream.ended && taken < EVENTS_OF_A_TURN) {
        count = ops->poll(pair, events, EVENTS);
        for (size_t i = 0; i < count; i++) {
            rdma_stream_take(&rdma->stream, &events[i]);
        }
        taken += count > 0 ? count : 1;
        armed = count < EVENTS && ops->try_wait(pair) != -EAGAIN;
    }
    rdma->unfinished = !armed;
    rdma_stream_flush(&rdma->stream);
}

/* The stream has ended and nothing of it is left to read: the end, unless the owner does not want to hear now. */
static void report_end(struct rdma *rdma)
{
    if (rdma->phase == PHASE_OPEN && rdma->stream.ended && !rdma->held && rdma_stream_readable(&rdma->stream) == 0) {
        explain(rdma, rdma->stream.error, "%s", rdma->stream.why);
        report(rdma);
    }
}

/* After anything that may have changed the stream: asks for the end of the turn, where there is something to do. */
static void look_again(struct rdma *rdma)
{
    if (rdma->phase != PHASE_CONNECTING && rdma->phase != PHASE_OPEN) {
        return;
    }
    if (rdma->stream.ended ? !rdma->held
                           : rdma->unfinished || (rdma->want_write && rdma_stream_writable(&rdma->stream))) {
        do_soon(rdma);
    }
}

static void tell_readable(struct rdma *rdma)
{
    if (rdma->phase == PHASE_OPEN && !rdma->held && rdma_stream_readable(&rdma->stream) > 0) {
        rdma->events->readable(rdma->context);
    }
}

/* The owner gives what it has, and it leaves as one message. */
static void tell_writable(struct rdma *rdma)
{
    if (rdma->phase != PHASE_OPEN || !rdma->want_write || !rdma_stream_writable(&rdma->stream)) {
        return;
    }
    rdma->want_write = false;
    rdma->taking = true;
    rdma->events->writable(rdma->context);
    rdma->taking = false;
    if (rdma->phase == PHASE_OPEN) {
        rdma_stream_flush(&rdma->stream);
    }
}

static void attempt_failed(struct rdma *rdma);

/* While there is no connection yet. */
static void connecting_goes_on(struct rdma *rdma)
{
    if (rdma->stream.ended) {
        explain(rdma, rdma->stream.error, "%s", rdma->stream.why);
        attempt_failed(rdma);
    } else if (rdma_stream_established(&rdma->stream)) {
        rdma->phase = PHASE_OPEN;
        uv_timer_start(&rdma->timer, on_timeout, STREAM_TICK_MS, STREAM_TICK_MS);
        rdma->events->connected(rdma->context);
    }
}

/* Callbacks may close: `phase` tells. */
static void step(struct rdma *rdma)
{
    if (!rdma->stream.ended) {
        take_events(rdma);
    }
    if (rdma->phase == PHASE_CONNECTING) {
        connecting_goes_on(rdma);
    }
    tell_readable(rdma);
    report_end(rdma);
    look_again(rdma);
}

static void on_due(void *owner)
{
    step(owner);
}

static void on_soon(uv_idle_t *idle)
{
    struct rdma *rdma = idle->data;

    uv_idle_stop(idle);
    if (rdma->unfinished || rdma->stream.ended) {
        step(rdma);
    }
    tell_writable(rdma);
    look_again(rdma);
}

/* --- the way to a connection --- */

static int explain_connect(struct rdma *rdma, int error, const char *why)
{
    return explain(rdma, error, "cannot connect to %.120s: %.360s", rdma->address->text, why);
}

/* Begins with the next address that can be begun with; negative when none is left. */
static int try_next(struct rdma *rdma)
{
    static const struct rdma_settings settings = {
        .window_bytes = STREAM_WINDOW_BYTES, .staging_bytes = STREAM_STAGING_BYTES, .sends = STREAM_SENDS};
    const struct addrinfo *target;
    char why[RDMA_WHY_BYTES];

    rdma->phase = PHASE_LOOKING_UP;
    while ((target = resolve_next(&rdma->resolve)) != NULL) {
        int error = rdma_link_open(rdma->loop, rdma->offload, target, &settings, rdma->settings->pins, &link_events,
                                   rdma, &rdma->link, why);
        if (error == 0) {
            rdma->phase = PHASE_OPENING;
            uv_timer_start(&rdma->timer, on_timeout, resolve_share_ms(&rdma->resolve, uv_now(rdma->loop)), 0);
            return 0;
        }
        explain_connect(rdma, error, why);
    }
    return rdma->error;
}

static void attempt_failed(struct rdma *rdma)
{
    drop_link(rdma);
    if (try_next(rdma) != 0) {
        report(rdma);
    }
}

static void on_opened(void *owner, int error, const char *why)
{
    struct rdma *rdma = owner;
    const struct rdma_ops *ops = rdma_link_ops(rdma->link);
    struct rdma_queue_pair *pair = rdma_link_pair(rdma->link);

    if (error != 0) {
        explain_connect(rdma, error, why);
        attempt_failed(rdma);
        return;
    }
    rdma_stream_init(&rdma->stream, ops, pair, rdma_link_memory(rdma->link), rdma_link_settings(rdma->link),
                     rdma->address->text);
    error = rdma_link_watch(rdma->link);
    if (error == 0) {
        error = ops->connect(pair);
    }
    if (error != 0) {
        explain_connect(rdma, error, ops->text(error));
        attempt_failed(rdma);
        return;
    }
    rdma->phase = PHASE_CONNECTING;
    step(rdma); /* arms the queues */
}

static const struct rdma_link_events link_events = {.opened = on_opened, .due = on_due};

static void on_resolved(struct resolve *resolve, int error, const char *why)
{
    struct rdma *rdma = (struct rdma *)((char *)resolve - offsetof(struct rdma, resolve));

    if (error != 0) {
        explain(rdma, error, "%s", why);
    }
    if (try_next(rdma) != 0) {
        report(rdma);
    }
}

static void on_late(struct rdma *rdma)
{
    const char *what = "no answer";

    if (resolve_is_looking(&rdma->resolve)) {
        rdma->error = resolve_give_up(&rdma->resolve, rdma->why);
        report(rdma);
        return;
    }
    if (rdma->phase == PHASE_OPENING) {
        what = "no device and route were found";
    } else if (rdma->stream.connected) {
        what = "it is connected, but no Valkey server advertised a window";
    }
    explain(rdma, -ETIMEDOUT, "cannot connect to %.120s: %s within connect_timeout_ms = %u ms", rdma->address->text,
            what, rdma->resolve.limit_ms);
    attempt_failed(rdma);
}

static void on_timeout(uv_timer_t *timer)
{
    struct rdma *rdma = timer->data;

    if (rdma->phase == PHASE_OPEN) {
        rdma_stream_tick(&rdma->stream);
        look_again(rdma);
    } else {
        on_late(rdma);
    }
}

/* --- the class --- */

static void handle_closed(uv_handle_t *handle)
{
    struct rdma *rdma = handle->data;

    if (--rdma->handles == 0) {
        free(rdma);
    }
}

static void rdma_close(struct transport *transport)
{
    struct rdma *rdma = rdma_of(transport);

    rdma->phase = PHASE_CLOSED;
    resolve_end(&rdma->resolve);
    drop_link(rdma);
    uv_close((uv_handle_t *)&rdma->timer, handle_closed);
    uv_close((uv_handle_t *)&rdma->soon, handle_closed);
}

static int rdma_open(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                     const struct transport_settings *settings, const struct transport_events *events, void *context,
                     struct transport **transport, char why[TRANSPORT_WHY_BYTES])
{
    struct rdma *rdma = calloc(1, sizeof(*rdma));
    int status;

    *transport = NULL;
    if (rdma == NULL) {
        snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    rdma->base.class = &transport_rdma;
    rdma->loop = loop;
    rdma->offload = offload;
    rdma->address = address;
    rdma->settings = settings;
    rdma->events = events;
    rdma->context = context;
    uv_timer_init(loop, &rdma->timer);
    uv_idle_init(loop, &rdma->soon);
    rdma->timer.data = rdma;
    rdma->soon.data = rdma;
    rdma->handles = 2;
    status = resolve_start(&rdma->resolve, loop, offload, address, settings->connect_timeout_ms, on_resolved);
    if (status > 0) {
        uv_timer_start(&rdma->timer, on_timeout, settings->connect_timeout_ms, 0);
        status = 0;
    } else {
        status = status < 0 ? explain(rdma, status, "out of memory") : try_next(rdma);
    }
    if (status != 0) {
        snprintf(why, TRANSPORT_WHY_BYTES, "%s", rdma->why);
        rdma_close(&rdma->base);
        return status;
    }
    *transport = &rdma->base;
    return 0;
}

static ssize_t rdma_read(struct transport *transport, void *buffer, size_t capacity)
{
    struct rdma *rdma = rdma_of(transport);
    size_t length;

    if (rdma->phase != PHASE_OPEN) {
        return rdma->phase < PHASE_OPEN ? 0 : rdma->error;
    }
    length = rdma_stream_read(&rdma->stream, buffer, capacity);
    if (length == 0 && capacity > 0 && rdma->stream.ended) {
        do_soon(rdma);
        return rdma->stream.error;
    }
    return (ssize_t)length;
}

static ssize_t rdma_write(struct transport *transport, const void *bytes, size_t length)
{
    struct rdma *rdma = rdma_of(transport);
    size_t taken = 0;

    if (rdma->phase != PHASE_OPEN) {
        return rdma->phase < PHASE_OPEN ? -ENOTCONN : rdma->error;
    }
    if (rdma->stream.ended) {
        do_soon(rdma);
        return rdma->stream.error;
    }
    if (rdma->taking) {
        taken = rdma_stream_write(&rdma->stream, bytes, length);
    }
    rdma->want_write |= taken < length;
    if (!rdma->taking) {
        look_again(rdma);
    }
    return (ssize_t)taken;
}

static void rdma_hold(struct transport *transport, bool held)
{
    struct rdma *rdma = rdma_of(transport);

    rdma->held = held;
    look_again(rdma);
}

static int rdma_local_address(const struct transport *transport, char *text, size_t size)
{
    const struct rdma *rdma = (const struct rdma *)transport;

    if (rdma->phase != PHASE_OPEN) {
        return -ENOTCONN;
    }
    return rdma_link_ops(rdma->link)->local_address(rdma_link_pair(rdma->link), text, size);
}

static void rdma_answered(struct transport *transport, uint64_t bytes)
{
    struct rdma *rdma = rdma_of(transport);

    if (rdma->phase == PHASE_OPEN) {
        rdma_stream_answered(&rdma->stream, bytes);
        look_again(rdma);
    }
}

const struct transport_class transport_rdma = {
    .name = "rdma",
    .open = rdma_open,
    .read = rdma_read,
    .write = rdma_write,
    .hold = rdma_hold,
    .local_address = rdma_local_address,
    .answered = rdma_answered,
    .close = rdma_close,
};
