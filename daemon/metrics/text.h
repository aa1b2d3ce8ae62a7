/*
 * OpenMetrics 1.0 text, written into memory that grows: families, samples, "# EOF". Knows nothing of the daemon.
 *
 * Nothing fails on the way: where memory runs out, `failed` is set, and the text is not to be used. Belongs to one
 * thread.
 */
#ifndef GRD_METRICS_TEXT_H
#define GRD_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

struct metrics_text {
    char *bytes; /* owned; no NUL at the end */
    size_t length, capacity;
    bool failed;
};

/* The words of the TYPE line. A counter's samples end in _total, an info's in _info. */
enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM, METRIC_INFO };

struct metric_family {
    const char *name; /* with its unit, without _total, _info or _bucket */
    enum metric_type type;
    const char *unit; /* "bytes", "seconds"; "": none */
    const char *help; /* a sentence */
};

/* The value is escaped, and bytes that are no UTF-8 become '?'. */
struct metric_label {
    const char *name, *value;
};

/* What stands behind the family's name in a sample. */
struct metric_sample {
    const struct metric_family *family;
    const char *suffix; /* "_bucket", "_count", "_sum"; NULL: that of the type */
    const struct metric_label *labels;
    size_t count;
};

const char *metric_type_name(enum metric_type type);

void metrics_family(struct metrics_text *text, const struct metric_family *family);
void metrics_integer(struct metrics_text *text, const struct metric_sample *sample, uint64_t value);

/* A time, in seconds. */
void metrics_seconds(struct metrics_text *text, const struct metric_sample *sample, uint64_t ns);

void metrics_end(struct metrics_text *text);
void metrics_free(struct metrics_text *text);

#endif
