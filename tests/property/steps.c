/*
 * A round: the daemon starts, steps happen to it, it ends, and nothing may be left. What a step does follows from its
 * seed and from what is there, so a round can be run again without some of its steps.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/stop.h"
#include "daemon/transfer/queue.h"
#include "proto/methods.h"
#include "tests/property/model.h"
#include "tests/rig/daemon.h"
#include "tests/rig/fake_host.h"
#include "tests/rig/fake_server.h"
#include "tests/rig/fake_threads.h"

/* Turns of the end of a round, each followed by what the server still does. */
#define LAST_TURNS 2000

static struct {
    bool closes_fail;
    bool calls_hang;
    bool peers_meanwhile; /* the server moves bytes inside of closing calls */
    bool close_failed;
    bool answers_at_end;
} round_now;

static struct stop stop;
static struct listeners listeners;

static void meanwhile(enum fake_op op)
{
    if (round_now.peers_meanwhile && random_percent(40)) {
        server_step_move(1 + random_below(200));
    }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void step_worker(void)
{
    if (fake_workers_run(random_next())) {
        trace("a worker runs a job");
    }
}

static void step_deliver(void)
{
    if (fake_workers_deliver()) {
        trace("the loop hears of the jobs that have run");
    }
}

static void step_progress(void)
{
    if (fake_progress_turn()) {
        trace("progress lets go of an endpoint");
    }
}

static void step_loop(void)
{
    trace("a turn of the loop");
    rig_loop();
}

static void step_server_turn(void)
{
    if (fake_server_turn()) {
        trace("the daemon sees what the server did");
    }
}

static void step_turn(void)
{
    trace("a turn of everything");
    rig_turn();
    if (random_percent(60)) {
        server_step_answer_session();
    }
}

static void step_settle(void)
{
    trace("turns of everything until nothing happens");
    rig_settle();
    while (random_percent(80) && server_step_answer_session()) {
        rig_settle();
    }
}

static void step_move(void)
{
    server_step_move(1 + random_below(random_percent(30) ? 8000 : 300));
}

static void step_answer_session(void)
{
    server_step_answer_session();
}

static void step_get(void)
{
    client_step_transfer(false);
}

static void step_set(void)
{
    client_step_transfer(true);
}

static void step_clock(void)
{
    uint32_t ms = 1 + random_below(random_percent(20) ? 2500 : 60);

    trace("%u ms pass", ms);
    fake_clock_advance(ms);
}

static void step_open_fails(void)
{
    static const enum fake_op ops[] = {FAKE_DOMAIN_OPEN, FAKE_ENDPOINT_OPEN, FAKE_ADD_PEER, FAKE_MR_OPEN};
    static const char *const names[] = {"domain", "endpoint", "peer", "registration"};
    uint32_t which = random_below(4), skip = random_below(3);

    trace("the %s after the next %u does not open", names[which], skip);
    fake_fail(ops[which], skip, -12);
}

static void step_close_fails(void)
{
    static const enum fake_op ops[] = {FAKE_ENDPOINT_CLOSE, FAKE_ENDPOINT_CLOSE, FAKE_MR_CLOSE, FAKE_ENDPOINT_FREE,
                                       FAKE_DOMAIN_CLOSE};
    static const char *const names[] = {"endpoint", "endpoint", "registration", "set of queues", "domain"};
    uint32_t which = random_below(5), skip = random_below(2);

    if (round_now.closes_fail) {
        trace("the %s after the next %u does not close", names[which], skip);
        round_now.close_failed = true;
        fake_fail(ops[which], skip, -5);
    }
}

static void step_stall(void)
{
    if (round_now.calls_hang && fake_workers_stall(random_next())) {
        trace("a worker's job hangs");
        saw(SIGHT_HUNG);
    }
}

static void step_resume(void)
{
    if (fake_workers_resume()) {
        trace("jobs that hang go on");
    }
}

static void step_room(void)
{
    fake_server.room = random_percent(50) ? random_below(200) : SIZE_MAX;
    trace("the server takes %zu bytes more of commands", fake_server.room);
}

static void step_refuse(void)
{
    fake_server.mode = random_percent(25) ? FAKE_REFUSE : FAKE_ACCEPT;
    trace("the server %s connections", fake_server.mode == FAKE_ACCEPT ? "accepts" : "refuses");
}

static void step_stop(void)
{
    if (random_percent(20)) {
        trace("the daemon is told to stop");
        stop_begin(&stop);
    }
}

static const struct {
    void (*run)(void);
    unsigned weight;
} kinds[] = {
    {step_loop, 60},         {step_worker, 50},       {step_deliver, 40},          {step_server_turn, 40},
    {step_progress, 12},     {step_turn, 40},         {step_settle, 6},            {step_move, 50},
    {server_step_answer, 34}, {step_answer_session, 30}, {step_get, 34},           {step_set, 26},
    {client_step_register, 8}, {client_step_open, 6}, {client_step_cancel, 9},     {client_step_close_region, 5},
    {client_step_close, 2},  {client_step_die, 2},    {client_step_half_close, 1}, {step_clock, 8},
    {step_open_fails, 2},    {step_close_fails, 6},   {step_stall, 4},             {step_resume, 4},
    {step_room, 2},          {step_refuse, 2},        {server_step_hang_up, 2},    {step_stop, 1},
};

static void run_step(struct step step)
{
    unsigned sum = 0, at;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        sum += kinds[i].weight;
    }
    at = step.kind % sum;
    random_seed(step.seed);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (at < kinds[i].weight) {
            kinds[i].run();
            return;
        }
        at -= kinds[i].weight;
    }
}

/* --- what holds between any two steps ----------------------------------------------------------------------------- */

static void check_always(void)
{
    const struct ledger *ledger = &rig_service.memory.budget.memlock;

    clients_read();
    RIG_CHECK(mapped_bytes() <= ledger->used, "%llu bytes are mapped and %llu charged",
              (unsigned long long)mapped_bytes(), (unsigned long long)ledger->used);
    RIG_CHECK(ledger->used <= rig_config.pinned_limit, "%llu bytes are charged, above a limit of %llu",
              (unsigned long long)ledger->used, (unsigned long long)rig_config.pinned_limit);
    RIG_CHECK(mapped_bytes() <= rig_config.pinned_limit, "%llu bytes are mapped, above a limit of %llu",
              (unsigned long long)mapped_bytes(), (unsigned long long)rig_config.pinned_limit);
    for (const struct user *user = rig_service.users; user != NULL; user = user->hh.next) {
        uint64_t in_flight = user->transfers.in_flight, limit = user->policy.values.in_flight;
        RIG_CHECK(in_flight <= limit, "a user has %llu transfers in flight, above a quota of %llu",
                  (unsigned long long)in_flight, (unsigned long long)limit);
        RIG_CHECK(user->transfers.queued == 0 || in_flight >= limit || queue_user_in_turn(&user->transfers),
                  "a user below its quota has %llu transfers that nobody will send",
                  (unsigned long long)user->transfers.queued);
    }
    RIG_CHECK(fake_fault() == NULL, "the fabric is used wrongly: %s", fake_fault());
}

bool round_close_failed(void)
{
    return round_now.close_failed;
}

/* --- a round ------------------------------------------------------------------------------------------------------ */

static int chosen_provider = -1; /* any */

bool round_choose_provider(const char *name)
{
    static const char *const names[] = {"tcp", "verbs", "efa-direct"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            chosen_provider = i;
            return true;
        }
    }
    return false;
}

static void choose_provider(struct rig_options *options)
{
    enum fake_provider provider = random_below(3);

    if (chosen_provider >= 0) {
        provider = (enum fake_provider)chosen_provider;
    }

    options->real_nics = provider != FAKE_TCP;
    options->efa_direct = provider == FAKE_EFA_DIRECT;
    options->two_nics = random_percent(25);
    options->virtual_addresses = provider != FAKE_TCP && random_percent(50);
    options->small_slices = random_percent(30);
    options->warm = random_percent(10);
    rig_configure(options);
    fake_surroundings = (struct fake_surroundings){.provider = provider,
                                                   .one_endpoint = provider == FAKE_TCP,
                                                   .calling = meanwhile,
                                                   .in_doubt = mapping_in_doubt,
                                                   .endpoint_failed = server_endpoint_failed};
    if (provider == FAKE_EFA_DIRECT) {
        fake_set_nics(options->two_nics ? 2 : 1, options->virtual_addresses, false);
    }
    rig_config.valkey.connections = 2 + random_below(3);
    rig_config.fabric.lanes_max = 2 + random_below(3);
    rig_config.pinned_limit = random_percent(30) ? 3 * FILE_BYTES : 20 * FILE_BYTES;
    rig_config.device_limit = random_percent(20) ? 2 * FILE_BYTES : 0;
    if (random_percent(10)) {
        fake_set_registrations(1 + random_below(6)); /* that a device has */
    }
    rig_config.limits.requests = 20;
    rig_config.limits.queue = 10;
    rig_config.revoke_grace_ms = random_percent(30) ? 0 : 50;
    if (rig_config.valkey.connections == 4) { /* connections to spare for users at their quota */
        rig_quota(POLICY_IN_FLIGHT, 1 + rig_config.fabric.lanes_max % 2);
    }
    trace("provider %s, %u connections, %u lanes%s%s", rig_config.fabric.provider, rig_config.valkey.connections,
          (unsigned)rig_config.fabric.lanes_max, options->two_nics ? ", two NICs" : "",
          options->small_slices ? ", registrations of 4096 bytes" : "");
}

static void start(void)
{
    struct rig_options options = {0};

    clients_start();
    choose_provider(&options);
    round_now.closes_fail = random_percent(35);
    round_now.calls_hang = random_percent(40);
    round_now.peers_meanwhile = true;
    round_now.close_failed = false;
    round_now.answers_at_end = random_percent(50);
    files_reset();
    server_start();
    rig_begin(&fake_ops);
    listeners = (struct listeners){0};
    stop_init(&stop, &rig_service, &listeners);
    clients_prepare(2 + random_below(CLIENTS - 1));
}

/* The server goes on with what it has, while the daemon ends. */
static void end(void)
{
    uint64_t waited = 0;

    trace("the daemon is told to stop");
    fake_workers_resume();
    fake_server.room = SIZE_MAX;
    stop_begin(&stop);
    for (unsigned turns = 0, quiet = 0; !stop.done; turns++) {
        RIG_CHECK(turns < LAST_TURNS, "the daemon does not stop");
        if (rig_turn()) {
            quiet = 0;
            check_always();
            if (random_percent(30)) {
                server_step_move(1 + random_below(1000));
            }
        } else if (round_now.answers_at_end && random_percent(50)) {
            server_step_answer();
        } else if (++quiet >= 3) { /* a turn may bring about work without an event: as in rig_settle */
            RIG_CHECK(rig_advance(&waited), "the daemon does not stop");
        }
    }
    rig_settle();
    server_move_all();
    check_always();
}

/* What is left on the NICs is what is quarantined there, and makes up what is left of the host's budget. */
static void check_devices_at_end(const struct budget *budget)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < budget->device_count; i++) {
        const struct budget_device *device = &budget->devices[i];
        RIG_CHECK(device->bytes.used == device->bytes.quarantined &&
                      device->registrations.used == device->registrations.quarantined,
                  "NIC %u: %llu bytes and %llu registrations stay charged", i, (unsigned long long)device->bytes.used,
                  (unsigned long long)device->registrations.used);
        sum += device->bytes.used;
    }
    RIG_CHECK(sum == budget->memlock.used, "%llu bytes are charged on NICs and %llu in all", (unsigned long long)sum,
              (unsigned long long)budget->memlock.used);
}

static void check_end(void)
{
    const struct memory *memory = &rig_service.memory;
    const struct ledger *memlock = &memory->budget.memlock;
    uint64_t left = mappings_settle();

    clients_check_end();
    files_check("at the end");
    if (left > 0) {
        saw(SIGHT_QUARANTINED);
    }
    /* once for each NIC where a close failed */
    RIG_CHECK(memlock->used == memlock->quarantined && memlock->used >= left &&
                  memlock->used <= left * memory->budget.device_count,
              "%llu bytes stay charged and %llu are quarantined, where %llu are left of failed closes",
              (unsigned long long)memlock->used, (unsigned long long)memlock->quarantined, (unsigned long long)left);
    check_devices_at_end(&memory->budget);
    RIG_CHECK(left == 0 || round_now.close_failed, "%llu bytes are quarantined and every close went well",
              (unsigned long long)left);
    RIG_CHECK(stop.status == 0 || round_now.close_failed, "the daemon ends with status %d and every close went well",
              stop.status);
    RIG_CHECK(left == 0 || stop.status == EXIT_STATUS_LEFT_OPEN, "the daemon hides that %llu bytes are left",
              (unsigned long long)left);
    RIG_CHECK(rig_service.users == NULL && memory->files == NULL && memory->regions == 0 && memory->arenas == 0,
              "%u regions, %u arenas or a user are left", memory->regions, memory->arenas);
    rig_end();
    RIG_CHECK(fake_domains() == 0 && fake_endpoints() == 0 && fake_mrs() == 0,
              "%u domains, %u endpoints, %u registrations are open", fake_domains(), fake_endpoints(), fake_mrs());
}

void round_run(uint64_t seed, const bool skip[STEPS])
{
    struct step steps[STEPS];

    random_seed(seed);
    for (unsigned i = 0; i < STEPS; i++) {
        steps[i] = (struct step){.kind = random_next(), .seed = random_next()};
    }
    step_begins(0);
    start();
    for (unsigned i = 0; i < STEPS && !stop.done; i++) {
        if (skip == NULL || !skip[i]) {
            step_begins(i + 1);
            run_step(steps[i]);
            check_always();
        }
    }
    step_begins(STEPS + 1);
    random_seed(seed + 1);
    end();
    check_end();
    clients_end();
    server_end();
    fake_reset();
}
