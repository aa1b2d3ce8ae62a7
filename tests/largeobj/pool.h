/*
 * Worker threads: as many as there are jobs at once, kept for the next ones.
 *
 * A transfer owns a worker from start to end, so that a delay or a slow client holds up nobody else.
 */
#ifndef LARGEOBJ_POOL_H
#define LARGEOBJ_POOL_H

/* Runs a job on some worker. Any thread. Returns 0 or -EAGAIN when no thread can be made. */
int pool_run(void (*job)(void *arg), void *arg);

#endif
