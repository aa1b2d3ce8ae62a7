#include "tests/fuzz/session_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/rig/fake_fabric.h"
#include "tests/rig/fake_server.h"

static struct fabric_ops ops;
static unsigned descriptors;

/* --- what is looked at on its way --------------------------------------------------------------------------------- */

/* Transfers whose command has been sent, and whether the lane it names is gone (docs/architecture.md, rule 1). */
struct sent {
    LIST_ENTRY(sent) link;
    const struct window *window;
    const struct lane *lane;
    bool lane_gone;
    bool not_stored; /* a set: by the server's own words */
};

static LIST_HEAD(, sent) sent_list = LIST_HEAD_INITIALIZER(sent_list);

struct destruction {
    const struct lane *lane;
    lane_done done;
    void *context;
};

int __real_carrier_set(struct carrier *, struct carrier_request *, const void *, size_t, uint64_t, bool, uint32_t,
                       const struct slice_triple *, size_t);
int __wrap_carrier_set(struct carrier *, struct carrier_request *, const void *, size_t, uint64_t, bool, uint32_t,
                       const struct slice_triple *, size_t);
int __real_carrier_get(struct carrier *, struct carrier_request *, const void *, size_t, uint64_t,
                       const struct slice_triple *, size_t);
int __wrap_carrier_get(struct carrier *, struct carrier_request *, const void *, size_t, uint64_t,
                       const struct slice_triple *, size_t);
void __real_lane_destroy(struct lane *, lane_done, void *);
void __wrap_lane_destroy(struct lane *, lane_done, void *);
void __real_window_release(struct window *);
void __wrap_window_release(struct window *);
void __real_dispatch_packet(struct session *, const char *, struct channel_packet *);
void __wrap_dispatch_packet(struct session *, const char *, struct channel_packet *);

static struct transfer *of_request(struct carrier_request *request)
{
    return (struct transfer *)((char *)request - offsetof(struct transfer, request));
}

static struct sent *find_sent(const struct window *window)
{
    struct sent *sent;

    LIST_FOREACH (sent, &sent_list, link) {
        if (sent->window == window) {
            break;
        }
    }
    return sent;
}

/* For the first time, or again: then nothing of the attempt before may be left, and no set may have run (rule 2). */
static void note_sent(struct carrier_request *request, const struct lane *lane)
{
    const struct transfer *transfer = of_request(request);
    struct sent *sent = find_sent(&transfer->window);

    if (sent == NULL) {
        sent = calloc(1, sizeof(*sent));
        sent->window = &transfer->window;
        LIST_INSERT_HEAD(&sent_list, sent, link);
    } else {
        FUZZ_CHECK(sent->lane_gone, "transfer %llu was sent again while its lane was there",
                   (unsigned long long)transfer->id);
        FUZZ_CHECK(transfer->kind == TRANSFER_GET || transfer->last == OUTCOME_UNSENT || sent->not_stored,
                   "set %llu was sent again after: %s", (unsigned long long)transfer->id,
                   outcome_table[transfer->last].name);
    }
    sent->lane = lane;
    sent->lane_gone = sent->not_stored = false;
}

int __wrap_carrier_set(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                       uint64_t length, bool has_crc, uint32_t crc, const struct slice_triple *triples, size_t count)
{
    const struct lane *lane = carrier_lane(carrier);
    int status = __real_carrier_set(carrier, request, key, key_length, length, has_crc, crc, triples, count);

    if (status == 0) {
        note_sent(request, lane);
    }
    return status;
}

int __wrap_carrier_get(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                       uint64_t window, const struct slice_triple *triples, size_t count)
{
    const struct lane *lane = carrier_lane(carrier);
    int status = __real_carrier_get(carrier, request, key, key_length, window, triples, count);

    if (status == 0) {
        note_sent(request, lane);
    }
    return status;
}

static void lane_gone(void *context, int status)
{
    struct destruction destruction = *(struct destruction *)context;
    struct sent *sent;

    free(context);
    LIST_FOREACH (sent, &sent_list, link) {
        if (sent->lane == destruction.lane) {
            const struct transfer *transfer =
                (const struct transfer *)((const char *)sent->window - offsetof(struct transfer, window));
            sent->not_stored = transfer->has_reply && strcmp(transfer->reply.text, "ERR RDMA read failed") == 0;
            sent->lane_gone = true;
            sent->lane = NULL; /* its address may be another's soon */
        }
    }
    if (destruction.done != NULL) {
        destruction.done(destruction.context, status);
    }
}

void __wrap_lane_destroy(struct lane *lane, lane_done done, void *context)
{
    struct destruction *destruction = malloc(sizeof(*destruction));

    *destruction = (struct destruction){.lane = lane, .done = done, .context = context};
    __real_lane_destroy(lane, lane_gone, destruction);
}

/* The memory goes back to its owner: the server has said that it is done, or cannot reach it any more. */
void __wrap_window_release(struct window *window)
{
    const struct transfer *transfer = (const struct transfer *)((char *)window - offsetof(struct transfer, window));
    struct sent *sent = find_sent(window);

    if (sent != NULL) {
        FUZZ_CHECK(sent->lane_gone || (transfer->has_reply && transfer->reply.class != BLOB_REPLY_LIVE),
                   "transfer %llu was given back without proof", (unsigned long long)transfer->id);
        LIST_REMOVE(sent, link);
        free(sent);
    }
    __real_window_release(window);
}

void __wrap_dispatch_packet(struct session *session, const char *text, struct channel_packet *packet)
{
    clients_dispatched(session, text, packet);
    __real_dispatch_packet(session, text, packet);
}

/* --- start -------------------------------------------------------------------------------------------------------- */

static int no_nics(const struct fabric_settings *settings, struct fabric_nic *nics, size_t capacity,
                   char why[FABRIC_WHY_BYTES])
{
    snprintf(why, FABRIC_WHY_BYTES, "the script gives this host no NIC");
    return -ENODEV;
}

void session_rig_start(const struct rig_options *options)
{
    descriptors = fuzz_descriptors();
    rig_configure(options);
    ops = fake_ops;
    if (options->no_fabric) {
        ops.query = no_nics;
    }
    clients_start();
    rig_begin(&ops);
}

/* --- end ---------------------------------------------------------------------------------------------------------- */

/* The server goes for good: every request of a client that still listens must then get its answer. */
static void expect_answers(void)
{
    uint64_t waited = 0;

    fake_server.mode = FAKE_REFUSE;
    fake_server.room = SIZE_MAX;
    for (unsigned i = 0; i < fake_server_connections(); i++) {
        fake_server_hang_up(fake_server_connection(i));
    }
    clients_listen();
    rig_settle();
    while (clients_unanswered() > 0) {
        FUZZ_CHECK(rig_advance(&waited), "%u requests have no answer", clients_unanswered());
        rig_settle();
    }
}

static void expect_nobody(void)
{
    const struct memory *memory = &rig_service.memory;
    uint64_t waited = 0;

    clients_leave();
    rig_settle();
    while (rig_service.session_count > 0 || rig_service.users != NULL) {
        FUZZ_CHECK(rig_advance(&waited), "%u sessions are left", rig_service.session_count);
        rig_settle();
    }
    FUZZ_CHECK(TAILQ_EMPTY(&rig_service.sessions) && TAILQ_EMPTY(&rig_service.regions), "something is still listed");
    FUZZ_CHECK(rig_service.transfers.open == 0 && rig_service.transfers.queued == 0 && rig_service.keys == 0,
               "%u transfers, %u commands", rig_service.transfers.open, rig_service.keys);
    FUZZ_CHECK(memory->arenas == 0 && memory->regions == 0 && memory->files == NULL && memory->budget.memlock.used == 0,
               "%u arenas, %u regions, %llu bytes", memory->arenas, memory->regions,
               (unsigned long long)memory->budget.memlock.used);
    FUZZ_CHECK(LIST_EMPTY(&sent_list), "a transfer was sent and not given back");
}

static void deployment_stopped(void *context, int status)
{
    *(bool *)context = true;
    FUZZ_CHECK(status == 0, "a lane did not close: %d", status);
}

static void check_fabric(void)
{
    FUZZ_CHECK(fake_fault() == NULL, "%s", fake_fault());
    FUZZ_CHECK(fake_domains() == 0 && fake_endpoints() == 0 && fake_mrs() == 0,
               "%u domains, %u endpoints, %u registrations", fake_domains(), fake_endpoints(), fake_mrs());
}

void session_rig_stop(void)
{
    bool stopped = false;

    expect_answers();
    expect_nobody();
    deployment_stop(rig_service.deployment, deployment_stopped, &stopped);
    sessions_stop(&rig_service);
    rig_settle();
    FUZZ_CHECK(stopped, "the deployment did not stop");
    rig_end();
    check_fabric();
    clients_stop();
    fake_reset();
    FUZZ_CHECK(fuzz_descriptors() == descriptors, "%u descriptors became %u", descriptors, fuzz_descriptors());
}
