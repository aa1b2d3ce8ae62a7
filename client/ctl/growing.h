/*
 * A memory file that grows while standard input is read into it: it must not be sealed before its size is known.
 * Main thread.
 */
#ifndef GRD_CTL_GROWING_H
#define GRD_CTL_GROWING_H

#include <stdint.h>

#include "client/ctl/exit.h"

struct growing {
    int fd;
    unsigned char *bytes; /* mapped */
    uint64_t size;        /* bytes of it */
    uint64_t used;        /* bytes that hold input */
};

enum ctl_exit growing_open(struct growing *memory);

/* Makes room beyond `used`, for `most` bytes in all at most. */
enum ctl_exit growing_extend(struct growing *memory, uint64_t most);

/* Cuts it to what is used, and seals it; the mapping goes. */
enum ctl_exit growing_seal(struct growing *memory);

void growing_close(struct growing *memory);

#endif
