/*
 * What was asked of the daemon, and refused: numbers that only grow, for the metrics. Loop thread only.
 */
#ifndef GRD_LOCAL_COUNTERS_H
#define GRD_LOCAL_COUNTERS_H

#include <stdint.h>

#include "proto/errors.h"
#include "proto/methods.h"

struct counters {
    uint64_t requests[PROTO_METHOD_COUNT]; /* that could be read and named a method of the socket */
    uint64_t refused[PROTO_ERROR_COUNT];   /* see count_refused */
    uint64_t sessions;                     /* that were admitted */
};

/* For each answer with an error, each key of keys.* that has one in its entry, each connection that is not admitted and
 * each session that is ended for what its client did or did not do. */
static inline void count_refused(struct counters *counters, int code)
{
    int index = proto_error_index(code);
    if (index >= 0) {
        counters->refused[index]++;
    }
}

#endif
