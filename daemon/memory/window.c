#include <string.h>

#include "daemon/memory/arena.h"
#include "proto/errors.h"
#include "proto/limits.h"

/* Windows in use are tracked in file offsets: two regions, or two sessions, may name the same bytes. */
static uint64_t in_arena(const struct window *window)
{
    return window->extent.start - window->region->arena->start;
}

static uint64_t slice_bytes(const struct arena *arena)
{
    return arena->memory->fabric->config->mr_max_bytes;
}

static int check(const struct region *region, uint64_t offset, uint64_t length, bool writes, struct memory_error *error)
{
    uint64_t end;
    if (length == 0) {
        memory_error_set(error, PROTO_ERR_OUT_OF_RANGE, "the window has no bytes; length must be at least 1");
    } else if (__builtin_add_overflow(offset, length, &end) || end > region->size) {
        memory_error_set(error, PROTO_ERR_OUT_OF_RANGE,
                         "offset %llu and length %llu run past the end of a region of %llu bytes",
                         (unsigned long long)offset, (unsigned long long)length, (unsigned long long)region->size);
        error->capacity = region->size;
    } else if (writes && !region->writable) {
        memory_error_set(error, PROTO_ERR_DENIED,
                         "the region was registered with access \"r\": a get would write into it; register with \"rw\"");
    } else {
        return 0;
    }
    return error->code;
}

int window_take(struct window *window, struct region *region, uint64_t offset, uint64_t length, bool writes,
                struct memory_error *error)
{
    int status = check(region, offset, length, writes, error);
    if (status != 0)
        return status;
    const struct arena *arena = region->arena;
    uint64_t start = region->start + offset;
    uint64_t step = slice_bytes(arena);
    uint64_t first = (start - arena->start) / step;
    uint64_t last = (start - arena->start + length - 1) / step;
    if (last - first + 1 > PROTO_WINDOW_SLICES) {
        memory_error_set(error, PROTO_ERR_OVER_LIMIT,
                         "the window lies on %llu registrations of %llu bytes; a command can name at most %d: use a "
                         "smaller window, or raise [fabric] mr_max_bytes",
                         (unsigned long long)(last - first + 1), (unsigned long long)step, PROTO_WINDOW_SLICES);
        error->limit = PROTO_WINDOW_SLICES;
        error->asked = last - first + 1;
        return error->code;
    }
    const struct extent *other = extents_conflict(&arena->file->extents, start, start + length, writes);
    if (other != NULL) {
        memory_error_set(error, PROTO_ERR_OVERLAP,
                         "a window of %llu bytes at offset %llu of the memory file overlaps one of %llu bytes at %llu "
                         "that a running %s uses; wait for its answer",
                         (unsigned long long)length, (unsigned long long)start,
                         (unsigned long long)(other->end - other->start), (unsigned long long)other->start,
                         other->writes ? "get" : "set");
        return error->code;
    }
    memset(window, 0, sizeof *window);
    window->region = region;
    window->length = length;
    window->extent.start = start;
    window->extent.end = start + length;
    window->extent.writes = writes;
    extents_add(&arena->file->extents, &window->extent);
    region->windows++;
    return 0;
}

void window_release(struct window *window)
{
    struct region *region = window->region;
    extents_remove(&region->arena->file->extents, &window->extent);
    region->windows--;
    window->region = NULL;
}

size_t window_slices(const struct window *window, struct slice **slices)
{
    struct arena *arena = window->region->arena;
    uint64_t step = slice_bytes(arena);
    uint64_t first = in_arena(window) / step;
    uint64_t last = (in_arena(window) + window->length - 1) / step;
    for (uint64_t i = first; i <= last; i++)
        slices[i - first] = &arena->slices[i];
    return (size_t)(last - first + 1);
}

void window_range(const struct window *window, struct file_range *range)
{
    struct region *region = window->region;
    *range = (struct file_range){.fd = region->arena->fd,
                                 .offset = window->extent.start,
                                 .length = window->length,
                                 .mapped = region->arena->base + in_arena(window),
                                 .owner = &region->account->owner};
}

size_t window_triples(const struct window *window, const struct lane *lane, struct slice_triple *triples)
{
    const struct arena *arena = window->region->arena;
    uint64_t step = slice_bytes(arena);
    uint64_t at = in_arena(window);
    uint64_t end = at + window->length;
    size_t count = 0;
    while (at < end) {
        uint64_t slice_end = (at / step + 1) * step;
        uint64_t piece = (slice_end < end ? slice_end : end) - at;
        triples[count++] = lane_triple(lane, &arena->slices[at / step], at % step, piece);
        at += piece;
    }
    return count;
}
