#include "client/ctl/bench/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/ctl/interrupt.h"
#include "client/ctl/keys.h"
#include "client/ctl/progress.h"
#include "client/ctl/report.h"

#define COMPLETIONS 64
#define LOOK_MS 100      /* how often a signal, or the end of the time, is looked for while nothing completes */
#define KEYS_AT_ONCE 256 /* deleted */

/* One measurement under way. */
struct run {
    struct load *load;
    struct figures *figures;
    uint64_t size;
    uint64_t mix;    /* percent of gets */
    uint64_t issued;
    uint64_t count;  /* 0: until `end` */
    uint64_t end;    /* ns */
    uint64_t next;   /* slot that is looked at first */
    bool measured;
    enum ctl_exit status;
};

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

static uint64_t most_of(const struct number_list *list)
{
    uint64_t most = 0;

    for (size_t i = 0; i < list->count; i++) {
        most = list->values[i] > most ? list->values[i] : most;
    }
    return most;
}

/* What the daemon would refuse, or let wait, would not be what was asked for. */
static enum ctl_exit check_limits(const struct load *load, uint64_t size, uint64_t in_flight)
{
    struct grd_client_info info = {.struct_size = sizeof(info)};

    grd_client_info(load->client, &info, NULL);
    if (in_flight > info.in_flight_max && info.in_flight_max > 0) {
        return options_misuse("--in-flight %" PRIu64 ": this user may have %" PRIu64 " transfers in progress",
                              in_flight, info.in_flight_max);
    }
    if (in_flight > info.requests_max && info.requests_max > 0) {
        return options_misuse("--in-flight %" PRIu64 ": a session may have %" PRIu64 " requests open", in_flight,
                              info.requests_max);
    }
    if (info.value_bytes_max > 0 && size > info.value_bytes_max) {
        return options_misuse("--size %" PRIu64 ": the server's largest value has %" PRIu64 " bytes", size,
                              info.value_bytes_max);
    }
    if (size > UINT64_MAX / in_flight || (info.region_bytes_max > 0 && size * in_flight > info.region_bytes_max)) {
        return options_misuse("%" PRIu64 " values of %" PRIu64 " bytes at once need more memory than the daemon's "
                              "[limits] region_bytes, %" PRIu64, in_flight, size, info.region_bytes_max);
    }
    return CTL_OK;
}

static void make_slots(struct load *load)
{
    uint64_t random = now_ns();

    if (getrandom(&random, sizeof(random), 0) < 0) {
        random ^= (uint64_t)time(NULL) << 20; /* no more than a part of a key */
    }
    load->slots = need_memory(calloc(load->slot_count, sizeof(*load->slots)));
    for (uint64_t i = 0; i < load->slot_count; i++) {
        snprintf(load->slots[i].key, LOAD_KEY_BYTES, "%sbench:%016" PRIx64 ":%" PRIu64, load->options->key_prefix,
                 random, i);
    }
}

/* Something that is not the same everywhere. */
static void fill(unsigned char *bytes, uint64_t length)
{
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);

    for (uint64_t at = 0; at + sizeof(state) <= length; at += sizeof(state)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(bytes + at, &state, sizeof(state));
    }
}

static enum ctl_exit failed(const struct grd_error *error)
{
    return report_error("bench", error);
}

enum ctl_exit load_open(const struct options *options, struct load *load)
{
    struct grd_region_options region = {.struct_size = sizeof(region), .label = "glide-rdmactl bench"};
    uint64_t size = most_of(&options->sizes);
    struct grd_error error;
    enum ctl_exit status;

    *load = (struct load){.options = options, .slot_count = most_of(&options->in_flight)};
    status = connect_client(options, &load->client);
    if (status == CTL_OK) {
        status = check_limits(load, size, load->slot_count);
    }
    if (status != CTL_OK) {
        return status;
    }
    make_slots(load);
    if (grd_queue_create(load->client, &load->queue, &error) != 0 ||
        grd_region_create(load->client, size * load->slot_count, &region, &load->region, &error) != 0) {
        return failed(&error);
    }
    fill(grd_region_data(load->region), size * load->slot_count);
    return CTL_OK;
}

/* --- measuring --------------------------------------------------------------------------------------------------- */

/* Exactly `mix` of a hundred, spread evenly. */
static bool get_is_due(const struct run *run)
{
    return (run->issued + 1) * run->mix / 100 > run->issued * run->mix / 100;
}

static bool may_issue(const struct run *run)
{
    if (run->status != CTL_OK || interrupt_seen()) {
        return false;
    }
    return run->count > 0 ? run->issued < run->count : now_ns() < run->end;
}

static uint64_t free_slot(struct run *run, uint64_t in_flight)
{
    while (run->load->slots[run->next % in_flight].busy) {
        run->next++;
    }
    return run->next++ % in_flight;
}

/* false: the daemon takes no more now, or the run is over. */
static bool issue(struct run *run, uint64_t at)
{
    struct load *load = run->load;
    struct slot *slot = &load->slots[at];
    bool get = get_is_due(run), verify = load->options->verify;
    struct grd_transfer transfer = {
        .struct_size = sizeof(transfer),
        .operation = get ? GRD_OPERATION_GET : GRD_OPERATION_SET,
        .checksum = !get && verify ? GRD_CHECKSUM_COMPUTE : GRD_CHECKSUM_NONE,
        .no_verify = !verify,
        .no_retry = true,
        .key = slot->key,
        .key_length = strlen(slot->key),
        .window = {load->region, at * run->size, run->size},
        .deadline_ms = load->options->deadline_ms,
        .user_data = at,
    };
    struct grd_error error;

    slot->submitted = now_ns();
    if (grd_submit(load->queue, &transfer, 1, NULL, &error) != 0) {
        if (error.code != GRD_ERR_BUSY || load->busy == 0) {
            run->status = failed(&error);
        }
        return false;
    }
    slot->busy = true;
    slot->stored |= !get;
    load->busy++;
    run->issued++;
    return true;
}

static void complete(struct run *run, const struct grd_completion *completion)
{
    struct slot *slot = &run->load->slots[completion->user_data];
    bool get = completion->operation == GRD_OPERATION_GET;
    struct kind_figures *kind = get ? &run->figures->get : &run->figures->set;
    uint64_t now = now_ns();

    slot->busy = false;
    run->load->busy--;
    if (completion->code != GRD_OK) {
        run->status = run->status == CTL_OK ? failed(&completion->error) : run->status;
    } else if (get && (!completion->receipt.found || completion->receipt.length != run->size)) {
        report("bench: a value that was stored is missing, or has another length: does the server evict keys?");
        run->status = CTL_DATA;
    } else if (get && run->load->options->verify && !completion->receipt.verified) {
        report("bench: --verify: the server states no checksum");
        run->status = CTL_DATA;
    } else if (run->measured) {
        kind->bytes += run->size;
        latency_add(&kind->latency, now - slot->submitted);
        progress_add(run->size);
    }
}

/* Some completions, or a moment without any. */
static void reap(struct run *run)
{
    struct grd_completion completions[COMPLETIONS];
    struct grd_error error;
    size_t count;

    if (grd_reap(run->load->queue, completions, COMPLETIONS, LOOK_MS, &count, &error) != 0) {
        run->status = failed(&error);
        run->load->busy = 0; /* none will come */
        return;
    }
    for (size_t i = 0; i < count; i++) {
        complete(run, &completions[i]);
    }
}

/* Keeps so many at work until no more are to be issued, and waits for the rest. */
static void work(struct run *run, uint64_t in_flight)
{
    struct load *load = run->load;

    for (;;) {
        bool more = may_issue(run);

        while (more && load->busy < in_flight) {
            more = issue(run, free_slot(run, in_flight)) && may_issue(run);
        }
        if (load->busy == 0) {
            return;
        }
        reap(run);
    }
}

enum ctl_exit load_run(struct load *load, uint64_t size, uint64_t in_flight, struct figures *figures)
{
    const struct options *options = load->options;
    struct run run = {.load = load, .figures = figures, .size = size, .count = in_flight};
    uint64_t began;

    *figures = (struct figures){.size = size, .in_flight = in_flight};
    /* Every key gets a value of this size, which also opens connections: that is not measured. */
    work(&run, in_flight);
    if (run.status != CTL_OK || interrupt_seen()) {
        return run.status;
    }
    began = now_ns();
    run = (struct run){.load = load, .figures = figures, .size = size, .mix = options->mix, .count = options->count,
                       .end = began + options->seconds * 1000000000, .measured = true};
    work(&run, in_flight);
    figures->elapsed = now_ns() - began;
    return run.status;
}

/* --- closing ----------------------------------------------------------------------------------------------------- */

static enum ctl_exit delete_keys(struct load *load)
{
    struct grd_key keys[KEYS_AT_ONCE];
    struct grd_key_result results[KEYS_AT_ONCE];
    struct grd_error error;
    size_t count = 0;

    for (uint64_t i = 0; i < load->slot_count; i++) {
        if (load->slots[i].stored) {
            keys[count++] = (struct grd_key){load->slots[i].key, strlen(load->slots[i].key)};
        }
        if (count == KEYS_AT_ONCE || (count > 0 && i + 1 == load->slot_count)) {
            if (grd_delete(load->client, keys, count, results, &error) != 0) {
                report("bench: keys that begin with %.*s could not be deleted: %s (%s)",
                       (int)(strrchr(load->slots[0].key, ':') - load->slots[0].key), load->slots[0].key, error.message,
                       error.name);
                return report_status(error.code);
            }
            count = 0;
        }
    }
    return CTL_OK;
}

enum ctl_exit load_close(struct load *load)
{
    enum ctl_exit status = CTL_OK;

    grd_queue_close(load->queue);
    if (load->slots != NULL) {
        status = delete_keys(load);
    }
    grd_region_close(load->region, NULL, NULL);
    grd_close(load->client);
    free(load->slots);
    return status;
}
