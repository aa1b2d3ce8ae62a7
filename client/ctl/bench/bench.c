/*
 * bench: load through the daemon, for each size and each number in flight.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/bench/load.h"
#include "client/ctl/bench/tell.h"
#include "client/ctl/commands.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/keys.h"
#include "client/ctl/progress.h"
#include "client/ctl/report.h"

static void warn(const struct options *options)
{
    for (size_t i = 0; i < options->in_flight.count; i++) {
        if (options->in_flight.values[i] == 1) {
            report("bench: one transfer in flight measures latency, not throughput");
            return;
        }
    }
}

static bool any(const struct figures *figures)
{
    return figures->get.latency.count + figures->set.latency.count > 0;
}

static enum ctl_exit measure(struct load *load, uint64_t size, uint64_t in_flight, json_t *results)
{
    struct figures *figures = need_memory(malloc(sizeof(*figures))); /* two large tables */
    enum ctl_exit status;

    progress_stage(load->options->json, "moving", PROGRESS_COUNT, 0);
    status = load_run(load, size, in_flight, figures);
    progress_end();
    if (any(figures)) {
        if (load->options->json) {
            json_array_append_new(results, tell_json(figures));
        } else {
            tell_figures(figures);
        }
    }
    free(figures);
    return status;
}

static enum ctl_exit measure_all(struct load *load, json_t *results)
{
    const struct options *options = load->options;
    enum ctl_exit status = CTL_OK;

    for (size_t i = 0; i < options->sizes.count; i++) {
        for (size_t j = 0; j < options->in_flight.count && status == CTL_OK && !interrupt_seen(); j++) {
            status = measure(load, options->sizes.values[i], options->in_flight.values[j], results);
        }
    }
    return status;
}

enum ctl_exit command_bench(const struct options *options)
{
    json_t *results = need_memory(json_array());
    enum ctl_exit status, closed;
    struct load load;

    interrupt_defer();
    warn(options);
    status = load_open(options, &load);
    if (status == CTL_OK) {
        if (!options->json) {
            tell_heading();
        }
        status = measure_all(&load, results);
    }
    closed = load_close(&load);
    if (options->json) {
        print_json(need_memory(json_pack("{s:I,s:b,s:O}", "mix", (json_int_t)options->mix, "verify", options->verify,
                                         "results", results)));
    }
    json_decref(results);
    fflush(stdout);
    interrupt_obey();
    return status != CTL_OK ? status : closed;
}
