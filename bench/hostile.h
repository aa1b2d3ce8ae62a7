/*
 * A client that means harm, as a process of its own under another uid: it sends requests and never reads an answer,
 * opens sessions over and over, and sends packets that are only half valid, as fast as one processor allows.
 */
#ifndef GRD_BENCH_HOSTILE_H
#define GRD_BENCH_HOSTILE_H

#include <sys/types.h>

/* Starts it; -1 and a message where that fails. When it returns, every kind of attack has begun. */
pid_t hostile_start(const char *socket_path);

void hostile_stop(pid_t pid);

#endif
