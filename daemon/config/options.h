/*
 * The table of configuration keys: the one place where a key, its bounds, its default and its unit stand.
 */
#ifndef GRD_CONFIG_OPTIONS_H
#define GRD_CONFIG_OPTIONS_H

#include "daemon/config/config.h"

enum option_kind {
    OPTION_TEXT,   /* char *; empty: NULL */
    OPTION_WORDS,  /* the same, a list: what further lines hold stands behind a comma */
    OPTION_NUMBER, /* uint64_t */
    OPTION_COUNT,  /* unsigned */
    OPTION_BYTES,  /* uint64_t, with K, M, G or T for powers of 1024 */
    OPTION_MODE,   /* uint64_t, octal */
    OPTION_BOOL,   /* bool: yes or no */
    OPTION_QUOTA,  /* uint64_t, or POLICY_NONE for the word "none" */
    OPTION_QUOTA_BYTES, /* the same, with K, M, G or T */
    OPTION_SWITCH,      /* uint64_t, 0 or 1: no or yes */
    OPTION_METHODS,     /* uint64_t: a set of methods (method_list.h) */
    OPTION_PREFIXES,    /* struct prefixes *, owned; NULL: every key */
};

struct option {
    const char *section; /* "socket" stands for every [socket NAME]: offsets are then in struct config_socket; "policy"
                          * for every [policy ...]: in struct policy_values */
    const char *key;
    enum option_kind kind;
    size_t offset;
    uint64_t min, max;    /* of numbers */
    const char *initial;  /* default as text; NULL: none */
    const char *unit;     /* "ms", "bytes", ...; NULL */
    const char *meaning;
    bool reloads;         /* a changed value is taken over by a reload; else it needs a restart (changes.h) */
};

extern const struct option options[];
extern const size_t option_count;

/* Whether two structs of the option's section have the same value; and makes the value of `from` that of `base`, which
 * gives its own to `from`: so a text keeps having one owner. */
bool option_equal(const struct option *option, const void *base, const void *from);
void option_swap(const struct option *option, void *base, void *from);

/* Whether its value is a char *, owned by its struct. */
bool option_is_text(const struct option *option);

/* Sets `option` inside `base` (struct config, config_socket or policy_values) from text. 0, or -EINVAL with `why`. */
int option_set(const struct option *option, void *base, const char *text, char why[CONFIG_WHY_BYTES]);

/* Whether a key is a list, to which further lines may add; and adds one. Status as above. */
bool option_is_list(const struct option *option);
int option_add(const struct option *option, void *base, const char *text, char why[CONFIG_WHY_BYTES]);

/* The option of a section and key, or NULL. */
const struct option *option_find(const char *section, const char *key);

#endif
