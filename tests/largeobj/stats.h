/*
 * Counters shown by `INFO largeobj`. Any thread may add to them.
 */
#ifndef LARGEOBJ_STATS_H
#define LARGEOBJ_STATS_H

#include <stdatomic.h>

#include "module_api.h"

struct stats {
    atomic_ullong hellos;
    atomic_ullong reads;        /* SET transfers that ran to their end */
    atomic_ullong writes;       /* GET transfers that ran to their end */
    atomic_ullong read_bytes;
    atomic_ullong write_bytes;
    atomic_ullong read_errors;
    atomic_ullong write_errors;
    atomic_ullong timeouts;     /* operations given up; their buffers are kept until they complete */
    atomic_ullong stale_sets;
    atomic_ullong crc_mismatches;
    atomic_ullong transfers;    /* begun and not yet ended, also when answered early */
    atomic_ullong objects;
};

extern struct stats stats;

void stats_info(struct vm_info *info, int for_crash_report);

#endif
