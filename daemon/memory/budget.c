#include "daemon/memory/budget.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/memory/memory.h"
#include "proto/errors.h"

static uint64_t limit_or_none(uint64_t limit)
{
    return limit != 0 ? limit : UINT64_MAX;
}

void budget_set_limits(struct budget *budget, const struct budget_settings *settings)
{
    budget->limit = settings->limit;
    budget->memlock.limit = settings->limit.bytes;
    for (unsigned i = 0; i < budget->device_count; i++) {
        budget->devices[i].bytes.limit = limit_or_none(settings->device_limit);
    }
}

void budget_init(struct budget *budget, const struct budget_settings *settings, const struct fabric *fabric)
{
    memset(budget, 0, sizeof(*budget));
    budget->fabric = fabric;
    budget->device_count = fabric->domain_per_lane && fabric->nic_count > 0 ? 1 : fabric->nic_count;
    for (unsigned i = 0; i < budget->device_count; i++) {
        budget->devices[i].registrations.limit = limit_or_none(fabric->nics[i].registrations);
    }
    budget_set_limits(budget, settings);
    if (fabric->nic_count == 0) { /* no fabric: memory is only mapped, and counts as on a first NIC without limits */
        budget->devices[0].bytes.limit = UINT64_MAX;
        budget->devices[0].registrations.limit = UINT64_MAX;
    }
}

unsigned budget_nic(const struct budget *budget, unsigned nic)
{
    return budget->fabric->domain_per_lane ? 0 : nic;
}

static bool room(const struct ledger *ledger, uint64_t amount)
{
    return ledger->used <= ledger->limit && amount <= ledger->limit - ledger->used;
}

bool budget_fits(const struct budget *budget, unsigned nic, struct charge charge)
{
    const struct budget_device *device = &budget->devices[nic];

    return room(&budget->memlock, charge.bytes) && room(&device->bytes, charge.bytes) &&
           room(&device->registrations, charge.registrations);
}

static int refuse(struct memory_error *error, const char *name, const struct ledger *ledger, uint64_t asked)
{
    error->budget = name;
    error->used = ledger->used;
    error->limit = ledger->limit;
    error->asked = asked;
    return error->code;
}

static int refuse_memlock(const struct budget *budget, uint64_t asked, struct memory_error *error)
{
    const struct ledger *ledger = &budget->memlock;

    memory_error_set(error, PROTO_ERR_OVER_BUDGET,
                     "registering %" PRIu64 " bytes would exceed the host's memlock budget: %" PRIu64 " of %" PRIu64
                     " bytes are in use. The limit comes from %s; see [memory] pinned_limit",
                     asked, ledger->used, ledger->limit, budget->limit.source);
    return refuse(error, "memlock", ledger, asked);
}

static int refuse_device(const struct budget *budget, unsigned nic, uint64_t asked, struct memory_error *error)
{
    const struct ledger *ledger = &budget->devices[nic].bytes;

    memory_error_set(error, PROTO_ERR_OVER_BUDGET,
                     "registering %" PRIu64 " bytes on NIC %s would exceed its device budget: %" PRIu64 " of %" PRIu64
                     " bytes are in use ([memory] device_limit)",
                     asked, budget->fabric->nics[nic].name, ledger->used, ledger->limit);
    return refuse(error, "device", ledger, asked);
}

static int refuse_registrations(const struct budget *budget, unsigned nic, uint64_t asked, struct memory_error *error)
{
    const struct ledger *ledger = &budget->devices[nic].registrations;

    memory_error_set(error, PROTO_ERR_OVER_BUDGET,
                     "%" PRIu64 " more registrations on NIC %s would exceed what the device has: %" PRIu64 " of %" PRIu64
                     " are in use; use larger regions and fewer, or raise [fabric] mr_max_bytes",
                     asked, budget->fabric->nics[nic].name, ledger->used, ledger->limit);
    return refuse(error, "registrations", ledger, asked);
}

int budget_charge(struct budget *budget, unsigned nic, struct charge charge, struct memory_error *error)
{
    struct budget_device *device = &budget->devices[nic];

    if (ledger_charge(&budget->memlock, charge.bytes) != 0) {
        return refuse_memlock(budget, charge.bytes, error);
    }
    if (ledger_charge(&device->bytes, charge.bytes) != 0) {
        ledger_release(&budget->memlock, charge.bytes);
        return refuse_device(budget, nic, charge.bytes, error);
    }
    if (ledger_charge(&device->registrations, charge.registrations) != 0) {
        ledger_release(&device->bytes, charge.bytes);
        ledger_release(&budget->memlock, charge.bytes);
        return refuse_registrations(budget, nic, charge.registrations, error);
    }
    return 0;
}

void budget_release(struct budget *budget, unsigned nic, struct charge charge)
{
    ledger_release(&budget->memlock, charge.bytes);
    ledger_release(&budget->devices[nic].bytes, charge.bytes);
    ledger_release(&budget->devices[nic].registrations, charge.registrations);
}

void budget_quarantine(struct budget *budget, unsigned nic, struct charge charge)
{
    ledger_quarantine(&budget->memlock, charge.bytes);
    ledger_quarantine(&budget->devices[nic].bytes, charge.bytes);
    ledger_quarantine(&budget->devices[nic].registrations, charge.registrations);
}

static int charge_queues(void *context, uint64_t bytes, char why[PIN_ACCOUNT_WHY_BYTES])
{
    struct budget *budget = context;
    const struct ledger *ledger = &budget->memlock;
    int status = ledger_charge(&budget->memlock, bytes);

    if (status != 0) {
        snprintf(why, PIN_ACCOUNT_WHY_BYTES,
                 "registering %" PRIu64 " bytes for a connection would exceed the host's memlock budget: %" PRIu64
                 " of %" PRIu64 " bytes are in use, %" PRIu64 " of them by connections. The limit comes from %s; see "
                 "[memory] pinned_limit",
                 bytes, ledger->used, ledger->limit, budget->queues, budget->limit.source);
        return status;
    }
    budget->queues += bytes;
    return 0;
}

static void release_queues(void *context, uint64_t bytes)
{
    struct budget *budget = context;

    ledger_release(&budget->memlock, bytes);
    budget->queues -= bytes;
}

struct pin_account budget_queue_account(struct budget *budget)
{
    return (struct pin_account){.charge = charge_queues, .release = release_queues, .context = budget};
}

unsigned budget_choose(const struct budget *budget, struct charge charge)
{
    int left_out = -1;

    for (unsigned i = 0; i < budget->device_count; i++) {
        if (!budget_fits(budget, i, charge)) {
            continue;
        }
        if (budget->fabric->domain_per_lane || !fabric_nic_left_out(budget->fabric, i)) {
            return i;
        }
        left_out = left_out < 0 ? (int)i : left_out;
    }
    return left_out < 0 ? 0 : (unsigned)left_out;
}

/* --- what the provider refused ------------------------------------------------------------------------------------ */

/* Its errors for having run out of something that it was to pin, or to enter in a table. */
static bool ran_out(int status)
{
    return status == -ENOMEM || status == -EAGAIN || status == -ENOSPC || status == -EDQUOT;
}

static const char *limit_text(uint64_t limit, char text[24])
{
    snprintf(text, 24, "%" PRIu64, limit);
    return limit == UINT64_MAX ? "unlimited" : text;
}

void budget_explain_refusal(const struct budget *budget, unsigned nic, struct charge charge, int status,
                            const char *why, struct memory_error *error)
{
    const struct budget_device *device = &budget->devices[nic];
    uint64_t used = budget->memlock.used - charge.bytes, on_device = device->bytes.used - charge.bytes;
    /* Queues are pinned as well, and not in our account: nearer than their headroom is near enough. */
    bool memlock = budget->limit.rlimit != UINT64_MAX &&
                   budget->memlock.used + PIN_HEADROOM_BYTES >= budget->limit.rlimit;
    char rlimit[24], device_limit[24];

    if (!budget->fabric->pins || !ran_out(status)) {
        memory_error_set(error, PROTO_ERR_NOT_USABLE, "the fabric refused to register %" PRIu64 " bytes: %s",
                         charge.bytes, why);
        return;
    }
    memory_error_set(error, PROTO_ERR_OVER_BUDGET,
                     "%s: it could not pin %" PRIu64 " bytes. memlock: %" PRIu64 " of %" PRIu64
                     " bytes in use, RLIMIT_MEMLOCK %s; device: %" PRIu64 " of %s bytes in use. Most likely %s",
                     why, charge.bytes, used, budget->memlock.limit, limit_text(budget->limit.rlimit, rlimit), on_device,
                     limit_text(device->bytes.limit, device_limit),
                     memlock ? "RLIMIT_MEMLOCK was hit: set LimitMEMLOCK=infinity"
                             : "the device's own limit was hit: set [memory] device_limit below it");
    error->budget = memlock ? "memlock" : "device";
    error->used = memlock ? used : on_device;
    error->limit = memlock ? budget->limit.rlimit : device->bytes.limit;
    error->asked = charge.bytes;
    error->both = true;
    error->memlock_used = used;
    error->memlock_limit = budget->memlock.limit;
    error->device_used = on_device;
    error->device_limit = device->bytes.limit;
}
