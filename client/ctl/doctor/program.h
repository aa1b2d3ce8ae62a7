/*
 * Another program, run for what it says.
 */
#ifndef GRD_CTL_DOCTOR_PROGRAM_H
#define GRD_CTL_DOCTOR_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Runs argv[0], with a slash a path, otherwise looked for in PATH, and collects standard output and standard error, as
 * much as fits, as one text. Returns its exit status; -ENOENT, -EACCES ...: it could not be started; -ETIMEDOUT: it was
 * ended because it took longer; -EINTR: a signal ended it.
 */
int program_run(char *const argv[], uint64_t timeout_ms, char *output, size_t size);

#endif
