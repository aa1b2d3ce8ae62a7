/*
 * Windows in use, as byte ranges of one file: readers may overlap readers, a writer overlaps nobody.
 *
 * A treap ordered by start, with the largest end (of all, and of writers) kept for each subtree: every operation is
 * O(log n) in the windows in use. Loop thread only; extents are embedded in their owner and never allocated here.
 */
#ifndef GRD_MEMORY_EXTENTS_H
#define GRD_MEMORY_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

struct extent {
    uint64_t start, end; /* bytes, [start, end), start < end */
    bool writes;         /* a GET writes the window, a SET only reads it */
    struct extent *left, *right;
    uint64_t max_end, max_writer_end;
    uint32_t priority;
};

struct extents {
    struct extent *root;
    uint32_t seed;
};

void extents_init(struct extents *extents);

/* An extent in use that conflicts with the range, or NULL. */
const struct extent *extents_conflict(const struct extents *extents, uint64_t start, uint64_t end, bool writes);

/* Adds an extent whose start, end and writes are set; it must not conflict. It stays the caller's memory. */
void extents_add(struct extents *extents, struct extent *extent);
void extents_remove(struct extents *extents, struct extent *extent);

#endif
