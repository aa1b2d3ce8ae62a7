/*
 * efa-direct: taking a transfer back closes the registrations that its command named, and other transfers on them fail
 * with it. Real lanes over the fake table of operations, a scripted server: the others must complete all the same, each
 * registration is closed once, and nobody closes what was registered anew.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/transfer/again.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/stub_valkey.h"
#include "tests/unit/unit_main.h"

#define TRANSFERS 8
#define PROBES (TRANSFERS + 2 * COLLATERAL_ATTEMPTS)
#define SLICES 3
#define VALUE "*2\r\n:4096\r\n:7\r\n"
#define WRITE_FAILED "-ERR RDMA write failed\r\n"
#define READ_FAILED "-ERR RDMA read failed\r\n"

struct probe {
    struct transfer transfer;
    unsigned first, slices; /* that its window lies on */
    char key[8];
    /* as the server sees it */
    struct stub_peer *peer;
    unsigned commands;
    char rkey[32];
    /* as the client does */
    int ended, quarantined;
    enum transfer_outcome outcome;
    bool may_have_run;
    unsigned attempts;
};

static struct bench bench;
static struct stub stub;
static struct fabric_config fabric_config;
static struct fabric fabric;
static struct valkey_config config;
static struct deployment *deployment;
static struct transfers transfers;
static struct transfer_user user;
static struct transfer_session session;
static struct probe probes[PROBES];
static unsigned submitted, stopped;
static struct slice slices[SLICES];
static uint8_t pages[SLICES][4096];
static int mrs_ended, mrs_ended_badly;

/* --- memory, as far as transfers use it --- */

static struct probe *probe_of(const struct window *window)
{
    return (struct probe *)((char *)(uintptr_t)window - offsetof(struct probe, transfer.window));
}

void window_release(struct window *window)
{
}

void window_quarantine(struct window *window, unsigned nic)
{
    probe_of(window)->quarantined++;
}

size_t window_slices(const struct window *window, struct slice **list)
{
    const struct probe *probe = probe_of(window);

    for (unsigned i = 0; i < probe->slices; i++) {
        list[i] = &slices[probe->first + i];
    }
    return probe->slices;
}

/* Only carriers without lane ask for it, and there is none here. */
void window_range(const struct window *window, struct file_range *range)
{
    ck_abort_msg("there is no file");
}

size_t window_triples(const struct window *window, const struct lane *lane, struct slice_triple *triples)
{
    const struct probe *probe = probe_of(window);

    for (unsigned i = 0; i < probe->slices; i++) {
        triples[i] = lane_triple(lane, &slices[probe->first + i], 0, 4096);
    }
    return probe->slices;
}

uint32_t window_nics(const struct window *window)
{
    return LANE_ANY_NIC;
}

int window_charge(struct window *window, unsigned nic, struct memory_error *error)
{
    return 0;
}

bool window_unprepared(struct window *window, unsigned nic, bool refused)
{
    return false;
}

static void on_mr_ended(struct slice *slice, unsigned nic, int status)
{
    mrs_ended++;
    mrs_ended_badly += status < 0;
}

/* --- the server --- */

static void script(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        stub_say(peer, "*1\r\n$16\r\n02001F907f000001\r\n");
        return;
    }
    for (unsigned i = 0; i < submitted; i++) {
        if (words->elements > 3 && strcmp(probes[i].key, words->element[1]->str) == 0) {
            size_t rkey = words->elements - 3; /* of the last triple */
            probes[i].peer = peer;
            probes[i].commands++;
            snprintf(probes[i].rkey, sizeof(probes[i].rkey), "%s", words->element[rkey]->str);
        }
    }
}

/* --- the rig --- */

static void start(const char *revoke)
{
    static char provider[] = "efa-direct";

    log_set_level(LOG_LEVEL_ERROR);
    memset(probes, 0, sizeof(probes));
    submitted = stopped = 0;
    mrs_ended = mrs_ended_badly = 0;
    fake_reset();
    fake_set_nics(1, true, false);
    bench_start(&bench);
    stub_start(&stub, &bench, NULL);
    stub.command = script;
    fabric_config = (struct fabric_config){.provider = provider, .lanes_max = 64, .revoke = (char *)(uintptr_t)revoke};
    ck_assert_int_eq(fabric_start(&fabric, &bench.loop, bench.workers, &fabric_config, &fake_ops), 0);
    for (int i = 0; i < SLICES; i++) {
        slice_init(&slices[i], pages[i], 4096, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, on_mr_ended, NULL);
    }
    config = (struct valkey_config){.connections = TRANSFERS + 2, .connect_timeout_ms = 20000};
    transfers_init(&transfers, &bench.loop, 0, 0);
    transfer_user_init(&user);
    transfer_session_init(&session, &user);
    config.address = stub.address;
    deployment = deployment_start(&bench.loop, bench.workers, &fabric, &config, &transfers_events, &transfers);
    ck_assert_ptr_nonnull(deployment);
    transfers.deployment = deployment;
}

static void on_stopped(void *context, int status)
{
    stopped++;
}

static void end(void)
{
    static struct worker_owner owner;
    int left = mrs_ended;

    for (unsigned i = 0; i < submitted; i++) {
        ck_assert_int_eq(probes[i].ended, 1);
    }
    deployment_stop(deployment, on_stopped, NULL);
    WAIT(&bench, stopped == 1);
    worker_owner_init(&owner);
    for (int i = 0; i < SLICES; i++) {
        left += (int)slice_close_registrations(&slices[i], &fabric, &owner);
    }
    WAIT(&bench, mrs_ended == left);
    WAIT(&bench, stub.open == 0);
    stub_stop(&stub);
    fabric_stop(&fabric);
    bench_stop(&bench);
    ck_assert_msg(fake_fault() == NULL, "%s", fake_fault());
    ck_assert_uint_eq(fake_domains() + fake_endpoints() + fake_mrs(), 0);
    fake_reset();
}

static void on_ended(struct transfer *transfer, const struct transfer_result *result)
{
    struct probe *probe = (struct probe *)transfer;

    probe->ended++;
    probe->outcome = result->outcome;
    probe->may_have_run = result->may_have_run;
    probe->attempts = result->attempts;
}

static void on_released(struct transfer *transfer)
{
}

static struct probe *submit_with(enum transfer_kind kind, unsigned first, unsigned count, uint64_t deadline_ms)
{
    struct probe *probe = &probes[submitted++];

    ck_assert_uint_le(submitted, PROBES);
    snprintf(probe->key, sizeof(probe->key), "k%u", submitted);
    probe->first = first;
    probe->slices = count;
    probe->transfer.kind = kind;
    probe->transfer.window.length = UINT64_C(4096) * count;
    probe->transfer.key = (const uint8_t *)probe->key;
    probe->transfer.key_length = strlen(probe->key);
    probe->transfer.deadline_ms = deadline_ms;
    probe->transfer.ended = on_ended;
    probe->transfer.released = on_released;
    transfers_submit(&transfers, &session, &probe->transfer);
    return probe;
}

static struct probe *submit(enum transfer_kind kind, unsigned first, unsigned count)
{
    return submit_with(kind, first, count, 0);
}

/* All on the first slice, and with the server. */
static void submit_all(enum transfer_kind kind)
{
    for (int i = 0; i < TRANSFERS; i++) {
        submit(kind, 0, 1);
    }
    for (int i = 0; i < TRANSFERS; i++) {
        WAIT(&bench, probes[i].commands == 1);
        ck_assert_str_eq(probes[i].rkey, probes[0].rkey);
    }
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 1);
}

static void cancel(struct probe *probe)
{
    transfer_end(&probe->transfer, TRANSFER_CANCELLED);
    WAIT(&bench, probe->ended == 1);
    ck_assert_int_eq(probe->outcome, OUTCOME_CANCELLED_RUNNING);
}

/* --- */

START_TEST(seven_of_eight_complete)
{
    struct probe *victim = &probes[3];

    start(NULL);
    submit_all(TRANSFER_GET);
    fake_log_clear();
    cancel(victim);
    ck_assert_msg(strncmp(fake_log(), "endpoint_close mr_close", 23) == 0, "%s", fake_log());
    for (int i = 0; i < TRANSFERS; i++) {
        if (&probes[i] != victim) {
            stub_say(probes[i].peer, WRITE_FAILED);
        }
    }
    for (int i = 0; i < TRANSFERS; i++) {
        if (&probes[i] != victim) {
            WAIT(&bench, probes[i].commands == 2);
            ck_assert_str_ne(probes[i].rkey, victim->rkey);
            ck_assert_int_eq(probes[i].ended, 0);
        }
    }
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 2); /* one new registration for all, and nobody closed it */
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 1);
    ck_assert_uint_eq(fake_calls(FAKE_ENDPOINT_CLOSE), TRANSFERS);
    for (int i = 0; i < TRANSFERS; i++) {
        if (&probes[i] != victim) {
            stub_say(probes[i].peer, VALUE);
            WAIT(&bench, probes[i].ended == 1);
            ck_assert_int_eq(probes[i].outcome, OUTCOME_DONE);
        }
    }
    ck_assert_uint_eq(transfers.collateral, TRANSFERS - 1);
    ck_assert_uint_eq(transfers.run_again, TRANSFERS - 1);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 1);
    end();
}
END_TEST

/* What the server could finish before the registration went is a success like any other. */
START_TEST(a_success_counts)
{
    start("full");
    submit_all(TRANSFER_GET);
    cancel(&probes[0]);
    for (int i = 1; i < TRANSFERS; i++) {
        stub_say(probes[i].peer, VALUE);
        WAIT(&bench, probes[i].ended == 1);
        ck_assert_int_eq(probes[i].outcome, OUTCOME_DONE);
        ck_assert_uint_eq(probes[i].attempts, 1);
    }
    ck_assert_uint_eq(fake_calls(FAKE_ENDPOINT_CLOSE), 1);
    /* The lanes that stayed are as good as before: what fails next on one of them is no collateral. */
    struct probe *next = submit(TRANSFER_GET, 0, 1);
    next->transfer.no_retry = true;
    WAIT(&bench, next->commands == 1);
    stub_say(next->peer, WRITE_FAILED);
    WAIT(&bench, next->ended == 1);
    ck_assert_int_eq(next->outcome, OUTCOME_LIVE);
    ck_assert_uint_eq(transfers.collateral, 0);
    end();
}
END_TEST

/* Rule 2: a set is run again only where the server says that it did not keep the value. */
START_TEST(sets_that_may_have_run_are_not_run_again)
{
    struct probe *not_stored = &probes[1], *lost = &probes[2], *unknown = &probes[3], *stored = &probes[4];

    start(NULL);
    submit_all(TRANSFER_SET);
    cancel(&probes[0]);
    stub_say(not_stored->peer, READ_FAILED);
    stub_hang_up(lost->peer);
    stub_say(unknown->peer, "-ERR who knows\r\n");
    stub_say(stored->peer, "+OK\r\n");
    WAIT(&bench, not_stored->commands == 2 && lost->ended == 1 && unknown->ended == 1 && stored->ended == 1);
    ck_assert(lost->outcome == OUTCOME_LOST && lost->may_have_run);
    ck_assert(unknown->outcome == OUTCOME_LIVE && unknown->may_have_run);
    ck_assert_int_eq(stored->outcome, OUTCOME_DONE);
    stub_say(not_stored->peer, "+OK\r\n");
    for (int i = 5; i < TRANSFERS; i++) {
        stub_say(probes[i].peer, "+OK\r\n");
    }
    WAIT(&bench, transfers.open == 0);
    ck_assert_int_eq(not_stored->outcome, OUTCOME_DONE);
    ck_assert_uint_eq(lost->commands + unknown->commands + stored->commands, 3);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 1);
    end();
}
END_TEST

/* "retry" false is about errors that pass, not about those that the daemon makes. */
START_TEST(no_retry_does_not_matter)
{
    struct probe *other;

    start(NULL);
    submit(TRANSFER_GET, 0, 1);
    other = submit(TRANSFER_GET, 0, 1);
    other->transfer.no_retry = true;
    WAIT(&bench, probes[0].commands == 1 && other->commands == 1);
    cancel(&probes[0]);
    stub_say(other->peer, WRITE_FAILED);
    WAIT(&bench, other->commands == 2);
    stub_say(other->peer, VALUE);
    WAIT(&bench, other->ended == 1);
    ck_assert_int_eq(other->outcome, OUTCOME_DONE);
    end();
}
END_TEST

/* Nobody who named the registration is answered before it is gone, and nobody names it again. */
START_TEST(the_closing_is_waited_for)
{
    struct probe *failed, *ended, *newcomer;

    start(NULL);
    submit(TRANSFER_GET, 0, 1);
    failed = submit(TRANSFER_GET, 0, 1);
    ended = submit(TRANSFER_SET, 0, 1);
    WAIT(&bench, probes[0].commands + failed->commands + ended->commands == 3);
    fake_hold(FAKE_MR_CLOSE, 1);
    transfer_end(&probes[0].transfer, TRANSFER_CANCELLED);
    WAIT(&bench, fake_held(FAKE_MR_CLOSE) == 1);
    stub_say(failed->peer, WRITE_FAILED);
    stub_hang_up(ended->peer);
    newcomer = submit(TRANSFER_GET, 0, 1);
    WAIT(&bench, fake_calls(FAKE_ENDPOINT_FREE) == 2); /* their endpoints are gone */
    WAIT(&bench, workers_outstanding(bench.workers) == 1); /* and the loop has heard of it */
    bench_idle(&bench, 30);
    ck_assert_int_eq(probes[0].ended + failed->ended + ended->ended, 0);
    ck_assert_uint_eq(failed->commands + newcomer->commands, 1);
    ck_assert_int_eq(newcomer->transfer.state, TRANSFER_PREPARING);
    fake_release(FAKE_MR_CLOSE);
    WAIT(&bench, probes[0].ended == 1 && ended->ended == 1 && failed->commands == 2 && newcomer->commands == 1);
    ck_assert_int_eq(ended->outcome, OUTCOME_LOST);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 2);
    stub_say(failed->peer, VALUE);
    stub_say(newcomer->peer, VALUE);
    WAIT(&bench, transfers.open == 0);
    ck_assert_uint_eq(newcomer->attempts, 1);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 1);
    end();
}
END_TEST

/* A device that does not come to an end of it: whoever waits for the registration keeps his deadline. */
START_TEST(the_deadline_counts_while_a_closing_is_waited_for)
{
    struct probe *late, *cancelled, *patient;

    start(NULL);
    submit(TRANSFER_GET, 0, 1);
    WAIT(&bench, probes[0].commands == 1);
    fake_hold(FAKE_MR_CLOSE, 1);
    transfer_end(&probes[0].transfer, TRANSFER_CANCELLED);
    WAIT(&bench, fake_held(FAKE_MR_CLOSE) == 1);
    late = submit_with(TRANSFER_GET, 0, 1, 100);
    cancelled = submit(TRANSFER_GET, 0, 1);
    patient = submit(TRANSFER_SET, 0, 1);
    WAIT(&bench, cancelled->transfer.state == TRANSFER_PREPARING);
    transfer_end(&cancelled->transfer, TRANSFER_CANCELLED);
    WAIT(&bench, late->ended == 1 && cancelled->ended == 1);
    ck_assert_int_eq(late->outcome, OUTCOME_DEADLINE_WAITING);
    ck_assert_int_eq(cancelled->outcome, OUTCOME_CANCELLED_WAITING);
    ck_assert_int_eq(probes[0].ended + patient->ended, 0);
    fake_release(FAKE_MR_CLOSE);
    WAIT(&bench, patient->commands == 1);
    stub_say(patient->peer, "+OK\r\n");
    WAIT(&bench, transfers.open == 0);
    ck_assert_uint_eq(late->commands + cancelled->commands, 0);
    end();
}
END_TEST

/* A window over several slices closes each of them; what is on none of them is not disturbed. */
START_TEST(windows_over_several_slices)
{
    struct probe *wide, *second, *third;

    start(NULL);
    wide = submit(TRANSFER_GET, 0, 2);
    second = submit(TRANSFER_GET, 1, 2);
    third = submit(TRANSFER_GET, 2, 1);
    WAIT(&bench, wide->commands + second->commands + third->commands == 3);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 3);
    cancel(wide);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 2);
    stub_say(second->peer, WRITE_FAILED);
    WAIT(&bench, second->commands == 2);
    /* Its third slice was its command's own and open: closed too, which disturbs another one. */
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 3);
    stub_say(third->peer, WRITE_FAILED);
    WAIT(&bench, third->commands == 2);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 3);
    ck_assert_str_eq(third->rkey, second->rkey);
    stub_say(second->peer, VALUE);
    stub_say(third->peer, VALUE);
    WAIT(&bench, transfers.open == 0);
    ck_assert(second->outcome == OUTCOME_DONE && third->outcome == OUTCOME_DONE);
    end();
}
END_TEST

START_TEST(it_is_bounded)
{
    struct probe *victim;

    start(NULL);
    victim = submit(TRANSFER_GET, 0, 1);
    WAIT(&bench, victim->commands == 1);
    for (unsigned i = 0; i <= COLLATERAL_ATTEMPTS; i++) {
        struct probe *other = submit(TRANSFER_GET, 0, 1);
        WAIT(&bench, other->commands == 1 && victim->commands == i + 1);
        cancel(other);
        stub_say(victim->peer, WRITE_FAILED);
    }
    WAIT(&bench, victim->ended == 1);
    ck_assert_int_eq(victim->outcome, OUTCOME_LIVE);
    ck_assert_uint_eq(victim->attempts, COLLATERAL_ATTEMPTS + 1);
    end();
}
END_TEST

/* What the device did not let go of is kept, for everybody who had it named; closed once it was all the same. */
START_TEST(a_registration_that_does_not_close)
{
    struct probe *other;

    start(NULL);
    submit(TRANSFER_GET, 0, 1);
    other = submit(TRANSFER_GET, 0, 1);
    WAIT(&bench, probes[0].commands + other->commands == 2);
    fake_fail(FAKE_MR_CLOSE, 0, -EBUSY);
    cancel(&probes[0]);
    ck_assert_int_eq(probes[0].quarantined, 1);
    ck_assert_int_eq(mrs_ended_badly, 1);
    stub_say(other->peer, WRITE_FAILED);
    WAIT(&bench, other->ended == 1);
    ck_assert_int_eq(other->quarantined, 1);
    ck_assert_int_eq(other->outcome, OUTCOME_LIVE);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 1);
    end();
}
END_TEST

START_TEST(endpoints_alone)
{
    start("endpoint");
    submit_all(TRANSFER_GET);
    cancel(&probes[0]);
    ck_assert_uint_eq(fake_calls(FAKE_MR_CLOSE), 0);
    for (int i = 1; i < TRANSFERS; i++) {
        stub_say(probes[i].peer, VALUE);
    }
    WAIT(&bench, transfers.open == 0);
    ck_assert_uint_eq(transfers.stats.ended[TRANSFER_GET][OUTCOME_DONE], TRANSFERS - 1);
    ck_assert_uint_eq(fake_calls(FAKE_ENDPOINT_CLOSE), 1);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 1);
    end();
}
END_TEST

UNIT_MAIN("collateral", seven_of_eight_complete, a_success_counts, sets_that_may_have_run_are_not_run_again,
          no_retry_does_not_matter, the_closing_is_waited_for,
          the_deadline_counts_while_a_closing_is_waited_for, windows_over_several_slices, it_is_bounded,
          a_registration_that_does_not_close, endpoints_alone)
