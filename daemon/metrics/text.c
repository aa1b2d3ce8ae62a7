#include "daemon/metrics/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

#define FIRST_BYTES 16384

static void add(struct metrics_text *text, const char *bytes, size_t length)
{
    size_t capacity = text->capacity > 0 ? text->capacity : FIRST_BYTES;

    while (capacity - text->length < length) {
        capacity *= 2;
    }
    if (!text->failed && capacity != text->capacity) {
        char *larger = realloc(text->bytes, capacity);
        text->failed = larger == NULL;
        if (larger != NULL) {
            text->bytes = larger;
            text->capacity = capacity;
        }
    }
    if (!text->failed) {
        memcpy(text->bytes + text->length, bytes, length);
        text->length += length;
    }
}

static void add_word(struct metrics_text *text, const char *word)
{
    add(text, word, strlen(word));
}

static void add_value_of_label(struct metrics_text *text, const char *value)
{
    const uint8_t *at = (const uint8_t *)value;
    size_t left = strlen(value);

    while (left > 0) {
        size_t length = proto_utf8_sequence(at, left);
        if (*at == '\n') {
            add_word(text, "\\n");
        } else if (*at == '"' || *at == '\\') {
            char escaped[2] = {'\\', (char)*at};
            add(text, escaped, sizeof(escaped));
        } else if (length == 0) {
            add_word(text, "?");
        } else {
            add(text, (const char *)at, length);
        }
        at += length > 0 ? length : 1;
        left -= length > 0 ? length : 1;
    }
}

static void add_labels(struct metrics_text *text, const struct metric_sample *sample)
{
    for (size_t i = 0; i < sample->count; i++) {
        add_word(text, i == 0 ? "{" : ",");
        add_word(text, sample->labels[i].name);
        add_word(text, "=\"");
        add_value_of_label(text, sample->labels[i].value);
        add_word(text, "\"");
    }
    if (sample->count > 0) {
        add_word(text, "}");
    }
}

static void add_sample(struct metrics_text *text, const struct metric_sample *sample, const char *value)
{
    static const char *const suffixes[] = {
        [METRIC_COUNTER] = "_total", [METRIC_GAUGE] = "", [METRIC_HISTOGRAM] = "", [METRIC_INFO] = "_info"};

    add_word(text, sample->family->name);
    add_word(text, sample->suffix != NULL ? sample->suffix : suffixes[sample->family->type]);
    add_labels(text, sample);
    add_word(text, " ");
    add_word(text, value);
    add_word(text, "\n");
}

static void add_line(struct metrics_text *text, const char *what, const char *name, const char *words)
{
    add_word(text, what);
    add_word(text, name);
    add_word(text, " ");
    add_word(text, words);
    add_word(text, "\n");
}

const char *metric_type_name(enum metric_type type)
{
    static const char *const names[] = {[METRIC_COUNTER] = "counter",
                                        [METRIC_GAUGE] = "gauge",
                                        [METRIC_HISTOGRAM] = "histogram",
                                        [METRIC_INFO] = "info"};

    return names[type];
}

void metrics_family(struct metrics_text *text, const struct metric_family *family)
{
    add_line(text, "# TYPE ", family->name, metric_type_name(family->type));
    if (family->unit[0] != '\0') {
        add_line(text, "# UNIT ", family->name, family->unit);
    }
    add_line(text, "# HELP ", family->name, family->help);
}

void metrics_integer(struct metrics_text *text, const struct metric_sample *sample, uint64_t value)
{
    char words[24];

    snprintf(words, sizeof(words), "%" PRIu64, value);
    add_sample(text, sample, words);
}

void metrics_seconds(struct metrics_text *text, const struct metric_sample *sample, uint64_t ns)
{
    char words[40];

    snprintf(words, sizeof(words), "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
    add_sample(text, sample, words);
}

void metrics_end(struct metrics_text *text)
{
    add_word(text, "# EOF\n");
}

void metrics_free(struct metrics_text *text)
{
    free(text->bytes);
    *text = (struct metrics_text){0};
}
