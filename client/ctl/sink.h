/*
 * Where a fetched value goes. A file is written under a temporary name beside it and takes its name when it is
 * complete, so that nobody ever sees a part. Standard output, devices and pipes are written directly. Main thread.
 */
#ifndef GRD_CTL_SINK_H
#define GRD_CTL_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/exit.h"

struct sink {
    int fd;
    const char *name; /* for messages */
    char *path;       /* the final one; NULL: written directly */
    char *temporary;
};

/*
 * Does the value go to standard output? So it does with "-", and with a path that leads to the same pipe or file, such
 * as /dev/stdout: a file that is replaced would lose what is in it, although the caller may have opened it to append.
 */
bool sink_is_output(const char *path);

/* Says what is wrong; afterwards sink_commit() or sink_discard() is due. */
enum ctl_exit sink_open(struct sink *sink, const char *path);

/* Writes all of it, and tells the progress line. A reader of standard output that has gone is no word worth. */
enum ctl_exit sink_write(struct sink *sink, const unsigned char *bytes, uint64_t length);

/* Makes a file durable and gives it its name. */
enum ctl_exit sink_commit(struct sink *sink);

/* Leaves no file behind. Harmless after sink_commit(). */
void sink_discard(struct sink *sink);

#endif
