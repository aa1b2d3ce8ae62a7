/* Which windows exist, and which may be in use together: also at the end of the range of numbers. */
#include "client/private.h"
#include "unit_main.h"

START_TEST(inside)
{
    ck_assert(window_inside(0, 1, 1));
    ck_assert(window_inside(10, 90, 100));
    ck_assert(!window_inside(10, 91, 100));
    ck_assert(!window_inside(100, 1, 100));
    ck_assert(!window_inside(100, 0, 100));
    ck_assert(!window_inside(5, 0, 100));
    ck_assert(!window_inside(101, 1, 100));
    ck_assert(!window_inside(0, 1, 0));
    ck_assert(!window_inside(UINT64_MAX, 1, 100));
    ck_assert(!window_inside(1, UINT64_MAX, 100));
    ck_assert(!window_inside(UINT64_MAX - 1, 3, 100));
    ck_assert(window_inside(1, UINT64_MAX - 1, UINT64_MAX));
    ck_assert(!window_inside(2, UINT64_MAX - 1, UINT64_MAX));
}
END_TEST

START_TEST(readers_share_writers_do_not)
{
    struct window_list list = LIST_HEAD_INITIALIZER(list);
    struct window_use read, again, write;

    ck_assert(windows_try_lock(&list, &read, 100, 100, false));
    ck_assert(windows_try_lock(&list, &again, 150, 10, false));
    ck_assert(!windows_try_lock(&list, &write, 199, 1, true));
    ck_assert(!windows_try_lock(&list, &write, 0, 101, true));
    ck_assert(!windows_try_lock(&list, &write, 0, 1000, true));
    ck_assert(!windows_try_lock(&list, &write, 155, 1, true));
    ck_assert(windows_try_lock(&list, &write, 200, 1, true));
    windows_unlock(&write);
    ck_assert(windows_try_lock(&list, &write, 0, 100, true));
    windows_unlock(&read);
    windows_unlock(&again);
    ck_assert(!windows_try_lock(&list, &read, 99, 1, false));
    ck_assert(!windows_try_lock(&list, &read, 0, 1, true));
    ck_assert(windows_try_lock(&list, &read, 100, 100, false));
    windows_unlock(&read);
    windows_unlock(&write);
    ck_assert(LIST_EMPTY(&list));
}
END_TEST

/* Against a map of single units, for every pair of windows in a small range, at both ends of the numbers. */
START_TEST(every_small_pair)
{
    static const uint64_t bases[] = {0, UINT64_MAX - 6};

    for (size_t b = 0; b < 2; b++) {
        for (unsigned pair = 0; pair < 6 * 6 * 6 * 6; pair++) {
            unsigned a = pair % 6, al = 1 + pair / 6 % 6, c = pair / 36 % 6, cl = 1 + pair / 216 % 6;
            struct window_list list = LIST_HEAD_INITIALIZER(list);
            struct window_use first, second;
            bool expected = a < c + cl && c < a + al;

            if (a + al > 6 || c + cl > 6) {
                continue;
            }
            ck_assert(windows_try_lock(&list, &first, bases[b] + a, al, true));
            ck_assert(windows_try_lock(&list, &second, bases[b] + c, cl, false) == !expected);
        }
    }
}
END_TEST

UNIT_MAIN("client_windows", inside, readers_share_writers_do_not, every_small_pair)
