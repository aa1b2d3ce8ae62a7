/*
 * The byte stream of Valkey Over RDMA on one queue pair: windows, offsets, the ring that bytes leave from, and how many
 * messages may be on their way. A state machine without loop or clock: it is fed with events and posts what follows.
 *
 * Ours is a window that the server writes into, from its begin to its last byte; it is advertised again once it was
 * filled and read. The server's is the same in the other direction. See docs/architecture.md, "RESP over RDMA".
 *
 * Proof. Every message of ours uses up one of the server's RDMA_RECEIVES receives until the server comes round to look,
 * and one more than it has kills the connection. So no payload is posted while STREAM_UNPROVEN messages were posted
 * since the last one of which it is proven that the server looked at it. That is proven
 *   - by an answer to a request, for the message that held the request's last byte: whoever knows requests tells it
 *     (rdma_stream_answered);
 *   - by payload that comes after our window was advertised, for that advertisement: before it there was no room, so
 *     the server wrote because it had looked. A reply of any length proves itself by this;
 *   - by the server's next window, for the message that filled the last one: it is advertised when all was read;
 *   - by the answer to a question that we send at half the limit (opcode 0), for the question. It is for what has no
 *     other proof in time, such as a value in many small pieces, and nothing hangs on its being answered.
 * A queue pair takes messages in order, so what is proven for one is proven for all before it. A keepalive of the
 * server proves nothing, nor does RDMA_SENT: the NIC acknowledges while the server sleeps.
 *
 * After a violation, a failure or the end nothing more is sent and no event is looked at; what was announced before can
 * still be read. Not thread safe.
 */
#ifndef GRD_VALKEY_RDMA_STREAM_H
#define GRD_VALKEY_RDMA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/valkey/rdma/ops.h"

#define STREAM_WINDOW_BYTES 65536
#define STREAM_STAGING_BYTES 65536
#define STREAM_SENDS 128 /* messages under way: posted, not acknowledged */
#define STREAM_UNPROVEN 512
#define STREAM_PROBE_AT (STREAM_UNPROVEN / 2)
#define STREAM_PEER_WINDOW_MAX (UINT32_C(1) << 30) /* bytes; the server's own limit is 16 MiB */
#define STREAM_WHY_BYTES 384

/* rdma_stream_tick is to be called so often. It is also how often a server sends a keepalive. */
#define STREAM_TICK_MS 3000
/* A message that no NIC acknowledged for so many ticks: as TCP, where it is 30 s (transport_stream.c). */
#define STREAM_UNACKNOWLEDGED_TICKS 10

struct rdma_stream {
    const struct rdma_ops *ops;
    struct rdma_queue_pair *pair;
    struct rdma_memory memory;
    size_t window_bytes, staging_bytes;
    unsigned sends;
    const char *server; /* for sentences */

    bool connected;
    bool ended; /* with the two below */
    int error;
    char why[STREAM_WHY_BYTES];
    int posting_error; /* of the queue pair: nothing is posted any more */

    /* Our window: bytes announced, bytes read. */
    size_t have, pos;
    bool advertised;     /* the server may write */
    bool advertise_due;  /* it shall be, as soon as a slot is free */
    bool heard_payload;  /* ever */
    uint64_t heard;      /* events that only the server can cause */

    /* The server's; length 0: none yet. */
    uint64_t peer_address;
    uint32_t peer_length, peer_rkey, peer_offset;

    /* The ring: `used` bytes before `at` are not acknowledged; the last `staged` of them are not posted. */
    size_t at, used, staged;

    /* Messages are numbered from 1 in the order of posting: the last one posted, acknowledged, proven; the last
     * advertisement, question and payload. */
    uint64_t posted, sent, proven;
    uint64_t advertisement, probe, payload;
    bool probing; /* the question was not answered yet */
    uint64_t written;                   /* bytes posted, ever */
    uint64_t ends[RDMA_RECEIVES];       /* `written` behind each message that is not proven, by number */
    uint32_t pieces[STREAM_SENDS];      /* bytes of the ring in each that is not acknowledged, by number */

    /* As of the last tick. */
    uint64_t tick_heard, tick_sent;
    unsigned unacknowledged_ticks;
};

/*
 * Begins on an open queue pair whose memory and sizes are these; `sends` of them at most STREAM_SENDS. `server` must
 * live as long. Nothing of the queue pair is owned.
 */
void rdma_stream_init(struct rdma_stream *stream, const struct rdma_ops *ops, struct rdma_queue_pair *pair,
                      const struct rdma_memory *memory, const struct rdma_settings *settings, const char *server);

/* Takes one event of the queue pair, in order. It may post: an advertisement. */
void rdma_stream_take(struct rdma_stream *stream, const struct rdma_event *event);

/* Connected, and the server's window is known: bytes may flow. */
bool rdma_stream_established(const struct rdma_stream *stream);

/* Bytes that can be read now. */
size_t rdma_stream_readable(const struct rdma_stream *stream);
/* Copies up to `capacity` bytes out; their number. Advertises the window anew when its last byte was read. */
size_t rdma_stream_read(struct rdma_stream *stream, void *buffer, size_t capacity);

/* rdma_stream_write would take at least one byte. If not, it will after an event. */
bool rdma_stream_writable(const struct rdma_stream *stream);
/*
 * Copies bytes to where they leave from; the number taken, which all have room in the server's window. They leave by
 * rdma_stream_flush as one message, or two where the ring ends between them, and none is left behind unless the queue
 * pair has no room against its word.
 */
size_t rdma_stream_write(struct rdma_stream *stream, const void *bytes, size_t length);
/* Posts what was written, and what could not be posted before. */
void rdma_stream_flush(struct rdma_stream *stream);

/* A request was answered whose last byte was number `bytes`, counted from 1, of all that were ever written. */
void rdma_stream_answered(struct rdma_stream *stream, uint64_t bytes);

/* Every STREAM_TICK_MS: sends a keepalive when the server was silent and nothing else of ours is under way, so that a
 * server that is gone is noticed; ends the stream when a message is not acknowledged. */
void rdma_stream_tick(struct rdma_stream *stream);

#endif
