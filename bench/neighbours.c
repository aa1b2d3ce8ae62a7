/*
 * What other users of the daemon do to one client: 64 KiB gets, one at a time, alone and beside a neighbour, in
 * alternating runs. See docs/benchmarks.md for what the figures mean.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/beside_heavy.h"
#include "bench/figures.h"
#include "bench/hostile.h"
#include "bench/servers.h"
#include "bench/victim.h"

#define CONNECTIONS 8
#define SAMPLES 2400 /* a run */
#define RUNS_MAX 99

struct options {
    const char *module, *daemon, *scenario;
    unsigned runs;
    bool json;
};

static bool measure(const struct victim *victim, struct series *series, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (!victim_get(victim, series)) {
            return false;
        }
    }
    return true;
}

static bool run(const struct victim *victim, const struct servers *servers, struct series *series, bool beside)
{
    pid_t neighbour = beside ? hostile_start(servers->socket_path) : 0;
    bool good = neighbour >= 0 && measure(victim, series, SAMPLES);

    if (neighbour > 0) {
        hostile_stop(neighbour);
    }
    return good;
}

/* Largest resident memory so far, bytes. */
static uint64_t peak_memory(pid_t pid)
{
    char path[64], line[256];
    uint64_t kibibytes = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "VmHWM: %" SCNu64, &kibibytes);
    }
    if (file != NULL) {
        fclose(file);
    }
    return kibibytes * 1024;
}

static void print(const struct options *options, const struct servers *servers, struct series series[2])
{
    double p50[2], p99[2];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    for (int i = 0; i < 2; i++) {
        p50[i] = percentile(series[i].latencies_us, series[i].used, 0.5);
        p99[i] = percentile(series[i].latencies_us, series[i].used, 0.99);
    }
    printf(options->json
               ? "{\"p50_alone_us\":%.1f,\"p50_with_us\":%.1f,\"p99_alone_us\":%.1f,\"p99_with_us\":%.1f,"
                 "\"p99_ratio\":%.3f,\"daemon_rss_bytes\":%" PRIu64 ",\"cores\":%ld}\n"
               : "p50 alone %.1f us, with %.1f us; p99 alone %.1f us, with %.1f us (ratio %.3f)\n"
                 "the daemon's largest resident memory: %" PRIu64 " bytes; %ld cores\n",
           p50[0], p50[1], p99[0], p99[1], p99[1] / p99[0], peak_memory(servers->daemon), cores);
}

static bool measure_all(const struct options *options, const struct servers *servers, const struct victim *victim)
{
    struct series series[2] = {{0}, {0}}; /* alone, with */
    bool good = true;

    for (int i = 0; i < 2; i++) {
        series[i].latencies_us = calloc((size_t)options->runs * SAMPLES, sizeof(double));
    }
    good = measure(victim, &series[0], SAMPLES / 4); /* every lane is warm */
    series[0].used = 0;
    for (unsigned i = 0; good && i < 2 * options->runs; i++) {
        /* which one goes first alternates, so that neither always meets a warm or a cold machine */
        unsigned beside = (i + i / 2) % 2;

        if (isatty(STDERR_FILENO)) {
            fprintf(stderr, "\r%u of %u runs ", i + 1, 2 * options->runs);
        }
        good = run(victim, servers, &series[beside], beside == 1);
    }
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r                \r");
    }
    if (good) {
        print(options, servers, series);
    }
    free(series[0].latencies_us);
    free(series[1].latencies_us);
    return good;
}

static int usage(void)
{
    fprintf(stderr, "Usage: bench-neighbours --module LARGEOBJ.SO --daemon GLIDE-RDMAD [--scenario hostile|heavy] [--runs 5] "
                    "[--json]\n");
    return -1;
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option list[] = {{"module", required_argument, NULL, 'm'},
                                         {"daemon", required_argument, NULL, 'd'},
                                         {"scenario", required_argument, NULL, 's'},
                                         {"runs", required_argument, NULL, 'r'},
                                         {"json", no_argument, NULL, 'j'},
                                         {NULL, 0, NULL, 0}};
    int option;

    *options = (struct options){.runs = 5, .scenario = "hostile"};
    while ((option = getopt_long(argc, argv, "", list, NULL)) != -1) {
        switch (option) {
        case 'm':
            options->module = optarg;
            break;
        case 'd':
            options->daemon = optarg;
            break;
        case 's':
            options->scenario = optarg;
            break;
        case 'r':
            options->runs = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'j':
            options->json = true;
            break;
        default:
            return usage();
        }
    }
    if (options->module == NULL || options->daemon == NULL || options->runs < 1 || options->runs > RUNS_MAX ||
        (strcmp(options->scenario, "hostile") != 0 && strcmp(options->scenario, "heavy") != 0)) {
        return usage();
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options options;
    struct servers servers;
    struct victim victim = {0};
    bool good;

    if (parse(argc, argv, &options) != 0) {
        return 64;
    }
    good = servers_start(&servers, options.module, options.daemon, CONNECTIONS) &&
           victim_start(&victim, servers.socket_path) &&
           (strcmp(options.scenario, "heavy") == 0
                ? beside_heavy(&servers, &victim, options.runs, options.json)
                : measure_all(&options, &servers, &victim));
    victim_stop(&victim);
    servers_stop(&servers);
    return good ? 0 : 1;
}
