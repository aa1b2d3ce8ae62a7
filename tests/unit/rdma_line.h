/*
 * A stream of Valkey Over RDMA on a fake queue pair, without a loop: each step is a call of the test.
 */
#ifndef GRD_TESTS_RDMA_LINE_H
#define GRD_TESTS_RDMA_LINE_H

#include "daemon/valkey/rdma/stream.h"
#include "tests/unit/fake_rdma.h"

struct rdma_line {
    struct rdma_stream stream;
    struct rdma_queue_pair *pair;
    struct rdma_settings settings;
};

/* Opens, of these sizes in bytes, with the server of fake_rdma_knobs; not connected. */
void line_open(struct rdma_line *line, size_t window, size_t staging, unsigned sends);
/* Connects, and moves all messages until both windows are known. */
void line_connect(struct rdma_line *line);
/* The stream takes the events that are there. */
void line_poll(struct rdma_line *line);
/* Everything moves, in both directions, until nothing does. */
void line_settle(struct rdma_line *line);
/* Gives bytes away, all of them in one message or two; fails the test when some were not taken. */
void line_put(struct rdma_line *line, const void *bytes, size_t length);
/* The stream has ended, and these words are in its reason. */
void line_expect_end(const struct rdma_line *line, int error, const char *words);
void line_close(struct rdma_line *line);

#endif
