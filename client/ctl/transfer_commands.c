/*
 * put and get: a file into a region and its value to the server, and back.
 */
#include <glide-rdmad.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/commands.h"
#include "client/ctl/growing.h"
#include "client/ctl/keys.h"
#include "client/ctl/progress.h"
#include "client/ctl/report.h"
#include "client/ctl/sink.h"
#include "client/ctl/source.h"
#include "client/ctl/text.h"

/* What is read or compared at once, between two signs of progress. */
#define PIECE ((uint64_t)4 << 20)

/* A value that grows faster than it can be fetched is given up after so many tries. */
#define GET_TRIES 8

/* One command at work. Zeroed; what it holds is released by the end of it. */
struct job {
    const struct options *options;
    struct grd_key key;
    grd_client *client;
    grd_region *region;
    uint64_t length;
    uint32_t crc_state; /* of what was read so far, as crc32_iscsi() has it */
    uint64_t transfer_us;
    struct grd_receipt receipt;
};

static uint64_t now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static uint32_t crc_update(uint32_t state, unsigned char *bytes, uint64_t length)
{
    return crc32_iscsi(bytes, (int)length, state);
}

static void stage(const struct job *job, const char *what, enum progress_kind kind, uint64_t bytes)
{
    progress_stage(job->options->quiet, what, kind, bytes);
}

static enum ctl_exit failed(const struct job *job, const struct grd_error *error)
{
    return report_error(job->options->command->name, error);
}

/* --- limits ------------------------------------------------------------------------------------------------------ */

/* The largest value that can be moved, and what says so. */
static uint64_t largest(const struct job *job, const char **limit)
{
    struct grd_client_info info = {.struct_size = sizeof(info)};
    uint64_t region = UINT64_MAX;

    grd_client_info(job->client, &info, NULL);
    *limit = "the daemon's [limits] region_bytes";
    region = info.region_bytes_max > 0 ? info.region_bytes_max : region;
    if (info.value_bytes_max > 0 && info.value_bytes_max < region) {
        *limit = "the Valkey server's maximum";
        return info.value_bytes_max;
    }
    return region;
}

/*
 * The daemon asks the server for its maximum with each hello, and tells the next one. A file that seems too large, or a
 * daemon that does not know yet, is worth a second hello; the lookup waits until the daemon has the server's answer.
 */
static enum ctl_exit know_limits(struct job *job, const struct source *source)
{
    struct grd_client_info info = {.struct_size = sizeof(info)};
    struct grd_key_result found;

    grd_client_info(job->client, &info, NULL);
    if (!source->known || (info.value_bytes_max > 0 && source->size <= info.value_bytes_max)) {
        return CTL_OK;
    }
    grd_exists(job->client, &job->key, 1, &found, NULL);
    grd_close(job->client);
    job->client = NULL;
    return connect_client(job->options, &job->client);
}

static enum ctl_exit over_limit(const char *what, uint64_t length, const char *limit, uint64_t most,
                                enum ctl_exit status)
{
    if (length > 0) {
        report("%s has %" PRIu64 " bytes; %s allows %" PRIu64, what, length, limit, most);
    } else {
        report("%s has more than %" PRIu64 " bytes, which is what %s allows", what, most, limit);
    }
    return status;
}

/* --- put --------------------------------------------------------------------------------------------------------- */

static enum ctl_exit nothing_to_store(const struct source *source)
{
    report("%s is empty: a value has at least one byte", source->name);
    return CTL_INPUT;
}

/* Errors that mean that the input is too large are the input's. */
static enum ctl_exit put_failed(const struct job *job, const struct source *source, const struct grd_error *error)
{
    if (error->code != GRD_ERR_TOO_LARGE && error->code != GRD_ERR_OVER_LIMIT) {
        return failed(job, error);
    }
    report("%s has %" PRIu64 " bytes, which is too much: %s (%s)", source->name, job->length, error->message,
           error->name);
    return CTL_INPUT;
}

/* Reads one piece, and adds it to the checksum while it is in the cache. */
static enum ctl_exit read_piece(struct job *job, struct source *source, unsigned char *to, uint64_t length,
                                uint64_t *got)
{
    enum ctl_exit status = source_read(source, to, length, got);

    if (status == CTL_OK && job->options->checksum) {
        job->crc_state = crc_update(job->crc_state, to, *got);
    }
    progress_add(*got);
    return status;
}

static enum ctl_exit read_region(struct job *job, struct source *source)
{
    unsigned char *bytes = grd_region_data(job->region), surplus;
    uint64_t at = 0, got = 1;
    enum ctl_exit status = CTL_OK;

    stage(job, "reading", PROGRESS_BAR, job->length);
    while (status == CTL_OK && at < job->length && got > 0) {
        status = read_piece(job, source, bytes + at, job->length - at < PIECE ? job->length - at : PIECE, &got);
        at += got;
    }
    if (status == CTL_OK) {
        status = source_read(source, &surplus, 1, &got);
    }
    if (status == CTL_OK && (at < job->length || got > 0)) {
        report("%s changed its size while it was read", source->name);
        return CTL_INPUT;
    }
    return status;
}

/* The memory is there, and registered, before the first byte is read. */
static enum ctl_exit load_known(struct job *job, struct source *source)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .access = GRD_ACCESS_READ, .label = "put"};
    const char *limit;
    uint64_t most = largest(job, &limit);
    struct grd_error error;

    job->length = source->size;
    if (source->size > most) {
        return over_limit(source->name, source->size, limit, most, CTL_INPUT);
    }
    stage(job, "preparing memory", PROGRESS_MOVING, job->length);
    if (grd_region_create(job->client, job->length, &options, &job->region, &error) != 0) {
        return put_failed(job, source, &error);
    }
    return read_region(job, source);
}

/* Reads to the end; one byte more than is allowed shows that there is too much. */
static enum ctl_exit read_growing(struct job *job, struct source *source, struct growing *memory)
{
    const char *limit;
    uint64_t most = largest(job, &limit), got = 1;
    enum ctl_exit status = CTL_OK;
    unsigned char surplus;

    stage(job, "reading", PROGRESS_COUNT, 0);
    while (status == CTL_OK && got > 0 && memory->used < most) {
        uint64_t room = memory->size - memory->used;

        if (room == 0) {
            status = growing_extend(memory, most);
            room = memory->size - memory->used;
        }
        if (status == CTL_OK) {
            status = read_piece(job, source, memory->bytes + memory->used, room < PIECE ? room : PIECE, &got);
            memory->used += got;
        }
    }
    if (status == CTL_OK && memory->used == most) {
        status = source_read(source, &surplus, 1, &got);
        if (status == CTL_OK && got > 0) {
            return over_limit(source->name, 0, limit, most, CTL_INPUT);
        }
    }
    return status == CTL_OK && memory->used == 0 ? nothing_to_store(source) : status;
}

static enum ctl_exit load_growing(struct job *job, struct source *source, struct growing *memory)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .access = GRD_ACCESS_READ, .label = "put"};
    struct grd_error error;
    enum ctl_exit status = read_growing(job, source, memory);

    if (status == CTL_OK) {
        status = growing_seal(memory);
    }
    if (status != CTL_OK) {
        return status;
    }
    job->length = memory->used;
    stage(job, "registering", PROGRESS_MOVING, job->length);
    if (grd_region_register(job->client, memory->fd, 0, job->length, &options, &job->region, &error) != 0) {
        return put_failed(job, source, &error);
    }
    return CTL_OK;
}

static enum ctl_exit load(struct job *job, struct source *source)
{
    struct growing memory;
    enum ctl_exit status;

    job->crc_state = ~0U;
    if (source->known) {
        return load_known(job, source);
    }
    status = growing_open(&memory);
    if (status == CTL_OK) {
        status = load_growing(job, source, &memory);
    }
    growing_close(&memory);
    return status;
}

static enum ctl_exit set(struct job *job, const struct source *source)
{
    struct grd_set_options options = {
        .struct_size = sizeof(options),
        .checksum = job->options->checksum ? GRD_CHECKSUM_KNOWN : GRD_CHECKSUM_NONE,
        .crc32c = ~job->crc_state,
        .deadline_ms = job->options->deadline_ms,
        .ttl_ms = job->options->ttl_ms,
    };
    struct grd_window window = {.region = job->region, .length = job->length};
    struct grd_error error;
    uint64_t start = now_us();

    stage(job, "storing", PROGRESS_MOVING, job->length);
    if (grd_set(job->key.data, job->key.length, window, &options, &job->receipt, &error) != 0) {
        return put_failed(job, source, &error);
    }
    job->transfer_us = now_us() - start;
    return CTL_OK;
}

/* The value is stored in any case. That it may stay for ever must not go unnoticed. */
static enum ctl_exit check_ttl(const struct job *job)
{
    if (job->receipt.ttl == GRD_TTL_NOT_ASKED || job->receipt.ttl == GRD_TTL_APPLIED) {
        return CTL_OK;
    }
    report("put: the value is stored, but %s", job->receipt.ttl == GRD_TTL_NOT_APPLIED
                                                   ? "the server did not take the time to live"
                                                   : "whether with its time to live is unknown");
    return job->receipt.ttl == GRD_TTL_NOT_APPLIED ? CTL_INTERNAL : CTL_UNAVAILABLE;
}

/* --- what came of it --------------------------------------------------------------------------------------------- */

static const char *path_name(enum grd_path path)
{
    return path == GRD_PATH_RDMA ? "rdma" : path == GRD_PATH_TCP ? "tcp" : "unknown";
}

static void print_receipt_json(const struct job *job)
{
    const struct grd_receipt *receipt = &job->receipt;
    json_t *object = key_json(&job->key);

    json_object_set_new(object, "found", json_boolean(receipt->found));
    if (receipt->found) {
        json_object_set_new(object, "length", json_integer((json_int_t)job->length));
        json_object_set_new(object, "path", json_string(path_name(receipt->path)));
        json_object_set_new(object, "verified", json_boolean(receipt->verified));
        json_object_set_new(object, "transfer_us", json_integer((json_int_t)job->transfer_us));
    }
    if (receipt->has_crc32c) {
        json_object_set_new(object, "crc32c", json_integer(receipt->crc32c));
    }
    if (receipt->ttl == GRD_TTL_APPLIED || receipt->ttl == GRD_TTL_NOT_APPLIED) {
        json_object_set_new(object, "ttl_applied", json_boolean(receipt->ttl == GRD_TTL_APPLIED));
    } else if (receipt->ttl != GRD_TTL_NOT_ASKED) {
        json_object_set_new(object, "ttl_applied", json_string("unknown"));
    }
    print_json(object);
}

static void print_receipt(const struct job *job, const char *did, const char *file)
{
    char size[TEXT_NUMBER_BYTES], time[TEXT_NUMBER_BYTES];
    char *key, *safe;

    progress_end();
    if (job->options->json) {
        print_receipt_json(job);
        return;
    }
    if (job->options->quiet) {
        return;
    }
    key = key_text(&job->key);
    safe = text_safe(file, strlen(file));
    printf("%s: %s %s, %" PRIu64 " bytes (%s) in %s, path %s, %s\n", key, did, safe, job->length,
           text_bytes(size, job->length), text_duration(time, job->transfer_us), path_name(job->receipt.path),
           job->receipt.verified ? "checksum verified" : "no checksum compared");
    free(key);
    free(safe);
}

static void end_job(struct job *job)
{
    progress_end();
    grd_region_close(job->region, NULL, NULL);
    grd_close(job->client);
    key_free(&job->key);
}

enum ctl_exit command_put(const struct options *options)
{
    struct job job = {.options = options};
    struct source source = {.fd = -1};
    enum ctl_exit status = key_parse(options, options->words[0], &job.key);

    if (status == CTL_OK) {
        status = source_open(&source, options->words[1]);
    }
    if (status == CTL_OK) {
        status = connect_client(options, &job.client);
    }
    if (status == CTL_OK) {
        status = know_limits(&job, &source);
    }
    if (status == CTL_OK) {
        status = load(&job, &source);
    }
    if (status == CTL_OK) {
        status = set(&job, &source);
    }
    if (status == CTL_OK) {
        print_receipt(&job, "stored", source.name);
        status = check_ttl(&job);
    }
    source_close(&source);
    end_job(&job);
    return status;
}

/* --- get --------------------------------------------------------------------------------------------------------- */

static enum ctl_exit missing(const struct job *job)
{
    char *key = key_text(&job->key);

    if (job->options->json) {
        print_receipt_json(job);
    } else if (!job->options->quiet) {
        report("%s: there is no such key", key);
    }
    free(key);
    return CTL_FALSE;
}

/* How large the value is now. */
static enum ctl_exit measure(struct job *job)
{
    struct grd_key_result result;
    struct grd_error error;

    if (grd_info(job->client, &job->key, 1, &result, &error) != 0) {
        return failed(job, &error);
    }
    job->length = result.length;
    return result.found ? CTL_OK : missing(job);
}

static enum ctl_exit make_region(struct job *job)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .label = "get"};
    const char *limit;
    uint64_t most = largest(job, &limit);
    struct grd_error error;

    grd_region_close(job->region, NULL, NULL);
    job->region = NULL;
    if (job->length > most) {
        return over_limit("the value", job->length, limit, most, CTL_DATA);
    }
    stage(job, "preparing memory", PROGRESS_MOVING, job->length);
    /* A value of no bytes needs a window all the same. */
    if (grd_region_create(job->client, job->length > 0 ? job->length : 1, &options, &job->region, &error) != 0) {
        return failed(job, &error);
    }
    return CTL_OK;
}

/* *larger: the value has grown to job->length, and needs another region. */
static enum ctl_exit fetch_once(struct job *job, bool *larger)
{
    /* Verified here, where it can be shown how far it is. */
    struct grd_get_options options = {
        .struct_size = sizeof(options),
        .no_verify = true,
        .deadline_ms = job->options->deadline_ms,
    };
    struct grd_window window = {.region = job->region, .length = grd_region_size(job->region)};
    struct grd_error error;
    uint64_t start = now_us();
    int code;

    stage(job, "fetching", PROGRESS_MOVING, job->length);
    code = grd_get(job->key.data, job->key.length, window, &options, &job->receipt, &error);
    job->transfer_us = now_us() - start;
    *larger = code == GRD_ERR_NEED_LARGER_WINDOW && error.need > window.length;
    if (*larger) {
        job->length = error.need;
        return CTL_OK;
    }
    if (code != 0) {
        return failed(job, &error);
    }
    job->length = job->receipt.length;
    return job->receipt.found ? CTL_OK : missing(job);
}

static enum ctl_exit fetch(struct job *job)
{
    bool larger = true;
    enum ctl_exit status = CTL_OK;

    for (unsigned tries = 0; status == CTL_OK && larger; tries++) {
        if (tries == GET_TRIES) {
            report("get: the value grew with each of %d tries", GET_TRIES);
            return CTL_AGAIN;
        }
        status = make_region(job);
        if (status == CTL_OK) {
            status = fetch_once(job, &larger);
        }
    }
    return status;
}

static enum ctl_exit verify(struct job *job)
{
    unsigned char *bytes = grd_region_data(job->region);
    uint32_t state = ~0U;

    if (!job->receipt.has_crc32c) {
        return CTL_OK;
    }
    stage(job, "verifying", PROGRESS_BAR, job->length);
    for (uint64_t at = 0; at < job->length; at += PIECE) {
        uint64_t piece = job->length - at < PIECE ? job->length - at : PIECE;

        state = crc_update(state, bytes + at, piece);
        progress_add(piece);
    }
    if (~state != job->receipt.crc32c) {
        report("get: the %" PRIu64 " bytes that came have the checksum 0x%08" PRIx32 ", but the server states "
               "0x%08" PRIx32 " (checksum_mismatch)", job->length, ~state, job->receipt.crc32c);
        return CTL_DATA;
    }
    job->receipt.verified = true;
    return CTL_OK;
}

static enum ctl_exit deliver(struct job *job, struct sink *sink)
{
    enum ctl_exit status;

    stage(job, "writing", PROGRESS_BAR, job->length);
    status = sink_write(sink, grd_region_data(job->region), job->length);
    return status == CTL_OK ? sink_commit(sink) : status;
}

/* The output can be created, or not, before the value is fetched. */
static enum ctl_exit get(struct job *job, struct sink *sink, const char *path)
{
    enum ctl_exit status = measure(job);

    if (status == CTL_OK) {
        status = sink_open(sink, path);
    }
    if (status == CTL_OK) {
        status = fetch(job);
    }
    if (status == CTL_OK) {
        status = verify(job);
    }
    if (status == CTL_OK) {
        status = deliver(job, sink);
    }
    return status;
}

enum ctl_exit command_get(const struct options *options)
{
    struct job job = {.options = options};
    struct sink sink = {.fd = -1};
    const char *path = options->words[1];
    bool to_output = sink_is_output(path);
    enum ctl_exit status;

    if (options->json && to_output) {
        return options_misuse("--json and the value cannot both go to standard output");
    }
    status = key_parse(options, options->words[0], &job.key);
    if (status == CTL_OK) {
        status = connect_client(options, &job.client);
    }
    if (status == CTL_OK) {
        status = get(&job, &sink, path);
    }
    sink_discard(&sink);
    if (status == CTL_OK && !to_output) {
        print_receipt(&job, "fetched to", path);
    }
    end_job(&job);
    return status;
}
