/* Percentiles in bounded memory: exact within a 64th, for times of every size. */
#include <string.h>

#include "client/ctl/bench/latency.h"
#include "tests/unit/unit_main.h"

static struct latency latency;

static void expect_close(uint64_t value, uint64_t wanted)
{
    ck_assert_msg(value >= wanted && value <= wanted + wanted / 64, "%llu is not %llu", (unsigned long long)value,
                  (unsigned long long)wanted);
}

START_TEST(none)
{
    memset(&latency, 0, sizeof(latency));
    ck_assert_uint_eq(latency_permille(&latency, 500), 0);
    ck_assert_uint_eq(latency.largest, 0);
}
END_TEST

START_TEST(one_of_every_size)
{
    for (unsigned bit = 0; bit < 45; bit++) {
        static const int beside[] = {-1, 0, 1};

        for (size_t i = 0; i < 3; i++) {
            uint64_t value = (UINT64_C(1) << bit) + (uint64_t)beside[i];

            memset(&latency, 0, sizeof(latency));
            latency_add(&latency, value);
            latency_add(&latency, UINT64_C(1) << 50);
            expect_close(latency_permille(&latency, 500), value);
        }
    }
}
END_TEST

START_TEST(thousand)
{
    memset(&latency, 0, sizeof(latency));
    for (uint64_t i = 1000; i > 0; i--) {
        latency_add(&latency, i * 1000);
    }
    expect_close(latency_permille(&latency, 500), 500000);
    expect_close(latency_permille(&latency, 900), 900000);
    expect_close(latency_permille(&latency, 990), 990000);
    ck_assert_uint_eq(latency_permille(&latency, 1000), 1000000);
    ck_assert_uint_eq(latency.largest, 1000000);
    ck_assert_uint_eq(latency.count, 1000);
}
END_TEST

/* No percentile is above the largest. */
START_TEST(largest_bounds)
{
    memset(&latency, 0, sizeof(latency));
    latency_add(&latency, 1000001);
    ck_assert_uint_eq(latency_permille(&latency, 500), 1000001);
    latency_add(&latency, UINT64_MAX);
    ck_assert_uint_eq(latency.largest, UINT64_MAX);
    ck_assert_uint_gt(latency_permille(&latency, 1000), UINT64_C(1) << 45);
}
END_TEST

UNIT_MAIN("ctl_latency", none, one_of_every_size, thousand, largest_bounds)
