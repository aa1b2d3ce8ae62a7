/*
 * Turns counted in bytes: who moves large values gets as many bytes as who moves small ones.
 *
 * Concepts. Time is counted in rounds of TURN_BYTES. Everybody has so many bytes in each round; within a round those
 * who have some left take turns one transfer at a time, in order of arrival. Who takes more than he has left uses up
 * rounds to come: his next turn is in the round that his bytes have reached. A round ends when whoever is served has
 * reached a later one: nobody waits for bytes that nobody takes. (A deficit round robin; each one's deficit is kept as
 * the byte that he has reached.)
 *
 * What follows: a newcomer waits for at most TURN_BYTES and one transfer of each other one; two who always wait differ
 * by at most TURN_BYTES and the largest transfer of each. What is taken out of turn, because all before could not use
 * it, is charged up to TURN_AHEAD bytes ahead and not beyond: being served while others cannot be is no reason to
 * starve later.
 *
 * Cost. Rounds are the slots of wheels, the first with a round a slot, each other one with 64 times as many; who is
 * beyond the first wheel is ordered by the slots of the next. Every call is O(1). Loop thread only. Private to
 * transfer/.
 */
#ifndef GRD_TRANSFER_TURNS_H
#define GRD_TRANSFER_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define TURN_BITS 18
#define TURN_BYTES (UINT64_C(1) << TURN_BITS)
#define TURN_AHEAD (64 * TURN_BYTES)
#define TURN_LEAST_BYTES 4096 /* what a transfer counts at least: also one of no byte costs something */
#define TURN_WHEELS 3         /* up to 64 GiB ahead; beyond, all are equal */

/* One who takes turns; embedded, zeroed at first. */
struct turn {
    TAILQ_ENTRY(turn) link;
    uint64_t reached;  /* bytes */
    uint64_t position; /* of its slot, in slots of its wheel */
    unsigned wheel;
    bool waits;
};

TAILQ_HEAD(turn_list, turn);

struct turns {
    struct turns_wheel {
        uint64_t occupied; /* one bit a slot */
        struct turn_list slots[64];
    } wheels[TURN_WHEELS];
    uint64_t now;  /* bytes: the start of the round */
    uint64_t last; /* the farthest that anybody has reached */
};

void turns_init(struct turns *turns);

/* Begins to wait, behind all others of its round; ends it. */
void turns_enter(struct turns *turns, struct turn *turn);
void turns_leave(struct turns *turns, struct turn *turn);

/* One who waits takes so many bytes, and waits on for its next turn. */
void turns_charge(struct turns *turns, struct turn *turn, uint64_t bytes);

/* Whose turn it is; NULL: nobody waits. The one after it. */
struct turn *turns_first(const struct turns *turns);
struct turn *turns_next(const struct turns *turns, const struct turn *turn);

/* Whether both have their turns in the same round: which of them goes first is only their order of arrival. */
bool turns_same_round(const struct turn *a, const struct turn *b);

/* Whether it has taken something that is not past, and would be forgotten with it. */
bool turns_is_ahead(const struct turns *turns, const struct turn *turn);

/* Nobody waits: all begin anew. */
void turns_begin_anew(struct turns *turns);

#endif
