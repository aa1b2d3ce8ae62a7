/* Windows in use: readers may overlap readers, a writer nobody; compared with a plain list over random histories. */
#include <stdio.h>
#include <string.h>

#include "daemon/memory/extents.h"
#include "tests/unit/unit_main.h"

#define EXTENTS 200
#define STEPS 40000

static bool clash(const struct extent *a, uint64_t start, uint64_t end, bool writes)
{
    return (writes || a->writes) && a->start < end && start < a->end;
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

START_TEST(same_answers_as_a_list)
{
    struct extents extents;
    struct extent items[EXTENTS];
    bool used[EXTENTS] = {false};
    uint32_t state = 42;
    unsigned conflicts = 0, added = 0;
    extents_init(&extents);
    for (int step = 0; step < STEPS; step++) {
        unsigned at = next(&state) % EXTENTS;
        if (used[at]) {
            extents_remove(&extents, &items[at]);
            used[at] = false;
            continue;
        }
        uint64_t start = next(&state) % 1000, end = start + 1 + next(&state) % 40;
        bool writes = next(&state) % 3 == 0, expected = false;
        for (unsigned i = 0; i < EXTENTS; i++)
            expected |= used[i] && clash(&items[i], start, end, writes);
        const struct extent *found = extents_conflict(&extents, start, end, writes);
        ck_assert_msg((found != NULL) == expected, "step %d: [%d, %d) writes %d: found %d, expected %d", step,
                      (int)start, (int)end, writes, found != NULL, expected);
        if (found != NULL) {
            ck_assert(clash(found, start, end, writes));
            conflicts++;
            continue;
        }
        items[at] = (struct extent){.start = start, .end = end, .writes = writes};
        extents_add(&extents, &items[at]);
        used[at] = true;
        added++;
    }
    ck_assert_uint_gt(conflicts, 1000);
    ck_assert_uint_gt(added, 1000);
}
END_TEST

START_TEST(neighbours_do_not_conflict)
{
    struct extents extents;
    struct extent window = {.start = 100, .end = 200, .writes = true};
    extents_init(&extents);
    extents_add(&extents, &window);
    ck_assert_ptr_null(extents_conflict(&extents, 0, 100, true));
    ck_assert_ptr_null(extents_conflict(&extents, 200, 300, true));
    ck_assert_ptr_eq(extents_conflict(&extents, 199, 200, false), &window);
    ck_assert_ptr_eq(extents_conflict(&extents, 0, UINT64_MAX, false), &window);
    extents_remove(&extents, &window);
    ck_assert_ptr_null(extents.root);
}
END_TEST

START_TEST(equal_readers_are_told_apart)
{
    struct extents extents;
    struct extent readers[5];
    extents_init(&extents);
    for (int i = 0; i < 5; i++) {
        readers[i] = (struct extent){.start = 10, .end = 20};
        ck_assert_ptr_null(extents_conflict(&extents, 10, 20, false));
        extents_add(&extents, &readers[i]);
    }
    for (int i = 4; i >= 0; i--) {
        ck_assert_ptr_nonnull(extents_conflict(&extents, 15, 16, true));
        extents_remove(&extents, &readers[i]);
    }
    ck_assert_ptr_null(extents_conflict(&extents, 15, 16, true));
}
END_TEST

UNIT_MAIN("extents", same_answers_as_a_list, neighbours_do_not_conflict, equal_readers_are_told_apart)
