#include "daemon/base/pin_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t memory_total(const char *root)
{
    char path[PATH_MAX], line[256];
    uint64_t kibibytes = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    file = fopen(path, "re");
    if (file != NULL) {
        while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "MemTotal: %" SCNu64 " kB", &kibibytes) != 1) {
        }
        fclose(file);
    }
    if (kibibytes == 0) {
        return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    return kibibytes * 1024;
}

/* The number in a memory.max file; UINT64_MAX for "max" and for a file that is not there. */
static uint64_t read_limit(const char *path)
{
    uint64_t limit = UINT64_MAX;
    FILE *file = fopen(path, "re");

    if (file != NULL) {
        if (fscanf(file, "%" SCNu64, &limit) != 1) {
            limit = UINT64_MAX;
        }
        fclose(file);
    }
    return limit;
}

/* The group's path below the cgroup 2 mount ("0::/path"), without a slash at its end. */
static void own_group(const char *root, char *group, size_t size)
{
    char path[PATH_MAX], line[PATH_MAX];
    FILE *file;

    group[0] = '\0';
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(group, size, "%.*s", (int)size - 1, line[4] == '\0' ? "" : line + 3);
            break;
        }
    }
    fclose(file);
}

/* A limit of any ancestor binds as well. */
static uint64_t group_limit(const char *root)
{
    char group[PATH_MAX - 64], path[2 * PATH_MAX];
    uint64_t limit = UINT64_MAX;

    own_group(root, group, sizeof(group));
    for (;;) {
        char *slash;
        snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s/memory.max", root, group);
        limit = smaller(limit, read_limit(path));
        slash = strrchr(group, '/');
        if (slash == NULL) {
            return limit;
        }
        *slash = '\0';
    }
}

/* What the kernel looks at when it pins for a device. */
static bool has_ipc_lock(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

void pin_facts_read(struct pin_facts *facts, const char *root)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

    getrlimit(RLIMIT_MEMLOCK, &limit);
    facts->host = memory_total(root);
    facts->group = group_limit(root);
    facts->ipc_lock = has_ipc_lock();
    facts->rlimit = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static uint64_t less_headroom(uint64_t rlimit)
{
    return rlimit - smaller(rlimit / 4, PIN_HEADROOM_BYTES);
}

int pin_limit_decide(const struct pin_facts *facts, struct pin_limit *limit, char why[PIN_WHY_BYTES])
{
    uint64_t most = UINT64_MAX;

    *limit = (struct pin_limit){.bytes = facts->configured, .source = "pinned_limit", .rlimit = UINT64_MAX};
    if (facts->configured == 0) {
        limit->bytes = smaller(facts->host, facts->group) / 2;
        limit->source = facts->group < facts->host ? "memory.max" : "MemTotal";
    }
    if (facts->pins && !facts->ipc_lock && facts->rlimit != UINT64_MAX) {
        limit->rlimit = facts->rlimit;
        most = less_headroom(facts->rlimit);
    }
    if (limit->bytes <= most) {
        return 0;
    }
    if (facts->configured > 0) {
        snprintf(why, PIN_WHY_BYTES,
                 "[memory] pinned_limit is %" PRIu64 " bytes, but RLIMIT_MEMLOCK lets this process pin %" PRIu64
                 " bytes, of which %" PRIu64 " are left for registered memory. Set LimitMEMLOCK=infinity in the unit "
                 "(systemctl edit glide-rdmad), or lower pinned_limit to at most %" PRIu64,
                 facts->configured, facts->rlimit, most, most);
        return -EINVAL;
    }
    limit->bytes = most;
    limit->source = "RLIMIT_MEMLOCK";
    return 0;
}
