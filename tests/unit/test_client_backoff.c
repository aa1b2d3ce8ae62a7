/* The waits between attempts to connect: at once, then doubling to a limit, each up to a half shorter by chance. */
#include <stdbool.h>

#include "client/backoff.h"
#include "unit_main.h"

START_TEST(doubles_up_to_the_limit)
{
    static const uint64_t whole[] = {0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000};
    struct backoff backoff;

    backoff_init(&backoff, 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
            uint64_t ms = backoff_next_ms(&backoff);

            ck_assert_uint_le(ms, whole[i]);
            ck_assert_uint_ge(ms, whole[i] / 2);
        }
        backoff_reset(&backoff);
    }
}
END_TEST

/* Two clients of one daemon part; and the numbers reach both ends of their range. */
START_TEST(differs_from_client_to_client)
{
    struct backoff one, other;
    bool seen_low = false, seen_high = false;
    unsigned same = 0;

    backoff_init(&one, 1);
    backoff_init(&other, 2);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t ms = backoff_next_ms(&one);

        same += ms == backoff_next_ms(&other);
        if (i > 10) {
            seen_low |= ms < 550;
            seen_high |= ms > 950;
        }
    }
    ck_assert_uint_lt(same, 50);
    ck_assert(seen_low && seen_high);
}
END_TEST

UNIT_MAIN("client_backoff", doubles_up_to_the_limit, differs_from_client_to_client)
