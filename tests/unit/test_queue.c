/*
 * The queues alone: users and sessions get the same bytes, also those that send one transfer at a time. A user at its
 * quota of transfers in flight is out of turn, others go on, and no session is forgotten, whatever ends, is cancelled
 * or comes back in which order.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/transfer/queue.h"
#include "tests/unit/unit_main.h"

#define USERS 3
#define SESSIONS 9 /* three of each user */
#define MANY 64
#define QUEUES 2 /* of two nodes */

static struct queue_list ready;
static struct queue queues[QUEUES];
static struct transfer_user users[USERS];
static struct transfer_session sessions[SESSIONS];
static struct transfer items[MANY];

static void start(uint64_t in_flight)
{
    memset(items, 0, sizeof(items));
    TAILQ_INIT(&ready);
    for (int i = 0; i < QUEUES; i++) {
        queue_init(&queues[i], &ready, NULL);
    }
    for (int i = 0; i < USERS; i++) {
        transfer_user_init(&users[i]);
    }
    for (int i = 0; i < SESSIONS; i++) {
        transfer_session_init(&sessions[i], &users[i / 3]);
        queue_limit(&sessions[i], in_flight);
    }
}

static void add_to(int queue, int item, int session, bool first)
{
    items[item].session = &sessions[session];
    items[item].kind = TRANSFER_GET;
    ck_assert_int_eq(queue_add(&queues[queue], &items[item], first), 0);
}

static void add(int item, int session)
{
    add_to(0, item, session, false);
}

/* The number of the next one of a queue, or -1. */
static int next_of(int queue)
{
    struct transfer *transfer = queue_ready(&queues[queue]) ? queue_look(&queues[queue], 0) : NULL;

    if (transfer == NULL) {
        return -1;
    }
    queue_take(transfer);
    return (int)(transfer - items);
}

static int next(void)
{
    return next_of(0);
}

static void ends(int item)
{
    queue_sent_ends(&items[item]);
}

START_TEST(a_user_at_its_quota_is_out_of_turn)
{
    start(2);
    for (int i = 0; i < 4; i++) {
        add(i, 0);
    }
    add(4, 3); /* of the second user */
    ck_assert_uint_eq(queues[0].wanted, 3);
    ck_assert_int_eq(next(), 0);
    ck_assert_int_eq(next(), 4);
    ck_assert_int_eq(next(), 1);
    ck_assert_int_eq(next(), -1);
    ck_assert_uint_eq(queues[0].wanted, 0);
    ck_assert_uint_eq(users[0].in_flight, 2);
    ck_assert_uint_eq(users[0].queued, 2);
    ends(4);
    ck_assert_int_eq(next(), -1);
    ends(1);
    ck_assert_uint_eq(queues[0].wanted, 1);
    ck_assert_int_eq(next(), 2);
    ck_assert_int_eq(next(), -1);
    ends(0);
    ends(2);
    ck_assert_int_eq(next(), 3);
    ends(3);
    ck_assert_uint_eq(users[0].in_flight + users[1].in_flight + queues[0].length + queues[0].wanted, 0);
}
END_TEST

START_TEST(sessions_of_a_user_share_its_quota_in_turn)
{
    start(1);
    for (int i = 0; i < 6; i++) {
        add(i, i % 3);
    }
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(next(), i);
        ck_assert_int_eq(next(), -1);
        ends(i);
    }
}
END_TEST

/* The place that got free was meant for a session whose transfers were then cancelled. */
START_TEST(a_place_that_is_not_taken_goes_to_the_next)
{
    start(1);
    add(0, 0);
    add(1, 1);
    add(2, 2);
    ck_assert_int_eq(next(), 0);
    ck_assert_int_eq(next(), -1); /* holds the others */
    ends(0);
    queue_remove(&items[1]);
    ck_assert_int_eq(next(), 2);
    ends(2);
}
END_TEST

START_TEST(one_that_comes_back_takes_no_place)
{
    start(1);
    add(0, 0);
    add(1, 1);
    ck_assert_int_eq(next(), 0);
    ck_assert_int_eq(next(), -1);
    ends(0);
    add_to(0, 0, 0, true);
    ck_assert_uint_eq(users[0].in_flight, 0);
    ck_assert_int_eq(next(), 1); /* its session has had its turn */
    ends(1);
    ck_assert_int_eq(next(), 0);
}
END_TEST

START_TEST(a_higher_quota_of_a_session_counts_at_once)
{
    start(1);
    add(0, 0);
    add(1, 1);
    add(2, 2);
    ck_assert_int_eq(next(), 0);
    ck_assert_int_eq(next(), -1);
    queue_limit(&sessions[2], 2);
    ck_assert_int_eq(next(), 2);
    ck_assert_int_eq(next(), -1);
    ends(0);
    ck_assert_int_eq(next(), -1); /* one is in flight, and session 1 may have one */
    ends(2);
    ck_assert_int_eq(next(), 1);
}
END_TEST

/* --- against a model ---------------------------------------------------------------------------------------------- */

enum where { OUT, QUEUED, FLYING };

static enum where where[MANY];
static int at[MANY];         /* the queue that it is or was in */
static uint64_t most[USERS]; /* in flight, by the largest quota of the user's sessions */

static bool somebody_may(int queue)
{
    for (int i = 0; i < MANY; i++) {
        if (where[i] == QUEUED && at[i] == queue && items[i].session->user->in_flight < items[i].session->in_flight) {
            return true;
        }
    }
    return false;
}

static void check_counts(void)
{
    unsigned queued[QUEUES] = {0}, flying[USERS] = {0};

    for (int i = 0; i < MANY; i++) {
        queued[at[i]] += where[i] == QUEUED;
        if (where[i] == FLYING) {
            flying[items[i].session->user - users]++;
        }
    }
    for (int i = 0; i < USERS; i++) {
        UNIT_EXPECT(users[i].in_flight == flying[i], "%u are in flight, of which %u are counted", flying[i],
                    (unsigned)users[i].in_flight);
        UNIT_EXPECT(flying[i] <= most[i], "%u are in flight, above a quota", flying[i]);
    }
    for (int i = 0; i < QUEUES; i++) {
        UNIT_EXPECT(queues[i].length == queued[i], "%u are queued, of which %u are counted", queued[i],
                    (unsigned)queues[i].length);
        UNIT_EXPECT(queue_ready(&queues[i]) == somebody_may(i), "a session is forgotten, or may not go on");
        UNIT_EXPECT(!somebody_may(i) || queues[i].wanted > 0, "no connection is wanted for those that may go on");
    }
}

/* True: something was added, which the caller looks at himself. */
static bool step(void)
{
    int item = rand() % MANY, taken;

    if (where[item] == OUT) {
        at[item] = rand() % QUEUES;
        add_to(at[item], item, rand() % SESSIONS, false);
        where[item] = QUEUED;
        return true;
    }
    if (where[item] == QUEUED && rand() % 4 == 0) {
        queue_remove(&items[item]);
        where[item] = OUT;
    } else if (where[item] == FLYING && rand() % 8 == 0) { /* it is run again, perhaps elsewhere */
        ends(item);
        at[item] = rand() % QUEUES;
        add_to(at[item], item, (int)(items[item].session - sessions), true);
        where[item] = QUEUED;
        return true;
    } else if (where[item] == FLYING) {
        ends(item);
        where[item] = OUT;
    } else if ((taken = next_of(at[item])) >= 0) {
        ck_assert_int_eq(where[taken], QUEUED);
        where[taken] = FLYING;
    }
    return false;
}

/* What may go on now and could not before is on the list of those to be looked at, also at another node. */
static void check_step(void)
{
    bool before[QUEUES];

    for (int i = 0; i < QUEUES; i++) {
        before[i] = somebody_may(i);
        queue_unmark_ready(&queues[i]);
    }
    bool added = step();
    for (int i = 0; i < QUEUES && !added; i++) {
        UNIT_EXPECT(before[i] || !somebody_may(i) || queues[i].is_ready, "nobody would look at it");
    }
    check_counts();
}

START_TEST(nobody_is_forgotten_in_any_order)
{
    for (unsigned seed = 1; seed <= 60; seed++) {
        srand(seed);
        start(1);
        memset(where, 0, sizeof(where));
        memset(most, 0, sizeof(most));
        for (int i = 0; i < SESSIONS; i++) {
            uint64_t quota = seed % 2 == 0 ? 2 : 1 + (uint64_t)(rand() % 4); /* the same for all, or not */
            queue_limit(&sessions[i], quota);
            most[i / 3] = quota > most[i / 3] ? quota : most[i / 3];
        }
        for (int i = 0; i < 2000; i++) {
            check_step();
        }
        for (int i = 0; i < MANY; i++) {
            if (where[i] == QUEUED) {
                queue_remove(&items[i]);
            }
            ends(i);
        }
        for (int i = 0; i < SESSIONS; i++) {
            ck_assert(LIST_EMPTY(&sessions[i].places) && LIST_EMPTY(&sessions[i].user->places));
        }
    }
}
END_TEST

/* A user at its quota because of one node's transfers is let go on at another's when one ends, whoever is first. */
START_TEST(a_quota_spans_nodes_and_holds_nobody_up)
{
    start(1);
    add_to(0, 0, 0, false);
    add_to(0, 1, 0, false);
    add_to(1, 2, 1, false);
    ck_assert_int_eq(next_of(0), 0);
    ck_assert_int_eq(next_of(1), -1);
    ck_assert_int_eq(next_of(0), -1);
    ends(0);
    ck_assert(queues[0].is_ready && queues[1].is_ready);
    /* The first node has no connection at present: the other takes the place. */
    ck_assert_int_eq(next_of(1), 2);
    ck_assert_int_eq(next_of(0), -1);
    ends(2);
    ck_assert_int_eq(next_of(0), 1);
    ends(1);
}
END_TEST

/* --- bytes -------------------------------------------------------------------------------------------------------- */

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

/* Two of the sessions have always something waiting, up to `depth` items, the first with values of 64 KiB, the second
 * with 64 MiB; whatever is taken ends at once. The bytes of both after so many transfers. */
static void move(int first, int second, int depth, int count, uint64_t moved[2])
{
    int who[2] = {first, second};

    moved[0] = moved[1] = 0;
    for (int i = 0; i < 2 * depth; i++) {
        items[i].window.length = i % 2 == 0 ? 64 * KIB : 64 * MIB;
        add(i, who[i % 2]);
    }
    for (int i = 0; i < count; i++) {
        int taken = next();
        if (taken < 0) {
            ck_abort_msg("nobody is in turn");
            return;
        }
        moved[taken % 2] += items[taken].window.length;
        ends(taken);
        add(taken, who[taken % 2]);
    }
    for (int i = 0; i < 2 * depth; i++) {
        queue_remove(&items[i]);
    }
    for (int i = 0; i < SESSIONS; i++) {
        ck_assert(LIST_EMPTY(&sessions[i].places) && LIST_EMPTY(&sessions[i].user->places));
    }
}

START_TEST(users_get_the_same_bytes)
{
    uint64_t moved[2];

    for (int depth = 1; depth <= 4; depth += 3) { /* also where each transfer is the only one of its user */
        start(UINT64_MAX);
        move(0, 3, depth, 5000, moved);
        ck_assert_uint_ge(moved[0] + 64 * MIB + TURN_BYTES, moved[1]);
        ck_assert_uint_ge(moved[1] + 64 * MIB + TURN_BYTES, moved[0]);
    }
}
END_TEST

START_TEST(sessions_of_a_user_get_the_same_bytes)
{
    uint64_t moved[2];

    for (int depth = 1; depth <= 4; depth += 3) {
        start(UINT64_MAX);
        move(0, 1, depth, 5000, moved);
        ck_assert_uint_ge(moved[0] + 64 * MIB + TURN_BYTES, moved[1]);
        ck_assert_uint_ge(moved[1] + 64 * MIB + TURN_BYTES, moved[0]);
    }
}
END_TEST

/* A user with many sessions gets no more than one with a single session. */
START_TEST(sessions_are_no_votes)
{
    int of[2] = {0, 0};

    start(UINT64_MAX);
    for (int i = 0; i < 60; i++) {
        items[i].window.length = 64 * KIB;
        add(i, i < 45 ? i % 3 : 3);
    }
    for (int i = 0; i < 30; i++) {
        of[next() < 45 ? 0 : 1]++;
    }
    ck_assert_int_eq(of[0], 15);
    ck_assert_int_eq(of[1], 15);
    for (int i = 0; i < 60; i++) {
        if (items[i].place != NULL) {
            queue_remove(&items[i]);
        }
        ends(i);
    }
}
END_TEST

/* One that was served while it was ahead, for lack of others, and goes: nothing of it is kept. */
START_TEST(who_leaves_takes_its_place_along)
{
    start(UINT64_MAX);
    items[0].window.length = 64 * MIB;
    add(0, 0);
    for (int i = 1; i < 30; i++) {
        items[i].window.length = 64 * KIB;
        add(i, 3);
    }
    while (items[0].place != NULL) {
        next();
    }
    for (int i = 0; i < 30; i++) {
        ends(i);
    }
    ck_assert(!LIST_EMPTY(&users[0].places)); /* it is ahead */
    queue_forget_session(&sessions[0]);
    queue_forget_user(&users[0]);
    ck_assert(LIST_EMPTY(&users[0].places) && TAILQ_EMPTY(&queues[0].resting));
    for (int taken; (taken = next()) >= 0;) {
        ends(taken);
    }
}
END_TEST

/* What somebody was ahead is forgotten once the others have caught up, though the queue is never empty. */
START_TEST(what_is_past_is_forgotten)
{
    start(UINT64_MAX);
    items[0].window.length = 2 * MIB;
    add(0, 0);
    for (int i = 1; i < 3; i++) {
        items[i].window.length = 64 * KIB;
        add(i, 3);
    }
    for (int i = 0; i < 200; i++) {
        int taken = next();
        if (taken >= 0) {
            ends(taken);
        }
        if (taken > 0) {
            add(taken, 3);
        }
    }
    ck_assert(LIST_EMPTY(&users[0].places) && TAILQ_EMPTY(&queues[0].resting));
    queue_remove(&items[1]);
    queue_remove(&items[2]);
}
END_TEST

UNIT_MAIN("queue", users_get_the_same_bytes, sessions_of_a_user_get_the_same_bytes, sessions_are_no_votes,
          who_leaves_takes_its_place_along, what_is_past_is_forgotten, a_user_at_its_quota_is_out_of_turn,
          sessions_of_a_user_share_its_quota_in_turn,
          a_place_that_is_not_taken_goes_to_the_next, one_that_comes_back_takes_no_place,
          a_higher_quota_of_a_session_counts_at_once, nobody_is_forgotten_in_any_order,
          a_quota_spans_nodes_and_holds_nobody_up)
