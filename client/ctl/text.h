/*
 * Words and numbers for people. Thread safe.
 */
#ifndef GRD_CTL_TEXT_H
#define GRD_CTL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_NUMBER_BYTES 40

/*
 * A copy in which nothing can steer a terminal: control characters, marks that turn the direction of writing, and what
 * is no UTF-8 become \xNN. Never NULL; the caller frees it.
 */
char *text_safe(const char *bytes, size_t length);

/* Columns of a text that text_safe() made: its code points. */
size_t text_width(const char *safe);

/* "17 B", "1.5 MiB". Return `out`. */
const char *text_bytes(char out[TEXT_NUMBER_BYTES], uint64_t bytes);

/* "850 us", "12.3 ms", "4.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
const char *text_duration(char out[TEXT_NUMBER_BYTES], uint64_t microseconds);

#endif
