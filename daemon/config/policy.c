#include "daemon/config/policy.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/method_list.h"
#include "daemon/config/options.h"
#include "daemon/config/prefixes.h"

#define GRAMMAR "[policy], [policy uid N], [policy gid N], [policy socket NAME] or [policy socket NAME uid N or gid N]"

/* --- parsing ------------------------------------------------------------------------------------------------------ */

/* What a title says; `socket` points into it. */
struct subject {
    const char *socket;
    size_t socket_length;
    enum policy_rank rank;
    uint32_t id;
};

/* Takes `word` and the blank behind it off the front. */
static bool take_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0 || (*at)[length] != ' ')
        return false;
    *at += length + 1;
    return true;
}

/* Digits only, no leading zero, since 010 may be meant as octal; -1 as a number stands for "no id". */
static bool take_id(const char **at, uint32_t *id)
{
    uint64_t number = 0;
    const char *digits = *at;
    if (!isdigit((unsigned char)*digits) || (digits[0] == '0' && isdigit((unsigned char)digits[1])))
        return false;
    for (; isdigit((unsigned char)**at); (*at)++) {
        number = number * 10 + (uint64_t)(**at - '0');
        if (number >= UINT32_MAX)
            return false;
    }
    *id = (uint32_t)number;
    return true;
}

static bool parse_title(const char *title, struct subject *subject)
{
    const char *at = title + strlen("policy");
    *subject = (struct subject){.rank = POLICY_PLAIN};
    if (*at == '\0')
        return true;
    at++; /* the blank, by which the caller knew the section */
    if (take_word(&at, "socket")) {
        subject->socket = at;
        subject->socket_length = strcspn(at, " ");
        subject->rank = POLICY_SOCKET;
        at += subject->socket_length;
        if (subject->socket_length == 0)
            return false;
        if (*at == '\0')
            return true;
        at++;
    }
    bool uid = take_word(&at, "uid");
    if (!uid && !take_word(&at, "gid"))
        return false;
    if (!take_id(&at, &subject->id) || *at != '\0')
        return false;
    if (subject->socket != NULL)
        subject->rank = uid ? POLICY_SOCKET_UID : POLICY_SOCKET_GID;
    else
        subject->rank = uid ? POLICY_UID : POLICY_GID;
    return true;
}

static bool about(const struct policy_section *section, const struct subject *subject)
{
    return section->rank == subject->rank && section->id == subject->id &&
           (subject->socket == NULL || (strlen(section->socket) == subject->socket_length &&
                                        memcmp(section->socket, subject->socket, subject->socket_length) == 0));
}

static char *bracketed(const char *title)
{
    size_t size = strlen(title) + 3;
    char *text = malloc(size);
    if (text != NULL)
        snprintf(text, size, "[%s]", title);
    return text;
}

static struct policy_section *add_section(struct config *config, const struct subject *subject, const char *title,
                                          char *why)
{
    struct policy_section *section = &config->policies[config->policy_count];
    if (config->policy_count == POLICY_SECTIONS) {
        snprintf(why, CONFIG_WHY_BYTES, "more than %d [policy ...] sections", POLICY_SECTIONS);
        return NULL;
    }
    memset(section, 0, sizeof *section);
    section->rank = subject->rank;
    section->id = subject->id;
    section->title = bracketed(title);
    section->socket = subject->socket != NULL ? strndup(subject->socket, subject->socket_length) : NULL;
    config->policy_count++; /* what it has is freed with the rest */
    if (section->title == NULL || (subject->socket != NULL && section->socket == NULL)) {
        snprintf(why, CONFIG_WHY_BYTES, "out of memory");
        return NULL;
    }
    return section;
}

/* Notes where the section stands; false with `why` where it stands twice in one file. */
static bool note_place(struct policy_section *section, const char *path, unsigned line, unsigned file, unsigned header,
                       char *why)
{
    if (section->where != NULL && section->file == file && section->header == header)
        return true;
    if (section->where != NULL && section->file == file) {
        snprintf(why, CONFIG_WHY_BYTES, "%s is there twice, first at %.200s", section->title, section->where);
        return false;
    }
    size_t size = strlen(path) + 16;
    char *where = malloc(size);
    if (where == NULL) {
        snprintf(why, CONFIG_WHY_BYTES, "out of memory");
        return false;
    }
    snprintf(where, size, "%s:%u", path, line);
    free(section->where);
    section->where = where;
    section->file = file;
    section->header = header;
    return true;
}

struct policy_section *policy_section_get(struct config *config, const char *title, const char *path, unsigned line,
                                          unsigned file, unsigned header, char *why)
{
    struct subject subject;
    struct policy_section *section = NULL;
    if (!parse_title(title, &subject)) {
        snprintf(why, CONFIG_WHY_BYTES, "[%.64s] is none of " GRAMMAR ", with decimal N", title);
        return NULL;
    }
    for (size_t i = 0; section == NULL && i < config->policy_count; i++)
        if (about(&config->policies[i], &subject))
            section = &config->policies[i];
    if (section == NULL)
        section = add_section(config, &subject, title, why);
    return section != NULL && note_place(section, path, line, file, header, why) ? section : NULL;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Row `key` of the section "policy" in options.c. */
static const struct option *option_of(enum policy_key key)
{
    const struct option *first = options;
    while (strcmp(first->section, "policy") != 0)
        first++;
    return first + key;
}

const char *policy_key_name(enum policy_key key)
{
    return option_of(key)->key;
}

int policy_section_set(struct policy_section *section, const char *key, const char *text, bool more, char *why)
{
    for (enum policy_key i = 0; i < POLICY_KEYS; i++) {
        const struct option *option = option_of(i);
        if (strcmp(option->key, key) != 0)
            continue;
        int status = more ? option_add(option, &section->values, text, why)
                          : option_set(option, &section->values, text, why);
        section->set[i] |= status == 0;
        return status;
    }
    snprintf(why, CONFIG_WHY_BYTES, "no such key: \"%.64s\" in section %.64s", key, section->title);
    return -EINVAL;
}

int policy_check(const struct config *config, char *why)
{
    for (size_t i = 0; i < config->policy_count; i++) {
        const struct policy_section *section = &config->policies[i];
        bool found = section->socket == NULL;
        for (size_t j = 0; !found && j < config->socket_count; j++)
            found = strcmp(config->sockets[j].name, section->socket) == 0;
        if (!found) {
            snprintf(why, CONFIG_WHY_BYTES, "%.200s: %.100s: there is no [socket %.64s]", section->where,
                     section->title, section->socket);
            return -EINVAL;
        }
    }
    return 0;
}

void policy_sections_free(struct config *config)
{
    for (size_t i = 0; i < config->policy_count; i++) {
        free(config->policies[i].title);
        free(config->policies[i].socket);
        free(config->policies[i].where);
        free(config->policies[i].values.key_prefixes);
    }
    config->policy_count = 0;
}

/* --- resolving ---------------------------------------------------------------------------------------------------- */

static bool has_group(const struct policy_subject *subject, uint32_t gid)
{
    for (size_t i = 0; i < subject->gid_count; i++)
        if (subject->gids[i] == gid)
            return true;
    return false;
}

static bool matches(const struct policy_section *section, const struct policy_subject *subject)
{
    if (section->socket != NULL && strcmp(section->socket, subject->socket) != 0)
        return false;
    switch (section->rank) {
    case POLICY_UID:
    case POLICY_SOCKET_UID:
        return section->id == subject->uid;
    case POLICY_GID:
    case POLICY_SOCKET_GID:
        return has_group(subject, section->id);
    case POLICY_PLAIN:
    case POLICY_SOCKET:
        break;
    }
    return true;
}

static uint64_t *value_of(struct policy_values *values, enum policy_key key)
{
    return (uint64_t *)((char *)values + option_of(key)->offset);
}

static uint64_t read_value(const struct policy_values *values, enum policy_key key)
{
    return *(const uint64_t *)((const char *)values + option_of(key)->offset);
}

uint64_t policy_limit(const struct policy *policy, enum policy_key key)
{
    return read_value(&policy->values, key);
}

static void copy_value(struct policy_values *to, const struct policy_values *from, enum policy_key key)
{
    if (key == POLICY_KEY_PREFIXES)
        to->key_prefixes = from->key_prefixes;
    else
        *value_of(to, key) = read_value(from, key);
}

/* What holds where no section says anything: no quota, everything allowed. */
static void allow_all(struct policy *policy)
{
    memset(policy, 0, sizeof *policy);
    for (enum policy_key key = 0; key < POLICY_QUOTAS; key++)
        *value_of(&policy->values, key) = POLICY_NONE;
    policy->values.methods = METHODS_ALL;
    policy->values.default_ttl_ms = policy->values.max_ttl_ms = policy->values.max_value_bytes = POLICY_NONE;
    policy->values.admit = true;
}

/* What has a bound for everybody keeps it where no section says another. */
static void fall_back(struct policy *policy, enum policy_key key, uint64_t limit, const char *name)
{
    uint64_t *value = value_of(&policy->values, key);
    if (*value != POLICY_NONE)
        return;
    *value = limit;
    policy->title[key] = NULL;
    policy->fallback[key] = name;
}

void policy_without_sections(const struct config *config, struct policy *policy)
{
    allow_all(policy);
    fall_back(policy, POLICY_SESSIONS, config->limits.sessions_per_user, "[limits] sessions_per_user");
    fall_back(policy, POLICY_QUEUE, config->limits.queue, "[limits] queue");
    fall_back(policy, POLICY_REGIONS, config->limits.regions_per_user, "[limits] regions_per_user");
}

void policy_resolve(const struct config *config, const struct policy_subject *subject, struct policy *policy)
{
    allow_all(policy);
    for (size_t i = 0; i < config->policy_count; i++) {
        const struct policy_section *section = &config->policies[i];
        if (!matches(section, subject))
            continue;
        for (enum policy_key key = 0; key < POLICY_KEYS; key++) {
            if (!section->set[key] || (policy->title[key] != NULL && section->rank <= policy->rank[key]))
                continue;
            copy_value(&policy->values, &section->values, key);
            policy->title[key] = section->title;
            policy->rank[key] = section->rank;
        }
    }
    fall_back(policy, POLICY_SESSIONS, config->limits.sessions_per_user, "[limits] sessions_per_user");
    fall_back(policy, POLICY_QUEUE, config->limits.queue, "[limits] queue");
    fall_back(policy, POLICY_REGIONS, config->limits.regions_per_user, "[limits] regions_per_user");
}

void policy_allow_nothing(struct policy *policy, const char *reason)
{
    policy->values.methods = METHODS_ALWAYS;
    policy->title[POLICY_METHODS] = NULL;
    policy->fallback[POLICY_METHODS] = reason;
}

bool policy_admits_uid(const struct policy *policy)
{
    enum policy_rank rank = policy->rank[POLICY_ADMIT];
    return policy->values.admit && policy->title[POLICY_ADMIT] != NULL &&
           (rank == POLICY_UID || rank == POLICY_SOCKET_UID);
}

bool policy_asks_groups(const struct config *config)
{
    for (size_t i = 0; i < config->policy_count; i++)
        if (config->policies[i].rank == POLICY_GID || config->policies[i].rank == POLICY_SOCKET_GID)
            return true;
    return false;
}

void policy_origin(const struct policy *policy, enum policy_key key, char text[POLICY_NAME_BYTES])
{
    if (policy->title[key] != NULL)
        snprintf(text, POLICY_NAME_BYTES, "%.100s %s", policy->title[key], policy_key_name(key));
    else
        snprintf(text, POLICY_NAME_BYTES, "%s", policy->fallback[key] != NULL ? policy->fallback[key] : "no section");
}
