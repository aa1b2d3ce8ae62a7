#include "daemon/config/changes.h"

#include <errno.h>
#include <string.h>

#include "daemon/config/options.h"
#include "daemon/valkey/reach.h"

static void note(struct config_changes *changes, const char *section, const char *key, bool needs_restart)
{
    struct config_change *change = &changes->items[changes->count];

    if (changes->count == CHANGES_MAX) {
        return;
    }
    snprintf(change->name, sizeof(change->name), "[%.64s]%s%.48s", section, key[0] != '\0' ? " " : "", key);
    change->needs_restart = needs_restart;
    changes->count++;
}

/* Of nodes that nothing is said of. */
static bool over_rdma(const struct valkey_config *valkey)
{
    return valkey->reach != NULL && valkey->reach->rdma;
}

/* A list of seeds is read whenever there is no map; between a cluster and one server there is no way, nor is there
 * between nodes over TCP and over RDMA, which seeds may say. */
static bool can_be_taken(const struct option *option, const struct config *config, const struct config *next)
{
    bool seeds = strcmp(option->section, "valkey") == 0 && strcmp(option->key, "seeds") == 0;

    return option->reloads && (!seeds || (config->valkey.seeds != NULL && next->valkey.seeds != NULL &&
                                          over_rdma(&config->valkey) == over_rdma(&next->valkey)));
}

static void take_keys(struct config *config, struct config *next, struct config_changes *changes)
{
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        bool single = strcmp(option->section, "socket") != 0 && strcmp(option->section, "policy") != 0;

        if (!single || option_equal(option, config, next)) {
            continue;
        }
        note(changes, option->section, option->key, !can_be_taken(option, config, next));
        if (can_be_taken(option, config, next)) {
            option_swap(option, config, next);
        }
    }
    config->log_level = next->log_level;
    config->valkey.rdma_fallback = next->valkey.rdma_fallback;
}

static const struct config_socket *socket_of(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->socket_count; i++) {
        if (strcmp(config->sockets[i].name, name) == 0) {
            return &config->sockets[i];
        }
    }
    return NULL;
}

static void compare_socket(const struct config_socket *socket, const struct config_socket *other,
                           struct config_changes *changes)
{
    char section[CHANGE_NAME_BYTES];

    snprintf(section, sizeof(section), "socket %.48s", socket->name);
    if (other == NULL) {
        note(changes, section, "", true);
        return;
    }
    for (size_t i = 0; i < option_count; i++) {
        if (strcmp(options[i].section, "socket") == 0 && !option_equal(&options[i], socket, other)) {
            note(changes, section, options[i].key, true);
        }
    }
}

static void compare_sockets(const struct config *config, const struct config *next, struct config_changes *changes)
{
    for (size_t i = 0; i < config->socket_count; i++) {
        compare_socket(&config->sockets[i], socket_of(next, config->sockets[i].name), changes);
    }
    for (size_t i = 0; i < next->socket_count; i++) {
        if (socket_of(config, next->sockets[i].name) == NULL) {
            compare_socket(&next->sockets[i], NULL, changes);
        }
    }
}

/* A socket that the files name no more is served until a restart: what they said of it must not be forgotten before,
 * or its clients would be free of it. */
static bool holds_on(const struct config *config, const struct config *next, const struct policy_section *section)
{
    return section->socket != NULL && socket_of(config, section->socket) != NULL &&
           socket_of(next, section->socket) == NULL;
}

static size_t count_holding_on(const struct config *config, const struct config *next)
{
    size_t count = 0;

    for (size_t i = 0; i < config->policy_count; i++) {
        count += holds_on(config, next, &config->policies[i]) ? 1 : 0;
    }
    return count;
}

int config_can_take(const struct config *config, const struct config *next, char why[CONFIG_WHY_BYTES])
{
    size_t kept = count_holding_on(config, next);

    if (kept + next->policy_count <= POLICY_SECTIONS) {
        return 0;
    }
    snprintf(why, CONFIG_WHY_BYTES,
             "%zu [policy socket ...] sections hold on for sockets that are served until a restart, and with the %zu "
             "new ones there would be more than %d: restart the daemon", kept, next->policy_count, POLICY_SECTIONS);
    return -E2BIG;
}

static bool same_section(const struct policy_section *one, const struct policy_section *other)
{
    bool same = strcmp(one->title, other->title) == 0 && memcmp(one->set, other->set, sizeof(one->set)) == 0;

    for (size_t k = 0; same && k < option_count; k++) {
        same = strcmp(options[k].section, "policy") != 0 || option_equal(&options[k], &one->values, &other->values);
    }
    return same;
}

/* Their order counts, too. */
static bool same_policies(const struct config *config, const struct config *next)
{
    bool same = config->policy_count - count_holding_on(config, next) == next->policy_count;

    for (size_t i = 0, j = 0; same && i < config->policy_count; i++) {
        same = holds_on(config, next, &config->policies[i]) ||
               same_section(&config->policies[i], &next->policies[j++]);
    }
    return same;
}

/* To the new ones, and out of those that are about to be freed. */
static void keep_policies(struct config *config, struct config *next)
{
    size_t left = 0;

    for (size_t i = 0; i < config->policy_count; i++) {
        if (holds_on(config, next, &config->policies[i])) {
            next->policies[next->policy_count++] = config->policies[i];
        } else {
            config->policies[left++] = config->policies[i];
        }
    }
    config->policy_count = left;
}

static void take_policies(struct config *config, struct config *next)
{
    keep_policies(config, next);
    for (size_t i = 0; i < POLICY_SECTIONS; i++) {
        struct policy_section kept = config->policies[i];
        config->policies[i] = next->policies[i];
        next->policies[i] = kept;
    }
    size_t count = config->policy_count;
    config->policy_count = next->policy_count;
    next->policy_count = count;
}

void config_take(struct config *config, struct config *next, struct config_changes *changes)
{
    changes->count = 0;
    take_keys(config, next, changes);
    compare_sockets(config, next, changes);
    if (!same_policies(config, next)) {
        note(changes, "policy", "", false);
    }
    take_policies(config, next);
}
