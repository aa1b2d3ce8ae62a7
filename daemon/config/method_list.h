/*
 * Lists of methods that a policy allows, as they are written in a configuration file, and as sets of bits.
 *
 * Grammar. Names of methods of the client socket separated by commas, as key prefixes are; "keys.*" stands for all that
 * begin so, "*" for all methods. An empty list allows no more than what is always allowed: hello, status, and what only
 * gives back, region.close and transfer.cancel. region.register goes with the transfers: it is allowed where
 * transfer.get or transfer.set is.
 *
 * Pure functions, thread safe. See docs/architecture.md, "Permissions".
 */
#ifndef GRD_CONFIG_METHOD_LIST_H
#define GRD_CONFIG_METHOD_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/methods.h"

/* Bit N is method N of proto/methods.h. */
#define METHODS_ALL UINT64_MAX
/* What no list forbids: it tells the client what it may, and gives back. */
#define METHODS_ALWAYS                                                                                                \
    (UINT64_C(1) << PROTO_METHOD_HELLO | UINT64_C(1) << PROTO_METHOD_STATUS |                                         \
     UINT64_C(1) << PROTO_METHOD_REGION_CLOSE | UINT64_C(1) << PROTO_METHOD_TRANSFER_CANCEL)

#define METHOD_LIST_WHY_BYTES 160

/* Adds the methods of a text to those in *methods. 0, or -EINVAL with `why`, *methods as it was. */
int method_list_parse(const char *text, uint64_t *methods, char why[METHOD_LIST_WHY_BYTES]);

static inline bool method_list_has(uint64_t methods, int method)
{
    return (methods >> method & 1) != 0;
}

/* Whether it stores, changes or deletes values of the server. */
bool method_changes_values(int method);

#endif
