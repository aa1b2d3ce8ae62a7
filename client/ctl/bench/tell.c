#include "client/ctl/bench/tell.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/report.h"
#include "client/ctl/text.h"

static double seconds(const struct figures *figures)
{
    return (double)(figures->elapsed > 0 ? figures->elapsed : 1) / 1e9;
}

static double microseconds(const struct kind_figures *kind, unsigned permille)
{
    return (double)latency_permille(&kind->latency, permille) / 1e3;
}

void tell_heading(void)
{
    printf("%10s %9s %-4s %11s %11s %9s %10s %10s %10s %10s\n", "SIZE", "IN FLIGHT", "KIND", "TRANSFERS", "PER SECOND",
           "GB/S", "P50 US", "P90 US", "P99 US", "MAX US");
}

static void tell_kind(const struct figures *figures, const char *name, const struct kind_figures *kind)
{
    char size[TEXT_NUMBER_BYTES];

    if (kind->latency.count == 0) {
        return;
    }
    printf("%10s %9" PRIu64 " %-4s %11" PRIu64 " %11.1f %9.3f %10.1f %10.1f %10.1f %10.1f\n",
           text_bytes(size, figures->size), figures->in_flight, name, kind->latency.count,
           (double)kind->latency.count / seconds(figures), (double)kind->bytes / 1e9 / seconds(figures),
           microseconds(kind, 500), microseconds(kind, 900), microseconds(kind, 990),
           (double)kind->latency.largest / 1e3);
}

void tell_figures(const struct figures *figures)
{
    tell_kind(figures, "get", &figures->get);
    tell_kind(figures, "set", &figures->set);
    fflush(stdout);
}

static json_t *kind_json(const struct figures *figures, const struct kind_figures *kind)
{
    json_t *latency = need_memory(json_pack("{s:f,s:f,s:f,s:f}", "p50", microseconds(kind, 500), "p90",
                                            microseconds(kind, 900), "p99", microseconds(kind, 990), "max",
                                            (double)kind->latency.largest / 1e3));

    return need_memory(json_pack("{s:I,s:I,s:f,s:f,s:o}", "transfers", (json_int_t)kind->latency.count, "bytes",
                                 (json_int_t)kind->bytes, "transfers_per_second",
                                 (double)kind->latency.count / seconds(figures), "gb_per_second",
                                 (double)kind->bytes / 1e9 / seconds(figures), "latency_us", latency));
}

json_t *tell_json(const struct figures *figures)
{
    return need_memory(json_pack("{s:I,s:I,s:f,s:o,s:o}", "size", (json_int_t)figures->size, "in_flight",
                                 (json_int_t)figures->in_flight, "seconds", (double)figures->elapsed / 1e9, "get",
                                 kind_json(figures, &figures->get), "set", kind_json(figures, &figures->set)));
}
