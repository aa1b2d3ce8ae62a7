/* Neighbours act as another user than the benchmark. */
#ifndef GRD_BENCH_STRANGER_H
#define GRD_BENCH_STRANGER_H

#include <unistd.h>

#define STRANGER 61000 /* uid and gid: nobody's */

/* Where that is possible: as root. Ends the process when it fails. */
static inline void become_a_stranger(void)
{
    if (getuid() == 0 &&
        (setresgid(STRANGER, STRANGER, STRANGER) != 0 || setresuid(STRANGER, STRANGER, STRANGER) != 0)) {
        _exit(1);
    }
}

#endif
