/*
 * What transfers came to, in numbers that only grow: how they ended, their bytes, and how long each stage took.
 * Counting is O(1) and takes no memory. Loop thread only.
 */
#ifndef GRD_TRANSFER_STATS_H
#define GRD_TRANSFER_STATS_H

#include "daemon/base/histogram.h"
#include "daemon/transfer/outcome.h"

enum transfer_kind { TRANSFER_GET, TRANSFER_SET, TRANSFER_KINDS };

/*
 * queue: from acceptance to the first sending, registering the window for the lane included; what ends before it is
 * sent has none. server: from sending to the server's answer, of each attempt that got one. total: from acceptance to
 * the answer, of every transfer.
 */
enum transfer_stage { TRANSFER_STAGE_QUEUE, TRANSFER_STAGE_SERVER, TRANSFER_STAGE_TOTAL, TRANSFER_STAGES };

/* By the length of the window. X(SYMBOL, largest length in bytes, "name") */
#define TRANSFER_SIZES(X)                                                                                             \
    X(64K, UINT64_C(64) << 10, "64KiB")                                                                               \
    X(1M, UINT64_C(1) << 20, "1MiB")                                                                                  \
    X(16M, UINT64_C(16) << 20, "16MiB")                                                                               \
    X(256M, UINT64_C(256) << 20, "256MiB")                                                                            \
    X(LARGER, UINT64_MAX, "larger")

enum transfer_size {
#define TRANSFER_SIZE_ENUM(symbol, bytes, name) TRANSFER_SIZE_##symbol,
    TRANSFER_SIZES(TRANSFER_SIZE_ENUM)
#undef TRANSFER_SIZE_ENUM
        TRANSFER_SIZE_COUNT
};

struct transfer_stats {
    uint64_t ended[TRANSFER_KINDS][OUTCOME_COUNT];
    uint64_t bytes[TRANSFER_KINDS]; /* of values that were stored or delivered */
    struct histogram times[TRANSFER_STAGES][TRANSFER_SIZE_COUNT];
};

const char *transfer_kind_name(enum transfer_kind kind);
const char *transfer_stage_name(enum transfer_stage stage);
const char *transfer_size_name(enum transfer_size size);

void transfer_stats_stage(struct transfer_stats *stats, enum transfer_stage stage, uint64_t length, uint64_t ns);

#endif
