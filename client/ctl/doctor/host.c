#include "client/ctl/doctor/host.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Calls each(context, name) for the entries whose names begin so; their number. */
static unsigned for_each(const char *folder, const char *begin, void (*each)(void *context, const char *name),
                         void *context)
{
    DIR *directory = opendir(folder);
    unsigned count = 0;
    const struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, begin, strlen(begin)) == 0) {
            count++;
            each(context, entry->d_name);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/* Appends as much as fits. */
static void append(char *text, size_t size, const char *separator, const char *word)
{
    size_t length = strlen(text);

    snprintf(text + length, size - length, "%s%s", length > 0 ? separator : "", word);
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

struct devices {
    const char *root;
    bool efa; /* only those of its driver count */
    uid_t uid;
    gid_t gid;
    unsigned fitting;  /* adapters of the right driver */
    unsigned openable; /* device files */
    char adapters[512];
    char refused[512];
};

/* The driver behind an adapter: the last part of where its link leads. */
static void driver_of(const struct devices *devices, const char *adapter, char name[NAME_MAX + 1])
{
    char path[PATH_MAX], target[PATH_MAX];
    const char *last;
    ssize_t length;

    snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s/device/driver", devices->root, adapter);
    length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    last = strrchr(target, '/');
    snprintf(name, NAME_MAX + 1, "%.255s", last != NULL ? last + 1 : target);
}

static void look_at_adapter(void *context, const char *name)
{
    struct devices *devices = context;
    char driver[NAME_MAX + 1], word[2 * NAME_MAX + 8];

    driver_of(devices, name, driver);
    if (!devices->efa || strcmp(driver, "efa") == 0) {
        devices->fitting++;
    }
    snprintf(word, sizeof(word), "%.255s (%.255s)", name, driver[0] != '\0' ? driver : "driver unknown");
    append(devices->adapters, sizeof(devices->adapters), ", ", word);
}

/* Group memberships beyond the first are not known here. */
static bool opens(const struct devices *devices, const struct stat *status)
{
    mode_t needed = status->st_uid == devices->uid ? 0600 : status->st_gid == devices->gid ? 0060 : 0006;

    return devices->uid == 0 || (status->st_mode & needed) == needed;
}

static void look_at_file(void *context, const char *name)
{
    struct devices *devices = context;
    char path[PATH_MAX], word[NAME_MAX + 32];
    struct stat status;

    snprintf(path, sizeof(path), "%s/dev/infiniband/%s", devices->root, name);
    if (stat(path, &status) == 0 && opens(devices, &status)) {
        devices->openable++;
        return;
    }
    snprintf(word, sizeof(word), "%.255s has mode %04o", name, (unsigned)status.st_mode & 07777);
    append(devices->refused, sizeof(devices->refused), ", ", word);
}

static void judge_devices(const struct devices *devices, const char *provider, unsigned files, struct finding *finding)
{
    if (devices->fitting == 0) {
        found(finding, VERDICT_FAILED, "no RDMA device for provider %s%s%s", provider,
              devices->adapters[0] != '\0' ? "; there are: " : "", devices->adapters);
        advise(finding, devices->efa ? "use an instance type with EFA, attach an interface of type EFA, and load the "
                                       "driver: modprobe efa"
                                     : "load the driver of the device: rdma link and dmesg tell more");
    } else if (files == 0) {
        found(finding, VERDICT_FAILED, "%s, but no /dev/infiniband/uverbs*", devices->adapters);
        advise(finding, "modprobe ib_uverbs; in a container, pass the devices in");
    } else if (devices->openable == 0) {
        found(finding, VERDICT_FAILED, "the daemon's user (uid %u) may not open /dev/infiniband: %s",
              (unsigned)devices->uid, devices->refused);
        advise(finding, "let it read and write them, by a udev rule with MODE or GROUP");
    } else {
        found(finding, VERDICT_OK, "%s; %u of %u device files may be opened by uid %u", devices->adapters,
              devices->openable, files, (unsigned)devices->uid);
    }
}

void host_devices(const char *root, const char *provider, uid_t uid, gid_t gid, struct finding *finding)
{
    struct devices devices = {.root = root, .efa = strncmp(provider, "efa", 3) == 0, .uid = uid, .gid = gid};
    char path[PATH_MAX];
    unsigned files;

    if (provider[0] == '\0' || strcmp(provider, "tcp") == 0) {
        found(finding, VERDICT_SKIPPED, provider[0] == '\0' ? "the configured provider is not known"
                                                            : "provider tcp needs no RDMA device");
        return;
    }
    snprintf(path, sizeof(path), "%s/sys/class/infiniband", root);
    for_each(path, "", look_at_adapter, &devices);
    snprintf(path, sizeof(path), "%s/dev/infiniband", root);
    files = for_each(path, "uverbs", look_at_file, &devices);
    judge_devices(&devices, provider, files, finding);
}

/* --- huge pages -------------------------------------------------------------------------------------------------- */

struct huge_pages {
    const char *folder;
    unsigned long long total; /* of all sizes */
    char text[512];
};

static unsigned long long read_count(const char *folder, const char *name, const char *file)
{
    char path[PATH_MAX];
    unsigned long long count = 0;
    FILE *stream;

    snprintf(path, sizeof(path), "%s/%s/%s", folder, name, file);
    stream = fopen(path, "re");
    if (stream != NULL) {
        if (fscanf(stream, "%llu", &count) != 1) {
            count = 0;
        }
        fclose(stream);
    }
    return count;
}

static void look_at_size(void *context, const char *name)
{
    struct huge_pages *pages = context;
    unsigned long long total = read_count(pages->folder, name, "nr_hugepages");
    char word[2 * NAME_MAX];

    pages->total += total;
    snprintf(word, sizeof(word), "%.64s: %llu, %llu of them free", name + strlen("hugepages-"), total,
             read_count(pages->folder, name, "free_hugepages"));
    append(pages->text, sizeof(pages->text), "; ", word);
}

void host_huge_pages(const char *root, const char *provider, struct finding *finding)
{
    char folder[PATH_MAX];
    struct huge_pages pages = {.folder = folder};

    snprintf(folder, sizeof(folder), "%s/sys/kernel/mm/hugepages", root);
    if (for_each(folder, "hugepages-", look_at_size, &pages) == 0) {
        found(finding, VERDICT_SKIPPED, "%s: this kernel has none, or shows none", folder);
        return;
    }
    if (pages.total > 0 || provider[0] == '\0' || strcmp(provider, "tcp") == 0) {
        found(finding, VERDICT_OK, "%s", pages.text);
        return;
    }
    found(finding, VERDICT_WARNING, "none are set aside; with provider %s registering large memory takes long",
          provider);
    advise(finding, "set some aside (vm.nr_hugepages) and let programs make their regions of them");
}
