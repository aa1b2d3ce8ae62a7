/*
 * Tables for people: columns as wide as their longest cell, numbers to the right.
 */
#ifndef GRD_CTL_TABLE_H
#define GRD_CTL_TABLE_H

#include <jansson.h>
#include <stddef.h>

/* How a member of an entry is shown. A missing one is "-", of whatever type it is. */
enum cell {
    CELL_TEXT,
    CELL_NUMBER,
    CELL_BYTES,
    CELL_MICROSECONDS,
    CELL_BOOLEAN,
    CELL_QUOTAS, /* an object of numbers: "name number, name number" */
};

struct column {
    const char *title;
    const char *member; /* of the entries */
    enum cell cell;
};

/* Prints a heading and a line for each entry of the array. */
void table_print(const struct column *columns, size_t count, json_t *entries);

/* One cell; safe to print; the caller frees it. */
char *table_cell(enum cell cell, json_t *value);

#endif
