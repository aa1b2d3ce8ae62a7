#include "daemon/transfer/stats.h"

static const struct {
    uint64_t bytes;
    const char *name;
} sizes[TRANSFER_SIZE_COUNT] = {
#define SIZE_ROW(symbol, bytes, name) {bytes, name},
    TRANSFER_SIZES(SIZE_ROW)
#undef SIZE_ROW
};

const char *transfer_kind_name(enum transfer_kind kind)
{
    return kind == TRANSFER_SET ? "set" : "get";
}

const char *transfer_stage_name(enum transfer_stage stage)
{
    static const char *const names[] = {
        [TRANSFER_STAGE_QUEUE] = "queue", [TRANSFER_STAGE_SERVER] = "server", [TRANSFER_STAGE_TOTAL] = "total"};

    return names[stage];
}

const char *transfer_size_name(enum transfer_size size)
{
    return sizes[size].name;
}

void transfer_stats_stage(struct transfer_stats *stats, enum transfer_stage stage, uint64_t length, uint64_t ns)
{
    enum transfer_size size = 0;

    while (length > sizes[size].bytes) {
        size++;
    }
    histogram_add(&stats->times[stage][size], ns);
}
