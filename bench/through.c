/*
 * Through the daemon: the library as an application uses it. One transfer in flight is a blocking call; several are a
 * queue that one thread submits to and reaps, or, with `blocking`, one blocked thread each.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/figures.h"
#include "bench/side.h"
#include "glide-rdmad.h"

struct through {
    grd_client *client;
    grd_region *region;
    grd_queue *queue;
    bool blocking;
};

struct job {
    struct through *through;
    const struct cell *cell;
    pthread_barrier_t *start;
    unsigned index, count;
    double *latencies_us;
    double began, ended;
    bool failed;
};

static size_t key_of(char key[32], const struct cell *cell, unsigned index)
{
    return (size_t)snprintf(key, 32, "bench:%zu:%u", cell->size, index);
}

static struct grd_window window_of(const struct through *through, const struct cell *cell, unsigned index)
{
    return (struct grd_window){through->region, (uint64_t)index * SIDE_SIZE, cell->size};
}

static bool complain(const struct grd_error *error)
{
    fprintf(stderr, "through the daemon: %s\n", error->message);
    return false;
}

/* --- blocking calls ----------------------------------------------------------------------------------------------- */

static bool transfer(const struct job *job)
{
    struct grd_window window = window_of(job->through, job->cell, job->index);
    struct grd_get_options get = {.struct_size = sizeof get, .no_verify = true};
    struct grd_receipt receipt;
    struct grd_error error = {0};
    char key[32];
    size_t length = key_of(key, job->cell, job->index);
    int status = job->cell->set ? grd_set(key, length, window, NULL, &receipt, &error)
                                : grd_get(key, length, window, &get, &receipt, &error);
    return status == 0 || complain(&error);
}

static void *run(void *argument)
{
    struct job *job = argument;
    pthread_barrier_wait(job->start);
    job->began = now_us();
    for (unsigned i = 0; i < job->count && !job->failed; i++) {
        double begin = now_us();
        job->failed = !transfer(job);
        job->latencies_us[i] = now_us() - begin;
    }
    job->ended = now_us();
    return NULL;
}

/* From the first start to the last end, seconds: making and joining threads is not the daemon's cost. */
static double duration(const struct job *jobs, unsigned count)
{
    double began = jobs[0].began, ended = jobs[0].ended;
    for (unsigned i = 1; i < count; i++) {
        began = jobs[i].began < began ? jobs[i].began : began;
        ended = jobs[i].ended > ended ? jobs[i].ended : ended;
    }
    return (ended - began) / 1e6;
}

static bool run_blocking(struct through *through, const struct cell *cell, struct measured *measured)
{
    pthread_t threads[SIDE_DEPTH];
    struct job jobs[SIDE_DEPTH];
    pthread_barrier_t start;
    bool good = true;
    double *at = measured->latencies_us + measured->used;
    pthread_barrier_init(&start, NULL, cell->depth);
    for (unsigned i = 0; i < cell->depth; i++) {
        unsigned share = cell->count / cell->depth + (i < cell->count % cell->depth ? 1 : 0);
        jobs[i] = (struct job){.through = through, .cell = cell, .start = &start, .index = i, .count = share,
                               .latencies_us = at};
        at += share;
        pthread_create(&threads[i], NULL, run, &jobs[i]);
    }
    for (unsigned i = 0; i < cell->depth; i++) {
        pthread_join(threads[i], NULL);
        good &= !jobs[i].failed;
    }
    measured->seconds = duration(jobs, cell->depth);
    measured->used += cell->count;
    pthread_barrier_destroy(&start);
    return good;
}

/* --- a queue ------------------------------------------------------------------------------------------------------ */

static bool submit(struct through *through, const struct cell *cell, unsigned index, double *started)
{
    char key[32];
    struct grd_error error = {0};
    struct grd_transfer transfer = {.struct_size = sizeof transfer,
                                    .operation = cell->set ? GRD_OPERATION_SET : GRD_OPERATION_GET,
                                    .no_verify = true,
                                    .key = key,
                                    .key_length = key_of(key, cell, index),
                                    .window = window_of(through, cell, index),
                                    .user_data = index};
    started[index] = now_us();
    return grd_submit(through->queue, &transfer, 1, NULL, &error) == 0 || complain(&error);
}

static bool run_queue(struct through *through, const struct cell *cell, struct measured *measured)
{
    struct grd_completion completions[SIDE_DEPTH];
    struct grd_error error = {0};
    double started[SIDE_DEPTH], begin = now_us();
    unsigned submitted = 0, done = 0;
    bool good = true;
    for (; good && submitted < cell->depth; submitted++)
        good = submit(through, cell, submitted, started);
    while (good && done < cell->count) {
        size_t count = 0;
        if (grd_reap(through->queue, completions, SIDE_DEPTH, -1, &count, &error) != 0)
            return complain(&error);
        for (size_t i = 0; good && i < count; i++) {
            unsigned index = (unsigned)completions[i].user_data;
            measured->latencies_us[measured->used++] = now_us() - started[index];
            done++;
            good = completions[i].code == 0 || complain(&completions[i].error);
            if (good && submitted < cell->count) {
                good = submit(through, cell, index, started);
                submitted++;
            }
        }
    }
    measured->seconds = (now_us() - begin) / 1e6;
    return good;
}

/* --- the side ----------------------------------------------------------------------------------------------------- */

struct through *through_start(const char *socket_path, bool blocking)
{
    struct grd_connect_options options = {.struct_size = sizeof options, .socket_path = socket_path};
    struct grd_error error = {0};
    struct through *through = calloc(1, sizeof *through);
    through->blocking = blocking;
    if (grd_connect(&options, &through->client, &error) != 0 ||
        grd_region_create(through->client, (uint64_t)SIDE_DEPTH * SIDE_SIZE, NULL, &through->region, &error) != 0 ||
        grd_queue_create(through->client, &through->queue, &error) != 0) {
        complain(&error);
        return NULL;
    }
    memset(grd_region_data(through->region), 0x5a, (size_t)SIDE_DEPTH * SIDE_SIZE);
    return through;
}

bool through_run(struct through *through, const struct cell *cell, struct measured *measured)
{
    bool blocking = through->blocking || cell->depth == 1;
    return blocking ? run_blocking(through, cell, measured) : run_queue(through, cell, measured);
}

void through_stop(struct through *through)
{
    grd_queue_close(through->queue);
    grd_region_close(through->region, NULL, NULL);
    grd_close(through->client);
    free(through);
}
