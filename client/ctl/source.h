/*
 * What is to be stored: a regular file, whose size is known before it is read, or standard input. Main thread.
 */
#ifndef GRD_CTL_SOURCE_H
#define GRD_CTL_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/ctl/exit.h"

struct source {
    int fd;
    const char *name; /* for messages */
    bool known;       /* the size is */
    uint64_t size;    /* bytes from here to the end */
};

/* "-" is standard input. What is no regular file is refused, and not even opened. Says what is wrong. */
enum ctl_exit source_open(struct source *source, const char *path);

/* Reads until `length` bytes are there or the end came; *got tells. Says what is wrong. */
enum ctl_exit source_read(struct source *source, unsigned char *bytes, uint64_t length, uint64_t *got);

void source_close(struct source *source);

#endif
