/*
 * A configuration that was read again, against the one in force: what is taken over, and what needs a restart.
 *
 * The struct in force stays where it is, and so do its sockets, whose addresses are part of users' keys: values of keys
 * that can be reloaded (options.c says which) are swapped in, everything else keeps the value that the daemon was
 * started with. So a later reload compares with what is really in force. Loop thread only.
 */
#ifndef GRD_CONFIG_CHANGES_H
#define GRD_CONFIG_CHANGES_H

#include "daemon/config/config.h"

#define CHANGES_MAX 160
#define CHANGE_NAME_BYTES 128

struct config_change {
    char name[CHANGE_NAME_BYTES]; /* "[limits] queue", "[socket NAME]", "[policy]" */
    bool needs_restart;
};

struct config_changes {
    size_t count;
    struct config_change items[CHANGES_MAX];
};

/*
 * Whether `next` can be taken. 0, or -E2BIG with `why`: the policies of sockets that it has no more, which hold as long
 * as these are served, and its own are more than POLICY_SECTIONS.
 */
int config_can_take(const struct config *config, const struct config *next, char why[CONFIG_WHY_BYTES]);

/*
 * Takes over what can be, after config_can_take. `next` afterwards holds what was replaced, which the caller frees with
 * config_free once nothing refers to its policies (policy_resolve borrows their titles).
 */
void config_take(struct config *config, struct config *next, struct config_changes *changes);

#endif
