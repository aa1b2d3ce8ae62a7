/*
 * Policy sections: what single users may do and how much, by socket, uid and gid.
 *
 * Grammar. [policy], [policy socket NAME], [policy uid N], [policy gid N], [policy socket NAME uid N] and
 * [policy socket NAME gid N], with single blanks; NAME is that of a client socket, N is decimal, no name service is
 * asked. A file holds at most one section for a subject; a later file may have it again, and its keys override.
 *
 * Precedence, for each key alone, most specific first: socket and uid, uid, socket and gid, gid, socket, plain. A key
 * that a section does not set falls through to the next. A gid is the peer's primary or a supplementary group; where
 * two sections of the same rank match, the one that comes first in the configuration wins.
 *
 * A policy is what these sections come to for one session: quotas, which bound how much a user may use, and
 * permissions, which say what a session may do. A new key takes a row in options.c, a member of struct policy_values, a
 * name in enum policy_key; parsing, precedence, documentation and the example follow from that. What sections and
 * policies point to is the configuration's: a policy must be resolved anew before its configuration is freed. No
 * globals: thread safe as long as the configuration does not change. See docs/architecture.md, "Quotas" and
 * "Permissions".
 */
#ifndef GRD_CONFIG_POLICY_H
#define GRD_CONFIG_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define POLICY_SECTIONS 128
#define POLICY_NONE UINT64_MAX /* a quota, a time or a size of "none" */
#define POLICY_NAME_BYTES 128

/* In the order of the rows of section "policy" in options.c; a unit test compares. Quotas first. */
enum policy_key {
    POLICY_PINNED_BYTES,
    POLICY_REGIONS,
    POLICY_SESSIONS,
    POLICY_IN_FLIGHT,
    POLICY_QUEUE,
    POLICY_QUOTAS,
    POLICY_METHODS = POLICY_QUOTAS,
    POLICY_KEY_PREFIXES,
    POLICY_READ_ONLY,
    POLICY_DEFAULT_TTL,
    POLICY_MAX_TTL,
    POLICY_MAX_VALUE,
    POLICY_ADMIT,
    POLICY_KEYS
};

struct prefixes;

struct policy_values {
    uint64_t pinned_bytes; /* charged for the user */
    uint64_t regions;      /* of the user, over all its sessions */
    uint64_t sessions;
    uint64_t in_flight;    /* transfers sent at once */
    uint64_t queue;        /* transfers that wait or run */
    uint64_t methods;      /* a set of bits (method_list.h) */
    struct prefixes *key_prefixes; /* owned by the section; NULL: every key */
    uint64_t read_only;            /* 0 or 1 */
    uint64_t default_ttl_ms;       /* POLICY_NONE: none */
    uint64_t max_ttl_ms;
    uint64_t max_value_bytes;      /* of a set */
    uint64_t admit;                /* 0 or 1 */
};

/* Ranks of precedence, the strongest last. */
enum policy_rank { POLICY_PLAIN, POLICY_SOCKET, POLICY_GID, POLICY_SOCKET_GID, POLICY_UID, POLICY_SOCKET_UID };

struct policy_section {
    enum policy_rank rank;
    char *title;  /* owned: "[policy uid 1000]" */
    char *socket; /* owned: the NAME, or NULL */
    uint32_t id;  /* uid or gid */
    char *where;  /* owned: "file:line" of its first key, in the file that was read last */
    unsigned file, header; /* where its last key stood: the file's number, the header's number in it */
    bool set[POLICY_KEYS];
    struct policy_values values;
};

/* Who asks. `gids`: the primary and the supplementary groups, in any order. */
struct policy_subject {
    const char *socket;
    uid_t uid;
    const gid_t *gids;
    size_t gid_count;
};

struct policy {
    struct policy_values values;           /* POLICY_NONE: no quota */
    const char *title[POLICY_KEYS];        /* of the section that decided; NULL: none did */
    enum policy_rank rank[POLICY_KEYS];    /* of that section; PLAIN where none decided */
    const char *fallback[POLICY_KEYS];     /* "[limits] queue" where a limit for everybody stands in; or NULL */
};

struct config;

/*
 * The section of a title without its brackets, "policy uid 7", added where there is none yet. `file` and `header`
 * count the files read and the headers in the file. NULL with `why`: wrong grammar, too many sections, twice in one
 * file, out of memory.
 */
struct policy_section *policy_section_get(struct config *config, const char *title, const char *path, unsigned line,
                                          unsigned file, unsigned header, char *why);

/* Sets a key of a section, or with `more` adds to the list that it is. 0, or -EINVAL, -ENOMEM with `why`. */
int policy_section_set(struct policy_section *section, const char *key, const char *text, bool more, char *why);

/* After the last file: every socket named by a section must be there. 0, or -EINVAL with file, line and reason. */
int policy_check(const struct config *config, char *why);

void policy_sections_free(struct config *config);

/* What applies to a session. At its start, and again when the configuration was read anew. */
void policy_resolve(const struct config *config, const struct policy_subject *subject, struct policy *policy);

/* What applies where no section may: the limits for everybody alone. */
void policy_without_sections(const struct config *config, struct policy *policy);

/* Nothing that reaches the server may be called. `reason`, a constant, stands for the section: "... does not allow". */
void policy_allow_nothing(struct policy *policy, const char *reason);

/* Whether a section that names the session's uid admits it, and not only one for many. */
bool policy_admits_uid(const struct policy *policy);

/* Whether any section asks for groups. */
bool policy_asks_groups(const struct config *config);

/* A quota's number (POLICY_NONE: there is none); the name of a quota or permission on the wire, which is its key. */
uint64_t policy_limit(const struct policy *policy, enum policy_key key);
const char *policy_key_name(enum policy_key key);

/* Where a quota or permission comes from: "[policy uid 1000] pinned_bytes", "[limits] queue". */
void policy_origin(const struct policy *policy, enum policy_key key, char text[POLICY_NAME_BYTES]);

#endif
