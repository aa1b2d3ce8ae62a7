#include "daemon/config/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/regular_file.h"
#include "daemon/config/options.h"
#include "daemon/config/rdma.h"
#include "daemon/fabric/provider.h"
#include "daemon/metrics/http_listener.h"
#include "daemon/valkey/seeds.h"

#define SOCKET_PREFIX "socket "
#define POLICY "policy"
/* inih cuts longer names of sections and keys without a word. */
#define NAME_BYTES 48
/* It reads no longer lines, and refuses them. */
#define LINE_BYTES (INI_MAX_LINE - 2)

struct reading {
    struct config *config;
    char *why; /* of the first error, without file and line */
    int status;
    FILE *stream;
    const char *path;
    unsigned file, line, header; /* numbers of the file, and in it of the line and the section being read */
    bool indented;               /* the line being read */
    char section[NAME_BYTES + 1], key[NAME_BYTES + 1]; /* of the line before */
};

static int set_defaults(const char *section, void *base, char *why)
{
    for (size_t i = 0; i < option_count; i++) {
        if (strcmp(options[i].section, section) != 0 || options[i].initial == NULL)
            continue;
        int status = option_set(&options[i], base, options[i].initial, why);
        if (status != 0)
            return status;
    }
    return 0;
}

static struct config_socket *find_socket(struct config *config, const char *name)
{
    for (size_t i = 0; i < config->socket_count; i++)
        if (strcmp(config->sockets[i].name, name) == 0)
            return &config->sockets[i];
    return NULL;
}

static struct config_socket *socket_section(struct reading *reading, const char *name)
{
    struct config *config = reading->config;
    struct config_socket *found = find_socket(config, name);
    if (found != NULL)
        return found;
    if (config->socket_count == CONFIG_SOCKETS) {
        snprintf(reading->why, CONFIG_WHY_BYTES, "more than %d [socket NAME] sections", CONFIG_SOCKETS);
        return NULL;
    }
    struct config_socket *added = &config->sockets[config->socket_count];
    if ((added->name = strdup(name)) == NULL || set_defaults("socket", added, reading->why) != 0)
        return NULL;
    config->socket_count++;
    return added;
}

/* inih's way to a line; the callback is told neither its number nor that a section begins. */
static char *next_line(char *line, int size, void *context)
{
    struct reading *reading = context;
    if (fgets(line, size, reading->stream) == NULL)
        return NULL;
    reading->line++;
    const char *byte_order_mark = "\xef\xbb\xbf";
    const char *at = strncmp(line, byte_order_mark, 3) == 0 ? line + 3 : line;
    reading->header += at[strspn(at, " \t\r\n\v\f")] == '[';
    reading->indented = at[0] != '\0' && strchr(" \t\v\f", at[0]) != NULL;
    return line;
}

static int take_policy(struct reading *reading, const char *section, const char *key, const char *value, bool more)
{
    struct policy_section *policy = policy_section_get(reading->config, section, reading->path, reading->line,
                                                       reading->file, reading->header, reading->why);
    if (policy != NULL)
        reading->status = policy_section_set(policy, key, value, more, reading->why);
    return reading->status == 0;
}

/* A policy names a socket by one word. */
static bool is_word(const char *name)
{
    return name[0] != '\0' && name[strcspn(name, " \t")] == '\0';
}

/* "read_only = yes", indented like the key above it: to the letter another prefix of keys, surely meant as a key. */
static bool looks_like_key(const char *section, const char *text)
{
    char name[NAME_BYTES + 1];
    size_t length = strcspn(text, " \t=");
    if (length >= sizeof name || text[length + strspn(text + length, " \t")] != '=')
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    return option_find(section, name) != NULL;
}

/* inih's callback: 1 to go on, 0 for an error; it goes on reading after one, so only the first is kept. */
static int take(void *context, const char *section, const char *key, const char *value)
{
    struct reading *reading = context;
    if (reading->status != 0)
        return 0;
    void *base = reading->config;
    const char *kind = section;
    reading->status = -EINVAL;
    if (strlen(section) > NAME_BYTES || strlen(key) > NAME_BYTES) {
        snprintf(reading->why, CONFIG_WHY_BYTES, "the name of a section or key has more than %d bytes", NAME_BYTES);
        return 0;
    }
    /* inih takes an indented line for more of the value above it, and hands it over as the same key again. */
    bool is_policy = strcmp(section, POLICY) == 0 || strncmp(section, POLICY " ", strlen(POLICY " ")) == 0;
    const struct option *option = option_find(is_policy ? POLICY : section, key);
    bool again = strcmp(section, reading->section) == 0 && strcmp(key, reading->key) == 0;
    bool more = again && reading->indented && option != NULL && option_is_list(option);
    if (again && !more) {
        snprintf(reading->why, CONFIG_WHY_BYTES,
                 "[%s] %s is given twice in a row; an indented line counts as another value of the key above it",
                 section, key);
        return 0;
    }
    if (more && looks_like_key(is_policy ? POLICY : section, value)) {
        snprintf(reading->why, CONFIG_WHY_BYTES,
                 "an indented line goes on with the list above it, %s, and this one looks like a key: do not indent "
                 "it, or write its = as \\x3d", key);
        return 0;
    }
    memcpy(reading->section, section, strlen(section) + 1);
    memcpy(reading->key, key, strlen(key) + 1);
    if (strcmp(section, "socket") == 0) {
        snprintf(reading->why, CONFIG_WHY_BYTES, "a client socket needs a name: [socket NAME]");
        return 0;
    }
    if (is_policy)
        return take_policy(reading, section, key, value, more);
    if (strncmp(section, SOCKET_PREFIX, strlen(SOCKET_PREFIX)) == 0) {
        kind = "socket";
        if (!is_word(section + strlen(SOCKET_PREFIX))) {
            snprintf(reading->why, CONFIG_WHY_BYTES, "[%.64s]: the name of a socket is one word", section);
            return 0;
        }
        base = socket_section(reading, section + strlen(SOCKET_PREFIX));
        if (base == NULL)
            return 0;
    }
    option = option_find(kind, key);
    if (option == NULL) {
        snprintf(reading->why, CONFIG_WHY_BYTES, "no such key: \"%.64s\" in section [%.64s]", key, section);
        return 0;
    }
    reading->status = more ? option_add(option, base, value, reading->why)
                           : option_set(option, base, value, reading->why);
    return reading->status == 0;
}

/* The file that is named on the command line may be a pipe of the shell; what lies in conf.d is found, and waited for by
 * nobody. */
static FILE *open_file(const char *path, bool overlay)
{
    if (!overlay)
        return fopen(path, "re");
    int fd = regular_file_open(AT_FDCWD, path, NULL);
    if (fd < 0) {
        errno = -fd;
        return NULL;
    }
    FILE *file = fdopen(fd, "r");
    if (file == NULL)
        close(fd);
    return file;
}

static int read_file(struct config *config, const char *path, unsigned number, char *why)
{
    char reason[CONFIG_WHY_BYTES];
    FILE *file = open_file(path, number > 0);
    struct reading reading = {.config = config, .why = reason, .stream = file, .path = path, .file = number};
    snprintf(reason, sizeof reason, "neither [section], key = value nor a comment, or longer than %d bytes",
             LINE_BYTES);
    int line = file != NULL ? ini_parse_stream(next_line, &reading, take, &reading) : -1;
    int error = file == NULL || ferror(file) ? errno : 0; /* a folder can be opened, but not read */
    if (file != NULL)
        fclose(file);
    if (error != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "%.300s: %s", path, regular_file_error(-error));
        return -error;
    }
    if (line == 0)
        return 0;
    snprintf(why, CONFIG_WHY_BYTES, "%.200s:%d: %.250s", path, line, reason);
    return reading.status != 0 ? reading.status : -EINVAL;
}

static int is_overlay(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 5 && strcmp(entry->d_name + length - 5, ".conf") == 0;
}

/* A folder that is there but cannot be read is an error: its limits would silently be absent. */
static int read_overlays(struct config *config, const char *path, char *why)
{
    char beside[PATH_MAX], folder[PATH_MAX + 8];
    snprintf(beside, sizeof beside, "%s", path);
    snprintf(folder, sizeof folder, "%s/conf.d", dirname(beside));
    struct dirent **found;
    int count = scandir(folder, &found, is_overlay, alphasort);
    if (count < 0) {
        int error = errno;
        snprintf(why, CONFIG_WHY_BYTES, "%.300s: %s", folder, strerror(error));
        return error == ENOENT ? 0 : -error;
    }
    int status = 0;
    for (int i = 0; i < count; i++) {
        char overlay[sizeof folder + sizeof found[i]->d_name];
        snprintf(overlay, sizeof overlay, "%s/%s", folder, found[i]->d_name);
        free(found[i]);
        if (status == 0)
            status = read_file(config, overlay, (unsigned)i + 1, why);
    }
    free(found);
    return status;
}

#define AUTH_AGE_MIN_MS 100

/* AUTH takes a name and a password: the daemon would be the default user, which mostly may more than the one named. */
static int check_user(const struct valkey_config *valkey, char *why)
{
    if (valkey->user == NULL || valkey->password_file != NULL)
        return 0;
    snprintf(why, CONFIG_WHY_BYTES,
             "[valkey] user is set without password_file: there is no AUTH, and the daemon would be the default user");
    return -EINVAL;
}

static int check_auth_age(const struct valkey_config *valkey, char *why)
{
    if (valkey->auth_max_age_ms == 0)
        return 0;
    if (valkey->password_file == NULL) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] auth_max_age_ms is set without password_file: there is no AUTH");
        return -EINVAL;
    }
    if (valkey->auth_max_age_ms < AUTH_AGE_MIN_MS) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] auth_max_age_ms: %u is less than %d; 0 switches it off",
                 valkey->auth_max_age_ms, AUTH_AGE_MIN_MS);
        return -EINVAL;
    }
    return 0;
}

/* A key of TLS that would silently do nothing is refused. */
static int check_tls(struct valkey_config *valkey, bool is_unix, char *why)
{
    const struct tls_settings *tls = &valkey->tls_settings;
    const char *unused = tls->ca != NULL ? "tls_ca" : tls->certificate != NULL ? "tls_certificate" :
                         tls->key != NULL ? "tls_key" : tls->server_name != NULL ? "tls_server_name" : NULL;
    if (!tls->enabled && unused == NULL)
        return 0;
    if (!tls->enabled) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] %s is set, but tls = no: set tls = yes or remove it", unused);
        return -EINVAL;
    }
    if (is_unix) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] tls = yes, but the address is a Unix socket, where there is no TLS");
        return -EINVAL;
    }
    if ((tls->certificate == NULL) != (tls->key == NULL)) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] %s is set without %s: a client certificate needs both",
                 tls->key == NULL ? "tls_certificate" : "tls_key", tls->key == NULL ? "tls_key" : "tls_certificate");
        return -EINVAL;
    }
    valkey->tls = tls_store_create(tls);
    return valkey->tls != NULL ? 0 : -ENOMEM;
}

/* One server, or seeds of a cluster. */
static int check_servers(struct valkey_config *valkey, char *why)
{
    struct transport_address address = {0};
    struct seed *seeds = NULL;
    size_t count;
    bool is_unix = false;
    int status = check_user(valkey, why);
    if (status == 0)
        status = check_auth_age(valkey, why);
    if (status == 0 && valkey->seeds == NULL) {
        status = transport_address_parse(valkey->address, &address, why);
        is_unix = status == 0 && address.port == NULL;
    } else if (status == 0 && strcmp(valkey->address, option_find("valkey", "address")->initial) != 0) {
        snprintf(why, CONFIG_WHY_BYTES,
                 "[valkey] address = %.100s and seeds = %.100s: give the address of one server or the seeds of a "
                 "cluster, not both", valkey->address, valkey->seeds);
        status = -EINVAL;
    } else if (status == 0) {
        status = seeds_parse(valkey->seeds, &seeds, &count, why);
    }
    transport_address_free(&address);
    free(seeds);
    if (status == 0)
        status = config_check_rdma(valkey, why);
    return status == 0 ? check_tls(valkey, is_unix, why) : status;
}

static int check_metrics_listen(const struct config *config, char *why)
{
    struct sockaddr_storage address;
    char reason[HTTP_WHY_BYTES];
    int status = config->metrics_listen != NULL ? http_address_parse(config->metrics_listen, &address, reason) : 0;
    if (status != 0)
        snprintf(why, CONFIG_WHY_BYTES, "[admin] metrics_listen: %s", reason);
    return status;
}

/* Sessions of the admin socket are of users on a socket of this name, and so is what systemd passes for it. */
static int check_sockets(const struct config *config, char *why)
{
    for (size_t i = 0; i < config->socket_count; i++)
        if (strcmp(config->sockets[i].name, config->admin.name) == 0) {
            snprintf(why, CONFIG_WHY_BYTES, "[socket %s]: this name is the admin socket's, whose section is [admin]",
                     config->admin.name);
            return -EINVAL;
        }
    return 0;
}

/* What spans several keys. */
static int check(struct config *config, char *why)
{
    if (log_level_parse(config->log_level_word, &config->log_level) != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "[daemon] log_level: \"%.32s\" is none of error, warn, notice, info, debug",
                 config->log_level_word);
        return -EINVAL;
    }
    if (provider_facts(config->fabric.provider) == NULL) {
        snprintf(why, CONFIG_WHY_BYTES, "[fabric] provider: \"%.32s\" is none of " FABRIC_PROVIDER_NAMES,
                 config->fabric.provider);
        return -EINVAL;
    }
    if (config->fabric.bind != NULL && provider_facts(config->fabric.provider)->own_address) {
        snprintf(why, CONFIG_WHY_BYTES,
                 "[fabric] bind = %.64s, but an endpoint of provider %s has an address of its own: remove bind",
                 config->fabric.bind, config->fabric.provider);
        return -EINVAL;
    }
    if (config->fabric.mr_max_bytes % (64 * 1024) != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "[fabric] mr_max_bytes: %llu is no multiple of 64K",
                 (unsigned long long)config->fabric.mr_max_bytes);
        return -EINVAL;
    }
    if (strcmp(config->fabric.revoke, "full") != 0 && strcmp(config->fabric.revoke, "endpoint") != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "[fabric] revoke: \"%.32s\" is none of full, endpoint", config->fabric.revoke);
        return -EINVAL;
    }
    if (strcmp(config->valkey.fallback_word, "none") != 0 && strcmp(config->valkey.fallback_word, "tcp") != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] fallback: \"%.32s\" is none of none, tcp",
                 config->valkey.fallback_word);
        return -EINVAL;
    }
    config->valkey.fallback_tcp = strcmp(config->valkey.fallback_word, "tcp") == 0;
    config->fabric.keep_mappings = config->valkey.fallback_tcp; /* its values are written through them */
    int status = check_metrics_listen(config, why);
    if (status == 0)
        status = check_sockets(config, why);
    return status == 0 ? check_servers(&config->valkey, why) : status;
}

/* Text values that must not be emptied: a key with a default that is set to nothing. */
static int check_texts(const struct config *config, char *why)
{
    struct {
        const char *name, *value;
    } needed[] = {{"[valkey] address", config->valkey.address},
                  {"[valkey] fallback", config->valkey.fallback_word},
                  {"[valkey] rdma_fallback", config->valkey.rdma_fallback_word},
                  {"[fabric] provider", config->fabric.provider},
                  {"[fabric] revoke", config->fabric.revoke},
                  {"[daemon] log_level", config->log_level_word},
                  {"[admin] path", config->admin.path}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (needed[i].value == NULL) {
            snprintf(why, CONFIG_WHY_BYTES, "%s must not be empty", needed[i].name);
            return -EINVAL;
        }
    for (size_t i = 0; i < config->socket_count; i++)
        if (config->sockets[i].path == NULL) {
            snprintf(why, CONFIG_WHY_BYTES, "[socket %.64s] path must not be empty", config->sockets[i].name);
            return -EINVAL;
        }
    return 0;
}

int config_load(struct config *config, const char *path, char why[CONFIG_WHY_BYTES])
{
    static const char *const sections[] = {"daemon", "valkey", "fabric", "memory", "limits", "admin"};
    int status = 0;
    memset(config, 0, sizeof *config);
    for (size_t i = 0; status == 0 && i < sizeof sections / sizeof sections[0]; i++)
        status = set_defaults(sections[i], config, why);
    if (status == 0)
        status = read_file(config, path, 0, why);
    if (status == 0)
        status = read_overlays(config, path, why);
    struct reading reading = {.config = config, .why = why};
    if (status == 0 && config->socket_count == 0 && socket_section(&reading, "default") == NULL)
        status = -ENOMEM;
    if (status == 0 && (config->admin.name = strdup("admin")) == NULL)
        status = -ENOMEM;
    if (status == 0)
        status = check_texts(config, why);
    if (status == 0)
        status = check(config, why);
    if (status == 0)
        status = policy_check(config, why);
    if (status == -ENOMEM)
        snprintf(why, CONFIG_WHY_BYTES, "out of memory");
    return status;
}

static void free_texts(const char *section, void *base)
{
    for (size_t i = 0; i < option_count; i++)
        if (strcmp(options[i].section, section) == 0 && option_is_text(&options[i]))
            free(*(char **)((char *)base + options[i].offset));
}

void config_free(struct config *config)
{
    static const char *const sections[] = {"daemon", "valkey", "fabric", "memory", "limits", "admin"};
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        free_texts(sections[i], config);
    for (size_t i = 0; i < config->socket_count; i++) {
        free_texts("socket", &config->sockets[i]);
        free(config->sockets[i].name);
    }
    free(config->admin.name);
    policy_sections_free(config);
    tls_store_unref(config->valkey.tls);
    free(config->valkey.reach);
    memset(config, 0, sizeof *config);
}

void config_print_example(FILE *out)
{
    const char *section = "";
    fputs("# glide-rdmad.conf: every key with its default. Remove the # to change one.\n"
          "# A change of what is marked [reload] is taken over by a reload; anything else needs a restart.\n", out);
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        if (strcmp(section, option->section) != 0) {
            section = option->section;
            fprintf(out, "\n[%s]\n", strcmp(section, "socket") == 0 ? "socket default" : section);
        }
        fprintf(out, "# %s%s%s%s%s\n#%s = %s\n", option->meaning, option->unit != NULL ? " (" : "",
                option->unit != NULL ? option->unit : "", option->unit != NULL ? ")" : "",
                option->reloads ? " [reload]" : "", option->key, option->initial != NULL ? option->initial : "");
    }
}
