/*
 * Variables of libfabric that the daemon cannot live with. They are read at the library's first call, so this runs
 * before the library is loaded.
 */
#include "daemon/fabric/environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"

/* Any value is wrong: unset. */
static const struct {
    char name[32];
    const char *reason;
} removed[] = {
    {"FI_EFA_MTU_SIZE", "the efa provider ends the process when it is set"},
    {"FI_EFA_TX_IOV_LIMIT", "the efa provider ends the process when it is set"},
    {"FI_EFA_RX_IOV_LIMIT", "the efa provider ends the process when it is set"},
    /* Pages handed to the kernel for later: closing an endpoint would no longer mean that they are left alone. */
    {"FI_TCP_ZEROCOPY_SIZE", "the kernel would go on reading memory that was taken back"},
    {"FI_TCP_IO_URING", "the kernel would go on using memory that was taken back"},
};

/* Only this value is right. */
static const struct {
    char name[32], value[16];
    const char *reason;
} fixed[] = {
    {"FI_TCP_PREFETCH_RBUF_SIZE", "0", "small pieces would be copied by a store: SIGBUS where a client punched a hole"},
    {"FI_TCP_STAGING_SBUF_SIZE", "0", "small pieces would be copied by a load: SIGBUS where a client punched a hole"},
    {"FI_MR_CACHE_MAX_COUNT", "0", "a cached registration stays usable after it was closed"},
    {"FI_MR_CACHE_MONITOR", "disabled", "a cached registration stays usable after it was closed"},
    {"FI_EFA_MR_CACHE_ENABLE", "0", "a cached registration stays usable after it was closed"},
};

/* Used unless an operator has set another. */
static const struct {
    char name[32], value[16];
} defaults[] = {
    /* Peers of an endpoint, which are a server's endpoints. The layer over verbs makes each completion queue large
     * enough for all of their queue pairs; by its own default for more than small devices and soft-RoCE allow. */
    {"FI_UNIVERSE_SIZE", "16"},
};

static void remove_variable(const char *name, const char *reason)
{
    log_warn("environment: %s is ignored: %s", name, reason);
    unsetenv(name);
}

static bool is_positive(const char *value)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(value, &end, 10);
    return errno == 0 && end != value && *end == '\0' && number > 0;
}

void environment_clean(void)
{
    const char *interface = getenv("FI_EFA_IFACE");
    const char *credits = getenv("FI_EFA_TX_MIN_CREDITS");

    for (size_t i = 0; i < sizeof(removed) / sizeof(removed[0]); i++) {
        if (getenv(removed[i].name) != NULL) {
            remove_variable(removed[i].name, removed[i].reason);
        }
    }
    if (interface != NULL && interface[0] == '\0') {
        remove_variable("FI_EFA_IFACE", "the efa provider ends the process when it is empty");
    }
    if (credits != NULL && !is_positive(credits)) {
        remove_variable("FI_EFA_TX_MIN_CREDITS", "the efa provider ends the process unless it is positive");
    }
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        const char *value = getenv(fixed[i].name);
        if (value != NULL && strcmp(value, fixed[i].value) != 0) {
            log_warn("environment: %s=%s is replaced by %s: %s", fixed[i].name, value, fixed[i].value,
                     fixed[i].reason);
        }
        if (value == NULL || strcmp(value, fixed[i].value) != 0) {
            setenv(fixed[i].name, fixed[i].value, 1);
        }
    }
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        setenv(defaults[i].name, defaults[i].value, 0);
    }
}
