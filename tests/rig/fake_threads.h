/*
 * Workers and the progress thread without threads, linked in place of daemon/base/worker.c and
 * daemon/fabric/progress.c: what they would do at some time is done when the target says so, in the order it says, so
 * that an input always gives the same run.
 */
#ifndef GRD_TESTS_RIG_FAKE_THREADS_H
#define GRD_TESTS_RIG_FAKE_THREADS_H

#include <stdbool.h>

/* Runs one of the jobs that a worker could have in hand (two of each owner), number `pick` modulo their number. False:
 * there is none. */
bool fake_workers_run(unsigned pick);

/* One of them hangs: it is not run, and counts as running for its owner, until fake_workers_resume. False: there is
 * none. */
bool fake_workers_stall(unsigned pick);
/* Those that hang can go on. False: none hangs. */
bool fake_workers_resume(void);

/* Tells the loop's side of the jobs that have run. False: none has. */
bool fake_workers_deliver(void);

/* Lets go of one endpoint that the progress thread was asked to let go of. False: there is none. */
bool fake_progress_turn(void);

/* Endpoints under progress. */
unsigned fake_progress_members(void);

#endif
