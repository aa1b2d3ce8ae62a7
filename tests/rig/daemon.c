#include "tests/rig/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/rig/check.h"
#include "tests/rig/fake_fabric.h"
#include "tests/rig/fake_host.h"
#include "tests/rig/fake_server.h"
#include "tests/rig/fake_threads.h"

/* Until the daemon is at rest: turns in which no worker had a job, and jobs. Each descriptor too many in a packet is a
 * job, and packets with hundreds of them may wait in the sockets. */
#define TURNS 2000
#define JOBS 1000000
/* How long anything may wait for its end, and what the steps after that may take. */
#define PATIENCE_MS 600000

struct service rig_service;
struct config rig_config;

static uv_loop_t loop;
static struct fabric fabric;
static char password_path[64];

/* --- turns -------------------------------------------------------------------------------------------------------- */

void rig_loop(void)
{
    rig_service.watch.turn_ns++;
    uv_run(&loop, UV_RUN_NOWAIT);
}

static uint64_t loop_events(void)
{
    uv_metrics_t metrics;

    uv_metrics_info(&loop, &metrics);
    return metrics.events;
}

static bool turn(bool *worked)
{
    uint64_t before = loop_events();
    bool active = fake_server_turn();

    *worked = fake_workers_run(0);
    active |= *worked;
    active |= fake_workers_deliver();
    active |= fake_progress_turn();
    rig_loop();
    active |= clients_read();
    /* What waits for the next turn is no event, either. */
    return active || loop_events() != before || uv_is_active((uv_handle_t *)&rig_service.schedule.turn);
}

bool rig_turn(void)
{
    bool worked;

    return turn(&worked);
}

void rig_settle(void)
{
    unsigned quiet = 0, turns = 0, jobs = 0;
    bool worked;

    /* What a turn of the loop brings about by timers that are due and handles that are closed does not count as an
     * event: a few turns more. */
    while (turns < TURNS && jobs < JOBS && quiet < 3) {
        quiet = turn(&worked) ? 0 : quiet + 1;
        jobs += worked;
        turns += !worked;
    }
    RIG_CHECK(quiet == 3, "the daemon does not come to rest");
}

bool rig_advance(uint64_t *waited)
{
    int timeout = uv_backend_timeout(&loop);

    if (timeout < 0 || *waited > PATIENCE_MS) {
        return false;
    }
    fake_clock_advance((uint64_t)timeout);
    *waited += (uint64_t)timeout + 1;
    return true;
}

/* --- start -------------------------------------------------------------------------------------------------------- */

void rig_init(void)
{
    int fd = memfd_create("password", 0);

    signal(SIGPIPE, SIG_IGN);
    if (fd < 0 || write(fd, "secret\n", 7) != 7 || uv_loop_init(&loop) != 0) {
        abort();
    }
    snprintf(password_path, sizeof(password_path), "/proc/self/fd/%d", fd);
    rig_service.pidfd = eventfd(0, EFD_CLOEXEC);
    uv_run(&loop, UV_RUN_NOWAIT); /* what libuv opens when it first runs is open from here on */
}

void rig_configure(const struct rig_options *options)
{
    static char text[] = "server:6379", bind[] = "127.0.0.1", tcp[] = "tcp",
                verbs[] = "verbs", efa[] = "efa-direct",
                default_name[] = "default", admin_name[] = "admin", path[] = "/nowhere";

    rig_config = (struct config){
        .drain_ms = 1000,
        .valkey = {.address = text,
                   .password_file = options->password ? password_path : NULL,
                   .connections = options->two_nics ? 4 : 2,
                   .warm = options->warm,
                   .connect_timeout_ms = 5000},
        .fabric = {.provider = !options->real_nics ? tcp : options->efa_direct ? efa : verbs,
                   .bind = bind,
                   .lanes_max = 2,
                   .mr_max_bytes = options->small_slices ? 4096 : 65536},
        .revoke_grace_ms = 50,
        .pinned_limit = 2 << 20,
        .limits = {.sessions = 6,
                   .sessions_per_user = 4,
                   .hello_ms = 10000,
                   .requests = 8,
                   .queue = 6,
                   .regions = 4,
                   .regions_per_user = 1000,
                   .populate = true,
                   .region_bytes = 4 << 20},
        .sockets = {{.name = default_name, .path = path}},
        .socket_count = 1,
        .admin = {.name = admin_name, .path = path},
    };
    if (options->quotas) {
        rig_quota(POLICY_PINNED_BYTES, 128 << 10);
        rig_quota(POLICY_REGIONS, 3);
        rig_quota(POLICY_SESSIONS, 2);
        rig_quota(POLICY_IN_FLIGHT, 1);
        rig_quota(POLICY_QUEUE, 3);
    }
    fake_reset();
    fake_set_nics(options->two_nics ? 2 : 1, options->virtual_addresses, true);
    fake_server_reset();
}

void rig_quota(enum policy_key key, uint64_t limit)
{
    static char title[] = "[policy]";
    struct policy_section *section = &rig_config.policies[0];
    uint64_t *const values[] = {[POLICY_PINNED_BYTES] = &section->values.pinned_bytes,
                                [POLICY_REGIONS] = &section->values.regions,
                                [POLICY_SESSIONS] = &section->values.sessions,
                                [POLICY_IN_FLIGHT] = &section->values.in_flight,
                                [POLICY_QUEUE] = &section->values.queue};

    section->title = title;
    section->set[key] = true;
    *values[key] = limit;
    rig_config.policy_count = 1;
}

void rig_begin(const struct fabric_ops *ops)
{
    int pidfd = rig_service.pidfd;

    memset(&rig_service, 0, offsetof(struct service, buffer));
    rig_service.pidfd = pidfd;
    rig_service.loop = &loop;
    rig_service.config = &rig_config;
    rig_service.next_session = 1;
    rig_service.next_region = 1;
    TAILQ_INIT(&rig_service.regions);
    sessions_init(&rig_service);
    rig_service.workers = workers_start(&loop);
    RIG_CHECK(fabric_start(&fabric, &loop, rig_service.workers, &rig_config.fabric, ops) == 0, "%s", fabric.why);
    rig_service.fabric = &fabric;
    struct budget_settings budget = {
        .limit = {.bytes = rig_config.pinned_limit, .source = "pinned_limit", .rlimit = UINT64_MAX},
        .device_limit = rig_config.device_limit};
    memory_init(&rig_service.memory, &loop, rig_service.workers, &fabric, &budget);
    transfers_init(&rig_service.transfers, &loop, rig_config.revoke_grace_ms, rig_config.drain_ms);
    rig_service.deployment = deployment_start(&loop, rig_service.workers, &fabric, &rig_config.valkey,
                                              &transfers_events, &rig_service.transfers);
    rig_service.transfers.deployment = rig_service.deployment;
}

void rig_end(void)
{
    RIG_CHECK(fabric.lanes == 0 && workers_outstanding(rig_service.workers) == 0, "%u lanes, %u jobs", fabric.lanes,
              workers_outstanding(rig_service.workers));
    fabric_stop(&fabric);
    workers_stop(rig_service.workers);
    rig_loop();
    RIG_CHECK(uv_loop_alive(&loop) == 0, "a handle of the loop is open");
    RIG_CHECK(fake_server_connections() == 0, "a connection to the server is open");
}
