/*
 * Lists of key prefixes: bytes that a key must begin with, and how they are written in a configuration file.
 *
 * Grammar. Prefixes separated by commas, of which one may follow the last; blanks around one are no part of it. A byte
 * stands for itself, but for the escapes \\ (backslash), \, (comma), \* (asterisk) and \xHH (any byte, two hexadecimal
 * digits; blanks at the ends of a prefix and control characters can be written only so). An asterisk by itself is
 * refused: a prefix is no pattern. One asterisk as the whole list means every key; an empty list means none.
 *
 * A list is immutable, and owned by whoever made it; pure functions, thread safe. See docs/architecture.md,
 * "Permissions".
 */
#ifndef GRD_CONFIG_PREFIXES_H
#define GRD_CONFIG_PREFIXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one list. The bytes of all together bound what `status` has to say. */
#define PREFIXES_MAX 64
#define PREFIXES_BYTES 2048
#define PREFIXES_WHY_BYTES 128

struct prefix {
    uint8_t *bytes; /* in the list's */
    size_t length;  /* from 1 */
};

/* In ascending order; none is the beginning of another. */
struct prefixes {
    size_t count;
    struct prefix items[PREFIXES_MAX];
    uint8_t bytes[PREFIXES_BYTES]; /* of the items */
};

/*
 * Adds the prefixes of a text to a list, made by malloc() where *list is NULL. 0; -EINVAL or -ENOMEM with `why`, the
 * list as it was. *any: the text is an asterisk, and *list untouched. Replaces *list by a new one, and frees the old.
 */
int prefixes_parse(const char *text, struct prefixes **list, bool *any, char why[PREFIXES_WHY_BYTES]);

/* Whether a key begins with one of them. Time: the logarithm of their number. */
bool prefixes_allow(const struct prefixes *list, const void *key, size_t length);

/* Whether two lists, or NULL for every key, allow the same keys. */
bool prefixes_equal(const struct prefixes *list, const struct prefixes *other);

#endif
