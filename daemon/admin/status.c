#include "daemon/admin/status.h"

#include <string.h>

#include "daemon/base/version.h"
#include "daemon/local/permission.h"
#include "daemon/local/quota.h"
#include "proto/shape.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Paths of the configuration and words of libraries may be no UTF-8: json_pack and json_string would give up. */
static json_t *text(const char *bytes)
{
    return proto_text_json(bytes, strlen(bytes));
}

static uint64_t registrations_of(const struct fabric *fabric, unsigned nic)
{
    return atomic_load_explicit(&fabric->registrations[nic], memory_order_relaxed);
}

static json_t *fabric_status(const struct service *service)
{
    const struct fabric *fabric = service->fabric;
    json_t *interfaces = json_array(), *nics = json_array();
    uint64_t total = 0;
    for (unsigned i = 0; i < fabric->nic_count; i++) {
        const struct fabric_nic_state *state = &fabric->nic_states[i];
        json_array_append_new(interfaces, text(fabric->nics[i].name));
        json_array_append_new(nics, json_pack("{s:o,s:i,s:s,s:o}", "nic", text(fabric->nics[i].name), "lanes",
                                              (int)fabric->nic_lanes[i], "state",
                                              state->failures > 0 ? "left_out" : "usable", "why", text(state->why)));
        total += registrations_of(fabric, i);
    }
    return json_pack("{s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:i,s:o}", "provider", fabric->config->provider, "usable", fabric->usable,
                     "why", text(fabric->why), "libfabric", text(fabric->version), "providers",
                     text(fabric->providers), "interfaces", interfaces, "nics", nics, "lanes", (int)fabric->lanes,
                     "registrations_total", number(total));
}

static json_t *node_status(const struct service *service, const struct member *member)
{
    struct node_health health;
    node_health(member->node, &health);
    return json_pack("{s:o,s:o,s:s,s:i,s:i,s:s,s:o,s:s,s:o,s:o,s:b,s:s,s:i,s:i,s:I,s:I,s:o,s:s,s:o}", "id",
                     number(member->number),
                     "address", text(health.address), "role", member_role(member), "slots", (int)member->slots,
                     "replicas", (int)member->replicas, "state", health.state, "why", text(health.why), "transport",
                     health.transport, "transport_why", text(health.transport_why), "rdma_address",
                     text(health.rdma_address), "rdma_auth_in_clear", health.rdma_auth_in_clear, "provider", service->fabric->config->provider, "carriers",
                     (int)health.carriers, "carriers_busy", (int)health.carriers_busy, "reconnects",
                     (json_int_t)health.reconnects, "revocations", (json_int_t)health.revocations, "session_why",
                     text(health.session_why), "path", health.path, "path_why", text(health.path_why));
}

/* At most so large: its texts are words of servers, at worst six bytes of JSON for each of theirs. */
static size_t node_bytes(const struct member *member)
{
    struct node_health health;
    node_health(member->node, &health);
    return 640 + 6 * (strlen(health.address) + strlen(health.why) + strlen(health.session_why) +
                      strlen(health.path_why) + strlen(health.transport_why) + strlen(health.rdma_address));
}

/* Entries with a number above `after`, at most `limit` of them and so many bytes; *next: 0, or where to go on. */
static json_t *node_list(const struct service *service, uint64_t after, uint64_t limit, size_t bytes, uint64_t *next)
{
    json_t *list = json_array();
    const struct member *member = NULL;
    size_t used = 0;
    uint64_t last = 0;
    *next = 0;
    while ((member = deployment_next(service->deployment, member)) != NULL) {
        if (member->number <= after)
            continue;
        used += node_bytes(member);
        if (json_array_size(list) == limit || used > bytes) {
            *next = last;
            break;
        }
        json_array_append_new(list, node_status(service, member));
        last = member->number;
    }
    return list;
}

/* The first nodes of a large cluster; `nodes` of the admin socket has them all. */
#define STATUS_NODES 32
#define STATUS_NODES_BYTES (16 * 1024)

/* A limit of a device; 0: none. */
static json_t *limit_or_zero(uint64_t limit)
{
    return number(limit != UINT64_MAX ? limit : 0);
}

static json_t *devices_status(const struct budget *budget)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < budget->device_count; i++) {
        const struct budget_device *device = &budget->devices[i];
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "nic", text(budget->fabric->nics[i].name), "used",
                            number(device->bytes.used), "limit", limit_or_zero(device->bytes.limit), "registrations",
                            number(device->registrations.used), "registrations_limit",
                            limit_or_zero(device->registrations.limit), "registrations_total",
                            number(registrations_of(budget->fabric, i))));
    }
    return list;
}

static json_t *memory_status(const struct service *service)
{
    const struct memory *memory = &service->memory;
    const struct ledger *memlock = &memory->budget.memlock;
    uint64_t rlimit = memory->budget.limit.rlimit;
    json_t *budget = json_pack("{s:o,s:o,s:o,s:s,s:o,s:b,s:o}", "used", number(memlock->used), "limit",
                               number(memlock->limit), "queues", number(memory->budget.queues), "source",
                               memory->budget.limit.source, "quarantined", number(memlock->quarantined), "pins",
                               service->fabric->pins, "rlimit", limit_or_zero(rlimit));
    return json_pack("{s:o,s:o,s:o,s:i,s:i,s:i,s:o,s:o,s:o}", "pinned_bytes", number(memlock->used), "limit_bytes",
                     number(memlock->limit), "quarantined_bytes", number(memlock->quarantined), "arenas",
                     (int)memory->arenas, "regions", (int)memory->regions, "quarantined_arenas",
                     (int)memory->quarantined, "memlock", budget, "devices", devices_status(&memory->budget),
                     "quarantine_restart_bytes", number(service->config->quarantine_restart_bytes));
}

static json_t *transfers_status(const struct transfers *transfers)
{
    json_t *ended = json_object();
    for (int i = 0; i < OUTCOME_COUNT; i++)
        json_object_set_new(ended, outcome_table[i].name,
                            number(transfers->stats.ended[TRANSFER_GET][i] + transfers->stats.ended[TRANSFER_SET][i]));
    return json_pack("{s:i,s:i,s:o,s:o,s:o}", "queued", (int)transfers->queued, "open", (int)transfers->open,
                     "run_again", number(transfers->run_again), "collateral", number(transfers->collateral), "ended",
                     ended);
}

json_t *status_daemon(const struct service *service)
{
    uint64_t uptime_ms = (uv_hrtime() - service->started_ns) / 1000000;
    char why[NODE_WHY_BYTES + 128];
    bool usable = service_usable(service, why, sizeof why);
    json_t *daemon = json_pack("{s:s,s:o,s:b,s:b,s:o,s:i,s:o}", "version", GRD_VERSION, "uptime_ms", number(uptime_ms),
                               "draining", service->draining, "usable", usable, "why", text(why), "sessions",
                               (int)service->session_count, "loop_longest_callback_us",
                               number(service->watch.longest_ns / 1000));
    uint64_t next;
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "daemon", daemon, "fabric", fabric_status(service), "nodes",
                     node_list(service, 0, STATUS_NODES, STATUS_NODES_BYTES, &next), "memory",
                     memory_status(service), "transfers",
                     transfers_status(&service->transfers));
}

static json_t *region_status(const struct session_region *region)
{
    json_t *entry = json_pack("{s:o,s:o,s:s,s:b,s:i,s:s}", "region", number(region->id), "size",
                              number(region->region.size), "access", region->region.writable ? "rw" : "r", "shared",
                              region->region.shared, "windows", (int)region->region.windows, "state",
                              region->closing ? "closing" : region->open ? "open" : "registering");
    if (region->label != NULL)
        json_object_set_new(entry, "label", text(region->label));
    return entry;
}

/* Labels are a client's text, at worst six bytes of JSON each: a list stops before it would not fit a packet. */
#define LIST_BYTES (40 * 1024)

static size_t region_bytes(const struct session_region *region)
{
    return 256 + (region->label != NULL ? 6 * strlen(region->label) : 0);
}

/* Of the device budgets, the user's part. */
static json_t *user_devices(const struct user *user)
{
    const struct budget *budget = &user->service->memory.budget;
    json_t *devices = json_array();
    for (unsigned nic = 0; nic < budget->device_count; nic++)
        if (user->memory.pinned_on[nic] > 0)
            json_array_append_new(devices, json_pack("{s:o,s:o}", "nic", text(budget->fabric->nics[nic].name), "used",
                                                     number(user->memory.pinned_on[nic])));
    return devices;
}

/* What a user uses, the quotas by which it is measured, and what it may do: `permissions`, consumed. */
static json_t *user_status(const struct user *user, const struct policy *policy, json_t *permissions)
{
    const struct transfer_user *transfers = &user->transfers;
    return json_pack("{s:o,s:o,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "uid", number(user->key.uid), "socket",
                     text(user->key.socket->name), "sessions", (int)user->sessions, "regions",
                     (int)user->memory.regions, "pinned_bytes", number(user->memory.pinned_bytes), "devices",
                     user_devices(user), "transfers", number(transfers->open), "in_flight",
                     number(transfers->in_flight), "queued", number(transfers->queued), "quotas", quota_json(policy),
                     "permissions", permissions);
}

/* How long transfers of a user waited, as counts that only grow: [[bound in us, count], ...] without empty buckets. */
static json_t *queue_times(const struct histogram *times)
{
    json_t *buckets = json_array();
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t bound = histogram_bound_us(i);
        if (times->buckets[i] > 0)
            json_array_append_new(buckets, json_pack("[o,o]", number(bound != UINT64_MAX ? bound : 0),
                                                     number(times->buckets[i])));
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "count", number(times->count), "sum", number(times->sum_ns / 1000),
                     "p50", number(histogram_quantile_us(times, 500)), "p99", number(histogram_quantile_us(times, 990)),
                     "max", number(times->max_us), "buckets", buckets);
}

/* Of its JSON; each bucket in use is two numbers. */
static size_t queue_times_bytes(const struct histogram *times)
{
    size_t used = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        used += times->buckets[i] > 0;
    return 200 + 24 * used;
}

json_t *status_session(const struct session *session)
{
    const struct user *user = session->user;
    const struct policy_values *quotas = &session->policy.values;
    const struct config_limits *limits = &session->service->config->limits;
    json_t *status = status_daemon(session->service);
    json_t *regions = json_array();
    size_t bytes;
    json_t *permissions = permission_json(&session->policy, &bytes);
    for (const struct session_region *region = session->regions; region != NULL; region = region->hh.next) {
        if ((bytes += region_bytes(region)) > LIST_BYTES)
            break;
        json_array_append_new(regions, region_status(region));
    }
    json_object_set_new(status, "session",
                        json_pack("{s:o,s:i,s:i,s:o}", "id", number(session->id), "requests",
                                  (int)session->request_count, "region_count", (int)HASH_COUNT(session->regions),
                                  "regions", regions));
    json_object_set_new(status, "user", user_status(user, &session->policy, permissions));
    json_object_set_new(status, "limits",
                        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "sessions_per_user", number(quotas->sessions),
                                  "requests", number(limits->requests), "queue", number(quotas->queue), "regions",
                                  number(limits->regions), "regions_per_user", number(quotas->regions), "region_bytes",
                                  number(limits->region_bytes)));
    return status;
}

/* A page of a list: with `next`, its last number, where there are more. */
static json_t *page_of(const char *name, json_t *list, bool more, uint64_t last)
{
    json_t *page = json_pack("{s:o}", name, list);
    if (more)
        json_object_set_new(page, "next", number(last));
    return page;
}

json_t *status_nodes(const struct service *service, uint64_t after, uint64_t limit)
{
    uint64_t next;
    json_t *list = node_list(service, after, limit, LIST_BYTES, &next);
    return page_of("nodes", list, next > 0, next);
}

json_t *status_regions(const struct service *service, uint64_t after, uint64_t limit)
{
    json_t *list = json_array();
    uint64_t last = 0;
    size_t bytes = 0;
    bool more = false;
    const struct session_region *region;
    TAILQ_FOREACH(region, &service->regions, all_link) {
        const struct session *session = region->session;
        if (region->number <= after)
            continue;
        bytes += region_bytes(region);
        if (json_array_size(list) == limit || bytes > LIST_BYTES) {
            more = true;
            break;
        }
        json_t *entry = region_status(region);
        json_object_set_new(entry, "id", number(region->number));
        json_object_set_new(entry, "session", number(session->id));
        json_object_set_new(entry, "uid", number(session->peer.uid));
        json_object_set_new(entry, "pid", json_integer(session->peer.pid));
        json_object_set_new(entry, "socket", text(session->socket->name));
        json_array_append_new(list, entry);
        last = region->number;
    }
    return page_of("regions", list, more, last);
}

static json_t *transfer_status(const struct transfer *transfer, uint64_t now)
{
    const struct session *session =
        (const struct session *)((const char *)transfer->session - offsetof(struct session, transfers));
    return json_pack("{s:o,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:s,s:o}", "id", number(transfer->id), "kind",
                     transfer_kind_name(transfer->kind), "state", transfer_state_name(transfer->state),
                     "length", number(transfer->window.length), "session", number(session->id), "uid",
                     number(session->peer.uid), "socket", text(session->socket->name), "age_us",
                     number((now - transfer->accepted_ns) / 1000), "carrier",
                     transfer->carrier != NULL ? carrier_name(transfer->carrier) : "", "node",
                     number(transfer->member != NULL ? transfer->member->number : 0));
}

json_t *status_transfers(const struct service *service, uint64_t after, uint64_t limit)
{
    json_t *list = json_array();
    uint64_t now = uv_hrtime(), last = 0;
    bool more = false;
    const struct transfer *transfer;
    TAILQ_FOREACH(transfer, &service->transfers.all, all_link) {
        if (transfer->id <= after)
            continue;
        if (json_array_size(list) == limit) {
            more = true;
            break;
        }
        json_array_append_new(list, transfer_status(transfer, now));
        last = transfer->id;
    }
    return page_of("transfers", list, more, last);
}

/* Of a client's name, as of a label. */
static json_t *client_status(const struct session *session)
{
    return json_pack("{s:o,s:s,s:o,s:i,s:o,s:s,s:i,s:i}", "id", number(session->id), "name",
                     session->client_name != NULL ? session->client_name : "", "uid", number(session->peer.uid), "pid",
                     (int)session->peer.pid, "socket", text(session->socket->name), "state",
                     session->ending ? "ending" : session->hello_done ? "open" : "new", "regions",
                     (int)HASH_COUNT(session->regions), "requests", (int)session->request_count);
}

json_t *status_clients(const struct service *service, uint64_t after, uint64_t limit)
{
    json_t *list = json_array();
    uint64_t last = 0;
    size_t bytes = 0;
    bool more = false;
    const struct session *session;
    TAILQ_FOREACH(session, &service->sessions, link) {
        if (session->id <= after)
            continue;
        bytes += 256 + (session->client_name != NULL ? 6 * strlen(session->client_name) : 0);
        if (json_array_size(list) == limit || bytes > LIST_BYTES) {
            more = true;
            break;
        }
        json_array_append_new(list, client_status(session));
        last = session->id;
    }
    return page_of("clients", list, more, last);
}

json_t *status_users(const struct service *service, uint64_t after, uint64_t limit)
{
    json_t *list = json_array();
    uint64_t last = 0;
    size_t bytes = 0;
    bool more = false;
    for (const struct user *user = service->users; user != NULL; user = user->hh.next) {
        if (user->id <= after)
            continue;
        size_t permission_bytes;
        json_t *permissions = permission_json(&user->policy, &permission_bytes);
        bytes += 400 + 128 * service->memory.budget.device_count + 6 * strlen(user->key.socket->name) +
                 queue_times_bytes(&user->transfers.queue_times) + permission_bytes;
        if (json_array_size(list) == limit || bytes > LIST_BYTES) {
            json_decref(permissions);
            more = true;
            break;
        }
        json_t *entry = user_status(user, &user->policy, permissions);
        json_object_set_new(entry, "id", number(user->id));
        json_object_set_new(entry, "queue_us", queue_times(&user->transfers.queue_times));
        json_array_append_new(list, entry);
        last = user->id;
    }
    return page_of("users", list, more, last);
}
