/*
 * Configuration: glide-rdmad/glide-rdmad.conf below the build's sysconfdir (/etc where the prefix is /usr), then the
 * .conf files in conf.d beside it by name, each key overriding what came before. One table (options.c) holds every key
 * with its kind, bounds, default and unit; unknown sections and keys are refused, so that a misspelt limit is never
 * silently absent.
 */
#ifndef GRD_CONFIG_CONFIG_H
#define GRD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/config/policy.h"
#include "daemon/fabric/fabric.h"
#include "daemon/valkey/resp.h"

#ifndef GRD_SYSCONFDIR
#error "GRD_SYSCONFDIR comes from the build"
#endif
#define CONFIG_PATH GRD_SYSCONFDIR "/glide-rdmad/glide-rdmad.conf"
#define CONFIG_SOCKETS 16
#define CONFIG_WHY_BYTES 768 /* at least TRANSPORT_WHY_BYTES */

/* A listening socket: [socket NAME] or [admin]. */
struct config_socket {
    char *name;  /* "default", ...; "admin" for the admin socket */
    char *path;
    char *group; /* NULL: the daemon's own group */
    uint64_t mode;
};

struct config_limits {
    uint64_t sessions;          /* open sessions, whole daemon */
    uint64_t sessions_per_user; /* user = (socket, uid); a [policy] may say another */
    uint64_t hello_ms;          /* from the connection to hello */
    uint64_t requests;          /* accepted and not yet answered, per session */
    uint64_t queue;             /* transfers queued or running, per user; a [policy] may say another */
    uint64_t regions;           /* per session */
    uint64_t regions_per_user;  /* each may hold a descriptor and a mapping of the daemon; a [policy] may say another */
    uint64_t region_bytes;      /* largest region */
    bool populate;              /* clients may have the daemon allocate pages, which its control group pays for */
};

struct config {
    char *log_level_word;
    enum log_level log_level;
    uint64_t drain_ms;
    struct valkey_config valkey;
    struct fabric_config fabric;
    bool fabric_required;
    uint64_t revoke_grace_ms;
    uint64_t pinned_limit; /* bytes; 0: half of the memory */
    uint64_t device_limit; /* bytes on one NIC; 0: none */
    uint64_t quarantine_restart_bytes; /* 0: never */
    struct config_limits limits;
    struct config_socket sockets[CONFIG_SOCKETS];
    size_t socket_count;
    struct config_socket admin;
    char *metrics_listen; /* NULL: no TCP listener */
    struct policy_section policies[POLICY_SECTIONS]; /* in the order of the configuration */
    size_t policy_count;
};

/*
 * Reads `path` and its conf.d. 0, or -ENOENT / -EINVAL / -EIO with file, line and reason in `why`. Reads files: at
 * start, or on a worker. Free with config_free in every case.
 */
int config_load(struct config *config, const char *path, char why[CONFIG_WHY_BYTES]);
void config_free(struct config *config);

/* Writes every key with its default, unit and meaning as a commented example file. */
void config_print_example(FILE *out);

#endif
