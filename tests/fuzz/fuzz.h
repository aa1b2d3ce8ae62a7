/*
 * What the fuzz targets share: a check that ends the run, descriptors counted, inputs that are lines of text.
 */
#ifndef GRD_TESTS_FUZZ_FUZZ_H
#define GRD_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/rig/check.h"

/* Entry points of libFuzzer. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* A property that does not hold is a crash: rig_fail says which. */
#define FUZZ_CHECK RIG_CHECK

/* Descriptors below 1024 that are open. */
unsigned fuzz_descriptors(void);

/* The next line of an input, without its end; false at the end. */
struct fuzz_lines {
    const char *at, *end;
};
bool fuzz_line(struct fuzz_lines *lines, const char **line, size_t *length);

/* The digits at the start of a line as a number of at most `limit`; `fallback` where there are none. */
unsigned fuzz_number(const char *line, size_t length, unsigned limit, unsigned fallback);

/* Puts, removes, doubles and swaps whole lines of an input; half of the time it changes bytes as libFuzzer does. */
size_t fuzz_mutate_lines(uint8_t *data, size_t size, size_t max_size, unsigned seed);

#endif
