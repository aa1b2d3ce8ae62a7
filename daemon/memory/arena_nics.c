/*
 * On which NICs an arena is charged, and may be registered. It is charged on its home, the NIC that it was proved on,
 * as long as it lives, and on a further one from before the first registration there to the end of the last.
 */
#include <assert.h>

#include "daemon/base/log.h"
#include "daemon/memory/arena.h"
#include "proto/errors.h"

static uint32_t bit(unsigned nic)
{
    return UINT32_C(1) << nic;
}

struct charge arena_charge(const struct arena *arena)
{
    uint64_t bytes = arena->end - arena->start, step = arena->memory->fabric->config->mr_max_bytes;

    return (struct charge){.bytes = bytes, .registrations = (bytes + step - 1) / step};
}

static bool within_quota(const struct arena *arena, uint64_t bytes, uint64_t quota)
{
    return bytes <= quota && arena->account->pinned_bytes <= quota - bytes;
}

/* Checked and charged without a turn of the loop in between, so that no two registrations exceed it together. */
static int check_quota(const struct arena *arena, uint64_t bytes, uint64_t limit, struct memory_error *error)
{
    uint64_t used = arena->account->pinned_bytes;

    if (within_quota(arena, bytes, limit)) {
        return 0;
    }
    memory_error_set(error, PROTO_ERR_OVER_QUOTA, "registering %llu bytes would exceed a quota of pinned_bytes",
                     (unsigned long long)bytes);
    error->quota = "pinned_bytes";
    error->used = used;
    error->limit = limit;
    error->asked = bytes;
    return error->code;
}

static void account_add(struct arena *arena, unsigned nic, uint64_t bytes)
{
    arena->account->pinned_bytes += bytes;
    arena->account->pinned_on[nic] += bytes;
}

static void account_take(struct arena *arena, unsigned nic, uint64_t bytes)
{
    arena->account->pinned_bytes -= bytes;
    arena->account->pinned_on[nic] -= bytes;
}

int arena_charge_nic(struct arena *arena, unsigned nic, uint64_t quota, struct memory_error *error)
{
    struct charge charge = arena_charge(arena);
    int status = check_quota(arena, charge.bytes, quota, error);

    if (status == 0) {
        status = budget_charge(&arena->memory->budget, nic, charge, error);
    }
    if (status == 0) {
        arena->charged |= bit(nic);
        account_add(arena, nic, charge.bytes);
    }
    return status;
}

void arena_release_nic(struct arena *arena, unsigned nic)
{
    struct charge charge = arena_charge(arena);

    if ((arena->charged & ~arena->quarantined & bit(nic)) != 0) {
        arena->charged &= ~bit(nic);
        account_take(arena, nic, charge.bytes);
        budget_release(&arena->memory->budget, nic, charge);
    }
}

void arena_release_all(struct arena *arena)
{
    for (unsigned nic = 0; nic < FABRIC_NICS; nic++) {
        arena_release_nic(arena, nic);
    }
}

void arena_leave_account(struct arena *arena)
{
    for (unsigned nic = 0; nic < FABRIC_NICS; nic++) {
        if ((arena->quarantined & bit(nic)) != 0) {
            account_take(arena, nic, arena_charge(arena).bytes);
        }
    }
}

void arena_quarantine_nic(struct arena *arena, unsigned nic)
{
    struct memory *memory = arena->memory;
    struct charge charge = arena_charge(arena);

    if ((arena->charged & bit(nic)) == 0) {
        nic = arena->home;
    }
    if ((arena->quarantined & bit(nic)) != 0) {
        return;
    }
    memory->quarantined += arena->quarantined == 0 ? 1 : 0;
    arena->quarantined |= bit(nic);
    budget_quarantine(&memory->budget, nic, charge);
    log_about(LOG_EVENT(QUARANTINE), LOG_LEVEL_ERROR,
              "%llu bytes of registered memory stay mapped, and charged on NIC %s, until the daemon ends; %llu bytes are "
              "quarantined", (unsigned long long)charge.bytes, memory->fabric->nics[nic].name,
              (unsigned long long)memory->budget.memlock.quarantined);
    if (memory->quarantine_grew != NULL) {
        memory->quarantine_grew(memory);
    }
}

bool arena_on_nic(const struct arena *arena, unsigned nic)
{
    for (size_t i = 0; i < arena->slice_count; i++) {
        if (slice_on_nic(&arena->slices[i], arena->memory->fabric, nic)) {
            return true;
        }
    }
    return false;
}

/* --- for transfers ------------------------------------------------------------------------------------------------ */

uint32_t window_nics(const struct window *window)
{
    const struct arena *arena = window->region->arena;
    const struct budget *budget = &arena->memory->budget;
    struct charge charge = arena_charge(arena);
    uint32_t nics = arena->charged;

    if (arena->memory->fabric->domain_per_lane) {
        return LANE_ANY_NIC;
    }
    for (unsigned nic = 0; nic < budget->device_count; nic++) {
        if ((arena->refused & bit(nic)) == 0 && within_quota(arena, charge.bytes, window->region->quota) &&
            budget_fits(budget, nic, charge)) {
            nics |= bit(nic);
        }
    }
    return nics;
}

int window_charge(struct window *window, unsigned nic, struct memory_error *error)
{
    struct arena *arena = window->region->arena;

    nic = budget_nic(&arena->memory->budget, nic);
    return (arena->charged & bit(nic)) != 0 ? 0 : arena_charge_nic(arena, nic, window->region->quota, error);
}

bool window_unprepared(struct window *window, unsigned nic, bool refused)
{
    struct arena *arena = window->region->arena;

    nic = budget_nic(&arena->memory->budget, nic);
    if (nic == arena->home) {
        return false;
    }
    if (!arena_on_nic(arena, nic)) {
        arena_release_nic(arena, nic);
    }
    if (refused && (arena->charged & bit(nic)) == 0 && (arena->refused & bit(nic)) == 0) {
        arena->refused |= bit(nic);
        log_warn("NIC %s cannot register an arena of %llu bytes; its transfers use the NICs that have it",
                 arena->memory->fabric->nics[nic].name, (unsigned long long)arena_charge(arena).bytes);
    }
    return true;
}

void window_quarantine(struct window *window, unsigned nic)
{
    struct arena *arena = window->region->arena;

    arena_quarantine_nic(arena, budget_nic(&arena->memory->budget, nic));
}
