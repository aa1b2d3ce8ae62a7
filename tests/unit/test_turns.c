/*
 * Turns counted in bytes: whatever sizes they move, all who always wait get the same bytes, nobody waits for more than
 * a round of the others, and nothing that is remembered grows without bound.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/transfer/turns.h"
#include "tests/unit/unit_main.h"

#define USERS 5
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static struct turns turns;
static struct turn users[USERS];
static uint64_t moved[USERS];

static void start(int waiting)
{
    turns_init(&turns);
    memset(users, 0, sizeof(users));
    memset(moved, 0, sizeof(moved));
    for (int i = 0; i < waiting; i++) {
        turns_enter(&turns, &users[i]);
    }
}

static int take(uint64_t bytes)
{
    struct turn *turn = turns_first(&turns);

    ck_assert_ptr_nonnull(turn);
    turns_charge(&turns, turn, bytes);
    moved[turn - users] += bytes;
    return (int)(turn - users);
}

static uint64_t spread(int count)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (int i = 0; i < count; i++) {
        least = moved[i] < least ? moved[i] : least;
        most = moved[i] > most ? moved[i] : most;
    }
    return most - least;
}

START_TEST(sixtyfour_mebibytes_for_sixtyfour_mebibytes)
{
    start(2);
    for (int i = 0; i < 20000; i++) {
        take(turns_first(&turns) == &users[0] ? 64 * MIB : 64 * KIB);
        ck_assert_uint_le(spread(2), 64 * MIB + TURN_BYTES);
    }
    ck_assert_uint_gt(moved[0], 1000 * MIB);
    ck_assert_uint_gt(moved[1], 1000 * MIB);
}
END_TEST

START_TEST(equal_transfers_alternate)
{
    start(3);
    for (int i = 0; i < 300; i++) {
        ck_assert_int_eq(take(64 * KIB), i % 3);
    }
}
END_TEST

/* A model in plain arithmetic: who always waits has moved as much as the others, up to a round and the largest one. */
START_TEST(random_sizes_move_the_same_bytes)
{
    static const uint64_t largest[USERS] = {4 * KIB, 64 * KIB, MIB, 64 * MIB, 1024 * MIB};

    for (unsigned seed = 1; seed <= 20; seed++) {
        srand(seed);
        start(USERS);
        for (int i = 0; i < 20000; i++) {
            struct turn *turn = turns_first(&turns);
            uint64_t most = largest[turn - users];
            take(TURN_LEAST_BYTES + (uint64_t)rand() % (most - TURN_LEAST_BYTES + 1));
        }
        for (int a = 0; a < USERS; a++) {
            for (int b = 0; b < USERS; b++) {
                ck_assert_uint_le(moved[a], moved[b] + TURN_BYTES + largest[a]);
            }
        }
    }
}
END_TEST

START_TEST(a_newcomer_waits_for_one_round_at_most)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        srand(seed);
        start(USERS - 1);
        for (int i = rand() % 500; i > 0; i--) {
            take((uint64_t)(rand() % 2048) * KIB);
        }
        uint64_t before = 0, after = 0;
        for (int i = 0; i < USERS - 1; i++) {
            before += moved[i];
        }
        turns_enter(&turns, &users[USERS - 1]);
        while (take((uint64_t)(rand() % 2048) * KIB) != USERS - 1) {
        }
        for (int i = 0; i < USERS - 1; i++) {
            after += moved[i];
        }
        ck_assert_uint_le(after - before, (USERS - 1) * (TURN_BYTES + 2 * MIB));
    }
}
END_TEST

/* Who leaves and comes back, as with one transfer at a time, has paid for nothing by that. */
START_TEST(leaving_forgives_nothing)
{
    start(2);
    for (int i = 0; i < 5000; i++) {
        if (take(turns_first(&turns) == &users[0] ? 8 * MIB : 64 * KIB) == 0) {
            turns_leave(&turns, &users[0]);
            ck_assert(turns_is_ahead(&turns, &users[0]));
            turns_enter(&turns, &users[0]);
        }
        ck_assert_uint_le(spread(2), 8 * MIB + TURN_BYTES);
    }
}
END_TEST

/* Nobody saves up turns, either. */
START_TEST(absence_earns_nothing)
{
    start(1);
    for (int i = 0; i < 100; i++) {
        take(MIB);
    }
    turns_enter(&turns, &users[1]);
    memset(moved, 0, sizeof(moved));
    for (int i = 0; i < 100; i++) {
        take(MIB);
    }
    ck_assert_uint_le(spread(2), 2 * MIB + TURN_BYTES);
}
END_TEST

/* One is served because those before it cannot be: later it pays for a part of that. */
START_TEST(what_was_taken_out_of_turn_is_charged_in_part)
{
    uint64_t until;

    start(2);
    for (int i = 0; i < 10000; i++) {
        ck_assert_ptr_eq(turns_first(&turns), &users[0]);
        ck_assert_ptr_eq(turns_next(&turns, &users[0]), &users[1]);
        turns_charge(&turns, &users[1], MIB);
    }
    while (take(MIB) == 0) {
    }
    until = moved[0];
    ck_assert_uint_ge(until, TURN_AHEAD);
    ck_assert_uint_le(until, TURN_AHEAD + TURN_BYTES + 2 * MIB);
}
END_TEST

/* That somebody is not there for a moment, and nobody is served meanwhile, changes nothing. */
START_TEST(looking_is_no_service)
{
    start(2);
    ck_assert_int_eq(take(64 * MIB), 0);
    ck_assert_int_eq(take(64 * KIB), 1);
    turns_leave(&turns, &users[1]);
    ck_assert_ptr_eq(turns_first(&turns), &users[0]);
    turns_enter(&turns, &users[1]);
    while (take(64 * KIB) == 1) {
    }
    ck_assert_uint_ge(moved[1], 64 * MIB);
    ck_assert_uint_le(moved[1], 64 * MIB + TURN_BYTES);
}
END_TEST

START_TEST(nobody_waiting_is_a_new_beginning)
{
    start(2);
    take(1024 * MIB);
    take(KIB);
    turns_leave(&turns, &users[0]);
    turns_leave(&turns, &users[1]);
    ck_assert(turns_is_ahead(&turns, &users[0]));
    turns_begin_anew(&turns);
    ck_assert(!turns_is_ahead(&turns, &users[0]));
    turns_enter(&turns, &users[0]);
    turns_enter(&turns, &users[1]);
    ck_assert_int_eq(take(64 * KIB), 0);
    ck_assert_int_eq(take(64 * KIB), 1);
}
END_TEST

START_TEST(next_shows_everybody_once)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        unsigned seen = 0;
        srand(seed);
        start(USERS);
        for (int i = rand() % 40; i > 0; i--) {
            take((uint64_t)(rand() % 40) * MIB);
        }
        for (struct turn *turn = turns_first(&turns); turn != NULL; turn = turns_next(&turns, turn)) {
            ck_assert((seen >> (turn - users) & 1) == 0);
            seen |= 1u << (turn - users);
        }
        ck_assert_uint_eq(seen, (1u << USERS) - 1);
    }
}
END_TEST

UNIT_MAIN("turns", sixtyfour_mebibytes_for_sixtyfour_mebibytes, equal_transfers_alternate,
          random_sizes_move_the_same_bytes, a_newcomer_waits_for_one_round_at_most, leaving_forgives_nothing,
          absence_earns_nothing, what_was_taken_out_of_turn_is_charged_in_part, looking_is_no_service,
          nobody_waiting_is_a_new_beginning, next_shows_everybody_once)
