#include "daemon/config/prefixes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One prefix being read; `kept` bytes of it are no blanks at its end. */
struct reader {
    uint8_t bytes[PREFIXES_BYTES];
    size_t length, kept;
};

static bool is_blank(char character)
{
    return character == ' ' || character == '\t';
}

static int digit_of(char character)
{
    static const char digits[] = "0123456789abcdef";
    char lower = character >= 'A' && character <= 'F' ? (char)(character - 'A' + 'a') : character;
    const char *at = lower != '\0' ? strchr(digits, lower) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

/* Reads what follows a backslash. */
static bool take_escape(const char **at, uint8_t *byte)
{
    if (**at == 'x') {
        int high = digit_of((*at)[1]), low = high >= 0 ? digit_of((*at)[2]) : -1;

        *byte = (uint8_t)(high * 16 + low);
        *at += 3;
        return low >= 0;
    }
    *byte = (uint8_t)**at;
    *at += 1;
    return *byte == '\\' || *byte == ',' || *byte == '*';
}

/* Reads one prefix, up to its comma or the end. NULL, or what is wrong. */
static const char *read_one(const char **at, struct reader *reader)
{
    reader->length = reader->kept = 0;
    while (is_blank(**at)) {
        (*at)++;
    }
    while (**at != '\0' && **at != ',') {
        char character = *(*at)++;
        uint8_t byte = (uint8_t)character;

        if (character == '*') {
            return "a prefix is no pattern: leave the * out, or write \\* for the byte";
        }
        if (character == '\\' && !take_escape(at, &byte)) {
            return "after a backslash comes \\ or , or * or x and two hexadecimal digits";
        }
        if (reader->length == sizeof(reader->bytes)) {
            return "the prefixes are longer than 2048 bytes together";
        }
        reader->bytes[reader->length++] = byte;
        if (!is_blank(character)) {
            reader->kept = reader->length;
        }
    }
    return reader->kept > 0 ? NULL : "an empty prefix; * alone allows every key";
}

static const char *add(struct prefixes *list, size_t *used, const uint8_t *bytes, size_t length)
{
    if (list->count == PREFIXES_MAX) {
        return "there are more than 64 prefixes";
    }
    if (length > sizeof(list->bytes) - *used) {
        return "the prefixes are longer than 2048 bytes together";
    }
    memcpy(list->bytes + *used, bytes, length);
    list->items[list->count++] = (struct prefix){.bytes = list->bytes + *used, .length = length};
    *used += length;
    return NULL;
}

static bool begins_with(const struct prefix *prefix, const void *bytes, size_t length)
{
    return length >= prefix->length && memcmp(prefix->bytes, bytes, prefix->length) == 0;
}

/* The order of bytes; what begins with another comes after it. */
static int compare(const struct prefix *prefix, const void *bytes, size_t length)
{
    int order = memcmp(prefix->bytes, bytes, prefix->length < length ? prefix->length : length);

    return order != 0 ? order : (prefix->length > length) - (prefix->length < length);
}

static int compare_items(const void *left, const void *right)
{
    const struct prefix *other = right;

    return compare(left, other->bytes, other->length);
}

/* Without those that begin with another: they allow nothing more, and the search needs a single candidate. */
static void put_in_order(struct prefixes *list)
{
    size_t kept = 0;

    qsort(list->items, list->count, sizeof(list->items[0]), compare_items);
    for (size_t i = 0; i < list->count; i++) {
        if (kept == 0 || !begins_with(&list->items[kept - 1], list->items[i].bytes, list->items[i].length)) {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
}

static const char *add_all(const char *text, struct prefixes *list, size_t *used)
{
    struct reader reader;
    const char *wrong = NULL;

    text += strspn(text, " \t");
    while (wrong == NULL && *text != '\0') {
        wrong = read_one(&text, &reader);
        if (wrong == NULL) {
            wrong = add(list, used, reader.bytes, reader.kept);
            text += *text == ',';
            text += strspn(text, " \t");
        }
    }
    return wrong;
}

int prefixes_parse(const char *text, struct prefixes **list, bool *any, char why[PREFIXES_WHY_BYTES])
{
    struct prefixes *made;
    const char *wrong = NULL;
    size_t used = 0;

    *any = strcmp(text, "*") == 0;
    if (*any) {
        return 0;
    }
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        snprintf(why, PREFIXES_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    for (size_t i = 0; *list != NULL && i < (*list)->count; i++) {
        add(made, &used, (*list)->items[i].bytes, (*list)->items[i].length); /* as many as were there */
    }
    wrong = add_all(text, made, &used);
    if (wrong != NULL) {
        snprintf(why, PREFIXES_WHY_BYTES, "%s", wrong);
        free(made);
        return -EINVAL;
    }
    put_in_order(made);
    free(*list);
    *list = made;
    return 0;
}

bool prefixes_allow(const struct prefixes *list, const void *key, size_t length)
{
    size_t low = 0, high = list->count; /* below `low` they are not above the key, from `high` on they are */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare(&list->items[middle], key, length) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    /* One that the key begins with is the last not above it: what lay between would begin with it, too. */
    return low > 0 && begins_with(&list->items[low - 1], key, length);
}

bool prefixes_equal(const struct prefixes *list, const struct prefixes *other)
{
    bool same = list != NULL && other != NULL && list->count == other->count;

    for (size_t i = 0; same && i < list->count; i++) {
        same = compare_items(&list->items[i], &other->items[i]) == 0;
    }
    return same || list == other;
}
