#include "daemon/transfer/turns.h"

#include <stddef.h>

static unsigned bits_of(unsigned wheel)
{
    return TURN_BITS + 6 * wheel;
}

static uint64_t start_of(const struct turn *turn)
{
    return turn->position << bits_of(turn->wheel);
}

void turns_init(struct turns *turns)
{
    *turns = (struct turns){0};
    for (unsigned wheel = 0; wheel < TURN_WHEELS; wheel++) {
        for (unsigned slot = 0; slot < 64; slot++) {
            TAILQ_INIT(&turns->wheels[wheel].slots[slot]);
        }
    }
}

/* In the first wheel that reaches so far. */
static void insert(struct turns *turns, struct turn *turn)
{
    unsigned wheel = 0;
    uint64_t end;

    while (wheel < TURN_WHEELS - 1 && (turn->reached >> bits_of(wheel)) - (turns->now >> bits_of(wheel)) > 63) {
        wheel++;
    }
    end = (turns->now >> bits_of(wheel)) + 63;
    turn->position = turn->reached >> bits_of(wheel);
    turn->position = turn->position < end ? turn->position : end;
    turn->wheel = wheel;
    turn->waits = true;
    TAILQ_INSERT_TAIL(&turns->wheels[wheel].slots[turn->position % 64], turn, link);
    turns->wheels[wheel].occupied |= UINT64_C(1) << turn->position % 64;
}

void turns_enter(struct turns *turns, struct turn *turn)
{
    if (turn->reached < turns->now) {
        turn->reached = turns->now; /* what he did not take is not kept for him */
    }
    insert(turns, turn);
}

void turns_leave(struct turns *turns, struct turn *turn)
{
    struct turns_wheel *wheel = &turns->wheels[turn->wheel];

    TAILQ_REMOVE(&wheel->slots[turn->position % 64], turn, link);
    if (TAILQ_EMPTY(&wheel->slots[turn->position % 64])) {
        wheel->occupied &= ~(UINT64_C(1) << turn->position % 64);
    }
    turn->waits = false;
}

/* The first occupied slot of a wheel from `position` on; UINT64_MAX: none. */
static uint64_t occupied_from(const struct turns *turns, unsigned wheel, uint64_t position)
{
    uint64_t now = turns->now >> bits_of(wheel), occupied = turns->wheels[wheel].occupied;

    position = position > now ? position : now;
    if (position - now > 63) {
        return UINT64_MAX;
    }
    /* Bit 0 is the slot of now. */
    occupied = now % 64 > 0 ? occupied >> now % 64 | occupied << (64 - now % 64) : occupied;
    occupied >>= position - now;
    return occupied != 0 ? position + (unsigned)__builtin_ctzll(occupied) : UINT64_MAX;
}

/* The first of the first slot that starts at `start` or later; of those that start there, of `wheel` or a later one. */
static struct turn *first_from(const struct turns *turns, uint64_t start, unsigned wheel)
{
    struct turn *first = NULL;

    for (unsigned i = 0; i < TURN_WHEELS; i++) {
        uint64_t position = start >> bits_of(i);
        if (position << bits_of(i) < start || i < wheel) {
            position++;
        }
        position = occupied_from(turns, i, position);
        if (position != UINT64_MAX && (first == NULL || position << bits_of(i) < start_of(first))) {
            first = TAILQ_FIRST(&turns->wheels[i].slots[position % 64]);
        }
    }
    return first;
}

struct turn *turns_first(const struct turns *turns)
{
    return first_from(turns, 0, 0);
}

struct turn *turns_next(const struct turns *turns, const struct turn *turn)
{
    struct turn *next = TAILQ_NEXT(turn, link);

    return next != NULL ? next : first_from(turns, start_of(turn), turn->wheel + 1);
}

void turns_charge(struct turns *turns, struct turn *turn, uint64_t bytes)
{
    const struct turn *first = turns_first(turns);

    if (start_of(first) > turns->now) {
        turns->now = start_of(first);
    }
    turns_leave(turns, turn);
    if (turn == first || turn->reached - turns->now < TURN_AHEAD) {
        turn->reached += bytes > TURN_LEAST_BYTES ? bytes : TURN_LEAST_BYTES;
    }
    turns->last = turn->reached > turns->last ? turn->reached : turns->last;
    insert(turns, turn);
}

bool turns_same_round(const struct turn *a, const struct turn *b)
{
    return start_of(a) == start_of(b);
}

bool turns_is_ahead(const struct turns *turns, const struct turn *turn)
{
    return turn->reached > turns->now;
}

void turns_begin_anew(struct turns *turns)
{
    turns->now = turns->last > turns->now ? turns->last : turns->now;
}
