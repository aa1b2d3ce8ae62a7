/* fabric_start: environment, the object that calls libfabric, the NICs. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/base/shared_object.h"
#include "daemon/fabric/domain.h"
#include "daemon/fabric/environment.h"
#include "daemon/fabric/nics.h"
#include "daemon/fabric/progress.h"
#include "daemon/fabric/provider.h"

#define LIBRARY_VARIABLE "GLIDE_LIBFABRIC_PATH"
#define LIBFABRIC_MAJOR 2

__attribute__((format(printf, 2, 3))) static void add_why(struct fabric *fabric, const char *format, ...)
{
    size_t length = strlen(fabric->why);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(fabric->why + length, sizeof(fabric->why) - length, format, arguments);
    va_end(arguments);
}

/*
 * The library that our object will be bound to: its need of libfabric.so.1 is satisfied by a file of that name that is
 * loaded already. RTLD_GLOBAL: also where the file's own name for itself is another.
 */
static int load_library(struct fabric *fabric)
{
    const char *source = "[fabric] library";
    const char *path = fabric->config->library;

    if (path == NULL || path[0] == '\0') {
        source = LIBRARY_VARIABLE;
        path = getenv(LIBRARY_VARIABLE);
    }
    if (path == NULL || path[0] == '\0') {
        return 0;
    }
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        add_why(fabric, "%s = %s cannot be loaded: %s", source, path, dlerror());
        return -ENOENT;
    }
    log_info("fabric: %s: %s", source, path);
    return 0;
}

static const struct fabric_ops *find_object(struct fabric *fabric)
{
    static const struct shared_object object = {
        .name = "glide-rdmad-fabric.so",
        .folder = "fabric",
        .variable = "GLIDE_RDMAD_FABRIC_OBJECT",
        .symbol = FABRIC_OPS_SYMBOL,
    };
    fabric_ops_function function;

    add_why(fabric, "no usable libfabric: install libfabric.so.1 of version %d or newer, or name one with [fabric] "
            "library", LIBFABRIC_MAJOR);
    *(void **)&function =
        shared_object_load(&object, fabric->object, sizeof(fabric->object), fabric->why, sizeof(fabric->why));
    return function != NULL ? function() : NULL;
}

static int check_object(struct fabric *fabric, const struct fabric_ops *ops)
{
    unsigned major = 0;

    if (ops->abi != FABRIC_OPS_ABI) {
        snprintf(fabric->why, sizeof(fabric->why), "%s has interface %u, this program needs %d: they are of different "
                 "versions of glide-rdmad", fabric->object, ops->abi, FABRIC_OPS_ABI);
        return -EPROTO;
    }
    ops->version(fabric->version, sizeof(fabric->version));
    if (sscanf(fabric->version, "%u.", &major) != 1 || major < LIBFABRIC_MAJOR) {
        snprintf(fabric->why, sizeof(fabric->why), "libfabric %s is too old: version %d or newer is needed; name one "
                 "with [fabric] library", fabric->version, LIBFABRIC_MAJOR);
        return -EPROTO;
    }
    return 0;
}

/* An address that every interface answers to says nothing to the server that is to connect to it. */
static bool is_any_address(const char *bind)
{
    return bind != NULL && (strcmp(bind, "0.0.0.0") == 0 || strcmp(bind, "::") == 0);
}

/* Those that are listed and not there: what is known of the others holds for them, should they come. */
static void describe_absent(struct fabric *fabric)
{
    const struct fabric_nic *present = NULL;

    for (unsigned i = 0; i < fabric->nic_count && present == NULL; i++) {
        present = fabric->nics[i].absent ? NULL : &fabric->nics[i];
    }
    for (unsigned i = 0; present != NULL && i < fabric->nic_count; i++) {
        struct fabric_nic *nic = &fabric->nics[i];
        if (nic->absent) {
            nic->max_message_bytes = present->max_message_bytes;
            nic->registrations = present->registrations;
            nic->virtual_addresses = present->virtual_addresses;
            nics_failed(fabric, i, "[fabric] interfaces names it, but the provider has no such interface");
        }
    }
}

static int find_nics(struct fabric *fabric)
{
    struct fabric_settings settings = fabric_settings(fabric);
    int count;

    if (is_any_address(settings.bind)) {
        snprintf(fabric->why, sizeof(fabric->why), "[fabric] bind = %s is not an address that a server can reach",
                 settings.bind);
        return -EINVAL;
    }
    count = fabric->ops->query(&settings, fabric->nics, FABRIC_NICS, fabric->why);
    if (count <= 0) {
        return count < 0 ? count : -ENODEV;
    }
    fabric->nic_count = (unsigned)count;
    fabric->why[0] = '\0';
    describe_absent(fabric);
    return 0;
}

/*
 * On tcp any address is accepted until an endpoint listens at it: opens one, so that a wrong [fabric] bind is said at
 * start and not by the first transfer.
 */
static int try_bind(struct fabric *fabric)
{
    const struct fabric_ops *ops = fabric->ops;
    struct fabric_settings settings = fabric_nic_settings(fabric, 0, NULL);
    struct fabric_domain *domain;
    struct fabric_endpoint *endpoint;
    uint8_t address[FABRIC_ADDRESS_BYTES];
    char why[FABRIC_WHY_BYTES];
    size_t length;
    int error;

    if (!fabric->domain_per_lane || settings.bind == NULL) {
        return 0;
    }
    error = ops->domain_open(&settings, &domain, why);
    if (error == 0) {
        error = ops->endpoint_open(domain, &endpoint, address, &length, why);
        if (error == 0) {
            ops->endpoint_close(endpoint);
            ops->endpoint_free(endpoint);
        }
        ops->domain_close(domain);
    }
    if (error != 0) {
        add_why(fabric, "[fabric] bind = %s: %s", settings.bind, why);
    }
    return error;
}

/* Sets ops, version, providers, NICs; negative with `why` when the fabric cannot be used. */
static int bring_up(struct fabric *fabric, const struct fabric_ops *ops)
{
    if (ops == NULL) {
        if (load_library(fabric) != 0) {
            return -ENOENT;
        }
        ops = find_object(fabric);
        if (ops == NULL) {
            return -ENOENT;
        }
    }
    if (check_object(fabric, ops) != 0) {
        return -EPROTO;
    }
    fabric->ops = ops;
    ops->providers(fabric->providers, sizeof(fabric->providers));
    if (find_nics(fabric) != 0) {
        return -ENODEV;
    }
    return try_bind(fabric);
}

int fabric_start(struct fabric *fabric, uv_loop_t *loop, struct workers *workers, const struct fabric_config *config,
                 const struct fabric_ops *ops)
{
    const struct provider_facts *facts = provider_facts(config->provider);

    *fabric = (struct fabric){.loop = loop, .workers = workers, .config = config};
    fabric->domain_per_lane = facts != NULL && facts->domain_per_lane;
    fabric->host_nic = fabric->domain_per_lane &&
                       (config->interfaces == NULL || config->interfaces[0] == '\0' || config->bind != NULL);
    fabric->pins = facts != NULL && facts->pins;
    fabric->revoke_slices = facts != NULL && facts->revokes_registrations &&
                            (config->revoke == NULL || strcmp(config->revoke, "full") == 0);
    environment_clean();
    if (bring_up(fabric, ops) != 0) {
        log_warn("fabric: not usable: %s", fabric->why);
        return 0;
    }
    fabric->progress = loop != NULL ? progress_start(loop, fabric->ops) : NULL;
    if (loop != NULL && fabric->progress == NULL) {
        return -ENOMEM;
    }
    fabric->hides_mappings = fabric->pins && !config->keep_mappings && !fabric->ops->keep_mappings;
    fabric->usable = true;
    log_info("fabric: libfabric %s (%s), provider %s, %u NIC%s, first %s", fabric->version, fabric->providers,
             fabric_settings(fabric).provider, fabric->nic_count, fabric->nic_count == 1 ? "" : "s",
             fabric->nics[0].name);
    return 0;
}

static void close_home(struct fabric *fabric, unsigned nic)
{
    struct domain *home = fabric->homes[nic];

    if (home == NULL) {
        return;
    }
    if (home->state == DOMAIN_OPEN) {
        int status = fabric->ops->domain_close(home->handle);
        if (status < 0) {
            log_error("fabric: closing the domain of NIC %s: %s (%d)", fabric->nics[nic].name,
                      fabric->ops->text(status), status);
        }
    }
    domain_free(home);
    fabric->homes[nic] = NULL;
}

void fabric_stop(struct fabric *fabric)
{
    for (unsigned i = 0; i < fabric->nic_count; i++) {
        close_home(fabric, i);
    }
    if (fabric->progress != NULL) {
        progress_stop(fabric->progress);
        fabric->progress = NULL;
    }
    fabric->usable = false;
    free(fabric->domains);
    fabric->domains = NULL;
    fabric->domain_slots = 0;
}
