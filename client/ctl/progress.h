/*
 * A line on the terminal that shows how long work goes on; nothing at all where standard error is no terminal.
 *
 * It appears when the work has lasted for a moment, and is taken away at the end. A thread draws it, since the work may
 * be one blocking call. One per process; all functions but progress_add() belong to the main thread.
 */
#ifndef GRD_CTL_PROGRESS_H
#define GRD_CTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_kind {
    PROGRESS_BAR,    /* of `bytes` in all: a bar and a percentage */
    PROGRESS_COUNT,  /* nobody knows how many there will be: how many there were */
    PROGRESS_MOVING, /* one call that says nothing in between: a moving sign and `bytes` */
};

/* Enters a stage of the work, such as "reading". `what` must live on. `quiet` shows nothing, ever. */
void progress_stage(bool quiet, const char *what, enum progress_kind kind, uint64_t bytes);

/* So much more is done. Cheap. */
void progress_add(uint64_t bytes);

/* Takes the line away and ends the thread. Harmless where there is none. */
void progress_end(void);

/* Takes the line away, from a signal handler of a process that is about to end. */
void progress_wipe(void);

#endif
