/*
 * The real object that calls libfabric, with faults: GLIDE_RDMAD_FABRIC_OBJECT names this one, GRD_REAL_OBJECT the
 * real. Files in the folder GRD_FABRIC_FAULTS switch them on, for registrations of exactly so many bytes:
 *
 *   hold-open-BYTES    registering waits while the file is there
 *   hold-close-BYTES   so does closing the registration
 *   fail-close-BYTES   closing the registration reports a failure, although, as with efa and ofi_rxm, the object is gone
 *   hold-endpoint      closing an endpoint waits
 *   fail-endpoint      closing an endpoint reports a failure; it is closed
 *   keep-endpoint      closing an endpoint does nothing and reports success: bytes go on arriving
 *
 * A call that waits makes a file of its fault's name with "began-" before it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/fabric/ops.h"

#define LOOK_AGAIN_MS 5

#define KEPT_TURNS 1000 /* of 5 ms: how long a kept endpoint is driven */

static _Atomic int kept; /* endpoints; from then on no queue, domain or registration is closed */
static const struct fabric_ops *real;
static struct fabric_ops table;
static const char *folder;

struct fabric_mr {
    struct fabric_mr *inner; /* the real one */
    size_t length;
};

static void fault_path(char path[256], const char *before, const char *fault, size_t length)
{
    if (length > 0) {
        snprintf(path, 256, "%s/%s%s-%zu", folder, before, fault, length);
    } else {
        snprintf(path, 256, "%s/%s%s", folder, before, fault);
    }
}

static bool switched_on(const char *fault, size_t length)
{
    char path[256];

    fault_path(path, "", fault, length);
    return access(path, F_OK) == 0;
}

static void wait_while(const char *fault, size_t length)
{
    char path[256];

    if (!switched_on(fault, length)) {
        return;
    }
    fault_path(path, "began-", fault, length);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    while (switched_on(fault, length)) {
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
    unlink(path);
}

static int mr_open(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **mr,
                   uint64_t *key)
{
    struct fabric_mr *opened = calloc(1, sizeof(*opened));
    int status;

    if (opened == NULL) {
        return -ENOMEM;
    }
    wait_while("hold-open", length);
    opened->length = length;
    status = real->mr_open(domain, base, length, access, &opened->inner, key);
    if (status < 0) {
        free(opened);
        return status;
    }
    *mr = opened;
    return status;
}

static int mr_close(struct fabric_mr *mr)
{
    size_t length = mr->length;
    int status;

    wait_while("hold-close", length);
    if (atomic_load(&kept) > 0) {
        return 0; /* what a kept endpoint may write stays registered */
    }
    status = real->mr_close(mr->inner);
    free(mr);
    return switched_on("fail-close", length) ? -EBUSY : status;
}

/* The daemon drives an endpoint no more that it has closed. */
static void *drive(void *context)
{
    for (int i = 0; i < KEPT_TURNS; i++) {
        real->endpoint_progress(context);
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
    return NULL;
}

static bool keep(struct fabric_endpoint *endpoint)
{
    pthread_t thread;

    if (!switched_on("keep-endpoint", 0) || pthread_create(&thread, NULL, drive, endpoint) != 0) {
        return false;
    }
    pthread_detach(thread);
    atomic_fetch_add(&kept, 1);
    return true;
}

static int endpoint_free(struct fabric_endpoint *endpoint)
{
    return atomic_load(&kept) > 0 ? 0 : real->endpoint_free(endpoint);
}

static int domain_close(struct fabric_domain *domain)
{
    return atomic_load(&kept) > 0 ? 0 : real->domain_close(domain);
}

static int endpoint_close(struct fabric_endpoint *endpoint)
{
    int status;

    if (keep(endpoint)) {
        return 0;
    }
    wait_while("hold-endpoint", 0);
    status = real->endpoint_close(endpoint);
    return switched_on("fail-endpoint", 0) ? -EBUSY : status;
}

__attribute__((visibility("default"))) const struct fabric_ops *glide_rdmad_fabric_ops(void);

const struct fabric_ops *glide_rdmad_fabric_ops(void)
{
    const char *path = getenv("GRD_REAL_OBJECT");
    void *object = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    fabric_ops_function function = NULL;

    folder = getenv("GRD_FABRIC_FAULTS");
    if (object != NULL && folder != NULL) {
        *(void **)&function = dlsym(object, FABRIC_OPS_SYMBOL);
    }
    if (function == NULL) {
        fprintf(stderr, "faulty fabric: no real object, or no folder: %s\n", path != NULL ? path : "not named");
        return NULL;
    }
    real = function();
    table = *real;
    table.mr_open = mr_open;
    table.mr_close = mr_close;
    table.endpoint_close = endpoint_close;
    table.endpoint_free = endpoint_free;
    table.domain_close = domain_close;
    return &table;
}
