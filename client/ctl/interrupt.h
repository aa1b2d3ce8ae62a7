/*
 * Signals that end the program leave no partial output file behind, and no keys of a measurement. Main thread.
 */
#ifndef GRD_CTL_INTERRUPT_H
#define GRD_CTL_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/*
 * Takes over all signals that end a process from outside, where they are not ignored. Ignores SIGPIPE and SIGXFSZ:
 * system calls fail instead.
 */
void interrupt_install(void);

/* Holds these signals back while a file changes its name; `before` gets what interrupt_release() needs. */
void interrupt_hold(sigset_t *before);
void interrupt_release(const sigset_t *before);

/* The file that a signal removes from now on, or NULL. Borrowed; call it with the signals held. */
void interrupt_remove(const char *path);

/* From now on a signal is only remembered, for work that has to be cleaned up after. A second one ends the program. */
void interrupt_defer(void);

/* Has one come? Cheap. */
bool interrupt_seen(void);

/* Ends the program as the signal would have, where one has come. After cleaning up. */
void interrupt_obey(void);

#endif
