#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/private.h"
#include "proto/shape.h"

/* The protocol's largest size, in whole pages of any size. */
#define SIZE_LARGEST (PROTO_SIZE_MAX & ~(((uint64_t)1 << 30) - 1))

#define ALL_FLAGS (GRD_REGION_NO_POPULATE | GRD_REGION_POPULATE | GRD_REGION_MAP | GRD_REGION_DAEMON_POPULATES)

/* From here on allocating the pages takes so long that a question before does not count. */
#define ASK_FIRST_BYTES ((uint64_t)256 << 20)

/* Where the memory of a new region comes from: a descriptor, or -1 for new memory. */
struct source {
    int memfd;
    uint64_t offset, size;
};

static int check_options(const struct grd_region_options *options, struct grd_error *error)
{
    enum grd_access access = OPTION(options, access, GRD_ACCESS_READ_WRITE);
    const char *label = OPTION(options, label, NULL);

    if (options != NULL && options->struct_size < sizeof(size_t)) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "struct_size of the options is not set");
    }
    if (access != GRD_ACCESS_READ_WRITE && access != GRD_ACCESS_READ) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "access %d is not known", (int)access);
    }
    if ((OPTION(options, flags, 0U) & ~(unsigned)ALL_FLAGS) != 0) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "flags %#x are not known", options->flags);
    }
    if (label != NULL && strlen(label) > PROTO_TEXT_BYTES) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "the label is longer than %d bytes", PROTO_TEXT_BYTES);
    }
    return 0;
}

/* A handle without memory or registration yet; it holds the client. */
static grd_region *region_new(grd_client *client, const struct grd_region_options *options)
{
    const char *label = OPTION(options, label, NULL);
    grd_region *region = calloc(1, sizeof(*region));

    if (region == NULL) {
        return NULL;
    }
    region->fd = -1;
    region->access = OPTION(options, access, GRD_ACCESS_READ_WRITE);
    region->flags = OPTION(options, flags, 0U);
    LIST_INIT(&region->uses);
    if (label != NULL) {
        region->label = strdup(label);
        if (region->label == NULL) {
            free(region);
            return NULL;
        }
    }
    region->client = client_hold(client);
    return region;
}

static void region_free(grd_region *region)
{
    if (region->bytes != NULL) {
        munmap(region->bytes, region->size);
    }
    if (region->fd >= 0) {
        close(region->fd);
    }
    free(region->label);
    client_release(region->client);
    free(region);
}

static void *map(const grd_region *region, int protection)
{
    void *address = mmap(NULL, region->size, protection, MAP_SHARED, region->fd, (off_t)region->offset);

    return address != MAP_FAILED ? address : NULL;
}

static int map_for_caller(grd_region *region, int protection, struct grd_error *error)
{
    region->data = map(region, protection);
    if (region->data == NULL) {
        return error_system(error, GRD_ERR_NO_MEMORY, errno, "cannot map %llu bytes",
                            (unsigned long long)region->size);
    }
    region->bytes = region->data;
    return 0;
}

/* Text that the codec only reads. */
static char *readable(const char *text)
{
    union {
        const char *in;
        char *out;
    } borrowed = {.in = text};

    return borrowed.out;
}

/*
 * May the daemon allocate? Also where this process has done so for a part of a file of huge pages: the daemon cannot
 * see which of them are there, and finds nothing left to allocate.
 */
static bool daemon_populates(const grd_region *region)
{
    bool huge = memory_page_size(region->fd) > (uint64_t)sysconf(_SC_PAGESIZE);

    return (region->flags & GRD_REGION_DAEMON_POPULATES) != 0 || (huge && (region->flags & GRD_REGION_POPULATE) != 0);
}

json_t *region_params(const grd_region *region, bool may_populate)
{
    struct proto_register_params params = {
        .type = readable("memfd"),
        .size = region->size,
        .offset = region->offset,
        .access = readable(region->access == GRD_ACCESS_READ ? "r" : "rw"),
        .populate = may_populate && daemon_populates(region),
        .label = region->label,
    };

    return proto_shape_encode(proto_methods[PROTO_METHOD_REGION_REGISTER].params, &params);
}

/* The session of the answer may be over: then it is registered in the next. Lock held. */
static void enter_region(grd_region *region, uint64_t id, uint64_t epoch)
{
    grd_client *client = region->client;
    bool current = client->epoch == epoch && (client->state == SESSION_OPEN || client->state == SESSION_BROKEN);

    region->id = current ? id : 0;
    region->registration = current ? REGION_REGISTERED : REGION_WAITING;
    LIST_INSERT_HEAD(&client->regions, region, entry);
    if (!current) {
        region_restore(region);
    }
}

/* Sends the registration and enters the region in its client's list. The caller is inside the client. */
static int register_region(grd_region *region, bool may_populate, struct grd_error *error)
{
    grd_client *client = region->client;
    struct request request = {.method = PROTO_METHOD_REGION_REGISTER,
                              .params = region_params(region, may_populate),
                              .pass_fd = region->fd,
                              .again = true};
    struct proto_register_result result;
    int code = request.params != NULL ? call_run(client, &request, &result, error)
                                      : error_set(error, GRD_ERR_NO_MEMORY, "no memory for a request");

    json_decref(request.params);
    if (code != 0) {
        return code;
    }
    pthread_mutex_lock(&client->lock);
    enter_region(region, result.region, request.epoch);
    pthread_mutex_unlock(&client->lock);
    call_free_result(PROTO_METHOD_REGION_REGISTER, &result);
    return 0;
}

static int create_memory(grd_region *region, uint64_t size, struct grd_error *error)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int code;

    region->size = (size + page - 1) / page * page;
    code = memory_create(region->size, region->label, &region->fd, error);
    return code == 0 ? map_for_caller(region, PROT_READ | PROT_WRITE, error) : code;
}

/* With a mapping of its own where the caller wants none. */
static int populate(grd_region *region, bool writable, unsigned threads, struct grd_error *error)
{
    void *address = region->data != NULL ? region->data : map(region, PROT_READ | (writable ? PROT_WRITE : 0));
    int code;

    if (address == NULL) {
        return error_system(error, GRD_ERR_NO_MEMORY, errno, "cannot map %llu bytes",
                            (unsigned long long)region->size);
    }
    code = memory_populate(region->fd, region->offset, address, region->size, writable, threads, error);
    if (address != region->data) {
        munmap(address, region->size);
    }
    return code;
}

static int adopt_memory(grd_region *region, const struct source *source, struct grd_error *error)
{
    bool writable = region->access == GRD_ACCESS_READ_WRITE;
    int code;

    region->offset = source->offset;
    region->size = source->size;
    code = memory_check(source->memfd, region->offset, &region->size, writable, error);
    if (code != 0) {
        return code;
    }
    region->fd = fcntl(source->memfd, F_DUPFD_CLOEXEC, 3);
    if (region->fd < 0) {
        return error_system(error, GRD_ERR_NO_MEMORY, errno, "cannot duplicate descriptor %d", source->memfd);
    }
    return (region->flags & GRD_REGION_MAP) != 0 ? map_for_caller(region, PROT_READ | (writable ? PROT_WRITE : 0), error)
                                                 : 0;
}

/*
 * Allocates the pages and registers them. What takes long, or more than the host has, is asked for before: the daemon
 * compares a region with limits, quotas and budgets first, and with its pages last. It is registered then already where
 * all of its pages are there.
 */
static int populate_and_register(grd_region *region, bool writable, unsigned threads, struct grd_error *error)
{
    int code = region->size >= ASK_FIRST_BYTES ? register_region(region, false, error) : GRD_ERR_NOT_POPULATED;

    if (code != GRD_ERR_NOT_POPULATED) {
        return code;
    }
    error_clear(error);
    code = populate(region, writable, threads, error);
    return code == 0 ? register_region(region, true, error) : code;
}

/* Inside the client. */
static int make_region(grd_client *client, const struct source *source, const struct grd_region_options *options,
                       grd_region **out, struct grd_error *error)
{
    grd_region *region = region_new(client, options);
    bool is_new = source->memfd < 0, populates;
    int code;

    if (region == NULL) {
        return error_set(error, GRD_ERR_NO_MEMORY, "no memory for a region");
    }
    code = is_new ? create_memory(region, source->size, error) : adopt_memory(region, source, error);
    populates = is_new ? (region->flags & GRD_REGION_NO_POPULATE) == 0 : (region->flags & GRD_REGION_POPULATE) != 0;
    if (code == 0 && populates) {
        bool writable = is_new || region->access == GRD_ACCESS_READ_WRITE;

        code = populate_and_register(region, writable, OPTION(options, populate_threads, 0U), error);
    } else if (code == 0) {
        code = register_region(region, true, error);
    }
    if (code != 0) {
        region_free(region);
        return code;
    }
    *out = region;
    return 0;
}

static int new_region(grd_client *client, const struct source *source, const struct grd_region_options *options,
                      grd_region **region, struct grd_error *error)
{
    int code = check_options(options, error);

    if (code == 0) {
        code = client_enter(client, error);
    }
    if (code != 0) {
        return code;
    }
    code = make_region(client, source, options, region, error);
    client_leave(client);
    return code;
}

int grd_region_create(grd_client *client, uint64_t size, const struct grd_region_options *options,
                      grd_region **region, struct grd_error *error)
{
    struct source source = {.memfd = -1, .size = size};
    struct grd_error own;

    error = error != NULL ? error : &own;
    error_clear(error);
    if (region != NULL) {
        *region = NULL;
    }
    if (client == NULL || region == NULL || size == 0 || size > SIZE_LARGEST) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no client, no place for the region, or a size of %llu bytes",
                         (unsigned long long)size);
    }
    return new_region(client, &source, options, region, error);
}

int grd_region_register(grd_client *client, int memfd, uint64_t offset, uint64_t size,
                        const struct grd_region_options *options, grd_region **region, struct grd_error *error)
{
    struct source source = {.memfd = memfd, .offset = offset, .size = size};
    struct grd_error own;

    error = error != NULL ? error : &own;
    error_clear(error);
    if (region != NULL) {
        *region = NULL;
    }
    if (client == NULL || region == NULL || memfd < 0) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no client, no place for the region, or no descriptor");
    }
    return new_region(client, &source, options, region, error);
}

void *grd_region_data(const grd_region *region)
{
    return region != NULL ? region->data : NULL;
}

uint64_t grd_region_size(const grd_region *region)
{
    return region != NULL ? region->size : 0;
}

int grd_region_fd(const grd_region *region)
{
    return region != NULL ? region->fd : -1;
}

int grd_region_window(grd_region *region, uint64_t offset, uint64_t length, struct grd_window *window,
                      struct grd_error *error)
{
    error_clear(error);
    if (region == NULL || window == NULL) {
        return error_set(error, GRD_ERR_INVALID_ARGUMENT, "no region, or no place for the window");
    }
    if (length == GRD_WHOLE && offset < region->size) {
        length = region->size - offset;
    }
    if (!window_inside(offset, length, region->size)) {
        return error_set(error, GRD_ERR_OUT_OF_RANGE,
                         "no window of %llu bytes at offset %llu in a region of %llu bytes",
                         (unsigned long long)length, (unsigned long long)offset, (unsigned long long)region->size);
    }
    *window = (struct grd_window){.region = region, .offset = offset, .length = length};
    return 0;
}

const unsigned char *region_bytes(grd_region *region, struct grd_error *error)
{
    void *bytes;
    int os_errno = 0;

    pthread_mutex_lock(&region->client->lock);
    if (region->bytes == NULL) {
        region->bytes = map(region, PROT_READ);
        os_errno = errno;
    }
    bytes = region->bytes;
    pthread_mutex_unlock(&region->client->lock);
    if (bytes == NULL) {
        error_system(error, GRD_ERR_NO_MEMORY, os_errno, "cannot map %llu bytes for a checksum",
                     (unsigned long long)region->size);
    }
    return bytes;
}

/*
 * Asks the daemon, with the region marked as closing. A region or a session that is gone needs no asking: what the
 * daemon still holds of them goes with it. Returns 0 when the handle may be freed.
 */
static int give_back(grd_region *region, bool *released, struct grd_error *error)
{
    struct proto_close_params params = {.region = 1}; /* call_run() knows the number */
    struct proto_close_result result;
    struct request request = {
        .method = PROTO_METHOD_REGION_CLOSE,
        .params = proto_shape_encode(proto_methods[PROTO_METHOD_REGION_CLOSE].params, &params),
        .pass_fd = -1,
        .now = true,
        .region = region,
    };
    int code = request.params != NULL ? call_run(region->client, &request, &result, error)
                                      : error_set(error, GRD_ERR_NO_MEMORY, "no memory for a request");

    json_decref(request.params);
    switch (code) {
    case 0:
        *released = result.memory_released;
        call_free_result(PROTO_METHOD_REGION_CLOSE, &result);
        return 0;
    case GRD_ERR_INTERRUPTED:
    case GRD_ERR_PROTOCOL:
    case GRD_ERR_CLOSED:
        session_wait_proof(region->client);
        return 0;
    case GRD_ERR_NO_REGION:
        return 0;
    default:
        return code;
    }
}

static bool is_not_restoring(const void *subject)
{
    return ((const grd_region *)subject)->registration != REGION_RESTORING;
}

/*
 * Lock held, and on return. *ask: the daemon has to be asked, and the caller is inside the client. Where the region is
 * being registered again, that is waited for: the answer is written to the handle.
 */
static int start_closing(grd_region *region, bool *ask, bool *released, struct grd_error *error)
{
    struct waiter waiter = {.ready = is_not_restoring, .subject = region, .end_ms = WAIT_FOREVER};

    if (!LIST_EMPTY(&region->uses) || region->closing) {
        return error_set(error, GRD_ERR_BUSY, "a transfer or another close uses the region");
    }
    region->closing = true;
    *released = !region->lost_kept;
    *ask = client_enter_locked(region->client, NULL) == 0;
    if (region->registration == REGION_RESTORING) {
        region->client->active++;
        lead_wait(region->client, &waiter);
        client_leave_locked(region->client);
    }
    if (*ask && region->lost) {
        client_leave_locked(region->client);
        *ask = false;
    }
    return 0;
}

static int close_here(grd_region *region, bool *released, struct grd_error *error)
{
    grd_client *client = region->client;
    bool ask = false;
    int code;

    pthread_mutex_lock(&client->lock);
    code = start_closing(region, &ask, released, error);
    pthread_mutex_unlock(&client->lock);
    if (code != 0) {
        return code;
    }
    if (ask) {
        code = give_back(region, released, error);
        client_leave(client);
    }
    pthread_mutex_lock(&client->lock);
    region->closing = false;
    if (code == 0) {
        LIST_REMOVE(region, entry);
    } else if (region->registration == REGION_WAITING) {
        region_restore(region);
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

int grd_region_close(grd_region *region, bool *memory_released, struct grd_error *error)
{
    struct grd_error own;
    bool released = true;
    int code = 0;

    error = error != NULL ? error : &own;
    error_clear(error);
    if (region != NULL && !client_forked(region->client)) {
        code = close_here(region, &released, error);
    }
    if (region != NULL && code == 0) {
        region_free(region);
        error_clear(error);
    }
    if (memory_released != NULL) {
        *memory_released = released && code == 0;
    }
    return code;
}
