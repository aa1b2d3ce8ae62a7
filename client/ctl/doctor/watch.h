/*
 * Watching memory that nobody may write any more. Thread safe.
 */
#ifndef GRD_CTL_DOCTOR_WATCH_H
#define GRD_CTL_DOCTOR_WATCH_H

#include <stdint.h>

/*
 * Looks at all bytes again and again for so many milliseconds, twice at least, and returns how many of them do not hold
 * `canary` at the first look that finds such; 0: none ever was.
 */
uint64_t watch_changed(const unsigned char *bytes, uint64_t length, unsigned char canary, uint64_t milliseconds);

/* How many of the bytes hold `value`, at this moment. */
uint64_t watch_count(const unsigned char *bytes, uint64_t length, unsigned char value);

#endif
