/*
 * The scenario "heavy" of bench-neighbours: what a user that moves 64 x 64 MiB does to one that gets 64 KiB, and the
 * other way round.
 */
#ifndef GRD_BENCH_BESIDE_HEAVY_H
#define GRD_BENCH_BESIDE_HEAVY_H

#include "bench/servers.h"
#include "bench/victim.h"

/* Measures and prints; `runs` of each kind, which alternate. */
bool beside_heavy(const struct servers *servers, const struct victim *victim, unsigned runs, bool json);

#endif
