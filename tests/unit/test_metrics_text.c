/* OpenMetrics text: the words of each type, numbers without rounding, and labels that nobody can break out of. */
#include <string.h>

#include "daemon/metrics/text.h"
#include "tests/unit/unit_main.h"

static struct metrics_text text;

static void expect(const char *wanted)
{
    metrics_end(&text);
    ck_assert(!text.failed);
    ck_assert_msg(text.length == strlen(wanted) && memcmp(text.bytes, wanted, text.length) == 0, "%.*s",
                  (int)text.length, text.bytes);
    metrics_free(&text);
}

START_TEST(families)
{
    static const struct metric_family bytes = {"a_bytes", METRIC_COUNTER, "bytes", "Of a."};
    static const struct metric_family gauge = {"b", METRIC_GAUGE, "", "Of b."};
    static const struct metric_family info = {"c", METRIC_INFO, "", "Of c."};
    const struct metric_label label = {"v", "1"};

    metrics_family(&text, &bytes);
    metrics_integer(&text, &(struct metric_sample){.family = &bytes}, UINT64_MAX);
    metrics_family(&text, &gauge);
    metrics_integer(&text, &(struct metric_sample){.family = &gauge}, 0);
    metrics_family(&text, &info);
    metrics_integer(&text, &(struct metric_sample){.family = &info, .labels = &label, .count = 1}, 1);
    expect("# TYPE a_bytes counter\n# UNIT a_bytes bytes\n# HELP a_bytes Of a.\na_bytes_total 18446744073709551615\n"
           "# TYPE b gauge\n# HELP b Of b.\nb 0\n"
           "# TYPE c info\n# HELP c Of c.\nc_info{v=\"1\"} 1\n# EOF\n");
}
END_TEST

START_TEST(times)
{
    static const struct metric_family family = {"t_seconds", METRIC_HISTOGRAM, "seconds", "Times."};

    metrics_seconds(&text, &(struct metric_sample){.family = &family, .suffix = "_sum"}, UINT64_C(12345678901));
    metrics_seconds(&text, &(struct metric_sample){.family = &family, .suffix = "_sum"}, 7);
    expect("t_seconds_sum 12.345678901\nt_seconds_sum 0.000000007\n# EOF\n");
}
END_TEST

START_TEST(escapes)
{
    static const struct metric_family family = {"g", METRIC_GAUGE, "", "G."};
    const struct metric_label labels[] = {{"a", "x\"} 1\ny\\"}, {"b", "\xc3\xa4\xff\xc3"}, {"c", ""}};

    metrics_integer(&text, &(struct metric_sample){.family = &family, .labels = labels, .count = 3}, 2);
    expect("g{a=\"x\\\"} 1\\ny\\\\\",b=\"\xc3\xa4??\",c=\"\"} 2\n# EOF\n");
}
END_TEST

START_TEST(growth)
{
    static const struct metric_family family = {"g", METRIC_GAUGE, "", "G."};
    char value[1000];
    struct metric_label label = {"a", value};

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    for (int i = 0; i < 1000; i++) {
        metrics_integer(&text, &(struct metric_sample){.family = &family, .labels = &label, .count = 1}, 1);
    }
    ck_assert(!text.failed);
    ck_assert_uint_eq(text.length, 1000 * (sizeof("g{a=\"\"} 1\n") - 1 + sizeof(value) - 1));
    metrics_free(&text);
}
END_TEST

UNIT_MAIN("metrics_text", families, times, escapes, growth)
