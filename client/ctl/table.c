#include "client/ctl/table.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"
#include "client/ctl/text.h"

#define GAP 2 /* blanks between columns */

static char *copy(const char *text)
{
    return need_memory(strdup(text));
}

static char *cell_text(const json_t *value)
{
    return json_string_length(value) > 0 ? text_safe(json_string_value(value), json_string_length(value)) : copy("-");
}

/* A text, or bytes that are none. */
static void print_word(FILE *stream, const json_t *word)
{
    const json_t *base64 = json_object_get(word, "key_b64");
    char *text = cell_text(base64 != NULL ? base64 : word);

    fprintf(stream, " %s%s", base64 != NULL ? "base64:" : "", text);
    free(text);
}

/* Numbers whose names say bytes are shown as such. */
static void print_value(FILE *stream, const char *key, const json_t *value)
{
    char out[TEXT_NUMBER_BYTES];
    const json_t *entry;
    size_t at;

    if (json_is_boolean(value)) {
        fprintf(stream, " %s", json_is_true(value) ? "yes" : "no");
    } else if (json_is_array(value)) {
        fputs(json_array_size(value) == 0 ? " none" : "", stream);
        json_array_foreach(value, at, entry) {
            print_word(stream, entry);
        }
    } else if (strstr(key, "bytes") != NULL) {
        fprintf(stream, " %s", text_bytes(out, (uint64_t)json_integer_value(value)));
    } else {
        fprintf(stream, " %" JSON_INTEGER_FORMAT, json_integer_value(value));
    }
}

/* Quotas, or permissions. */
static char *cell_quotas(json_t *quotas)
{
    char *all = copy(""), *next, *name;
    const char *key;
    json_t *value;

    json_object_foreach(quotas, key, value) {
        size_t size;
        FILE *stream = need_memory(open_memstream(&next, &size));

        name = text_safe(key, strlen(key));
        fprintf(stream, "%s%s%s", all, all[0] != '\0' ? ", " : "", name);
        print_value(stream, key, value);
        fclose(stream);
        need_memory(next);
        free(name);
        free(all);
        all = next;
    }
    return all;
}

char *table_cell(enum cell cell, json_t *value)
{
    char out[TEXT_NUMBER_BYTES];

    if (json_is_string(value)) {
        return cell_text(value);
    }
    if (json_is_boolean(value)) {
        return copy(json_is_true(value) ? "yes" : "no");
    }
    if (cell == CELL_QUOTAS && json_object_size(value) > 0) {
        return cell_quotas(value);
    }
    if (!json_is_integer(value)) {
        return copy("-");
    }
    switch (cell) {
    case CELL_BYTES:
        return copy(text_bytes(out, (uint64_t)json_integer_value(value)));
    case CELL_MICROSECONDS:
        return copy(text_duration(out, (uint64_t)json_integer_value(value)));
    default:
        snprintf(out, sizeof(out), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return copy(out);
    }
}

static bool to_the_right(enum cell cell)
{
    return cell == CELL_NUMBER || cell == CELL_BYTES || cell == CELL_MICROSECONDS;
}

/* The last column is not filled up. */
static void print_cell(const struct column *column, const char *text, size_t width, bool last)
{
    int blanks = (int)(width - text_width(text));

    if (to_the_right(column->cell)) {
        printf("%*s%s", blanks, "", text);
    } else {
        printf("%s%*s", text, last ? 0 : blanks, "");
    }
    printf("%*s", last ? 0 : GAP, "");
}

static void print_line(const struct column *columns, size_t count, char *const *cells, const size_t *widths)
{
    for (size_t i = 0; i < count; i++) {
        print_cell(&columns[i], cells[i], widths[i], i + 1 == count);
    }
    putchar('\n');
}

static void widen(size_t *width, const char *text)
{
    size_t own = text_width(text);

    *width = own > *width ? own : *width;
}

void table_print(const struct column *columns, size_t count, json_t *entries)
{
    size_t lines = json_array_size(entries) + 1; /* the heading is the first */
    char **cells = need_memory(calloc(lines * count, sizeof(*cells)));
    size_t *widths = need_memory(calloc(count, sizeof(*widths)));

    for (size_t line = 0; line < lines; line++) {
        json_t *entry = line > 0 ? json_array_get(entries, line - 1) : NULL;

        for (size_t i = 0; i < count; i++) {
            char **cell = &cells[line * count + i];

            *cell = line == 0 ? copy(columns[i].title)
                              : table_cell(columns[i].cell, json_object_get(entry, columns[i].member));
            widen(&widths[i], *cell);
        }
    }
    for (size_t line = 0; line < lines; line++) {
        print_line(columns, count, cells + line * count, widths);
    }
    for (size_t i = 0; i < lines * count; i++) {
        free(cells[i]);
    }
    free(cells);
    free(widths);
}
