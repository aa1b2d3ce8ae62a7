#include "daemon/admin/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/version.h"
#include "daemon/local/session.h"

enum metric {
#define METRIC_ENUM(symbol, name, type, unit, help) M_##symbol,
    METRICS(METRIC_ENUM)
#undef METRIC_ENUM
};

static const struct metric_family families[] = {
#define METRIC_ROW(symbol, name, type, unit, help) {(name), METRIC_##type, (unit), (help)},
    METRICS(METRIC_ROW)
#undef METRIC_ROW
};

/* The buckets that are shown are powers of two in microseconds, from 16 us to 17 s. */
#define SHOWN_FIRST 4
#define SHOWN_LAST 24

/* Samples of one family with no more than two labels. */
static void sample(struct metrics_text *text, enum metric metric, const char *name, const char *value, const char *name2,
                   const char *value2, uint64_t number)
{
    struct metric_label labels[] = {{name, value}, {name2, value2}};
    struct metric_sample row = {.family = &families[metric], .labels = labels,
                                .count = (name != NULL) + (name2 != NULL)};
    metrics_integer(text, &row, number);
}

static void number(struct metrics_text *text, enum metric metric, uint64_t value)
{
    metrics_family(text, &families[metric]);
    sample(text, metric, NULL, NULL, NULL, NULL, value);
}

static void seconds(struct metrics_text *text, enum metric metric, uint64_t ns)
{
    struct metric_sample row = {.family = &families[metric]};
    metrics_family(text, &families[metric]);
    metrics_seconds(text, &row, ns);
}

/* --- the daemon and its memory ------------------------------------------------------------------------------------ */

static void render_daemon(const struct service *service, struct metrics_text *text)
{
    char why[NODE_WHY_BYTES + 128];
    const struct metric_label labels[] = {{"version", GRD_VERSION},
                                          {"libfabric", service->fabric->version},
                                          {"provider", service->config->fabric.provider}};
    struct metric_sample row = {.family = &families[M_DAEMON], .labels = labels, .count = 3};
    metrics_family(text, &families[M_DAEMON]);
    metrics_integer(text, &row, 1);
    seconds(text, M_UPTIME, uv_hrtime() - service->started_ns);
    number(text, M_USABLE, service_usable(service, why, sizeof why));
    number(text, M_DRAINING, service->draining);
    number(text, M_SESSIONS, service->session_count);
    number(text, M_ADMITTED, service->counters.sessions);
    seconds(text, M_LOOP, service->watch.longest_ns);
    unsigned outstanding = workers_outstanding(service->workers), running = workers_running(service->workers);
    number(text, M_WORKERS_BUSY, running);
    number(text, M_WORKERS_QUEUED, outstanding > running ? outstanding - running : 0);
    number(text, M_LEFT_OUT, log_left_out());
}

static const char *nic_name(const struct service *service, unsigned nic)
{
    return service->fabric->nics[nic].name;
}

/* Of the ledger of the host, or of a device; the limit only where there is one. */
static void budget_samples(const struct service *service, struct metrics_text *text, enum metric metric, bool limits)
{
    const struct budget *budget = &service->memory.budget;
    metrics_family(text, &families[metric]);
    sample(text, metric, "budget", "memlock", NULL, NULL, limits ? budget->memlock.limit : budget->memlock.used);
    for (unsigned i = 0; i < budget->device_count; i++) {
        const struct ledger *ledger = &budget->devices[i].bytes;
        if (!limits || ledger->limit != UINT64_MAX)
            sample(text, metric, "budget", "device", "nic", nic_name(service, i), limits ? ledger->limit : ledger->used);
    }
}

static void render_memory(const struct service *service, struct metrics_text *text)
{
    const struct memory *memory = &service->memory;
    const struct fabric *fabric = service->fabric;
    budget_samples(service, text, M_PINNED, false);
    budget_samples(service, text, M_LIMIT, true);
    number(text, M_QUARANTINE, memory->budget.memlock.quarantined);
    number(text, M_CONNECTION_BYTES, memory->budget.queues);
    number(text, M_ARENAS, memory->arenas);
    number(text, M_REGIONS, memory->regions);
    metrics_family(text, &families[M_OPEN_REGISTRATIONS]);
    for (unsigned i = 0; i < memory->budget.device_count; i++)
        sample(text, M_OPEN_REGISTRATIONS, "nic", nic_name(service, i), NULL, NULL,
               memory->budget.devices[i].registrations.used);
    metrics_family(text, &families[M_REGISTRATIONS]);
    for (unsigned i = 0; i < fabric->nic_count; i++)
        sample(text, M_REGISTRATIONS, "nic", nic_name(service, i), NULL, NULL,
               atomic_load_explicit(&fabric->registrations[i], memory_order_relaxed));
    metrics_family(text, &families[M_LANES]);
    for (unsigned i = 0; i < fabric->nic_count; i++)
        sample(text, M_LANES, "nic", nic_name(service, i), NULL, NULL, fabric->nic_lanes[i]);
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static void bucket_sample(struct metrics_text *text, struct metric_sample *row, struct metric_label *bound,
                          const char *value, uint64_t count)
{
    bound->value = value;
    row->suffix = "_bucket";
    row->count = 3;
    metrics_integer(text, row, count);
}

static void render_histogram(const struct histogram *histogram, struct metrics_text *text, const char *stage,
                             const char *size)
{
    struct metric_label labels[] = {{"stage", stage}, {"size", size}, {"le", ""}};
    struct metric_sample row = {.family = &families[M_TRANSFER_TIME], .labels = labels};
    for (unsigned power = SHOWN_FIRST; power <= SHOWN_LAST; power++) {
        uint64_t us = UINT64_C(1) << power;
        char words[40];
        snprintf(words, sizeof words, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
        bucket_sample(text, &row, &labels[2], words, histogram_count_to(histogram, us));
    }
    bucket_sample(text, &row, &labels[2], "+Inf", histogram->count);
    row.count = 2;
    row.suffix = "_count";
    metrics_integer(text, &row, histogram->count);
    row.suffix = "_sum";
    metrics_seconds(text, &row, histogram->sum_ns);
}

static void render_outcomes(const struct transfer_stats *stats, struct metrics_text *text)
{
    metrics_family(text, &families[M_TRANSFERS]);
    for (enum transfer_kind kind = 0; kind < TRANSFER_KINDS; kind++)
        for (int i = 0; i < OUTCOME_COUNT; i++)
            sample(text, M_TRANSFERS, "op", transfer_kind_name(kind), "outcome", outcome_table[i].name,
                   stats->ended[kind][i]);
    metrics_family(text, &families[M_TRANSFER_BYTES]);
    for (enum transfer_kind kind = 0; kind < TRANSFER_KINDS; kind++)
        sample(text, M_TRANSFER_BYTES, "op", transfer_kind_name(kind), NULL, NULL, stats->bytes[kind]);
}

static void render_transfers(const struct service *service, struct metrics_text *text)
{
    const struct transfers *transfers = &service->transfers;
    const struct transfer_stats *stats = &transfers->stats;
    number(text, M_IN_FLIGHT, transfers->open - transfers->queued);
    number(text, M_QUEUED, transfers->queued);
    render_outcomes(stats, text);
    number(text, M_RERUNS, transfers->run_again);
    number(text, M_COLLATERAL, transfers->collateral);
    metrics_family(text, &families[M_TRANSFER_TIME]);
    for (enum transfer_stage stage = 0; stage < TRANSFER_STAGES; stage++)
        for (enum transfer_size size = 0; size < TRANSFER_SIZE_COUNT; size++)
            render_histogram(&stats->times[stage][size], text, transfer_stage_name(stage), transfer_size_name(size));
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* Codes of which only the library knows never travel (proto/errors.h). */
static bool travels(int code)
{
    return code < -69 || code > -60;
}

static void render_requests(const struct service *service, struct metrics_text *text)
{
    metrics_family(text, &families[M_REQUESTS]);
    for (int i = 0; i < PROTO_METHOD_COUNT; i++)
        sample(text, M_REQUESTS, "method", proto_methods[i].name, NULL, NULL, service->counters.requests[i]);
    metrics_family(text, &families[M_REFUSED]);
    for (int i = 0; i < PROTO_ERROR_COUNT; i++)
        if (travels(proto_error_at(i)))
            sample(text, M_REFUSED, "reason", proto_error_name(proto_error_at(i)), NULL, NULL,
                   service->counters.refused[i]);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static uint64_t node_number(const struct node_health *health, enum metric metric)
{
    switch (metric) {
    case M_NODE_UP:
        return strcmp(health->state, "up") == 0;
    case M_NODE_CARRIERS:
        return health->carriers;
    case M_NODE_BUSY:
        return health->carriers_busy;
    case M_RECONNECTS:
        return health->reconnects;
    case M_REVOCATIONS:
        return health->revocations;
    default:
        return health->transport_why[0] != '\0';
    }
}

static void render_nodes(const struct service *service, struct metrics_text *text)
{
    for (enum metric metric = M_NODE_UP; metric <= M_NODE_FALLBACK; metric++) {
        const struct member *member = NULL;
        metrics_family(text, &families[metric]);
        while (service->deployment != NULL && (member = deployment_next(service->deployment, member)) != NULL) {
            struct node_health health;
            node_health(member->node, &health);
            sample(text, metric, "node", health.address, NULL, NULL, node_number(&health, metric));
        }
    }
}

/* --- users -------------------------------------------------------------------------------------------------------- */

struct use {
    uint64_t numbers[M_USER_QUEUED - M_USER_PINNED + 1];
};

static struct use use_of(const struct user *user)
{
    struct use use = {{user->memory.pinned_bytes, user->memory.regions, user->sessions, user->transfers.in_flight,
                       user->transfers.queued}};
    return use;
}

/* Memory first, then transfers. */
static bool uses_more(const struct user *a, const struct user *b)
{
    if (a->memory.pinned_bytes != b->memory.pinned_bytes)
        return a->memory.pinned_bytes > b->memory.pinned_bytes;
    return a->transfers.open > b->transfers.open;
}

struct top {
    const struct user *users[METRICS_USERS];
    unsigned count;
    struct use others;
    bool has_others;
};

static void leave_out(struct top *top, const struct user *user)
{
    struct use use = use_of(user);
    top->has_others = true;
    for (size_t i = 0; i < sizeof use.numbers / sizeof use.numbers[0]; i++)
        top->others.numbers[i] += use.numbers[i];
}

/* The list is in order; the last one makes room. */
static void enter(struct top *top, const struct user *user)
{
    if (top->count == METRICS_USERS) {
        const struct user *last = top->users[METRICS_USERS - 1];
        bool more = uses_more(user, last);
        leave_out(top, more ? last : user);
        if (!more)
            return;
        top->count--;
    }
    unsigned at = top->count++;
    for (; at > 0 && uses_more(user, top->users[at - 1]); at--)
        top->users[at] = top->users[at - 1];
    top->users[at] = user;
}

static void render_users(const struct service *service, struct metrics_text *text)
{
    struct top top = {.count = 0};
    for (const struct user *user = service->users; user != NULL; user = user->hh.next)
        enter(&top, user);
    for (enum metric metric = M_USER_PINNED; metric <= M_USER_QUEUED; metric++) {
        metrics_family(text, &families[metric]);
        for (unsigned i = 0; i < top.count; i++) {
            char uid[16];
            struct use use = use_of(top.users[i]);
            snprintf(uid, sizeof uid, "%u", top.users[i]->key.uid);
            sample(text, metric, "socket", top.users[i]->key.socket->name, "uid", uid,
                   use.numbers[metric - M_USER_PINNED]);
        }
        if (top.has_others)
            sample(text, metric, "socket", "", "uid", "other", top.others.numbers[metric - M_USER_PINNED]);
    }
}

void metrics_render(const struct service *service, struct metrics_text *text)
{
    render_daemon(service, text);
    render_memory(service, text);
    render_transfers(service, text);
    render_requests(service, text);
    render_nodes(service, text);
    render_users(service, text);
    metrics_end(text);
}
