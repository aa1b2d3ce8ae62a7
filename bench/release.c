/*
 * How soon memory comes back when a client dies: from SIGKILL to the moment when the daemon has given up its
 * registrations, mapping and descriptor. See docs/benchmarks.md.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/admin.h"
#include "bench/figures.h"
#include "bench/servers.h"
#include "glide-rdmad.h"

#define CONNECTIONS 2
#define RUNS_MAX 999
#define WAIT_US 60e6

static const uint64_t sizes[] = {1u << 20, 64u << 20, 1u << 30};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct options {
    const char *module, *daemon;
    unsigned runs;
    bool json;
};

/* --- the client that dies ----------------------------------------------------------------------------------------- */

/* Its memory is registered, and a lane has used it; nothing is in flight. */
static bool hold_memory(const char *socket_path, uint64_t size)
{
    struct grd_connect_options options = {.struct_size = sizeof(options), .socket_path = socket_path};
    struct grd_error error = {0};
    struct grd_receipt receipt;
    grd_client *client;
    grd_region *region;

    if (grd_connect(&options, &client, &error) != 0 || grd_region_create(client, size, NULL, &region, &error) != 0 ||
        grd_set("value", 5, (struct grd_window){region, 0, 4096}, NULL, &receipt, &error) != 0) {
        fprintf(stderr, "the client: %s\n", error.message);
        return false;
    }
    return true;
}

static pid_t start_client(const char *socket_path, uint64_t size)
{
    int ready[2];
    char byte;
    pid_t pid;

    if (pipe(ready) != 0) {
        return -1;
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!hold_memory(socket_path, size) || write(ready[1], "r", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    if (pid > 0 && read(ready[0], &byte, 1) != 1) {
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    close(ready[0]);
    return pid;
}

/* --- the operator that watches ------------------------------------------------------------------------------------ */

/* Arenas that the daemon has; -1: no answer. */
static long long arenas(int admin)
{
    json_t *status = admin_ask(admin, "status");
    json_int_t count = -1;

    if (status == NULL || json_unpack(status, "{s:{s:I}}", "memory", "arenas", &count) != 0) {
        count = -1;
    }
    json_decref(status);
    return count;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static bool run(const struct servers *servers, int admin, uint64_t size, double *taken_us)
{
    pid_t pid = start_client(servers->socket_path, size);
    double begin = now_us();
    long long left;

    if (pid < 0 || arenas(admin) != 1) {
        fprintf(stderr, "the client's memory is not registered\n");
        return false;
    }
    begin = now_us();
    kill(pid, SIGKILL);
    do {
        left = arenas(admin);
        *taken_us = now_us() - begin;
    } while (left > 0 && *taken_us < WAIT_US);
    waitpid(pid, NULL, 0);
    if (left != 0) {
        fprintf(stderr, "the memory did not come back\n");
    }
    return left == 0;
}

static bool measure(const struct options *options, const struct servers *servers, int admin, uint64_t size, bool first)
{
    double taken[RUNS_MAX];

    for (unsigned i = 0; i < options->runs; i++) {
        if (!run(servers, admin, size, &taken[i])) {
            return false;
        }
    }
    double p50 = percentile(taken, options->runs, 0.5), most = percentile(taken, options->runs, 1);
    if (options->json) {
        printf("%s{\"bytes\":%llu,\"p50_us\":%.0f,\"max_us\":%.0f,\"runs\":%u}", first ? "" : ",\n",
               (unsigned long long)size, p50, most, options->runs);
    } else {
        printf("%12llu %10.0f %10.0f %6u\n", (unsigned long long)size, p50, most, options->runs);
    }
    fflush(stdout);
    return true;
}

static bool measure_all(const struct options *options, const struct servers *servers)
{
    int admin = admin_connect(servers);
    bool good = admin >= 0;

    if (options->json) {
        printf("{\"results\":[\n");
    } else {
        printf("%12s %10s %10s %6s\n", "bytes", "p50 us", "max us", "runs");
    }
    for (size_t i = 0; good && i < SIZES; i++) {
        good = measure(options, servers, admin, sizes[i], i == 0);
    }
    if (options->json) {
        printf("]}\n");
    }
    if (admin >= 0) {
        close(admin);
    }
    return good;
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option list[] = {{"module", required_argument, NULL, 'm'},
                                         {"daemon", required_argument, NULL, 'd'},
                                         {"runs", required_argument, NULL, 'r'},
                                         {"json", no_argument, NULL, 'j'},
                                         {NULL, 0, NULL, 0}};
    int option;

    *options = (struct options){.runs = 21};
    while ((option = getopt_long(argc, argv, "", list, NULL)) != -1) {
        if (option == 'm') {
            options->module = optarg;
        } else if (option == 'd') {
            options->daemon = optarg;
        } else if (option == 'r') {
            options->runs = (unsigned)strtoul(optarg, NULL, 10);
        } else if (option == 'j') {
            options->json = true;
        } else {
            return -1;
        }
    }
    return options->module != NULL && options->daemon != NULL && options->runs >= 1 && options->runs <= RUNS_MAX ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct options options;
    struct servers servers;
    bool good;

    if (parse(argc, argv, &options) != 0) {
        fprintf(stderr, "Usage: bench-release --module LARGEOBJ.SO --daemon GLIDE-RDMAD [--runs 21] [--json]\n");
        return 64;
    }
    good = servers_start(&servers, options.module, options.daemon, CONNECTIONS) && measure_all(&options, &servers);
    servers_stop(&servers);
    return good ? 0 : 1;
}
