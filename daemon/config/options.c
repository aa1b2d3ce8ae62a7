#include "daemon/config/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/method_list.h"
#include "daemon/config/prefixes.h"
#include "proto/limits.h"

#define AT(member) offsetof(struct config, member)
#define AT_SOCKET(member) offsetof(struct config_socket, member)
#define AT_POLICY(member) offsetof(struct policy_values, member)
#define KIB UINT64_C(1024)
#define GIB (KIB * KIB * KIB)
#define TIB (GIB * KIB)

const struct option options[] = {
    {"daemon", "log_level", OPTION_TEXT, AT(log_level_word), 0, 0, "notice", NULL,
     "error, warn, notice, info or debug", true},
    {"daemon", "drain_ms", OPTION_NUMBER, AT(drain_ms), 0, 3600000, "10000", "ms",
     "longest wait for transfers in flight when the daemon stops, for a set also when its client left", true},

    {"valkey", "address", OPTION_TEXT, AT(valkey.address), 0, 0, "127.0.0.1:6379", NULL,
     "host:port, [IPv6]:port, rdma://host:port or unix:/path of the server with the large-object module"},
    {"valkey", "seeds", OPTION_WORDS, AT(valkey.seeds), 0, 0, NULL, NULL,
     "host:port, rdma://host:port: nodes of a Valkey cluster, asked for its map; instead of address", true},
    {"valkey", "transport", OPTION_TEXT, AT(valkey.transport_word), 0, 0, NULL, NULL,
     "tcp or rdma: what reaches addresses that do not say it, and the nodes of a cluster; without it as the seeds say, "
     "else tcp"},
    {"valkey", "rdma_port", OPTION_COUNT, AT(valkey.rdma_port), 0, 65535, "0", NULL,
     "RDMA port of the servers that are reached over RDMA and named by their TCP port; 0: the same number"},
    {"valkey", "rdma_address", OPTION_TEXT, AT(valkey.rdma_address), 0, 0, NULL, NULL,
     "RDMA_HOST[:RDMA_PORT]: the server at address is reached over RDMA, and there"},
    {"valkey", "rdma_nodes", OPTION_WORDS, AT(valkey.rdma_nodes), 0, 0, NULL, NULL,
     "HOST[:PORT]=RDMA_HOST[:RDMA_PORT], HOST[:PORT]=tcp: servers, as named over TCP, that are reached elsewhere"},
    {"valkey", "rdma_fallback", OPTION_TEXT, AT(valkey.rdma_fallback_word), 0, 0, "none", NULL,
     "tcp: a connection over RDMA that cannot be set up is made over TCP; none: the server is down then", true},
    {"valkey", "rdma_auth_in_clear", OPTION_BOOL, AT(valkey.rdma_auth_in_clear), 0, 0, "no", NULL,
     "a password may be sent over RDMA, which encrypts nothing", true},
    {"valkey", "user", OPTION_TEXT, AT(valkey.user), 0, 0, NULL, NULL, "ACL user; without it the default user", true},
    {"valkey", "password_file", OPTION_TEXT, AT(valkey.password_file), 0, 0, NULL, NULL,
     "file whose first line is the password; without it no AUTH is sent", true},
    {"valkey", "auth_max_age_ms", OPTION_COUNT, AT(valkey.auth_max_age_ms), 0, 2592000000, "0", "ms",
     "connections authenticate again before they are older, with the password file as it is then; 0: never", true},
    {"valkey", "connections", OPTION_COUNT, AT(valkey.connections), 1, 1024, "8", NULL,
     "connections that carry transfers: so many transfers run at once"},
    {"valkey", "warm", OPTION_BOOL, AT(valkey.warm), 0, 0, "no", NULL,
     "make connections, lanes and BLOB sessions at start instead of with the first transfers"},
    {"valkey", "fallback", OPTION_TEXT, AT(valkey.fallback_word), 0, 0, "none", NULL,
     "tcp: where this host or a server has no RDMA, values move over the connection to Valkey; none: not at all"},
    {"valkey", "fallback_retry_ms", OPTION_COUNT, AT(valkey.fallback_retry_ms), 1, 3600000, "30000", "ms",
     "with fallback = tcp: how long after the last attempt a transfer tries RDMA again", true},
    {"valkey", "connect_timeout_ms", OPTION_COUNT, AT(valkey.connect_timeout_ms), 1, 600000, "5000", "ms",
     "longest wait for a connection to be made, then for AUTH, then for the session", true},
    {"valkey", "command_timeout_ms", OPTION_COUNT, AT(valkey.command_timeout_ms), 1, 600000, "10000", "ms",
     "longest time that the server may answer none of the commands on keys; then their connection is made anew", true},
    {"valkey", "tls", OPTION_BOOL, AT(valkey.tls_settings.enabled), 0, 0, "no", NULL,
     "speak TLS, 1.2 or newer; the server's certificate is always verified"},
    {"valkey", "tls_ca", OPTION_TEXT, AT(valkey.tls_settings.ca), 0, 0, NULL, NULL,
     "file or folder (PEM) of the authorities that may have signed the server's certificate; without it the system's"},
    {"valkey", "tls_certificate", OPTION_TEXT, AT(valkey.tls_settings.certificate), 0, 0, NULL, NULL,
     "client certificate (PEM), followed by those between it and its authority; needs tls_key"},
    {"valkey", "tls_key", OPTION_TEXT, AT(valkey.tls_settings.key), 0, 0, NULL, NULL,
     "private key (PEM, no passphrase) of tls_certificate"},
    {"valkey", "tls_server_name", OPTION_TEXT, AT(valkey.tls_settings.server_name), 0, 0, NULL, NULL,
     "name or IP address that the server's certificate must have; without it the host of the address"},

    {"fabric", "provider", OPTION_TEXT, AT(fabric.provider), 0, 0, "efa-direct", NULL,
     "libfabric provider: efa-direct, tcp (development) or verbs; never another than this"},
    {"fabric", "library", OPTION_TEXT, AT(fabric.library), 0, 0, NULL, NULL,
     "libfabric.so.1 to load; without it the one the system finds"},
    {"fabric", "required", OPTION_BOOL, AT(fabric_required), 0, 0, "no", NULL,
     "end with status 78 when the fabric cannot be used, instead of serving keys.* only"},
    {"fabric", "interfaces", OPTION_WORDS, AT(fabric.interfaces), 0, 0, NULL, NULL,
     "comma separated fabric interfaces; without it all of the provider"},
    {"fabric", "bind", OPTION_TEXT, AT(fabric.bind), 0, 0, NULL, NULL,
     "tcp, verbs: local address the server can reach; without it the local address of the Valkey connection"},
    {"fabric", "lanes_max", OPTION_COUNT, AT(fabric.lanes_max), 1, 4096, "64", NULL, "endpoints per NIC"},
    {"fabric", "mr_max_bytes", OPTION_BYTES, AT(fabric.mr_max_bytes), 64 * KIB, 64 * TIB, "1G", "bytes",
     "largest memory registration; larger regions are lists of them; a multiple of 64K"},
    {"fabric", "revoke", OPTION_TEXT, AT(fabric.revoke), 0, 0, "full", NULL,
     "efa-direct: destroying an endpoint also closes the registrations it used (full), or not (endpoint)"},
    {"fabric", "revoke_grace_ms", OPTION_NUMBER, AT(revoke_grace_ms), 0, 60000, "50", "ms",
     "how long a deadline waits for an answer on its way before the lane is destroyed", true},

    {"memory", "pinned_limit", OPTION_BYTES, AT(pinned_limit), 0, 1024 * TIB, "0", "bytes",
     "registered memory of all users, counted on each NIC; 0: half of the host's or cgroup's memory", true},
    {"memory", "device_limit", OPTION_BYTES, AT(device_limit), 0, 1024 * TIB, "0", "bytes",
     "registered memory on one NIC; 0: no limit but pinned_limit", true},
    {"memory", "quarantine_restart_bytes", OPTION_BYTES, AT(quarantine_restart_bytes), 0, 1024 * TIB, "0", "bytes",
     "end with status 75, to be started again, when more is registered that did not close; 0: never", true},

    {"limits", "sessions", OPTION_NUMBER, AT(limits.sessions), 1, 1000000, "4096", NULL,
     "open sessions of the daemon", true},
    {"limits", "sessions_per_user", OPTION_NUMBER, AT(limits.sessions_per_user), 1, 1000000, "1024", NULL,
     "open sessions of one user of one socket", true},
    {"limits", "hello_ms", OPTION_NUMBER, AT(limits.hello_ms), 1, 3600000, "10000", "ms",
     "a client that has not said hello by then is disconnected", true},
    {"limits", "requests", OPTION_NUMBER, AT(limits.requests), 1, 65536, "1024", NULL,
     "requests of a session that wait for their answer", true},
    {"limits", "queue", OPTION_NUMBER, AT(limits.queue), 1, 1000000, "4096", NULL,
     "transfers of one user that are queued or running", true},
    {"limits", "regions", OPTION_NUMBER, AT(limits.regions), 1, 1000000, "1024", NULL, "regions of a session", true},
    {"limits", "regions_per_user", OPTION_NUMBER, AT(limits.regions_per_user), 1, 1000000, "4096", NULL,
     "regions of one user of one socket; each may take a descriptor and a mapping of the daemon", true},
    {"limits", "region_bytes", OPTION_BYTES, AT(limits.region_bytes), 4096, PROTO_SIZE_MAX, "1T", "bytes",
     "largest region", true},
    {"limits", "populate", OPTION_BOOL, AT(limits.populate), 0, 0, "yes", NULL,
     "clients may have the daemon allocate missing pages, which its own control group pays for", true},

    {"socket", "path", OPTION_TEXT, AT_SOCKET(path), 0, 0, PROTO_CLIENT_SOCKET, NULL, "client socket"},
    {"socket", "mode", OPTION_MODE, AT_SOCKET(mode), 0, 0777, "0660", NULL, "mode of the socket's file, octal"},
    {"socket", "group", OPTION_TEXT, AT_SOCKET(group), 0, 0, NULL, NULL,
     "group of the socket's file, a name or number; without it the daemon's own"},

    {"policy", "pinned_bytes", OPTION_QUOTA_BYTES, AT_POLICY(pinned_bytes), 0, 1024 * TIB, "none", "bytes",
     "registered memory of a user", true},
    {"policy", "regions", OPTION_QUOTA, AT_POLICY(regions), 0, 1000000, "none", NULL,
     "open regions of a user, over all its sessions; none: [limits] regions_per_user", true},
    {"policy", "sessions", OPTION_QUOTA, AT_POLICY(sessions), 0, 1000000, "none", NULL,
     "open sessions of a user; none: [limits] sessions_per_user", true},
    {"policy", "in_flight", OPTION_QUOTA, AT_POLICY(in_flight), 1, 1000000, "none", NULL,
     "transfers of a user that are sent at once; further ones wait in its queue", true},
    {"policy", "queue", OPTION_QUOTA, AT_POLICY(queue), 0, 1000000, "none", NULL,
     "transfers of a user that are queued or running; none: [limits] queue", true},
    {"policy", "methods", OPTION_METHODS, AT_POLICY(methods), 0, 0, "*", NULL,
     "methods that may be called: names, keys.*, transfer.*; an empty list allows none that reaches the server", true},
    {"policy", "key_prefixes", OPTION_PREFIXES, AT_POLICY(key_prefixes), 0, 0, "*", NULL,
     "bytes, one of which every key must begin with, separated by commas; \\xHH stands for any byte", true},
    {"policy", "read_only", OPTION_SWITCH, AT_POLICY(read_only), 0, 1, "no", NULL,
     "refuse transfer.set, keys.delete and keys.expire", true},
    {"policy", "default_ttl_ms", OPTION_QUOTA, AT_POLICY(default_ttl_ms), 1, PROTO_TTL_MS_MAX, "none", "ms",
     "time to live of what is stored without one", true},
    {"policy", "max_ttl_ms", OPTION_QUOTA, AT_POLICY(max_ttl_ms), 1, PROTO_TTL_MS_MAX, "none", "ms",
     "longest time to live, and that of what is stored without one where there is no shorter default_ttl_ms", true},
    {"policy", "max_value_bytes", OPTION_QUOTA_BYTES, AT_POLICY(max_value_bytes), 1, PROTO_SIZE_MAX, "none", "bytes",
     "largest value that may be stored", true},
    {"policy", "admit", OPTION_SWITCH, AT_POLICY(admit), 0, 1, "yes", NULL,
     "whether a connection becomes a session; yes for a uid also admits the kernel's overflow uid", true},

    {"admin", "path", OPTION_TEXT, AT(admin.path), 0, 0, PROTO_ADMIN_SOCKET, NULL, "admin socket"},
    {"admin", "mode", OPTION_MODE, AT(admin.mode), 0, 0777, "0600", NULL, "mode of the socket's file, octal"},
    {"admin", "group", OPTION_TEXT, AT(admin.group), 0, 0, NULL, NULL, "group of the socket's file"},
    {"admin", "metrics_listen", OPTION_TEXT, AT(metrics_listen), 0, 0, NULL, NULL,
     "loopback address and port, such as 127.0.0.1:9111, where GET /metrics is answered; without it none"},
};

const size_t option_count = sizeof options / sizeof options[0];

const struct option *option_find(const char *section, const char *key)
{
    for (size_t i = 0; i < option_count; i++)
        if (strcmp(options[i].section, section) == 0 && strcmp(options[i].key, key) == 0)
            return &options[i];
    return NULL;
}

/* Powers of 1024; false when the suffix is none or the number would not fit. */
static bool scale(uint64_t *number, const char *suffix)
{
    static const char letters[] = "KMGT";
    const char *at = *suffix != '\0' ? strchr(letters, toupper((unsigned char)*suffix)) : NULL;
    if (*suffix == '\0')
        return true;
    if (at == NULL || suffix[1] != '\0')
        return false;
    for (long i = 0; i <= at - letters; i++)
        if (__builtin_mul_overflow(*number, KIB, number))
            return false;
    return true;
}

static int parse_number(const struct option *option, const char *text, uint64_t *number, char *why)
{
    char *end = NULL;
    errno = 0;
    *number = isdigit((unsigned char)*text) ? strtoull(text, &end, option->kind == OPTION_MODE ? 8 : 10) : 0;
    bool good = end != NULL && errno == 0;
    bool bytes = option->kind == OPTION_BYTES || option->kind == OPTION_QUOTA_BYTES;
    if (good)
        good = bytes ? scale(number, end) : *end == '\0';
    if (!good) {
        snprintf(why, CONFIG_WHY_BYTES, "\"%.64s\" is no %s", text,
                 bytes                         ? "size (digits, then nothing or one of K, M, G, T)"
                 : option->kind == OPTION_MODE ? "octal mode such as 0660"
                                               : "whole number");
        return -EINVAL;
    }
    if (*number < option->min || *number > option->max) {
        snprintf(why, CONFIG_WHY_BYTES,
                 option->kind == OPTION_MODE ? "%s = %s is outside %#llo..%#llo" : "%s = %s is outside %llu..%llu",
                 option->key, text, (unsigned long long)option->min, (unsigned long long)option->max);
        return -EINVAL;
    }
    return 0;
}

static int set_text(char **target, const char *text, char *why)
{
    char *copy = NULL;
    if (*text != '\0' && (copy = strdup(text)) == NULL) {
        snprintf(why, CONFIG_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    free(*target);
    *target = copy;
    return 0;
}

static int add_words(char **target, const char *text, char *why)
{
    char *both = NULL;
    if (*target == NULL || *text == '\0')
        return *text == '\0' ? 0 : set_text(target, text, why);
    if (asprintf(&both, "%s, %s", *target, text) < 0) {
        snprintf(why, CONFIG_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    free(*target);
    *target = both;
    return 0;
}

static int set_bool(bool *target, const char *text, char *why)
{
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "\"%.64s\" is neither yes nor no", text);
        return -EINVAL;
    }
    *target = *text == 'y';
    return 0;
}

static int set_switch(uint64_t *target, const char *text, char *why)
{
    bool on;
    int status = set_bool(&on, text, why);
    if (status == 0)
        *target = on;
    return status;
}

static int add_methods(uint64_t *target, uint64_t methods, const char *text, char *why)
{
    char reason[METHOD_LIST_WHY_BYTES];
    int status = method_list_parse(text, &methods, reason);
    if (status == 0)
        *target = methods;
    else
        snprintf(why, CONFIG_WHY_BYTES, "%s", reason);
    return status;
}

/* A further line. */
static int add_to_methods(uint64_t *target, const char *text, char *why)
{
    if (*target == METHODS_ALL || strcmp(text, "*") == 0) {
        snprintf(why, CONFIG_WHY_BYTES, "* stands for every method, alone");
        return -EINVAL;
    }
    return add_methods(target, *target, text, why);
}

static int parse_prefixes(struct prefixes **list, bool *any, const char *text, char *why)
{
    char reason[PREFIXES_WHY_BYTES];
    int status = prefixes_parse(text, list, any, reason);
    if (status != 0)
        snprintf(why, CONFIG_WHY_BYTES, "%s", reason);
    return status;
}

static int set_prefixes(struct prefixes **target, const char *text, char *why)
{
    struct prefixes *list = NULL;
    bool any;
    int status = parse_prefixes(&list, &any, text, why);
    if (status != 0)
        return status;
    free(*target);
    *target = list;
    return 0;
}

static int add_prefixes(struct prefixes **target, const char *text, char *why)
{
    bool any = *target == NULL;
    int status = any ? 0 : parse_prefixes(target, &any, text, why);
    if (status == 0 && any) {
        snprintf(why, CONFIG_WHY_BYTES, "* stands for every key, alone");
        return -EINVAL;
    }
    return status;
}

bool option_is_list(const struct option *option)
{
    return option->kind == OPTION_WORDS || option->kind == OPTION_METHODS || option->kind == OPTION_PREFIXES;
}

bool option_is_text(const struct option *option)
{
    return option->kind == OPTION_TEXT || option->kind == OPTION_WORDS;
}

int option_add(const struct option *option, void *base, const char *text, char why[CONFIG_WHY_BYTES])
{
    void *member = (char *)base + option->offset;
    if (option->kind == OPTION_WORDS)
        return add_words(member, text, why);
    if (option->kind == OPTION_METHODS)
        return add_to_methods(member, text, why);
    return add_prefixes(member, text, why);
}

int option_set(const struct option *option, void *base, const char *text, char why[CONFIG_WHY_BYTES])
{
    void *member = (char *)base + option->offset;
    if (option_is_text(option))
        return set_text(member, text, why);
    if (option->kind == OPTION_BOOL)
        return set_bool(member, text, why);
    if (option->kind == OPTION_SWITCH)
        return set_switch(member, text, why);
    if (option->kind == OPTION_METHODS)
        return add_methods(member, 0, text, why);
    if (option->kind == OPTION_PREFIXES)
        return set_prefixes(member, text, why);
    uint64_t number;
    bool quota = option->kind == OPTION_QUOTA || option->kind == OPTION_QUOTA_BYTES;
    if (quota && strcmp(text, "none") == 0) {
        *(uint64_t *)member = POLICY_NONE;
        return 0;
    }
    int status = parse_number(option, text, &number, why);
    if (status != 0)
        return status;
    if (option->kind == OPTION_COUNT)
        *(unsigned *)member = (unsigned)number;
    else
        *(uint64_t *)member = number;
    return 0;
}

static size_t value_size(const struct option *option)
{
    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_WORDS:
        return sizeof(char *);
    case OPTION_BOOL:
        return sizeof(bool);
    case OPTION_COUNT:
        return sizeof(unsigned);
    default:
        return sizeof(uint64_t);
    }
}

bool option_equal(const struct option *option, const void *base, const void *from)
{
    const char *one = (const char *)base + option->offset, *other = (const char *)from + option->offset;
    if (option->kind == OPTION_PREFIXES)
        return prefixes_equal(*(struct prefixes *const *)one, *(struct prefixes *const *)other);
    if (!option_is_text(option))
        return memcmp(one, other, value_size(option)) == 0;
    const char *text = *(char *const *)one, *second = *(char *const *)other;
    return text == second || (text != NULL && second != NULL && strcmp(text, second) == 0);
}

void option_swap(const struct option *option, void *base, void *from)
{
    char *one = (char *)base + option->offset, *other = (char *)from + option->offset, kept[sizeof(uint64_t)];
    size_t size = value_size(option);
    memcpy(kept, one, size);
    memcpy(one, other, size);
    memcpy(other, kept, size);
}
