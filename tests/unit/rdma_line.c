#include "tests/unit/rdma_line.h"

#include <check.h>
#include <string.h>

void line_open(struct rdma_line *line, size_t window, size_t staging, unsigned sends)
{
    struct rdma_memory memory;
    char why[RDMA_WHY_BYTES];

    *line = (struct rdma_line){.settings = {
        .host = "192.0.2.1", .port = "6379", .window_bytes = window, .staging_bytes = staging, .sends = sends}};
    ck_assert_int_eq(fake_rdma_ops.open(&line->settings, &line->pair, &memory, why), 0);
    rdma_stream_init(&line->stream, &fake_rdma_ops, line->pair, &memory, &line->settings, "rdma://192.0.2.1:6379");
}

void line_poll(struct rdma_line *line)
{
    struct rdma_event events[3]; /* few, so that there is always a rest */
    size_t count;

    do {
        count = fake_rdma_ops.poll(line->pair, events, 3);
        for (size_t i = 0; i < count; i++) {
            rdma_stream_take(&line->stream, &events[i]);
        }
    } while (count == 3);
    rdma_stream_flush(&line->stream);
}

static bool moves(const struct rdma_queue_pair *pair)
{
    const struct fake_rdma_peer *peer = &pair->peer;

    return pair->event_count > 0 || pair->posted_count > 0 || (pair->unseen_count > 0 && !pair->asleep) ||
           (peer->said < peer->say_length && peer->to_offset < peer->to_length);
}

void line_settle(struct rdma_line *line)
{
    do {
        fake_rdma_turn();
        line_poll(line);
    } while (!line->stream.ended && moves(line->pair));
}

void line_connect(struct rdma_line *line)
{
    ck_assert_int_eq(fake_rdma_ops.connect(line->pair), 0);
    line_settle(line);
    ck_assert_msg(rdma_stream_established(&line->stream), "%s", line->stream.why);
}

void line_put(struct rdma_line *line, const void *bytes, size_t length)
{
    ck_assert_uint_eq(rdma_stream_write(&line->stream, bytes, length), length);
    rdma_stream_flush(&line->stream);
}

void line_expect_end(const struct rdma_line *line, int error, const char *words)
{
    ck_assert(line->stream.ended);
    ck_assert_int_eq(line->stream.error, error);
    ck_assert_msg(strstr(line->stream.why, words) != NULL, "%s", line->stream.why);
}

void line_close(struct rdma_line *line)
{
    fake_rdma_ops.close(line->pair);
    fake_rdma_reset();
}
