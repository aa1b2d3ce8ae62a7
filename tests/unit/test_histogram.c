/* Histograms of times: every value lies in the bucket whose bound says so, and quantiles are never below the truth. */
#include <string.h>

#include "daemon/base/histogram.h"
#include "tests/unit/unit_main.h"

static struct histogram histogram;

static void start(void)
{
    memset(&histogram, 0, sizeof(histogram));
}

/* The bucket that a value went to. */
static unsigned bucket_of_ns(uint64_t ns)
{
    start();
    histogram_add(&histogram, ns);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram.buckets[i] > 0) {
            return i;
        }
    }
    return HISTOGRAM_BUCKETS;
}

START_TEST(bounds)
{
    uint64_t before = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        uint64_t bound = histogram_bound_us(i);
        ck_assert_uint_gt(bound, before);
        ck_assert(i < 4 || 4 * bound <= 5 * (before + 1)); /* no more than a quarter above what is in it */
        ck_assert_uint_eq(bucket_of_ns(bound * 1000), i);
        ck_assert_uint_eq(bucket_of_ns(bound * 1000 - 999), i);
        ck_assert_uint_eq(bucket_of_ns(bound * 1000 + 1), i + 1);
        before = bound;
    }
    ck_assert_uint_eq(before, UINT64_C(1) << 26);
    ck_assert_uint_eq(bucket_of_ns(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
    ck_assert_uint_eq(histogram_bound_us(HISTOGRAM_BUCKETS - 1), UINT64_MAX);
    ck_assert_uint_eq(bucket_of_ns(0), 0);
}
END_TEST

START_TEST(numbers)
{
    start();
    ck_assert_uint_eq(histogram_quantile_us(&histogram, 500), 0);
    for (unsigned us = 1; us <= 1000; us++) {
        histogram_add(&histogram, us * UINT64_C(1000));
    }
    ck_assert_uint_eq(histogram.count, 1000);
    ck_assert_uint_eq(histogram.sum_ns, 500500 * UINT64_C(1000));
    ck_assert_uint_eq(histogram.max_us, 1000);
    ck_assert_uint_eq(histogram_count_to(&histogram, 3), 3);
    ck_assert_uint_eq(histogram_count_to(&histogram, 512), 512);
    ck_assert_uint_eq(histogram_count_to(&histogram, 1000), 896); /* no bound: the bucket up to 1024 is left out */
    ck_assert_uint_eq(histogram_count_to(&histogram, 1024), 1000);
}
END_TEST

START_TEST(quantiles)
{
    start();
    for (unsigned us = 1; us <= 1000; us++) {
        histogram_add(&histogram, us * UINT64_C(1000));
    }
    for (unsigned permille = 1; permille <= 1000; permille++) {
        uint64_t told = histogram_quantile_us(&histogram, permille);
        ck_assert_uint_ge(told, permille);
        ck_assert_uint_le(told, permille + permille / 4);
    }
    ck_assert_uint_eq(histogram_quantile_us(&histogram, 1000), 1000); /* not 1024 */
}
END_TEST

UNIT_MAIN("histogram", bounds, numbers, quantiles)
