/*
 * Lanes and slices in random order: opened, prepared, given peers, destroyed and closed in every state, over a fake
 * fabric whose calls take random times and sometimes fail. The sequence of actions follows from the seed; how threads
 * interleave does not. Checked: each callback once, nothing touched after its end (address sanitizer), no rule of the
 * table broken, nothing left open.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/fabric_rig.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/unit_main.h"

#define LANES 4
#define SLICES 3
#define STEPS 80
#define ROUNDS 40

enum lane_state { GONE, OPENING, OPEN, DESTROYING };

struct player {
    struct lane *lane;
    enum lane_state state;
    bool preparing, adding;
    unsigned wanted; /* slices of the preparation, a bit each */
    unsigned named;  /* by its command */
};

/* As memory/ does it: a slice goes when it is closed, has no registration, and no preparation or proof uses it. */
struct piece {
    struct slice *slice;
    unsigned users, to_end;
    unsigned commands; /* that name it: it is not closed meanwhile */
    bool closing;
};

static struct rig rig;
static struct player players[LANES];
static struct piece pieces[SLICES];
static bool failing, ending;
static unsigned state;
static unsigned destroyed, refused, proofs, collaterals;

static unsigned pick(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 10) % below;
}

static void drop_if_idle(struct piece *piece)
{
    if (piece->closing && piece->to_end == 0 && piece->users == 0) {
        ck_assert_uint_eq(piece->slice->mr_count, 0);
        free(piece->slice);
        *piece = (struct piece){0};
    }
}

static void on_mr_ended(struct slice *slice, unsigned nic, int status)
{
    struct piece *piece = slice->owner;

    ck_assert_ptr_eq(piece->slice, slice);
    ck_assert(failing || status == 0);
    if (piece->closing) {
        ck_assert_uint_gt(piece->to_end, 0);
        piece->to_end--;
        ck_assert_uint_eq(piece->to_end, slice->mr_count);
        drop_if_idle(piece);
    }
}

static void on_player_opened(void *context, struct lane *lane, int status, const char *why)
{
    struct player *player = context;

    ck_assert(player->state == OPENING || player->state == DESTROYING);
    if (player->state == DESTROYING) {
        ck_assert_int_lt(status, 0);
        ck_assert_ptr_null(lane);
    } else if (status == 0) {
        ck_assert_ptr_eq(lane, player->lane);
        player->state = OPEN;
    } else {
        ck_assert(failing);
        player->state = GONE;
    }
}

static void end_command(struct player *player)
{
    for (unsigned i = 0; i < SLICES; i++) {
        pieces[i].commands -= player->named >> i & 1;
    }
    player->named = 0;
}

static void on_player_destroyed(void *context, int status)
{
    struct player *player = context;

    end_command(player);

    ck_assert_int_eq(player->state, DESTROYING);
    ck_assert(!player->preparing && !player->adding);
    ck_assert(failing || status == 0);
    player->state = GONE;
    destroyed++;
}

static void on_player_prepared(void *context, int status)
{
    struct player *player = context;

    ck_assert(player->preparing);
    player->preparing = false;
    for (unsigned i = 0; i < SLICES; i++) {
        if ((player->wanted >> i & 1) != 0) {
            /* With revocations it may be gone again. */
            if (status == 0 && !pieces[i].closing &&
                (!rig.fabric.revoke_slices || lane_has(player->lane, pieces[i].slice))) {
                ck_assert(lane_has(player->lane, pieces[i].slice));
                ck_assert_uint_ne(lane_triple(player->lane, pieces[i].slice, 0, 1).key, 0);
            }
            pieces[i].users--;
            drop_if_idle(&pieces[i]);
        }
    }
}

static void on_player_added(void *context, int status)
{
    struct player *player = context;

    ck_assert(player->adding);
    player->adding = false;
}

static void on_piece_proved(void *context, int status, const char *why)
{
    struct piece *piece = context;

    proofs++;
    piece->users--;
    drop_if_idle(piece);
}

/* Lanes and slices must live a while for several commands to name one registration. */
static bool goes(void)
{
    return !rig.fabric.revoke_slices || ending || pick(4) == 0;
}

static void open_or_destroy(struct player *player)
{
    if (player->state == GONE) {
        int status = lane_open(&rig.fabric, LANE_ANY_NIC, NULL, on_player_opened, player, &player->lane);
        refused += status == -ENOSPC;
        ck_assert(status == 0 || status == -ENOSPC);
        player->state = status == 0 ? OPENING : GONE;
    } else if (player->state != DESTROYING && goes()) {
        collaterals += player->state == OPEN && lane_collateral(player->lane);
        player->state = DESTROYING;
        lane_destroy(player->lane, on_player_destroyed, player);
    }
}

static void prepare(struct player *player)
{
    struct slice *wanted[SLICES];
    size_t count = 0;

    if (player->state != OPEN || player->preparing || player->named != 0) {
        return;
    }
    player->wanted = 0;
    for (unsigned i = 0; i < SLICES; i++) {
        if (pieces[i].slice != NULL && !pieces[i].closing && pick(3) > 0) {
            player->wanted |= 1u << i;
            pieces[i].users++;
            wanted[count++] = pieces[i].slice;
        }
    }
    player->preparing = true;
    lane_prepare(player->lane, wanted, count, on_player_prepared, player);
    ck_assert(player->preparing);
}

/* A command is sent, or ends well. */
static void command(struct player *player)
{
    struct slice *named[SLICES];
    size_t count = 0;

    if (player->state != OPEN || player->preparing) {
        return;
    }
    if (player->named != 0 && pick(3) > 0) {
        return;
    }
    if (player->named != 0) {
        collaterals += lane_collateral(player->lane);
        lane_end(player->lane);
        end_command(player);
        return;
    }
    for (unsigned i = 0; i < SLICES; i++) {
        if (pieces[i].slice != NULL && !pieces[i].closing && lane_has(player->lane, pieces[i].slice)) {
            player->named |= 1u << i;
            pieces[i].commands++;
            named[count++] = pieces[i].slice;
        }
    }
    ck_assert_int_eq(lane_begin(player->lane, named, count), 0);
}

static void add_peers(struct player *player)
{
    static const uint8_t addresses[4 * 16];

    if (player->state == OPEN && !player->adding) {
        player->adding = true;
        lane_add_peers(player->lane, addresses, 16, 4, on_player_added, player);
    }
}

static void make_prove_or_close(struct piece *piece)
{
    if (piece->slice == NULL) {
        piece->slice = malloc(sizeof(*piece->slice));
        slice_init(piece->slice, (uint8_t *)4096, 4096, FABRIC_REMOTE_READ, on_mr_ended, piece);
    } else if (!piece->closing && pick(3) == 0) {
        piece->users++;
        ck_assert_int_eq(slice_prove(piece->slice, &rig.fabric, 0, &rig.owner, on_piece_proved, piece), 0);
    } else if (!piece->closing && piece->commands == 0 && goes()) {
        piece->closing = true;
        piece->to_end = slice_close_registrations(piece->slice, &rig.fabric, &rig.owner);
        drop_if_idle(piece);
    }
}

static void act(void)
{
    struct player *player = &players[pick(LANES)];

    switch (pick(8)) {
    case 0:
    case 1:
        open_or_destroy(player);
        break;
    case 2:
    case 3:
        prepare(player);
        break;
    case 4:
    case 5:
        command(player);
        break;
    case 6:
        add_peers(player);
        break;
    default:
        make_prove_or_close(&pieces[pick(SLICES)]);
        break;
    }
}

static bool busy(void)
{
    bool any = workers_outstanding(rig.workers) > 0;

    for (int i = 0; i < LANES; i++) {
        any = any || players[i].state == OPENING || players[i].state == DESTROYING || players[i].preparing ||
              players[i].adding;
    }
    return any;
}

static void settle(void)
{
    for (int i = 0; i < RIG_PATIENCE_MS && busy(); i++) {
        rig_idle(&rig, 1);
    }
    ck_assert(!busy());
}

static void finish(void)
{
    ending = true;
    for (int i = 0; i < LANES; i++) {
        if (players[i].state == OPENING || players[i].state == OPEN) {
            open_or_destroy(&players[i]);
        }
    }
    settle();
    for (int i = 0; i < SLICES; i++) {
        if (pieces[i].slice != NULL && !pieces[i].closing) {
            pieces[i].closing = true;
            pieces[i].to_end = slice_close_registrations(pieces[i].slice, &rig.fabric, &rig.owner);
            drop_if_idle(&pieces[i]);
        }
    }
    settle();
    for (int i = 0; i < SLICES; i++) {
        ck_assert_ptr_null(pieces[i].slice);
    }
}

static void fail_sometimes(void)
{
    static const enum fake_op ops[] = {FAKE_DOMAIN_OPEN,   FAKE_ENDPOINT_OPEN, FAKE_ENDPOINT_CLOSE,
                                       FAKE_ENDPOINT_FREE, FAKE_ADD_PEER,      FAKE_MR_OPEN,
                                       FAKE_MR_CLOSE,      FAKE_DOMAIN_CLOSE};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        fake_fail_randomly(ops[i], 10, -EIO);
    }
}

static void run_round(unsigned seed)
{
    static const char *const providers[] = {"tcp", "verbs", "efa-direct"};
    const char *provider = providers[seed % 3];

    state = seed * 747796405u + 1;
    failing = seed % 2 == 1;
    ending = false;
    fake_reset();
    fake_set_nics(seed % 3 == 1 ? 2 : 1, seed % 3 != 0, seed % 3 != 2);
    fake_jitter(seed, seed % 5 == 0 ? 0 : 300);
    rig_start(&rig, provider, &fake_ops);
    rig.config.lanes_max = seed % 3 == 1 ? 2 : 3;
    if (failing) {
        fail_sometimes();
    }
    for (int i = 0; i < STEPS; i++) {
        act();
        if (pick(4) == 0) {
            rig_idle(&rig, 1);
        } else if (pick(2) == 0) {
            uv_run(&rig.loop, UV_RUN_NOWAIT);
        }
        if (pick(8) == 0) {
            fake_ring();
        }
    }
    finish();
    rig_stop(&rig);
    ck_assert_msg(fake_fault() == NULL, "seed %u: %s", seed, fake_fault());
    ck_assert_uint_eq(fake_domains(), 0);
    ck_assert_uint_eq(fake_endpoints(), 0);
    ck_assert_uint_eq(fake_mrs(), 0);
}

START_TEST(races)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        run_round((unsigned)_i * ROUNDS + i);
    }
    /* Where the workers got little of the processor, lanes hardly came to live: some rounds more. */
    for (unsigned i = 0; i < 9 * ROUNDS && (proofs == 0 || collaterals == 0 || refused == 0); i++) {
        run_round(1000 + (unsigned)_i * 9 * ROUNDS + i);
    }
    /* the rounds did what they are for */
    ck_assert_uint_gt(destroyed, ROUNDS);
    ck_assert_uint_gt(proofs, 0);
    ck_assert_uint_gt(collaterals, 0);
    ck_assert_uint_gt(refused, 0);
    fake_reset();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_races");
    TCase *tests = tcase_create("fabric_races");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, races, 0, 5);
    suite_add_tcase(suite, tests);
    return unit_run(suite);
}
