#include "tests/unit/transfers_rig.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct transfers transfers;
struct transfer_user users[2];
struct transfer_session sessions[3];
struct probe probes[MANY];
char order[256];
unsigned sent;
struct stub_peer *carrying;
void (*on_sent)(void);

unsigned host_nics = 1;

static unsigned submitted;

/* A preparation that is going to fail. */
static struct {
    uv_timer_t timer;
    struct probe *probe;
    lane_done done;
    void *context;
} preparing;

/* --- memory and lanes, as far as transfers use them --- */

static struct probe *probe_of(struct window *window)
{
    return (struct probe *)((char *)window - offsetof(struct probe, transfer.window));
}

static const struct probe *look_at(const struct window *window)
{
    return (const struct probe *)((const char *)window - offsetof(struct probe, transfer.window));
}

void window_release(struct window *window)
{
    ck_assert_int_eq(probe_of(window)->ended, 0);
    probe_of(window)->windows_released++;
}

void window_quarantine(struct window *window, unsigned nic)
{
    ck_assert_uint_eq(nic, probe_of(window)->nic);
    ck_assert_int_eq(probe_of(window)->ended, 0);
    probe_of(window)->quarantined++;
}

size_t window_slices(const struct window *window, struct slice **slices)
{
    static struct slice slice;
    const struct probe *probe = look_at(window);

    slices[0] = &slice;
    return (probe->refuse >> probe->transfer.nic & 1) != 0 ? 1 : 0;
}

uint32_t window_nics(const struct window *window)
{
    const struct probe *probe = look_at(window);

    return probe->nics != 0 ? probe->nics : LANE_ANY_NIC;
}

int window_charge(struct window *window, unsigned nic, struct memory_error *error)
{
    preparing.probe = probe_of(window);
    return 0;
}

bool window_unprepared(struct window *window, unsigned nic, bool refused)
{
    struct probe *probe = probe_of(window);

    ck_assert(refused);
    probe->nics &= ~(UINT32_C(1) << nic);
    return true;
}

/* Only carriers without lane ask for it, and there is none here. */
void window_range(const struct window *window, struct file_range *range)
{
    ck_abort_msg("there is no file");
}

size_t window_triples(const struct window *window, const struct lane *lane, struct slice_triple *triples)
{
    struct probe *probe = &probes[look_at(window) - probes];

    probe->nic = lane_nic(lane);
    ck_assert(probe->nics == 0 || (probe->nics >> probe->nic & 1) != 0);
    triples[0] = (struct slice_triple){1, 2, window->length};
    return 1;
}

int lane_begin(struct lane *lane, struct slice *const *slices, size_t count)
{
    return 0;
}

void lane_end(struct lane *lane)
{
}

bool lane_collateral(const struct lane *lane)
{
    return false;
}

bool lane_has(const struct lane *lane, const struct slice *slice)
{
    return slice == NULL;
}

static void prepare_fails(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
    preparing.done(preparing.context, -ENOMEM);
}

/* Only what is to be refused is missing. */
void lane_prepare(struct lane *lane, struct slice *const *slices, size_t count, lane_done done, void *context)
{
    ck_assert((preparing.probe->refuse >> lane_nic(lane) & 1) != 0);
    preparing.done = done;
    preparing.context = context;
    uv_timer_init(&rig.bench.loop, &preparing.timer);
    uv_timer_start(&preparing.timer, prepare_fails, 1, 0);
}

/* --- the rig --- */

static void script(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        stub_say(peer, rig.hello);
    } else if (words->elements > 1) {
        snprintf(order + strlen(order), sizeof(order) - strlen(order), "%s%s", sent > 0 ? " " : "",
                 words->element[1]->str);
        sent++;
        carrying = peer;
        if (on_sent != NULL) {
            on_sent();
        } else if (rig.transfer != NULL) {
            stub_say(peer, rig.transfer);
        }
    }
}

void start_rig(unsigned connections, const char *reply, uint64_t grace_ms)
{
    memset(probes, 0, sizeof(probes));
    memset(&fake_lanes, 0, sizeof(fake_lanes));
    submitted = sent = 0;
    order[0] = '\0';
    on_sent = NULL;
    rig_prepare(NULL);
    rig.stub.command = script;
    rig.transfer = reply;
    rig.config.connections = connections;
    rig.fabric.nic_count = host_nics;
    transfers_init(&transfers, &rig.bench.loop, grace_ms, 0);
    for (int i = 0; i < 2; i++) {
        transfer_user_init(&users[i]);
    }
    for (int i = 0; i < 3; i++) {
        transfer_session_init(&sessions[i], &users[i / 2]);
    }
    rig.config.address = rig.stub.address;
}

void start_deployment(void)
{
    rig.deployment = deployment_start(&rig.bench.loop, rig.bench.workers, &rig.fabric, &rig.config, &transfers_events,
                                      &transfers);
    ck_assert_ptr_nonnull(rig.deployment);
    transfers.deployment = rig.deployment;
}

void start(unsigned connections, const char *reply, uint64_t grace_ms)
{
    start_rig(connections, reply, grace_ms);
    start_deployment();
}

void end(void)
{
    rig_end();
    for (unsigned i = 0; i < submitted; i++) {
        ck_assert_int_eq(probes[i].ended, 1);
        ck_assert_int_eq(probes[i].released, 1);
        ck_assert_int_eq(probes[i].windows_released, 1);
    }
    ck_assert_uint_eq(transfers.open, 0);
    ck_assert_uint_eq(users[0].open + users[1].open, 0);
    for (int i = 0; i < 3; i++) {
        transfer_session_end(&sessions[i]);
    }
    for (int i = 0; i < 2; i++) {
        transfer_user_end(&transfers, &users[i]);
    }
    ck_assert_uint_eq(transfers.active_count, 0);
}

static void on_ended(struct transfer *transfer, const struct transfer_result *result)
{
    struct probe *probe = (struct probe *)transfer;

    ck_assert_int_eq(probe->released, 0);
    ck_assert_int_eq(probe->windows_released, 1);
    probe->ended++;
    probe->outcome = result->outcome;
    probe->may_have_run = result->may_have_run;
    probe->memory_kept = result->memory_kept;
    probe->attempts = result->attempts;
    snprintf(probe->text, sizeof(probe->text), "%s", result->text);
    probe->lanes = fake_lanes.alive;
}

static void on_released(struct transfer *transfer)
{
    struct probe *probe = (struct probe *)transfer;

    ck_assert_int_eq(probe->ended, 1);
    probe->released++;
}

struct probe *submit_new(int session, enum transfer_kind kind, const char *key, uint64_t deadline_ms, bool no_retry)
{
    struct probe *probe = &probes[submitted++];

    ck_assert_uint_le(submitted, MANY);
    snprintf(probe->key, sizeof(probe->key), "%s", key);
    probe->transfer.kind = kind;
    probe->transfer.window.length = 4096;
    probe->transfer.key = (const uint8_t *)probe->key;
    probe->transfer.key_length = strlen(key);
    probe->transfer.deadline_ms = deadline_ms;
    probe->transfer.no_retry = no_retry;
    probe->transfer.ended = on_ended;
    probe->transfer.released = on_released;
    transfers_submit(&transfers, &sessions[session], &probe->transfer);
    ck_assert_int_eq(probe->ended, 0);
    return probe;
}

struct probe *submit_on(int session, const char *key, uint32_t nics, uint32_t refuse)
{
    probes[submitted].nics = nics;
    probes[submitted].refuse = refuse;
    return submit_new(session, TRANSFER_GET, key, 0, false);
}

struct probe *submit(int session, enum transfer_kind kind, const char *key, uint64_t deadline_ms)
{
    return submit_new(session, kind, key, deadline_ms, false);
}
