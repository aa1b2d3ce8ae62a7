/*
 * Both directions of a stream under random schedules: what is delivered, looked at, read, answered and advertised when,
 * in which pieces, over windows that change. The fake checks every message against the server's window and ours; here
 * it is checked that bytes arrive in order and exactly once, that no more messages are on their way than may be, and
 * that nothing stands still. A failure names its seed: RDMA_SEED repeats it alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/rdma_line.h"
#include "tests/unit/unit_main.h"

#define SEEDS 200
#define STEPS 2000

#define CHECK(condition) FAKE_CHECK(condition, "%s", line.stream.why)

static struct rdma_line line;
static uint64_t state;

static unsigned below(unsigned limit)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state >> 33) % limit;
}

/* Byte `at` of a direction's endless stream. */
static uint8_t byte_at(uint64_t at, unsigned direction)
{
    return (uint8_t)((at * 2654435761U >> 11) + direction * 101 + at);
}

static void make(uint8_t *bytes, uint64_t at, size_t length, unsigned direction)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_at(at + i, direction);
    }
}

struct progress {
    uint64_t written, said, read, checked;
};

static void client_writes(struct progress *progress)
{
    uint8_t bytes[5000];
    size_t length = 1 + below(below(4) == 0 ? sizeof(bytes) : 60);
    bool writable = rdma_stream_writable(&line.stream);
    size_t taken;

    make(bytes, progress->written, length, 0);
    taken = rdma_stream_write(&line.stream, bytes, length);
    CHECK((taken > 0) == writable);
    progress->written += taken;
    if (below(3) != 0) {
        rdma_stream_flush(&line.stream);
    }
}

static void client_reads(struct progress *progress, size_t most)
{
    uint8_t bytes[5000], expected[5000];
    size_t length;

    length = rdma_stream_read(&line.stream, bytes, 1 + below((unsigned)(most < sizeof(bytes) ? most : sizeof(bytes))));
    make(expected, progress->read, length, 1);
    CHECK(memcmp(bytes, expected, length) == 0);
    progress->read += length;
}

static void client_polls(void)
{
    struct rdma_event events[16];
    size_t count = fake_rdma_ops.poll(line.pair, events, 1 + below(16));

    for (size_t i = 0; i < count; i++) {
        rdma_stream_take(&line.stream, &events[i]);
    }
    if (below(4) != 0) {
        rdma_stream_flush(&line.stream);
    }
}

static void server_says(struct progress *progress)
{
    uint8_t bytes[5000];
    size_t length = 1 + below(below(4) == 0 ? sizeof(bytes) : 60);

    make(bytes, progress->said, length, 1);
    fake_rdma_say(line.pair, bytes, length);
    progress->said += length;
}

static void check(struct progress *progress)
{
    const struct fake_rdma_peer *peer = &line.pair->peer;

    CHECK(!line.stream.ended);
    CHECK(line.stream.posted - line.stream.proven <= STREAM_UNPROVEN + 2);
    CHECK(line.pair->most_unseen <= STREAM_UNPROVEN + 2);
    CHECK(peer->got_length <= progress->written);
    for (; progress->checked < peer->got_length; progress->checked++) {
        CHECK(peer->got[progress->checked] == byte_at(progress->checked, 0));
    }
}

static void step(struct progress *progress)
{
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
        client_writes(progress);
        break;
    case 3:
        client_reads(progress, 5000);
        break;
    case 4:
    case 5:
        client_polls();
        break;
    case 6:
        if (progress->said < line.pair->peer.said + 20000) {
            server_says(progress);
        }
        break;
    case 7:
        fake_rdma_deliver(line.pair, below(20));
        break;
    case 8:
        fake_rdma_look(line.pair, below(line.pair->knobs.no_features ? 40 : 10));
        break;
    case 9:
        fake_rdma_write(line.pair, below(4));
        break;
    case 10:
        line.pair->hold_sent = below(2) == 0;
        if (!line.pair->hold_sent) {
            fake_rdma_release(line.pair);
        }
        break;
    default:
        if (below(20) == 0) {
            rdma_stream_tick(&line.stream);
        } else if (below(3) == 0) {
            fake_rdma_keepalive(line.pair);
        } else { /* an answer to any of the requests that were seen */
            rdma_stream_answered(&line.stream, below((unsigned)line.pair->peer.got_length + 1));
        }
    }
}

/* Everything that was written and said arrives in the end. */
static void finish(struct progress *progress)
{
    line.pair->hold_sent = false;
    for (int turns = 0; turns < 100000; turns++) {
        fake_rdma_release(line.pair);
        fake_rdma_turn();
        line_poll(&line);
        client_reads(progress, 5000);
        if (progress->read == progress->said && line.pair->peer.got_length == progress->written) {
            break;
        }
    }
    check(progress);
    ck_assert_uint_eq(progress->read, progress->said);
    ck_assert_uint_eq(line.pair->peer.got_length, progress->written);
    if (!line.pair->knobs.no_features) {
        line_settle(&line);
        ck_assert(rdma_stream_writable(&line.stream)); /* whatever was answered, more may be written */
    }
}

static void run(uint64_t seed)
{
    struct progress progress = {0};

    state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    below(2);
    fake_rdma_knobs.window = 1 + below(below(2) == 0 ? 100 : 20000);
    fake_rdma_knobs.varies = below(2) == 0;
    fake_rdma_knobs.no_features = below(2) == 0;
    fake_rdma_knobs.piece = below(3) == 0 ? 1 + below(50) : 0;
    fake_rdma_knobs.window_first = below(2) == 0;
    line_open(&line, 1 + below(below(2) == 0 ? 100 : 9000), 64 + below(below(2) == 0 ? 100 : 9000),
              5 + below(STREAM_SENDS - 5));
    line_connect(&line);
    for (int i = 0; i < STEPS; i++) {
        step(&progress);
        check(&progress);
    }
    finish(&progress);
    ck_assert_uint_gt(progress.written + progress.read, 0);
    line_close(&line);
}

START_TEST(random_schedules)
{
    const char *only = getenv("RDMA_SEED");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 0, last = only != NULL ? first + 1 : SEEDS;

    for (uint64_t seed = first; seed < last; seed++) {
        fprintf(stderr, "RDMA_SEED=%llu\n", (unsigned long long)seed);
        run(seed);
    }
}
END_TEST

UNIT_MAIN("RDMA stream, random", random_schedules)
