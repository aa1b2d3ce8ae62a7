#include "bench/beside_heavy.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/admin.h"
#include "bench/figures.h"
#include "bench/heavy.h"

#define RUN_US 3e6
#define QUIET_US 1500000 /* longer than the second for which a user counts as active */
#define GETS_MAX 200000  /* of the victim in a run */
#define BUCKETS 256
#define RUNS_MAX 99

/* Gets of the victim by the time from acceptance to sending, as the daemon counts them. */
struct waits {
    struct {
        uint64_t bound_us, count; /* bound 0: above all */
    } buckets[BUCKETS];
    size_t used;
};

struct figures {
    double alone[RUNS_MAX], beside[RUNS_MAX]; /* bytes a second, of both users */
    unsigned alone_count, beside_count;
    struct waits before, after; /* of the victim: the first reading and the last */
    struct series latencies;
};

/* --- the daemon's own figures ------------------------------------------------------------------------------------- */

static void note_buckets(struct waits *waits, const json_t *buckets)
{
    size_t i;
    const json_t *bucket;

    json_array_foreach (buckets, i, bucket) {
        if (waits->used < BUCKETS) {
            waits->buckets[waits->used].bound_us = (uint64_t)json_integer_value(json_array_get(bucket, 0));
            waits->buckets[waits->used++].count = (uint64_t)json_integer_value(json_array_get(bucket, 1));
        }
    }
}

static bool read_waits(int admin, struct waits *waits)
{
    json_t *result = admin_ask(admin, "users");
    const json_t *user;
    size_t i;

    waits->used = 0;
    json_array_foreach (json_object_get(result, "users"), i, user) {
        const char *socket = json_string_value(json_object_get(user, "socket"));
        if (socket != NULL && strcmp(socket, "bench") == 0 &&
            json_integer_value(json_object_get(user, "uid")) == (json_int_t)getuid()) {
            note_buckets(waits, json_object_get(json_object_get(user, "queue_us"), "buckets"));
        }
    }
    json_decref(result);
    if (waits->used == 0) {
        fprintf(stderr, "the daemon's list of users says nothing of the client that is measured\n");
    }
    return waits->used > 0;
}

static uint64_t count_of(const struct waits *waits, uint64_t bound_us)
{
    for (size_t i = 0; i < waits->used; i++) {
        if (waits->buckets[i].bound_us == bound_us) {
            return waits->buckets[i].count;
        }
    }
    return 0;
}

/* The bound of the bucket that holds the percentile of what was counted between the two; infinite: above all. */
static double waits_percentile(const struct waits *before, const struct waits *after, uint64_t percent)
{
    uint64_t all = 0, count = 0;

    for (size_t i = 0; i < after->used; i++) {
        all += after->buckets[i].count - count_of(before, after->buckets[i].bound_us);
    }
    for (size_t i = 0; i < after->used; i++) {
        count += after->buckets[i].count - count_of(before, after->buckets[i].bound_us);
        if (100 * count >= percent * all) {
            return after->buckets[i].bound_us > 0 ? (double)after->buckets[i].bound_us : 1e12;
        }
    }
    return 0;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* The heavy user alone: the other is not active any more. */
static void run_alone(const struct heavy *heavy, struct figures *figures)
{
    usleep(QUIET_US);
    uint64_t bytes = atomic_load(heavy->bytes);
    double begin = now_us();
    usleep((useconds_t)RUN_US);
    bytes = atomic_load(heavy->bytes) - bytes;
    figures->alone[figures->alone_count++] = (double)bytes * 1e6 / (now_us() - begin);
}

static bool run_beside(const struct heavy *heavy, const struct victim *victim, struct figures *figures)
{
    uint64_t bytes = atomic_load(heavy->bytes);
    double begin = now_us();

    while (now_us() - begin < RUN_US && figures->latencies.used < (size_t)GETS_MAX * figures->beside_count + GETS_MAX) {
        if (!victim_get(victim, &figures->latencies)) {
            return false;
        }
        bytes -= VICTIM_BYTES; /* below zero and back: both count */
    }
    bytes = atomic_load(heavy->bytes) - bytes;
    figures->beside[figures->beside_count++] = (double)bytes * 1e6 / (now_us() - begin);
    return true;
}

/* The victim becomes active, and a connection that is being kept has been released. */
static bool begin_beside(const struct victim *victim)
{
    double begin = now_us();

    while (now_us() - begin < 300e3) {
        if (!victim_get(victim, NULL)) {
            return false;
        }
    }
    return true;
}

static void print(const struct servers *servers, struct figures *figures, bool json)
{
    double alone = percentile(figures->alone, figures->alone_count, 0.5);
    double beside = percentile(figures->beside, figures->beside_count, 0.5);

    printf(json ? "{\"queue_p50_us\":%.0f,\"queue_p99_us\":%.0f,\"heavy_throughput_ratio\":%.3f,"
                  "\"total_p50_us\":%.1f,\"total_p99_us\":%.1f,\"chunk_bytes\":%" PRIu64 ",\"alone_gbps\":%.3f,\"with_gbps\":%.3f,\"gets\":%zu,\"runs\":%u,"
                  "\"cores\":%ld}\n"
                : "64 KiB gets beside 64 x 64 MiB: from acceptance to sending p50 %.0f us, p99 %.0f us\n"
                  "throughput of both over the heavy user's alone: %.3f\n"
                  "p50 of a whole get %.1f us, p99 %.1f us; the server moves %" PRIu64 " bytes at once\n"
                  "heavy user alone %.3f GB/s, with the other %.3f GB/s; %zu gets in %u runs; %ld cores\n",
           waits_percentile(&figures->before, &figures->after, 50),
           waits_percentile(&figures->before, &figures->after, 99), beside / alone,
           percentile(figures->latencies.latencies_us, figures->latencies.used, 0.5),
           percentile(figures->latencies.latencies_us, figures->latencies.used, 0.99), servers_chunk_bytes(servers),
           alone / 1e9, beside / 1e9, figures->latencies.used, figures->beside_count, sysconf(_SC_NPROCESSORS_ONLN));
}

static bool run_all(int admin, const struct heavy *heavy, const struct victim *victim, unsigned runs,
                    struct figures *figures)
{
    bool good = true;

    for (unsigned i = 0; good && i < runs; i++) {
        run_alone(heavy, figures);
        good = begin_beside(victim) && (i > 0 || read_waits(admin, &figures->before)) &&
               run_beside(heavy, victim, figures);
    }
    return good && read_waits(admin, &figures->after);
}

bool beside_heavy(const struct servers *servers, const struct victim *victim, unsigned runs, bool json)
{
    static struct figures figures;
    struct heavy heavy = {0};
    int admin = admin_connect(servers);
    bool good;

    figures.latencies.latencies_us = calloc((size_t)runs * GETS_MAX, sizeof(double));
    good = admin >= 0 && figures.latencies.latencies_us != NULL && heavy_start(&heavy, servers->socket_path) &&
           run_all(admin, &heavy, victim, runs, &figures);
    heavy_stop(&heavy);
    if (good) {
        print(servers, &figures, json);
    }
    free(figures.latencies.latencies_us);
    if (admin >= 0) {
        close(admin);
    }
    return good;
}
