/*
 * A server that sends whatever it likes: the stream reads nothing outside of its window, writes nothing outside of
 * what was advertised last, never has more under way than it may, and says nothing after its end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/rdma/control_message.h"
#include "tests/unit/rdma_line.h"
#include "tests/unit/unit_main.h"

#define SENDS 8
#define WINDOW 4096
#define STAGING 4096

static struct rdma_stream stream;
static struct {
    struct control_message last; /* advertised by the server and taken by us */
    uint64_t offset;
    uint64_t posted, sent;
} peer;
static uint32_t state;
static unsigned long long steps, written;

static uint32_t next(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* --- a queue pair that takes all it is given --- */

static int post(uint64_t token)
{
    FAKE_CHECK(!stream.ended, "posted after the end");
    FAKE_CHECK(token == peer.posted + 1, "token %llu", (unsigned long long)token);
    if (next() % 16 == 0) {
        return next() % 128 == 0 ? -EINVAL : -EAGAIN;
    }
    peer.posted++;
    FAKE_CHECK(peer.posted - peer.sent <= SENDS, "too many under way");
    return 0;
}

static int on_send(struct rdma_queue_pair *pair, const uint8_t message[RDMA_CONTROL_BYTES], uint64_t token)
{
    return post(token);
}

static int on_write(struct rdma_queue_pair *pair, size_t offset, size_t length, uint64_t address, uint32_t rkey,
                    uint64_t token)
{
    int status = post(token);

    FAKE_CHECK(length > 0 && offset < STAGING && length <= STAGING - offset, "%zu at %zu", length, offset);
    FAKE_CHECK(rkey == peer.last.rkey && address == peer.last.address + peer.offset, "another place");
    FAKE_CHECK(length <= peer.last.length - peer.offset, "%zu bytes at %llu of %u", length,
               (unsigned long long)peer.offset, peer.last.length);
    peer.offset += status == 0 ? length : 0;
    return status;
}

static void on_disconnect(struct rdma_queue_pair *pair)
{
}

static const char *text(int error)
{
    return strerror(-error);
}

static const struct rdma_ops ops = {.send = on_send, .write = on_write, .disconnect = on_disconnect, .text = text};

/* --- what the server does --- */

static uint32_t edge(uint32_t around)
{
    static const uint32_t edges[] = {0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 1U << 30, (1U << 30) + 1, UINT32_MAX};

    return next() % 4 == 0 ? edges[next() % 8] : next() % (around + 2);
}

static void make_message(struct rdma_event *event)
{
    struct control_message message = {
        .opcode = next() % 32 == 0 ? (enum control_opcode)(next() % 6) : CONTROL_WINDOW,
        .address = next() % 256 == 0 ? UINT64_MAX - next() % 8192 : next(),
        .length = next() % 64 == 0 ? edge(300) : 1 + next() % 300,
        .rkey = next(),
    };

    event->length = next() % 256 == 0 ? edge(64) : RDMA_CONTROL_BYTES;
    control_encode(&message, event->message);
}

static struct rdma_event make_event(void)
{
    bool full = peer.offset == peer.last.length, wild = next() % 500 == 0;
    struct rdma_event event = {.kind = wild               ? (enum rdma_event_kind)(next() % 7)
                                       : full             ? RDMA_MESSAGE
                                       : next() % 3 == 0  ? RDMA_PAYLOAD
                                                          : RDMA_SENT};
    size_t room = WINDOW - stream.have;

    if (event.kind == RDMA_MESSAGE) {
        make_message(&event);
    }
    event.immediate = next() % 200 == 0 ? edge(WINDOW) : room > 0 ? 1 + next() % (uint32_t)room : 0;
    event.token = next() % 1000 == 0 ? next() : peer.sent + 1;
    event.status = next() % 2 == 0 ? -EIO : 0;
    event.provider_status = (int)(next() % 32);
    return event;
}

/* What the stream may take for true: a window that can be, while it is not told otherwise. */
static void take(const struct rdma_event *event)
{
    struct control_message message;
    char why[CONTROL_WHY_BYTES];

    if (event->kind == RDMA_SENT && event->token == peer.sent + 1 && peer.sent < peer.posted) {
        peer.sent++;
    }
    if (event->kind == RDMA_MESSAGE && control_decode(event->message, event->length, &message, why) == 0 &&
        message.opcode == CONTROL_WINDOW) {
        peer.last = message;
        peer.offset = 0;
    }
    rdma_stream_take(&stream, event);
}

static void run(uint32_t seed)
{
    const struct rdma_settings settings = {.window_bytes = WINDOW, .staging_bytes = STAGING, .sends = SENDS};
    struct rdma_memory memory = {.window = calloc(1, WINDOW), .staging = calloc(1, STAGING)};
    const struct rdma_event connected = {.kind = RDMA_CONNECTED};
    char bytes[2 * WINDOW] = {0};

    state = seed * 2654435761U + 1;
    memset(&peer, 0, sizeof(peer));
    rdma_stream_init(&stream, &ops, NULL, &memory, &settings, "rdma://192.0.2.1:6379");
    if (next() % 8 != 0) {
        rdma_stream_take(&stream, &connected);
    }
    for (int i = 0; i < 2000 && !stream.ended; i++, steps++) {
        struct rdma_event event = make_event();

        if (event.kind == RDMA_PAYLOAD && !stream.advertised && next() % 50 != 0) {
            continue;
        }
        if (event.kind != RDMA_SENT || peer.sent < peer.posted || next() % 1000 == 0) {
            take(&event);
        }
        (void)rdma_stream_write(&stream, bytes, next() % 500);
        rdma_stream_flush(&stream);
        (void)rdma_stream_read(&stream, bytes, next() % sizeof(bytes));
        rdma_stream_answered(&stream, next() % 2 == 0 ? stream.written : (uint64_t)next() << 16);
        FAKE_CHECK(stream.have <= WINDOW && stream.pos <= stream.have, "%zu of %zu", stream.pos, stream.have);
        FAKE_CHECK(stream.posted - stream.proven <= STREAM_UNPROVEN + 2, "too many unproven");
    }
    FAKE_CHECK(!stream.ended || strlen(stream.why) > 20, "%s", stream.why);
    while (rdma_stream_read(&stream, bytes, sizeof(bytes)) > 0) {
    }
    written += stream.written;
    free((void *)(uintptr_t)memory.window);
    free(memory.staging);
}

START_TEST(whatever_it_likes)
{
    for (uint32_t seed = 0; seed < 3000; seed++) {
        run(seed);
    }
    ck_assert_uint_gt(steps, 3000 * 50); /* or it ended too soon to show anything */
    ck_assert_uint_gt(written, 3000 * 1000);
}
END_TEST

UNIT_MAIN("RDMA stream, hostile server", whatever_it_likes)
