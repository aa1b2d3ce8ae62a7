/*
 * Numbers as they stand on the command line. Thread safe.
 */
#ifndef GRD_CTL_NUMBER_H
#define GRD_CTL_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMBER_LIST 16

struct number_list {
    uint64_t values[NUMBER_LIST];
    size_t count;
};

/* Digits only, 1 to `most`; otherwise 0. */
uint64_t number_parse(const char *text, uint64_t most);

/* The same, with K, M or G behind the digits: KiB, MiB, GiB. */
uint64_t number_parse_bytes(const char *text, uint64_t most);

/* Several of them with commas in between; false where one is wrong, or there are more than NUMBER_LIST. */
bool number_list_parse(const char *text, uint64_t most, struct number_list *list);

#endif
