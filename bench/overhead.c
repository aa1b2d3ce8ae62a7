/*
 * What the daemon costs: the same transfers by a client in this process and through glide-rdmad, against the same
 * server, in alternating runs. See docs/benchmarks.md for what the figures mean.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "bench/servers.h"
#include "bench/side.h"

#define CONNECTIONS 8
#define RUNS_MAX 99

static const size_t sizes[] = {4u << 10, 64u << 10, 1u << 20, 16u << 20};
static const unsigned depths[] = {1, 4, 8};
#define SIZES (sizeof sizes / sizeof sizes[0])
#define DEPTHS (sizeof depths / sizeof depths[0])

struct options {
    const char *module, *daemon;
    unsigned runs;
    bool json;
    bool blocking;
};

struct pair {
    struct cell cell;
    struct measured direct, daemon;
    double ratios[RUNS_MAX], direct_gbps[RUNS_MAX], daemon_gbps[RUNS_MAX];
};

/* >= 2,000 samples a cell below 1 MiB, >= 100 from there on, over all runs. */
static unsigned samples_a_run(size_t size, unsigned runs)
{
    unsigned wanted = size < (1u << 20) ? 4900 : size < (16u << 20) ? 1400 : 224;
    return (wanted + runs - 1) / runs;
}

static double gbps(const struct pair *pair, double seconds)
{
    return (double)pair->cell.count * (double)pair->cell.size / seconds / 1e9;
}

/* One run of both sides; which one goes first alternates, so that neither always meets a warm or a cold machine. */
static bool run_pair(struct pair *pair, unsigned run, struct direct *direct, struct through *through)
{
    bool good = true;
    for (unsigned turn = 0; turn < 2 && good; turn++)
        good = (run + turn) % 2 == 0 ? direct_run(direct, &pair->cell, &pair->direct)
                                     : through_run(through, &pair->cell, &pair->daemon);
    if (!good)
        return false;
    pair->direct_gbps[run] = gbps(pair, pair->direct.seconds);
    pair->daemon_gbps[run] = gbps(pair, pair->daemon.seconds);
    pair->ratios[run] = pair->daemon_gbps[run] / pair->direct_gbps[run];
    return true;
}

static bool measure(struct pair *pair, const struct options *options, struct direct *direct, struct through *through)
{
    size_t samples = (size_t)pair->cell.count * options->runs;
    pair->direct.latencies_us = calloc(samples, sizeof(double));
    pair->daemon.latencies_us = calloc(samples, sizeof(double));
    for (unsigned run = 0; run < options->runs; run++)
        if (!run_pair(pair, run, direct, through))
            return false;
    return true;
}

static void print_pair(struct pair *pair, const struct options *options, bool first)
{
    const char *op = pair->cell.set ? "set" : "get";
    double d50 = percentile(pair->direct.latencies_us, pair->direct.used, 0.5);
    double d99 = percentile(pair->direct.latencies_us, pair->direct.used, 0.99);
    double t50 = percentile(pair->daemon.latencies_us, pair->daemon.used, 0.5);
    double t99 = percentile(pair->daemon.latencies_us, pair->daemon.used, 0.99);
    double ratio = percentile(pair->ratios, options->runs, 0.5);
    double low = pair->ratios[0], high = pair->ratios[options->runs - 1];
    double direct = percentile(pair->direct_gbps, options->runs, 0.5);
    double daemon = percentile(pair->daemon_gbps, options->runs, 0.5);
    if (options->json)
        printf("%s{\"op\":\"%s\",\"size\":%zu,\"depth\":%u,\"direct_p50_us\":%.1f,\"daemon_p50_us\":%.1f,"
               "\"direct_p99_us\":%.1f,\"daemon_p99_us\":%.1f,\"direct_gbps\":%.4f,\"daemon_gbps\":%.4f,"
               "\"ratio\":%.3f,\"ratio_min\":%.3f,\"ratio_max\":%.3f,\"samples\":%zu}",
               first ? "" : ",\n", op, pair->cell.size, pair->cell.depth, d50, t50, d99, t99, direct, daemon, ratio, low,
               high, pair->daemon.used);
    else
        printf("%-4s %9zu %5u %10.1f %10.1f %10.1f %10.1f %9.3f %9.3f %6.3f %6.3f %6.3f %7zu\n", op, pair->cell.size,
               pair->cell.depth, d50, t50, d99, t99, direct, daemon, ratio, low, high, pair->daemon.used);
    fflush(stdout);
}

/* On a terminal only; 0 of 0 clears it. */
static void progress(unsigned number, unsigned all)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (all > 0)
        fprintf(stderr, "\r%u of %u cells ", number, all);
    else
        fprintf(stderr, "\r                 \r");
}

static bool measure_all(const struct options *options, struct direct *direct, struct through *through)
{
    bool good = true;
    unsigned number = 0, all = (unsigned)(SIZES * DEPTHS * 2);
    if (options->json)
        printf("{\"unit\":{\"size\":\"bytes\",\"p50\":\"us\",\"p99\":\"us\",\"gbps\":\"10^9 bytes/s\"},\"results\":[\n");
    else
        printf("%-4s %9s %5s %10s %10s %10s %10s %9s %9s %6s %6s %6s %7s\n", "op", "bytes", "depth", "direct50us",
               "daemon50us", "direct99us", "daemon99us", "directGB", "daemonGB", "ratio", "min", "max", "samples");
    /* set before get of the same size: the values must be there */
    for (size_t i = 0; good && i < SIZES * 2; i++)
        for (size_t d = 0; good && d < DEPTHS; d++) {
            struct pair pair = {.cell = {.set = i % 2 == 0, .size = sizes[i / 2], .depth = depths[d]}};
            pair.cell.count = samples_a_run(pair.cell.size, options->runs);
            progress(++number, all);
            good = measure(&pair, options, direct, through);
            if (good)
                print_pair(&pair, options, number == 1);
            free(pair.direct.latencies_us);
            free(pair.daemon.latencies_us);
        }
    progress(0, 0);
    if (options->json)
        printf("]}\n");
    return good;
}

/* Every key of both sides once, at the largest depth: no cell meets a missing key or a lane that registers. */
static bool warm_up(struct direct *direct, struct through *through)
{
    double scratch[64];
    for (size_t i = 0; i < SIZES; i++)
        for (unsigned set = 2; set-- > 0;) {
            struct cell cell = {.set = set == 1, .size = sizes[i], .depth = SIDE_DEPTH, .count = 2 * SIDE_DEPTH};
            struct measured measured = {.latencies_us = scratch};
            if (!direct_run(direct, &cell, &measured) || !through_run(through, &cell, &measured))
                return false;
        }
    return true;
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option list[] = {{"module", required_argument, NULL, 'm'},
                                         {"daemon", required_argument, NULL, 'd'},
                                         {"runs", required_argument, NULL, 'r'},
                                         {"json", no_argument, NULL, 'j'},
                                         {"blocking", no_argument, NULL, 'b'},
                                         {NULL, 0, NULL, 0}};
    int option;
    *options = (struct options){.runs = 7};
    while ((option = getopt_long(argc, argv, "", list, NULL)) != -1) {
        if (option == 'm')
            options->module = optarg;
        else if (option == 'd')
            options->daemon = optarg;
        else if (option == 'r')
            options->runs = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'j')
            options->json = true;
        else if (option == 'b')
            options->blocking = true;
        else
            return -1;
    }
    if (options->module == NULL || options->daemon == NULL || options->runs < 1 || options->runs > RUNS_MAX) {
        fprintf(stderr, "Usage: bench-overhead --module LARGEOBJ.SO --daemon GLIDE-RDMAD [--runs 7] [--blocking] [--json]\n");
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options options;
    struct servers servers;
    if (parse(argc, argv, &options) != 0)
        return 64;
    servers_find_fabric_object(options.daemon);
    bool good = servers_start(&servers, options.module, options.daemon, CONNECTIONS);
    struct direct *direct = good ? direct_start(servers.address, CONNECTIONS) : NULL;
    struct through *through = direct != NULL ? through_start(servers.socket_path, options.blocking) : NULL;
    good = through != NULL && warm_up(direct, through) && measure_all(&options, direct, through);
    if (through != NULL)
        through_stop(through);
    if (direct != NULL)
        direct_stop(direct);
    servers_stop(&servers);
    return good ? 0 : 1;
}
