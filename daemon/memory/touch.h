/*
 * First touch: who allocates the pages of a memory file.
 *
 * The first one to touch a page decides on which NUMA node it lies and which control group pays for it. That is the
 * program's business, so the daemon registers only what is allocated already, unless it is asked to `populate`
 * (docs/architecture.md, "First touch"). A NIC that reads a hole allocates as well: access "r" is no exception.
 *
 * What the kernel can be asked, and what for:
 *   any file: how many of its pages are allocated. All of them: that was it, which is the common case, for one call.
 *   shared memory else: mincore() in pieces of a fixed size. It takes a page that was swapped out for a missing one, so
 *     whatever it misses is asked again with SEEK_DATA, on an open file description of the daemon's own: the received
 *     one has a position that belongs to the client. It tells the truth only to who could write the file, and says "all
 *     there" to others. Pages that fallocate() has set aside count as missing here: nobody can tell them from holes.
 *   hugetlbfs else: neither works (mincore() knows the page tables of this process only). So few pages may be allocated
 *     that some of the range are missing for certain; otherwise nobody can tell, and the answer is no.
 *
 * Pages are never loaded from or stored to: populating is madvise(), which fails with an error where a touch would be a
 * signal. Nothing keeps a client from punching holes afterwards; the provider then meets them as it always could.
 *
 * Blocking, for a worker. No state, thread safe.
 */
#ifndef GRD_MEMORY_TOUCH_H
#define GRD_MEMORY_TOUCH_H

#include "daemon/memory/memory.h"

struct touch {
    int fd;             /* borrowed: the memory file */
    uint8_t *base;      /* borrowed: its mapping from `start` on, `length` bytes */
    uint64_t start;     /* bytes, in the file; a multiple of page_size */
    uint64_t length;    /* bytes, whole pages inside the file's last page */
    uint64_t page_size; /* of the file, bytes */
    bool writable;      /* the mapping is */
};

/*
 * Are all pages allocated? 0, or with `error` filled: NOT_POPULATED (some are missing, or nobody can tell; with the
 * number of missing pages where it is known), SYSTEM (a call failed).
 */
int touch_check(const struct touch *touch, struct memory_error *error);

/*
 * Allocates what is missing and maps all of it; charge before. 0, or with `error` filled: SYSTEM (the host or the
 * daemon's control group has no memory, or a page is broken); NOT_POPULATED (a kernel before Linux 5.14 cannot populate
 * memory that is only readable, and some is missing).
 */
int touch_populate(const struct touch *touch, struct memory_error *error);

#endif
