/*
 * The figures of bench, for people and programs. Main thread.
 */
#ifndef GRD_CTL_BENCH_TELL_H
#define GRD_CTL_BENCH_TELL_H

#include <jansson.h>

#include "client/ctl/bench/load.h"

void tell_heading(void);

/* Two lines, or one where only sets or only gets were made. */
void tell_figures(const struct figures *figures);

json_t *tell_json(const struct figures *figures);

#endif
