/*
 * The revocation check (docs/architecture.md, "Lanes", rule 1): a large get is cancelled while its bytes arrive;
 * when the cancel is answered the window is its owner's again, and no byte of it may change any more.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/doctor/doctor.h"
#include "client/ctl/doctor/watch.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/progress.h"
#include "client/ctl/text.h"

#define SMALLEST (UINT64_C(16) << 20) /* tried first; then twice as much, and so on */
#define TRIES 3                       /* of each size */
#define WATCH_MS 300

#define VALUE 0x5A    /* each byte of the value */
#define ORIGINAL 0xC3 /* of the window before */
#define CANARY 0x3C   /* of the window when it is its owner's again */

enum trial_end {
    TRIAL_MISSED, /* the get was over before it was taken back */
    TRIAL_CAUGHT, /* in mid-bytes; the finding is made */
    TRIAL_BROKEN, /* something else failed; the finding is made */
};

struct trial {
    struct doctor *doctor;
    struct finding *finding;
    grd_region *region;
    grd_queue *queue;
    uint64_t length;
};

/* What limits the size, other than --revocation-bytes. */
static uint64_t largest(const struct doctor *doctor)
{
    struct grd_client_info info = {.struct_size = sizeof(info)};
    uint64_t most = doctor->options->revocation_bytes;
    uint64_t limit = (uint64_t)json_integer_value(doctor_status(doctor, "memory", "limit_bytes"));
    uint64_t used = (uint64_t)json_integer_value(doctor_status(doctor, "memory", "pinned_bytes"));

    grd_client_info(doctor->client, &info, NULL);
    if (info.region_bytes_max > 0 && info.region_bytes_max < most) {
        most = info.region_bytes_max;
    }
    if (info.value_bytes_max > 0 && info.value_bytes_max < most) {
        most = info.value_bytes_max;
    }
    if (limit > 0 && (used < limit ? limit - used : 0) < most) {
        most = used < limit ? limit - used : 0;
    }
    return most;
}

static enum trial_end broken(struct trial *trial, const char *what, const struct grd_error *error)
{
    found_error(trial->finding, what, error);
    advise(trial->finding, "see what was found before, and what the daemon logged: journalctl -u glide-rdmad");
    return TRIAL_BROKEN;
}

/* Waits for the first byte of the value. false: the get is over. */
static bool begun(struct trial *trial, struct grd_completion *completion)
{
    const volatile unsigned char *first = grd_region_data(trial->region);
    size_t count = 0;

    while (*first == ORIGINAL) {
        if (grd_reap(trial->queue, completion, 1, 0, &count, NULL) != 0 || count > 0) {
            return false;
        }
        sched_yield();
    }
    return true;
}

/* The window is ours: is it? */
static enum trial_end judge(struct trial *trial, const struct grd_completion *completion)
{
    unsigned char *bytes = grd_region_data(trial->region);
    uint64_t missing = watch_count(bytes, trial->length, ORIGINAL), changed;
    char size[TEXT_NUMBER_BYTES];

    text_bytes(size, trial->length);
    if (completion->error.memory_kept) {
        found(trial->finding, VERDICT_FAILED, "a get of %s was cancelled, and the device did not let go of its memory",
              size);
        advise(trial->finding, "the memory is quarantined until the daemon is restarted; see its log");
        return TRIAL_CAUGHT;
    }
    if (missing == 0) {
        return TRIAL_MISSED;
    }
    memset(bytes, CANARY, trial->length);
    changed = watch_changed(bytes, trial->length, CANARY, WATCH_MS);
    if (changed > 0) {
        found(trial->finding, VERDICT_FAILED, "a get of %s was cancelled and answered, and afterwards at least %" PRIu64
              " bytes of its window changed", size, changed);
        advise(trial->finding, "memory of programs is not safe on this fabric: stop the daemon, and report provider, "
                               "driver and libfabric versions");
        return TRIAL_CAUGHT;
    }
    found(trial->finding, VERDICT_OK, "a get of %s was cancelled when %.0f%% of it had come; within %d ms no byte "
          "of its window changed", size, 100.0 * (double)(trial->length - missing) / (double)trial->length, WATCH_MS);
    return TRIAL_CAUGHT;
}

static enum trial_end once(struct trial *trial)
{
    struct doctor *doctor = trial->doctor;
    struct grd_transfer transfer = {
        .struct_size = sizeof(transfer), .operation = GRD_OPERATION_GET, .no_verify = true, .no_retry = true,
        .key = doctor->key, .key_length = strlen(doctor->key), .window = {trial->region, 0, trial->length},
        .deadline_ms = doctor_answer_ms(doctor),
    };
    struct grd_completion completion = {.code = GRD_OK};
    struct grd_error error;
    size_t count = 0;

    memset(grd_region_data(trial->region), ORIGINAL, trial->length);
    if (grd_submit(trial->queue, &transfer, 1, NULL, &error) != 0) {
        return broken(trial, "a get cannot be submitted", &error);
    }
    if (begun(trial, &completion)) {
        grd_cancel(trial->queue, transfer.ticket, NULL);
    }
    while (completion.ticket == 0) {
        if (grd_reap(trial->queue, &completion, 1, -1, &count, &error) != 0) {
            return broken(trial, "the session ended", &error);
        }
    }
    if (completion.code == GRD_ERR_CANCELLED) {
        return judge(trial, &completion);
    }
    return completion.code == GRD_OK ? TRIAL_MISSED : broken(trial, "the get failed", &completion.error);
}

static enum trial_end store(struct trial *trial)
{
    struct doctor *doctor = trial->doctor;
    struct grd_set_options options = {.struct_size = sizeof(options), .deadline_ms = doctor_answer_ms(doctor),
                                      .ttl_ms = DOCTOR_TTL_MS};
    struct grd_error error;

    memset(grd_region_data(trial->region), VALUE, trial->length);
    doctor->stored = true;
    if (grd_set(doctor->key, strlen(doctor->key), (struct grd_window){trial->region, 0, trial->length}, &options, NULL,
                &error) != 0) {
        return broken(trial, "the value of the check cannot be stored", &error);
    }
    return TRIAL_MISSED;
}

/* One size. Where there is no memory for it, the reason is kept in the finding, and the end is TRIAL_BROKEN. */
static enum trial_end try_size(struct trial *trial)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .label = "glide-rdmactl doctor"};
    enum trial_end end;
    struct grd_error error;

    if (grd_region_create(trial->doctor->client, trial->length, &options, &trial->region, &error) != 0) {
        found(trial->finding, VERDICT_SKIPPED, "not measured: %" PRIu64 " bytes cannot be registered: %s (%s)",
              trial->length, error.message, error.name);
        return TRIAL_BROKEN;
    }
    progress_stage(trial->doctor->options->json, "taking a transfer back", PROGRESS_MOVING, trial->length);
    end = store(trial);
    for (int i = 0; i < TRIES && end == TRIAL_MISSED && !interrupt_seen(); i++) {
        end = once(trial);
    }
    grd_region_close(trial->region, NULL, NULL);
    return end;
}

static enum trial_end try_sizes(struct trial *trial, uint64_t most)
{
    enum trial_end end = TRIAL_MISSED;

    trial->length = SMALLEST < most ? SMALLEST : most;
    for (;;) {
        end = try_size(trial);
        if (end != TRIAL_MISSED || trial->length == most || interrupt_seen()) {
            return end;
        }
        trial->length = trial->length < most / 2 ? 2 * trial->length : most;
    }
}

void check_revocation(struct doctor *doctor, struct finding *finding)
{
    struct trial trial = {.doctor = doctor, .finding = finding};
    struct grd_error error;
    uint64_t most;

    if (doctor->options->quick || !doctor->session) {
        found(finding, VERDICT_SKIPPED, doctor->options->quick ? "--quick leaves it out"
                                                               : "needs a session with the server's module");
        return;
    }
    most = largest(doctor);
    if (most < DOCTOR_ROUND_TRIP_BYTES) {
        found(finding, VERDICT_SKIPPED, "not measured: limits or budget leave no room for a value of 1 MiB");
        return;
    }
    if (grd_queue_create(doctor->client, &trial.queue, &error) != 0) {
        found_error(finding, "a queue cannot be made", &error);
        return;
    }
    if (try_sizes(&trial, most) == TRIAL_MISSED) {
        char size[TEXT_NUMBER_BYTES];

        found(finding, VERDICT_SKIPPED, "not measured: gets of up to %s were over before they could be taken back; try "
              "a larger --revocation-bytes", text_bytes(size, trial.length));
    }
    grd_queue_close(trial.queue);
}
