/*
 * set and get: what goes over the wire, checksums and their verification, windows in use, answers out of order, regions
 * and their end. The scripted daemon writes into the memory through the descriptor that it was given, as a NIC would.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_fake.h"
#include "proto/errors.h"
#include "unit_main.h"

#define SIZE ((uint64_t)1 << 16)

static struct grd_window window_of(grd_region *region, uint64_t offset, uint64_t length)
{
    struct grd_window window;
    struct grd_error error;

    ck_assert_msg(grd_region_window(region, offset, length, &window, &error) == 0, "%s", error.message);
    return window;
}

/* --- a small honest daemon: one region, values by key "a", answers at once ---------------------------------------- */

struct store {
    char value[SIZE];
    uint64_t length;
    bool has_crc32c;
    uint32_t crc32c;       /* what a get reports; of the last set, if it sent one */
    json_int_t deadline_ms, ttl_ms; /* of the last transfer */
    bool retry;
    char access[8], label[32];
    bool populate;
    json_int_t size, offset; /* of the last registration */
};

static void serve_set(struct fake *fake, struct fake_request *request, struct store *store, int memory)
{
    json_t *crc32c = json_object_get(request->parsed.params, "crc32c");

    store->length = (uint64_t)fake_number(request, "length");
    if (pread(memory, store->value, store->length, fake_number(request, "offset")) != (ssize_t)store->length) {
        abort();
    }
    store->has_crc32c = crc32c != NULL;
    store->crc32c = (uint32_t)json_integer_value(crc32c);
    fake_answer(fake, request->parsed.id,
                store->ttl_ms > 0 ? json_pack("{s:s, s:b}", "path", "rdma", "ttl_applied", 1)
                                  : json_pack("{s:s}", "path", "rdma"));
}

static void serve_get(struct fake *fake, struct fake_request *request, struct store *store, int memory)
{
    json_t *result;

    if (strcmp(fake_text(request, "key"), "a") != 0) {
        fake_answer(fake, request->parsed.id, json_pack("{s:b, s:i}", "found", 0, "length", 0));
        return;
    }
    if (store->length > (uint64_t)fake_number(request, "length")) {
        fake_refuse(fake, request->parsed.id, PROTO_ERR_NEED_LARGER_WINDOW, "too small",
                    json_pack("{s:I}", "need", (json_int_t)store->length));
        return;
    }
    if (pwrite(memory, store->value, store->length, fake_number(request, "offset")) != (ssize_t)store->length) {
        abort();
    }
    result = json_pack("{s:b, s:I, s:s}", "found", 1, "length", (json_int_t)store->length, "path", "tcp");
    if (store->has_crc32c) {
        json_object_set_new(result, "crc32c", json_integer(store->crc32c));
    }
    fake_answer(fake, request->parsed.id, result);
}

static void serve_register(struct fake *fake, struct fake_request *request, struct store *store, int *memory)
{
    *memory = dup(fake->last_fd);
    store->size = fake_number(request, "size");
    store->offset = fake_number(request, "offset");
    snprintf(store->access, sizeof(store->access), "%s", fake_text(request, "access"));
    store->populate = json_is_true(json_object_get(request->parsed.params, "populate"));
    snprintf(store->label, sizeof(store->label), "%s",
             fake_text(request, "label") != NULL ? fake_text(request, "label") : "");
    fake_register(fake, request);
}

static void store_script(struct fake *fake)
{
    struct store *store = fake->argument;
    struct fake_request request = {0};
    int memory = -1;

    fake_greet(fake);
    while (fake_receive(fake, &request)) {
        store->deadline_ms = fake_number(&request, "deadline_ms");
        store->ttl_ms = fake_number(&request, "ttl_ms");
        store->retry = json_is_true(json_object_get(request.parsed.params, "retry"));
        if (fake_is(&request, PROTO_METHOD_REGION_REGISTER)) {
            serve_register(fake, &request, store, &memory);
        } else if (fake_is(&request, PROTO_METHOD_TRANSFER_SET)) {
            serve_set(fake, &request, store, memory);
        } else if (fake_is(&request, PROTO_METHOD_TRANSFER_GET)) {
            serve_get(fake, &request, store, memory);
        } else if (fake_is(&request, PROTO_METHOD_REGION_CLOSE)) {
            close(memory);
            fake_answer(fake, request.parsed.id, json_pack("{s:b}", "memory_released", 1));
        } else {
            abort();
        }
    }
}

START_TEST(set_and_get)
{
    static struct store store;
    struct grd_set_options compute = {.struct_size = sizeof(compute), .checksum = GRD_CHECKSUM_COMPUTE};
    struct grd_get_options options = {.struct_size = sizeof(options), .deadline_ms = 1234};
    struct grd_receipt receipt;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region;
    unsigned char *bytes;
    bool released = false;

    fake_start(&fake, store_script, &store);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE - 100); /* rounded up */
    ck_assert_uint_eq(grd_region_size(region), SIZE);
    bytes = grd_region_data(region);
    for (unsigned i = 0; i < 1000; i++) {
        bytes[100 + i] = (unsigned char)(i * 7);
    }
    ck_assert_int_eq(grd_set("a", 1, window_of(region, 100, 1000), &compute, &receipt, &error), 0);
    ck_assert(receipt.found && receipt.has_crc32c && receipt.verified);
    ck_assert_uint_eq(receipt.crc32c, grd_checksum(bytes + 100, 1000));
    ck_assert_uint_eq(store.crc32c, receipt.crc32c);
    ck_assert_int_eq(receipt.path, GRD_PATH_RDMA);
    ck_assert_int_eq(store.deadline_ms, 0);
    ck_assert_int_eq(receipt.ttl, GRD_TTL_NOT_ASKED);
    compute.ttl_ms = 5000;
    ck_assert_int_eq(grd_set("a", 1, window_of(region, 100, 1000), &compute, &receipt, &error), 0);
    ck_assert_int_eq(receipt.ttl, GRD_TTL_APPLIED);
    ck_assert_int_eq(store.ttl_ms, 5000);
    /* A program that was compiled before there was ttl_ms. */
    compute.struct_size = offsetof(struct grd_set_options, ttl_ms);
    ck_assert_int_eq(grd_set("a", 1, window_of(region, 100, 1000), &compute, &receipt, &error), 0);
    ck_assert_int_eq(store.ttl_ms, 0);

    ck_assert_int_eq(grd_get("a", 1, window_of(region, 5000, 2000), &options, &receipt, &error), 0);
    ck_assert(receipt.found && receipt.verified && receipt.has_crc32c);
    ck_assert_uint_eq(receipt.length, 1000);
    ck_assert_int_eq(receipt.path, GRD_PATH_TCP);
    ck_assert_int_eq(memcmp(bytes + 100, bytes + 5000, 1000), 0);
    ck_assert_int_eq(store.deadline_ms, 1234);
    ck_assert(store.retry);

    options.no_retry = true;
    ck_assert_int_eq(grd_get("b", 1, window_of(region, 0, 10), &options, &receipt, &error), 0);
    ck_assert(!receipt.found);
    ck_assert(!store.retry);
    ck_assert_uint_eq(receipt.length, 0);

    ck_assert_int_eq(grd_get("a", 1, window_of(region, 0, 999), NULL, &receipt, &error), GRD_ERR_NEED_LARGER_WINDOW);
    ck_assert_uint_eq(error.need, 1000);
    ck_assert_str_eq(error.name, "need_larger_window");
    ck_assert_int_eq(grd_region_close(region, &released, &error), 0);
    ck_assert(released);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

START_TEST(checksums)
{
    static struct store store;
    struct grd_set_options known = {.struct_size = sizeof(known), .checksum = GRD_CHECKSUM_KNOWN, .crc32c = 77};
    struct grd_get_options unverified = {.struct_size = sizeof(unverified), .no_verify = true};
    struct grd_receipt receipt;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region;
    struct grd_window window;

    fake_start(&fake, store_script, &store);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    window = window_of(region, 0, 64);
    ck_assert_int_eq(grd_set("a", 1, window, NULL, &receipt, &error), 0);
    ck_assert(!receipt.has_crc32c && !store.has_crc32c);
    /* Without a checksum of the server's nothing is verified, and that shows. */
    ck_assert_int_eq(grd_get("a", 1, window, NULL, &receipt, &error), 0);
    ck_assert(!receipt.has_crc32c && !receipt.verified);

    ck_assert_int_eq(grd_set("a", 1, window, &known, &receipt, &error), 0);
    ck_assert_uint_eq(store.crc32c, 77);
    ck_assert_int_eq(grd_get("a", 1, window, NULL, &receipt, &error), GRD_ERR_CHECKSUM);
    ck_assert(!receipt.found);
    ck_assert_ptr_nonnull(strstr(error.message, "expected 0x0000004d, got 0x"));
    ck_assert_int_eq(grd_get("a", 1, window, &unverified, &receipt, &error), 0);
    ck_assert(receipt.has_crc32c && !receipt.verified);
    ck_assert_uint_eq(receipt.crc32c, 77);
    /* The window is free again after each of them. */
    ck_assert_int_eq(grd_region_close(region, NULL, &error), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

START_TEST(registered_file)
{
    static struct store store;
    struct grd_region_options options = {.struct_size = sizeof(options), .label = "mine"};
    struct grd_set_options compute = {.struct_size = sizeof(compute), .checksum = GRD_CHECKSUM_COMPUTE};
    struct grd_receipt receipt;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region;
    char *own;
    int memfd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(ftruncate(memfd, (off_t)SIZE), 0);
    fake_start(&fake, store_script, &store);
    client = fake_connect(&fake);
    ck_assert_int_eq(grd_region_register(client, memfd, 0, 0, &options, &region, &error), GRD_ERR_BAD_FD);
    ck_assert_ptr_nonnull(strstr(error.message, "F_SEAL_SHRINK"));
    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK);
    options.access = GRD_ACCESS_READ;
    ck_assert_int_eq(grd_region_register(client, memfd, 4096, 0, &options, &region, &error), 0);
    ck_assert_int_eq(store.size, SIZE - 4096);
    ck_assert_int_eq(store.offset, 4096);
    ck_assert_str_eq(store.access, "r");
    ck_assert_str_eq(store.label, "mine");
    ck_assert_ptr_null(grd_region_data(region));
    ck_assert_int_ne(grd_region_fd(region), memfd);
    own = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    close(memfd);
    memcpy(own + 4096 + 16, "123456789", 9);
    ck_assert_int_eq(grd_set("a", 1, window_of(region, 16, 9), &compute, &receipt, &error), 0);
    ck_assert_uint_eq(receipt.crc32c, 0xE3069283);
    ck_assert_int_eq(grd_get("a", 1, window_of(region, 16, 9), NULL, &receipt, &error), GRD_ERR_DENIED);
    ck_assert_int_eq(grd_region_close(region, NULL, &error), 0);

    options.access = GRD_ACCESS_READ_WRITE;
    options.flags = GRD_REGION_MAP | GRD_REGION_POPULATE;
    memfd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(memfd, (off_t)SIZE), 0);
    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK);
    ck_assert_int_eq(grd_region_register(client, memfd, 0, SIZE, &options, &region, &error), 0);
    ck_assert_str_eq(store.access, "rw");
    ck_assert(!store.populate);
    strcpy(grd_region_data(region), "seen through the file");
    ck_assert_int_eq(pread(memfd, own, 32, 0), 32);
    ck_assert_str_eq(own, "seen through the file");
    ck_assert_int_eq(grd_region_close(region, NULL, &error), 0);

    options.flags = GRD_REGION_NO_POPULATE | GRD_REGION_DAEMON_POPULATES;
    ck_assert_int_eq(grd_region_create(client, SIZE, &options, &region, &error), 0);
    ck_assert(store.populate);
    ck_assert_int_eq(grd_region_close(region, NULL, &error), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* Nothing of these reaches the daemon: the script would abort on it. */
START_TEST(refused_here)
{
    static struct store store;
    static char key[GRD_KEY_BYTES_MAX + 1];
    struct grd_set_options bad_mode = {.struct_size = sizeof(bad_mode), .checksum = 9};
    struct grd_set_options late = {.struct_size = sizeof(late), .deadline_ms = UINT64_MAX};
    struct grd_region_options options = {.struct_size = sizeof(options), .flags = 0x4000};
    struct grd_window window, outside = {0};
    struct grd_receipt receipt;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region, *none;

    fake_start(&fake, store_script, &store);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    window = window_of(region, 0, GRD_WHOLE);
    ck_assert_uint_eq(window.length, SIZE);
    ck_assert_int_eq(grd_region_window(region, SIZE, GRD_WHOLE, &window, &error), GRD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(grd_region_window(region, 1, SIZE, &window, &error), GRD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(grd_region_window(region, 0, 0, &window, &error), GRD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(grd_region_window(region, 16, UINT64_MAX - 8, &window, &error), GRD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(grd_region_window(NULL, 0, 1, &window, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_set("a", 1, outside, NULL, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    outside = (struct grd_window){.region = region, .offset = UINT64_MAX, .length = 2};
    ck_assert_int_eq(grd_set("a", 1, outside, NULL, NULL, &error), GRD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(grd_set("", 0, window, NULL, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_set(NULL, 1, window, NULL, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_set(key, sizeof(key), window, NULL, NULL, &error), GRD_ERR_TOO_LARGE);
    ck_assert_int_eq(grd_set("a", 1, window, &bad_mode, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_set("a", 1, window, &late, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_get("a", 1, window, NULL, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_get("a", 1, outside, NULL, &receipt, NULL), GRD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(grd_region_create(client, 0, NULL, &none, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_region_create(client, UINT64_MAX, NULL, &none, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_region_create(client, SIZE, &options, &none, &error), GRD_ERR_INVALID_ARGUMENT);
    options.flags = 0;
    options.label = key; /* longer than a label may be */
    memset(key, 'k', sizeof(key) - 1);
    ck_assert_int_eq(grd_region_create(client, SIZE, &options, &none, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_region_close(NULL, NULL, NULL), 0);
    ck_assert_int_eq(grd_region_close(region, NULL, NULL), 0);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- several transfers at once ----------------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    struct grd_window window;
    bool get;
    char key[8];
    struct grd_receipt receipt;
    struct grd_error error;
};

static void *call(void *argument)
{
    struct caller *caller = argument;

    if (caller->get) {
        grd_get(caller->key, strlen(caller->key), caller->window, NULL, &caller->receipt, &caller->error);
    } else {
        grd_set(caller->key, strlen(caller->key), caller->window, NULL, &caller->receipt, &caller->error);
    }
    return NULL;
}

static void start(struct caller *caller, grd_region *region, uint64_t offset, bool get)
{
    *caller = (struct caller){.window = window_of(region, offset, 4096), .get = get};
    snprintf(caller->key, sizeof(caller->key), "k%llu", (unsigned long long)offset / 4096);
    ck_assert_int_eq(pthread_create(&caller->thread, NULL, call, caller), 0);
}

#define CALLS 8

struct order {
    _Atomic int received, release;
};

/* Takes all, then answers the last first; a get's length tells which request it belonged to. */
static void reverse_script(struct fake *fake)
{
    struct order *order = fake->argument;
    struct fake_request request = {0};
    int64_t ids[CALLS];
    json_int_t offsets[CALLS];

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    for (int i = 0; i < CALLS; i++) {
        fake_expect(fake, &request, PROTO_METHOD_TRANSFER_GET);
        ids[i] = request.parsed.id;
        offsets[i] = fake_number(&request, "offset");
        order->received++;
    }
    while (order->release == 0) {
        fake_sleep_ms(1);
    }
    for (int i = CALLS - 1; i >= 0; i--) {
        fake_answer(fake, ids[i], json_pack("{s:b, s:I}", "found", 1, "length", offsets[i] / 4096 + 1));
    }
    fake_expect(fake, &request, PROTO_METHOD_REGION_CLOSE);
    fake_refuse(fake, request.parsed.id, PROTO_ERR_BUSY, "another handle uses it", NULL);
    fake_expect(fake, &request, PROTO_METHOD_REGION_CLOSE);
    fake_answer(fake, request.parsed.id, json_pack("{s:b}", "memory_released", 0));
    while (fake_receive(fake, &request)) {
    }
}

START_TEST(answers_out_of_order)
{
    struct order order = {0};
    struct caller callers[CALLS];
    struct grd_receipt receipt;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region;
    bool released = true;

    fake_start(&fake, reverse_script, &order);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    for (unsigned i = 0; i < CALLS; i++) {
        start(&callers[i], region, i * 4096, true);
    }
    while (order.received < CALLS) {
        fake_sleep_ms(1);
    }
    /* While they are in flight: */
    ck_assert_int_eq(grd_get("x", 1, window_of(region, 4095, 2), NULL, &receipt, &error), GRD_ERR_OVERLAP);
    ck_assert_int_eq(grd_set("x", 1, window_of(region, 7 * 4096, 8192), NULL, NULL, &error), GRD_ERR_OVERLAP);
    ck_assert_int_eq(grd_region_close(region, NULL, &error), GRD_ERR_BUSY);
    order.release = 1;
    for (unsigned i = 0; i < CALLS; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].error.code, 0);
        ck_assert_uint_eq(callers[i].receipt.length, i + 1);
    }
    ck_assert_int_eq(grd_region_close(region, &released, &error), GRD_ERR_BUSY);
    ck_assert(!released);
    ck_assert_int_eq(grd_region_close(region, &released, &error), 0);
    ck_assert(!released);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- answers that break rules, and the region's end -------------------------------------------------------------- */

static void liar_script(struct fake *fake)
{
    struct fake_request request = {0};

    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_GET);
    fake_answer(fake, request.parsed.id, json_pack("{s:b, s:i, s:i}", "found", 1, "length", 4097, "crc32c", 1));
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_GET);
    fake_answer(fake, request.parsed.id, json_pack("{s:s}", "found", "perhaps"));
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_SET);
    fake_refuse(fake, request.parsed.id, -57, "something new", NULL);
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_SET);
    fake_refuse(fake, request.parsed.id, PROTO_ERR_LOST, "the connection broke", json_pack("{s:b}", "may_have_run", 1));
    fake_expect(fake, &request, PROTO_METHOD_TRANSFER_SET);
    fake_notify(fake, PROTO_NOTIFY_REGION_CLOSED,
                json_pack("{s:I, s:s, s:b}", "region", fake->next_region, "reason", "the device failed",
                          "memory_released", 0));
    fake_refuse(fake, request.parsed.id, PROTO_ERR_CANCELLED, "the region was closed", NULL);
    while (fake_receive(fake, &request)) {
        abort();
    }
}

START_TEST(odd_answers_and_a_lost_region)
{
    struct grd_receipt receipt;
    struct grd_error error;
    struct fake fake;
    grd_client *client;
    grd_region *region;
    struct grd_window window;
    bool released = true;

    fake_start(&fake, liar_script, NULL);
    client = fake_connect(&fake);
    region = fake_region(client, SIZE);
    window = window_of(region, 0, 4096);
    ck_assert_int_eq(grd_get("x", 1, window, NULL, &receipt, &error), GRD_ERR_PROTOCOL);
    ck_assert_int_eq(grd_get("x", 1, window, NULL, &receipt, &error), GRD_ERR_PROTOCOL);
    ck_assert_int_eq(grd_set("x", 1, window, NULL, NULL, &error), -57);
    ck_assert_str_eq(error.message, "something new");
    ck_assert_int_eq(grd_set("x", 1, window, NULL, NULL, &error), GRD_ERR_LOST);
    ck_assert(error.may_have_run);
    ck_assert_int_eq(grd_set("x", 1, window, NULL, NULL, &error), GRD_ERR_CANCELLED);
    ck_assert_int_eq(grd_set("x", 1, window, NULL, NULL, &error), GRD_ERR_CLOSED);
    ck_assert_ptr_nonnull(strstr(error.message, "the device failed"));
    ck_assert_int_eq(grd_region_close(region, &released, &error), 0);
    ck_assert(!released);
    grd_close(client);
    fake_stop(&fake);
}
END_TEST

UNIT_MAIN("client_transfer", set_and_get, checksums, registered_file, refused_here, answers_out_of_order,
          odd_answers_and_a_lost_region)
