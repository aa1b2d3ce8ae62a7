/*
 * Runs the event loop and watches that it never waits (docs/architecture.md, rule 7).
 *
 * libuv runs the callbacks of descriptors inside the call that also sleeps, so hooks around that call cannot tell the
 * two apart. Here the sleep is a poll(2) on the loop's own descriptor, and libuv is then run without waiting: all of
 * that run, a *turn*, is work. Loop thread only.
 *
 * With GLIDE_RDMAD_TEST_LOOP=1 in the environment, which the tests set, a turn in which the thread gave up its
 * processor by itself, or used more than LOOP_TURN_CPU_US of it, is logged as an error: "loop blocked: ...".
 */
#ifndef GRD_BASE_LOOP_WATCH_H
#define GRD_BASE_LOOP_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define LOOP_TURN_CPU_US 20000
#define LOOP_LATE_US 3000

struct loop_watch {
    uint64_t longest_ns; /* of all turns, by the wall clock */
    uint64_t blocked;    /* turns that were logged */
    uint64_t turn_ns;    /* when this turn began, by uv_hrtime */
    bool strict;
};

/* Has this turn lasted so long that more of what can wait should be left to the next one? */
bool loop_watch_late(const struct loop_watch *watch);

/* Runs the loop until nothing is left in it, or *stopped is true after a turn. */
void loop_watch_run(struct loop_watch *watch, uv_loop_t *loop, const bool *stopped);

#endif
