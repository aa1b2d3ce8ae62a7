/*
 * The configuration file: an input is the file, and after a line "%%" the one in conf.d. What is accepted lies within
 * the bounds of the table; what is not has a reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/method_list.h"
#include "daemon/config/options.h"
#include "daemon/config/prefixes.h"
#include "tests/fuzz/fuzz.h"

#define SEPARATOR "\n%%\n"

static char folder[256], file[300], overlays[300], overlay[320];

static void remove_all(void)
{
    unlink(overlay);
    rmdir(overlays);
    unlink(file);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%.200s/fuzz-config-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    snprintf(file, sizeof(file), "%s/glide-rdmad.conf", folder);
    snprintf(overlays, sizeof(overlays), "%s/conf.d", folder);
    snprintf(overlay, sizeof(overlay), "%s/10.conf", overlays);
    if (mkdir(overlays, 0700) != 0) {
        perror(overlays);
        return 1;
    }
    atexit(remove_all);
    return 0;
}

static void put(const char *path, const void *bytes, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    FUZZ_CHECK(fd >= 0 && write(fd, bytes, length) == (ssize_t)length, "%s: %s", path, strerror(errno));
    close(fd);
}

static uint64_t value_of(const struct option *option, const void *base)
{
    const char *member = (const char *)base + option->offset;
    unsigned count;
    uint64_t number;

    if (option->kind == OPTION_COUNT) {
        memcpy(&count, member, sizeof(count));
        return count;
    }
    memcpy(&number, member, sizeof(number));
    return number;
}

/* In order, none the beginning of another; each allows itself and what begins with it, and nothing shorter. */
static void check_prefixes(const struct prefixes *list)
{
    size_t bytes = 0;

    for (size_t i = 0; list != NULL && i < list->count; i++) {
        const struct prefix *prefix = &list->items[i];

        bytes += prefix->length;
        FUZZ_CHECK(prefix->length > 0 && prefixes_allow(list, prefix->bytes, prefix->length), "prefix %zu", i);
        FUZZ_CHECK(!prefixes_allow(list, prefix->bytes, prefix->length - 1), "prefix %zu without its end", i);
        FUZZ_CHECK(i == 0 || memcmp(prefix[-1].bytes, prefix->bytes,
                                    prefix->length < prefix[-1].length ? prefix->length : prefix[-1].length) < 0,
                   "prefix %zu is not in order", i);
    }
    FUZZ_CHECK(list == NULL || (list->count <= PREFIXES_MAX && bytes <= PREFIXES_BYTES), "%zu bytes", bytes);
}

static void check_bounds(const struct option *option, const void *base)
{
    uint64_t value;

    if (option_is_text(option)) {
        const char *text;
        memcpy(&text, (const char *)base + option->offset, sizeof(text));
        FUZZ_CHECK(text == NULL || text[0] != '\0', "[%s] %s is an empty text", option->section, option->key);
    } else if (option->kind == OPTION_PREFIXES) {
        check_prefixes(((const struct policy_values *)base)->key_prefixes);
    } else if (option->kind == OPTION_METHODS) {
        FUZZ_CHECK(method_list_has(value_of(option, base), PROTO_METHOD_STATUS), "status is not allowed");
    } else if (option->kind != OPTION_BOOL) {
        value = value_of(option, base);
        if ((option->kind == OPTION_QUOTA || option->kind == OPTION_QUOTA_BYTES) && value == POLICY_NONE) {
            return;
        }
        FUZZ_CHECK(value >= option->min && value <= option->max, "[%s] %s = %llu", option->section, option->key,
                   (unsigned long long)value);
    }
}

/* Sections that set the key, and what they come to for peers that they name. */
static void check_policies(const struct config *config, const struct option *option)
{
    for (size_t i = 0; i < config->policy_count; i++) {
        const struct policy_section *section = &config->policies[i];
        gid_t gid = section->id;
        struct policy_subject subject = {.socket = section->socket != NULL ? section->socket : config->sockets[0].name,
                                         .uid = section->id, .gids = &gid, .gid_count = 1};
        struct policy policy;

        for (enum policy_key key = 0; key < POLICY_KEYS; key++) {
            if (section->set[key] && strcmp(policy_key_name(key), option->key) == 0) {
                check_bounds(option, &section->values);
            }
        }
        policy_resolve(config, &subject, &policy);
        check_bounds(option, &policy.values);
        for (size_t j = 0; j < i; j++) {
            FUZZ_CHECK(strcmp(config->policies[j].title, section->title) != 0, "%s twice", section->title);
        }
    }
}

static void check(const struct config *config)
{
    FUZZ_CHECK(config->policy_count <= POLICY_SECTIONS, "%zu policies", config->policy_count);
    FUZZ_CHECK(config->socket_count >= 1 && config->socket_count <= CONFIG_SOCKETS, "%zu sockets",
               config->socket_count);
    for (size_t i = 0; i < option_count; i++) {
        if (strcmp(options[i].section, "policy") == 0) {
            check_policies(config, &options[i]);
            continue;
        }
        if (strcmp(options[i].section, "socket") != 0) {
            check_bounds(&options[i], config);
            continue;
        }
        for (size_t j = 0; j < config->socket_count; j++) {
            check_bounds(&options[i], &config->sockets[j]);
        }
    }
    for (size_t i = 0; i < config->socket_count; i++) {
        FUZZ_CHECK(config->sockets[i].name != NULL && config->sockets[i].path != NULL, "socket %zu", i);
        for (size_t j = 0; j < i; j++) {
            FUZZ_CHECK(strcmp(config->sockets[i].name, config->sockets[j].name) != 0, "socket %zu twice", i);
        }
    }
    FUZZ_CHECK(config->valkey.address != NULL && config->fabric.provider != NULL && config->admin.path != NULL,
               "something needed is missing");
    FUZZ_CHECK(config->fabric.mr_max_bytes % 65536 == 0, "mr_max_bytes");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size > 0 ? memmem(data, size, SEPARATOR, strlen(SEPARATOR)) : NULL;
    size_t first = cut != NULL ? (size_t)(cut - data) + 1 : size;
    char why[CONFIG_WHY_BYTES] = "";
    struct config config;
    unsigned before = fuzz_descriptors();
    int status;

    put(file, data, first);
    if (cut != NULL) {
        cut += strlen(SEPARATOR);
        put(overlay, cut, (size_t)(data + size - cut));
    } else {
        unlink(overlay);
    }
    status = config_load(&config, file, why);
    if (status == 0) {
        check(&config);
    } else {
        FUZZ_CHECK(status == -EINVAL, "status %d: %s", status, why);
        FUZZ_CHECK(why[0] != '\0' && strnlen(why, sizeof(why)) < sizeof(why), "no reason");
    }
    config_free(&config);
    FUZZ_CHECK(fuzz_descriptors() == before, "%u descriptors became %u", before, fuzz_descriptors());
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return fuzz_mutate_lines(data, size, max_size, seed);
}
