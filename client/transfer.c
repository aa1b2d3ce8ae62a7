/*
 * A transfer in its steps, and the two functions that do all of them in the thread that calls.
 */
#include <string.h>

#include "client/private.h"
#include "client/queue.h"
#include "proto/shape.h"

static int check_key(const void *key, size_t length, struct grd_error *error)
{
    if (key == NULL || length == 0) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "the key is empty");
    }
    if (length > PROTO_KEY_BYTES) {
        return error_set(error, GRD_ERR_TOO_LARGE, "the key has %zu bytes, at most %d are allowed", length,
                         PROTO_KEY_BYTES);
    }
    return 0;
}

static int check_window(const struct grd_window *window, bool writes, struct grd_error *error)
{
    const grd_region *region = window->region;

    if (region == NULL) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "the window has no region");
    }
    if (client_forked(region->client)) {
        return error_set(error, GRD_ERR_FORKED,
                         "this process was forked from the one that registered the region; connect and register in "
                         "it, after the fork");
    }
    if (!window_inside(window->offset, window->length, region->size)) {
        return error_set(error, GRD_ERR_OUT_OF_RANGE,
                         "no window of %llu bytes at offset %llu in a region of %llu bytes",
                         (unsigned long long)window->length, (unsigned long long)window->offset,
                         (unsigned long long)region->size);
    }
    if (writes && region->access == GRD_ACCESS_READ) {
        return error_set(error, GRD_ERR_DENIED, "the region was registered with GRD_ACCESS_READ");
    }
    return 0;
}

int transfer_check(const struct transfer *transfer, const void *key, size_t key_length, struct grd_error *error)
{
    int code = check_key(key, key_length, error);

    if (code == 0) {
        code = check_window(&transfer->window, transfer->writes, error);
    }
    if (code == 0 && (unsigned)transfer->checksum > GRD_CHECKSUM_KNOWN) {
        code = error_set(error, GRD_ERR_INVALID_ARGUMENT, "checksum mode %d is not known", (int)transfer->checksum);
    }
    if (code == 0 && transfer->deadline_ms > PROTO_TIME_MS_MAX) {
        code = error_set(error, GRD_ERR_INVALID_ARGUMENT, "a deadline of %llu ms is longer than 30 days",
                         (unsigned long long)transfer->deadline_ms);
    }
    if (code == 0 && transfer->ttl_ms > PROTO_TTL_MS_MAX) {
        code = error_set(error, GRD_ERR_INVALID_ARGUMENT, "a time to live of %llu ms is longer than 100 years",
                         (unsigned long long)transfer->ttl_ms);
    }
    return code;
}

/* Refuses what can be refused before a byte of the window is looked at. */
int transfer_begin(struct transfer *transfer, struct grd_error *error)
{
    grd_region *region = transfer->window.region;
    grd_client *client = region->client;

    if (region->lost) {
        return error_set(error, GRD_ERR_CLOSED, "the daemon closed (revoked) the region: %s", region->lost_reason);
    }
    if (region->closing) {
        return error_set(error, GRD_ERR_CLOSED, "the region is being closed");
    }
    if (client->state != SESSION_OPEN && !client->reconnects) {
        return session_error(client, error);
    }
    if (!windows_try_lock(&region->uses, &transfer->use, transfer->window.offset, transfer->window.length,
                          transfer->writes)) {
        return error_set(error, GRD_ERR_OVERLAP, "the window [%llu, +%llu) overlaps one of a transfer in flight%s",
                         (unsigned long long)transfer->window.offset, (unsigned long long)transfer->window.length,
                         transfer->writes ? "" : " that writes it");
    }
    transfer->region_id = region->id;
    return 0;
}

void transfer_end(struct transfer *transfer)
{
    windows_unlock(&transfer->use);
}

enum proto_method_id transfer_method(const struct transfer *transfer)
{
    return transfer->writes ? PROTO_METHOD_TRANSFER_GET : PROTO_METHOD_TRANSFER_SET;
}

static int checksum_window(const struct grd_window *window, uint64_t length, uint32_t *crc32c,
                           struct grd_error *error)
{
    const unsigned char *bytes = region_bytes(window->region, error);

    if (bytes == NULL) {
        return GRD_ERR_NO_MEMORY;
    }
    *crc32c = grd_checksum(bytes + window->offset, length);
    return 0;
}

static enum grd_path path_from(const char *name)
{
    if (name == NULL) {
        return GRD_PATH_UNKNOWN;
    }
    return strcmp(name, "rdma") == 0 ? GRD_PATH_RDMA : strcmp(name, "tcp") == 0 ? GRD_PATH_TCP : GRD_PATH_UNKNOWN;
}

static json_t *encode_set(const struct transfer *transfer, const struct proto_key *key)
{
    struct proto_set_params params = {
        .region = transfer->region_id,
        .offset = transfer->window.offset,
        .length = transfer->window.length,
        .key = *key,
        .has_crc32c = transfer->checksum != GRD_CHECKSUM_NONE,
        .crc32c = transfer->checksum != GRD_CHECKSUM_NONE ? transfer->crc32c : 0,
        .has_ttl_ms = transfer->ttl_ms != 0,
        .ttl_ms = transfer->ttl_ms,
        .has_deadline_ms = transfer->deadline_ms != 0,
        .deadline_ms = transfer->deadline_ms,
    };

    return proto_shape_encode(proto_methods[PROTO_METHOD_TRANSFER_SET].params, &params);
}

static json_t *encode_get(const struct transfer *transfer, const struct proto_key *key)
{
    struct proto_get_params params = {
        .region = transfer->region_id,
        .offset = transfer->window.offset,
        .length = transfer->window.length,
        .key = *key,
        .has_deadline_ms = transfer->deadline_ms != 0,
        .deadline_ms = transfer->deadline_ms,
        .retry = !transfer->no_retry,
    };

    return proto_shape_encode(proto_methods[PROTO_METHOD_TRANSFER_GET].params, &params);
}

int transfer_encode(struct transfer *transfer, const void *key, size_t key_length, json_t **json,
                    struct grd_error *error)
{
    union {
        const void *in;
        uint8_t *out; /* encoding only reads */
    } bytes = {.in = key};
    struct proto_key name = {.data = bytes.out, .length = key_length};

    *json = NULL;
    if (!transfer->writes && transfer->checksum == GRD_CHECKSUM_COMPUTE) {
        int code = checksum_window(&transfer->window, transfer->window.length, &transfer->crc32c, error);

        if (code != 0) {
            return code;
        }
    }
    *json = transfer->writes ? encode_get(transfer, &name) : encode_set(transfer, &name);
    return *json != NULL ? 0 : error_set(error, GRD_ERR_NO_MEMORY, "no memory for a request");
}

/* The daemon also tells of one that its policy asked for. */
static enum grd_ttl ttl_from(const struct transfer *transfer, enum proto_tristate applied)
{
    if (transfer->ttl_ms == 0 && applied == PROTO_ABSENT) {
        return GRD_TTL_NOT_ASKED;
    }
    return applied == PROTO_TRUE ? GRD_TTL_APPLIED : applied == PROTO_FALSE ? GRD_TTL_NOT_APPLIED : GRD_TTL_UNKNOWN;
}

/* Compares the bytes that came with the server's checksum; the window is still locked. */
static int verify(const struct grd_window *window, struct grd_receipt *receipt, struct grd_error *error)
{
    uint32_t crc32c;
    int code = checksum_window(window, receipt->length, &crc32c, error);

    if (code != 0) {
        return code;
    }
    if (crc32c != receipt->crc32c) {
        return error_set(error, GRD_ERR_CHECKSUM,
                         "checksum mismatch over %llu bytes: expected 0x%08x, got 0x%08x; do not use the window",
                         (unsigned long long)receipt->length, (unsigned)receipt->crc32c, (unsigned)crc32c);
    }
    receipt->verified = true;
    return 0;
}

union transfer_result {
    struct proto_set_result set;
    struct proto_get_result get;
};

static void read_set(const struct transfer *transfer, const struct proto_set_result *result,
                     struct grd_receipt *receipt)
{
    bool checked = transfer->checksum != GRD_CHECKSUM_NONE;

    *receipt = (struct grd_receipt){
        .found = true,
        .has_crc32c = checked,
        .verified = checked,
        .crc32c = checked ? transfer->crc32c : 0,
        .path = path_from(result->path),
        .ttl = ttl_from(transfer, result->ttl_applied),
        .length = transfer->window.length,
    };
}

static int read_get(const struct transfer *transfer, const struct proto_get_result *result,
                    struct grd_receipt *receipt, struct grd_error *error)
{
    if (!result->found) {
        return 0;
    }
    *receipt = (struct grd_receipt){
        .found = true,
        .has_crc32c = result->has_crc32c,
        .crc32c = (uint32_t)result->crc32c,
        .path = path_from(result->path),
        .length = result->length,
    };
    if (receipt->length > transfer->window.length) {
        return error_set(error, GRD_ERR_PROTOCOL, "the daemon reports %llu bytes in a window of %llu",
                         (unsigned long long)receipt->length, (unsigned long long)transfer->window.length);
    }
    return receipt->has_crc32c && !transfer->no_verify ? verify(&transfer->window, receipt, error) : 0;
}

/* What grd_close() has cancelled, or taken the region from, ends with its code. */
static int closed_instead(grd_client *client, int code, struct grd_error *error)
{
    bool may_have_run = error->may_have_run;

    pthread_mutex_lock(&client->lock);
    if (client->closing) {
        code = error_set(error, GRD_ERR_CLOSED, "the client was closed");
        error->may_have_run = may_have_run;
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

/* Reads a result, or takes the code that there is instead. */
static int finish(const struct transfer *transfer, int code, union transfer_result *result, bool cancelled,
                  struct grd_receipt *receipt, struct grd_error *error)
{
    grd_client *client = transfer->window.region->client;

    *receipt = (struct grd_receipt){0};
    if (code == 0) {
        if (transfer->writes) {
            code = read_get(transfer, &result->get, receipt, error);
        } else {
            read_set(transfer, &result->set, receipt);
        }
        call_free_result(transfer_method(transfer), result);
    }
    if (code == GRD_ERR_NO_REGION || (code == GRD_ERR_CANCELLED && !cancelled)) {
        code = closed_instead(client, code, error);
    }
    if (code != 0) {
        *receipt = (struct grd_receipt){0};
    }
    return code;
}

int transfer_complete(const struct transfer *transfer, struct call *call, bool cancelled, struct grd_receipt *receipt,
                      struct grd_error *error)
{
    union transfer_result result;
    int code = call_read(transfer->window.region->client, call, transfer_method(transfer), &result, error);

    return finish(transfer, code, &result, cancelled, receipt, error);
}

/* --- in one thread ----------------------------------------------------------------------------------------------- */

static int enter(struct transfer *transfer, struct grd_error *error)
{
    grd_client *client = transfer->window.region->client;
    int code;

    pthread_mutex_lock(&client->lock);
    code = client_enter_locked(client, error);
    if (code == 0) {
        code = transfer_begin(transfer, error);
        if (code != 0) {
            client_leave_locked(client);
        }
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

static void leave(struct transfer *transfer)
{
    grd_client *client = transfer->window.region->client;

    pthread_mutex_lock(&client->lock);
    transfer_end(transfer);
    client_leave_locked(client);
    pthread_mutex_unlock(&client->lock);
}

/* Every step, with a window that is locked. */
static int carry(struct transfer *transfer, const void *key, size_t key_length, struct grd_receipt *receipt,
                 struct grd_error *error)
{
    struct request request = {
        .method = transfer_method(transfer),
        .pass_fd = -1,
        .again = transfer->writes && !transfer->no_retry,
        .region = transfer->window.region,
        .deadline_ms = transfer->deadline_ms,
    };
    union transfer_result result;
    int code = transfer_encode(transfer, key, key_length, &request.params, error);

    if (code != 0) {
        return code;
    }
    code = call_run(transfer->window.region->client, &request, &result, error);
    json_decref(request.params);
    return finish(transfer, code, &result, false, receipt, error);
}

static int run(struct transfer *transfer, const void *key, size_t key_length, struct grd_receipt *receipt,
               struct grd_error *error)
{
    int code = transfer_check(transfer, key, key_length, error);

    if (code == 0) {
        code = enter(transfer, error);
    }
    if (code != 0) {
        return code;
    }
    code = carry(transfer, key, key_length, receipt, error);
    leave(transfer);
    return code;
}

int grd_set(const void *key, size_t key_length, struct grd_window window, const struct grd_set_options *options,
            struct grd_receipt *receipt, struct grd_error *error)
{
    struct transfer transfer = {
        .window = window,
        .checksum = OPTION(options, checksum, GRD_CHECKSUM_NONE),
        .crc32c = OPTION(options, crc32c, 0),
        .deadline_ms = OPTION(options, deadline_ms, 0),
        .ttl_ms = OPTION(options, ttl_ms, 0),
    };
    struct grd_receipt got = {0};
    struct grd_error own;
    int code;

    error = error != NULL ? error : &own;
    error_clear(error);
    if (options != NULL && options->struct_size < sizeof(size_t)) {
        code = error_set(error, GRD_ERR_INVALID_ARGUMENT, "struct_size of the options is not set");
    } else {
        code = run(&transfer, key, key_length, &got, error);
    }
    if (receipt != NULL) {
        *receipt = got;
    }
    return code;
}

int grd_get(const void *key, size_t key_length, struct grd_window window, const struct grd_get_options *options,
            struct grd_receipt *receipt, struct grd_error *error)
{
    struct transfer transfer = {
        .writes = true,
        .window = window,
        .deadline_ms = OPTION(options, deadline_ms, 0),
        .no_verify = OPTION(options, no_verify, false),
        .no_retry = OPTION(options, no_retry, false),
    };
    struct grd_error own;

    error = error != NULL ? error : &own;
    error_clear(error);
    if (receipt == NULL || (options != NULL && options->struct_size < sizeof(size_t))) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no place for the receipt, or options without struct_size");
    }
    *receipt = (struct grd_receipt){0};
    return run(&transfer, key, key_length, receipt, error);
}
