/* The admin socket of a benchmark's daemon: one request, one answer. */
#ifndef GRD_BENCH_ADMIN_H
#define GRD_BENCH_ADMIN_H

#include <jansson.h>

#include "bench/servers.h"

/* A descriptor, the caller's; -1: printed why not. */
int admin_connect(const struct servers *servers);

/* The `result` of a method without parameters, the caller's; NULL: there was none. */
json_t *admin_ask(int admin, const char *method);

#endif
