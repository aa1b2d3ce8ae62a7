/* Lanes and registrations over the fake fabric: order, faults, and one lane's trouble being nobody else's. */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/unit/fabric_rig.h"
#include "tests/rig/fake_fabric.h"
#include "tests/unit/unit_main.h"

#define LONG_MS 3600000

static struct rig rig;
static struct slice slices[5];
static int ended, ended_badly;
static uint8_t pages[5][4096];

static void on_mr_ended(struct slice *slice, unsigned nic, int status)
{
    ended++;
    ended_badly += status < 0;
}

static void set_up(const char *provider, unsigned nics)
{
    bool tcp = strcmp(provider, "tcp") == 0;

    fake_reset();
    fake_set_nics(nics, !tcp, strcmp(provider, "efa-direct") != 0);
    rig_start(&rig, provider, &fake_ops);
    for (int i = 0; i < 5; i++) {
        slice_init(&slices[i], pages[i], 4096, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, on_mr_ended, NULL);
    }
}

static void tear_down(void)
{
    rig_stop(&rig);
    ck_assert_msg(fake_fault() == NULL, "%s", fake_fault());
    ck_assert_uint_eq(fake_domains(), 0);
    ck_assert_uint_eq(fake_endpoints(), 0);
    ck_assert_uint_eq(fake_mrs(), 0);
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(slices[i].mr_count, 0);
        ck_assert_ptr_null(slices[i].mrs);
    }
    fake_reset();
}

static void wait_held(enum fake_op op, unsigned count)
{
    for (int i = 0; i < RIG_PATIENCE_MS && fake_held(op) < count; i++) {
        rig_idle(&rig, 1);
    }
    ck_assert_uint_eq(fake_held(op), count);
}

static void close_slice(struct slice *slice)
{
    int before = ended;
    unsigned count = slice_close_registrations(slice, &rig.fabric, &rig.owner);

    ck_assert_int_eq(ended, before);
    ck_assert(rig_wait(&rig, &ended, before + (int)count, RIG_PATIENCE_MS));
    ck_assert_uint_eq(slice->mr_count, 0);
}

START_TEST(order_tcp)
{
    struct lane *lane;

    set_up("tcp", 1);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slices[0]);
    rig_prepare(&rig, lane, &slices[1]);
    fake_log_clear();
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    ck_assert_str_eq(fake_log(), "endpoint_close mr_close mr_close endpoint_free domain_close");
    ck_assert_int_eq(ended, 2);
    ck_assert_int_eq(ended_badly, 0);
    tear_down();
}
END_TEST

START_TEST(order_shared)
{
    struct lane *lane, *other;

    set_up("verbs", 1);
    lane = rig_lane(&rig);
    other = rig_lane(&rig);
    rig_prepare(&rig, lane, &slices[0]);
    ck_assert(lane_has(other, &slices[0]));
    fake_log_clear();
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    ck_assert_str_eq(fake_log(), "endpoint_close endpoint_free");
    ck_assert_int_eq(ended, 0);
    ck_assert(lane_has(other, &slices[0]));
    ck_assert_int_eq(rig_destroy(&rig, other), 0);
    close_slice(&slices[0]);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 1);
    ck_assert_uint_eq(fake_calls(FAKE_DOMAIN_OPEN), 1);
    tear_down();
}
END_TEST

/*
 * Whatever fails, every object is closed once. Bytes may still move only where the endpoint did not close; a
 * registration that did not keeps its own slice's memory, and nobody else's.
 */
START_TEST(failing_closes)
{
    static const struct {
        enum fake_op op;
        int kept; /* slices */
    } cases[] = {{FAKE_ENDPOINT_CLOSE, 2}, {FAKE_MR_CLOSE, 1}, {FAKE_ENDPOINT_FREE, 0}, {FAKE_DOMAIN_CLOSE, 0}};
    struct lane *lane;

    set_up("tcp", 1);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slices[0]);
    rig_prepare(&rig, lane, &slices[1]);
    fake_fail(cases[_i].op, 0, -EBUSY);
    fake_log_clear();
    ck_assert_int_eq(rig_destroy(&rig, lane), cases[_i].op == FAKE_ENDPOINT_CLOSE ? -EBUSY : 0);
    ck_assert_str_eq(fake_log(), "endpoint_close mr_close mr_close endpoint_free domain_close");
    ck_assert_int_eq(ended, 2);
    ck_assert_int_eq(ended_badly, cases[_i].kept);
    tear_down();
}
END_TEST

/* Destroyed while the domain or the endpoint is being opened, whether that then works or not. */
START_TEST(destroy_while_opening)
{
    static const char *const providers[] = {"tcp", "verbs"};
    enum fake_op op = (_i & 2) != 0 ? FAKE_DOMAIN_OPEN : FAKE_ENDPOINT_OPEN;
    struct result opened = {0}, done = {0};
    struct lane *lane;

    set_up(providers[_i & 1], 1);
    fake_hold(op, 1);
    if ((_i & 4) != 0) {
        fake_fail(op, 0, -EIO);
    }
    ck_assert_int_eq(lane_open(&rig.fabric, LANE_ANY_NIC, NULL, on_opened, &opened, &lane), 0);
    wait_held(op, 1);
    lane_destroy(lane, on_done, &done);
    rig_idle(&rig, 20);
    ck_assert_int_eq(opened.calls + done.calls, 0);
    fake_release(op);
    ck_assert(rig_wait(&rig, &done.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(done.status, 0);
    ck_assert_int_eq(opened.calls, 1);
    ck_assert_int_eq(opened.status, (_i & 4) != 0 ? -EIO : -ECANCELED);
    ck_assert_ptr_null(opened.lane);
    tear_down();
}
END_TEST

START_TEST(open_fails)
{
    enum fake_op op = _i == 0 ? FAKE_DOMAIN_OPEN : FAKE_ENDPOINT_OPEN;
    struct result opened = {0};
    struct lane *lane;

    set_up("verbs", 1);
    fake_fail(op, 0, -EIO);
    ck_assert_int_eq(lane_open(&rig.fabric, LANE_ANY_NIC, NULL, on_opened, &opened, &lane), 0);
    ck_assert(rig_wait(&rig, &opened.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(opened.status, -EIO);
    ck_assert_ptr_nonnull(strstr(opened.why, "scripted failure"));
    ck_assert_uint_eq(rig.fabric.lanes, 0);
    ck_assert_int_eq(rig_destroy(&rig, rig_lane(&rig)), 0); /* the next one is tried anew */
    tear_down();
}
END_TEST

START_TEST(destroy_while_preparing)
{
    struct slice *wanted[] = {&slices[0], &slices[1], &slices[2]};
    struct result prepared = {0}, done = {0};
    struct lane *lane;

    set_up("tcp", 1);
    lane = rig_lane(&rig);
    fake_hold(FAKE_MR_OPEN, 1);
    lane_prepare(lane, wanted, 3, on_done, &prepared);
    wait_held(FAKE_MR_OPEN, 1);
    lane_destroy(lane, on_done, &done);
    rig_idle(&rig, 20);
    ck_assert_int_eq(prepared.calls + done.calls, 0);
    fake_release(FAKE_MR_OPEN);
    ck_assert(rig_wait(&rig, &done.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(done.status, 0);
    ck_assert_int_eq(prepared.calls, 1);
    ck_assert_int_eq(prepared.status, -ECANCELED);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 1); /* the others were not begun */
    tear_down();
}
END_TEST

START_TEST(destroy_while_adding_peers)
{
    uint8_t addresses[3][16] = {{0}};
    struct result added = {0}, done = {0};
    struct lane *lane;

    set_up("tcp", 1);
    lane = rig_lane(&rig);
    fake_hold(FAKE_ADD_PEER, 1);
    lane_add_peers(lane, addresses[0], 16, 3, on_done, &added);
    wait_held(FAKE_ADD_PEER, 1);
    lane_destroy(lane, on_done, &done);
    fake_release(FAKE_ADD_PEER);
    ck_assert(rig_wait(&rig, &done.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(added.calls, 1);
    ck_assert_int_eq(added.status, -ECANCELED);
    ck_assert_uint_eq(fake_calls(FAKE_ADD_PEER), 1);
    tear_down();
}
END_TEST

START_TEST(add_peers)
{
    uint8_t addresses[3][16] = {{0}};
    struct result added = {0};
    struct lane *lane;

    set_up("efa-direct", 1);
    lane = rig_lane(&rig);
    lane_add_peers(lane, addresses[0], 16, 3, on_done, &added);
    ck_assert(rig_wait(&rig, &added.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(added.status, 0);
    ck_assert_uint_eq(fake_calls(FAKE_ADD_PEER), 3);
    fake_fail(FAKE_ADD_PEER, 1, -EINVAL);
    lane_add_peers(lane, addresses[0], 16, 3, on_done, &added);
    ck_assert(rig_wait(&rig, &added.calls, 2, RIG_PATIENCE_MS));
    ck_assert_int_eq(added.status, -EINVAL);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    tear_down();
}
END_TEST

/* L2: closes that hang keep two lanes, and nobody else. */
START_TEST(hung_close)
{
    struct result stuck[2] = {{0}};
    struct lane *lanes[2], *other;

    set_up("tcp", 1);
    for (int i = 0; i < 2; i++) {
        lanes[i] = rig_lane(&rig);
    }
    fake_hold(FAKE_ENDPOINT_CLOSE, 2);
    for (int i = 0; i < 2; i++) {
        lane_destroy(lanes[i], on_done, &stuck[i]);
    }
    wait_held(FAKE_ENDPOINT_CLOSE, 2);
    for (int i = 0; i < 20; i++) {
        other = rig_lane(&rig);
        rig_prepare(&rig, other, &slices[0]);
        ck_assert_int_eq(rig_destroy(&rig, other), 0);
    }
    ck_assert_int_eq(stuck[0].calls + stuck[1].calls, 0);
    fake_release(FAKE_ENDPOINT_CLOSE);
    ck_assert(rig_wait(&rig, &stuck[0].calls, 1, RIG_PATIENCE_MS));
    ck_assert(rig_wait(&rig, &stuck[1].calls, 1, RIG_PATIENCE_MS));
    tear_down();
}
END_TEST

/* P1: the cap, and the spread over NICs. */
START_TEST(cap)
{
    struct lane *lanes[6], *none;
    struct result opened = {0};

    set_up("efa-direct", 3);
    rig.config.lanes_max = 2;
    for (int i = 0; i < 6; i++) {
        lanes[i] = rig_lane(&rig);
        ck_assert_uint_eq(rig.fabric.nic_lanes[i % 3], (unsigned)i / 3 + 1);
    }
    ck_assert_int_eq(lane_open(&rig.fabric, LANE_ANY_NIC, NULL, on_opened, &opened, &none), -ENOSPC);
    ck_assert_int_eq(rig_destroy(&rig, lanes[4]), 0);
    lanes[4] = rig_lane(&rig);
    ck_assert_uint_eq(rig.fabric.nic_lanes[1], 2);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(rig_destroy(&rig, lanes[i]), 0);
    }
    ck_assert_int_eq(opened.calls, 0);
    tear_down();
}
END_TEST

/* Its lanes are on the others; it is tried again by the next lane once its rest is over, and not before. */
START_TEST(a_nic_that_fails_is_left_out)
{
    struct lane *lanes[4];

    set_up("efa-direct", 2);
    fake_break_nic("fake0");
    for (int i = 0; i < 2; i++) {
        lanes[i] = rig_lane(&rig);
        ck_assert_uint_eq(lane_nic(lanes[i]), 1);
        rig.fabric.nic_states[0].retry_at += LONG_MS; /* however long this test takes */
    }
    ck_assert_uint_eq(fake_calls(FAKE_DOMAIN_OPEN), 2); /* one on each */
    ck_assert(fabric_nic_left_out(&rig.fabric, 0));
    ck_assert_uint_eq(rig.fabric.nic_states[0].failures, 1);
    ck_assert_str_eq(rig.fabric.nic_states[0].why, "scripted failure of domain_open");
    rig.fabric.nic_states[0].retry_at = 0;
    lanes[2] = rig_lane(&rig);
    ck_assert_uint_eq(lane_nic(lanes[2]), 1);
    ck_assert_uint_eq(fake_calls(FAKE_DOMAIN_OPEN), 3);
    ck_assert_uint_eq(rig.fabric.nic_states[0].failures, 2);
    fake_break_nic("");
    rig.fabric.nic_states[0].retry_at = 0;
    lanes[3] = rig_lane(&rig);
    ck_assert_uint_eq(lane_nic(lanes[3]), 0);
    ck_assert_uint_eq(rig.fabric.nic_states[0].failures, 0);
    ck_assert_uint_eq(rig.fabric.nic_lanes[0], 1);
    ck_assert_uint_eq(rig.fabric.nic_lanes[1], 3);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(rig_destroy(&rig, lanes[i]), 0);
    }
    tear_down();
}
END_TEST

static atomic_bool registering;
static sem_t may_register;

/* Without a word that would put what the two threads do in an order. */
static int hung_open(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **mr,
                     uint64_t *key)
{
    atomic_store_explicit(&registering, true, memory_order_relaxed);
    while (sem_wait(&may_register) != 0) {
    }
    return fake_ops.mr_open(domain, base, length, access, mr, key);
}

/* A lane goes to a NIC on which a worker registers for another: the thread sanitizer sees whether they meet. */
START_TEST(a_lane_that_goes_elsewhere_disturbs_no_worker)
{
    static struct fabric_ops ops;
    struct slice *wanted = &slices[0];
    struct result opened = {0}, prepared = {0};
    struct lane *busy, *other;

    set_up("verbs", 2);
    ops = fake_ops;
    ops.mr_open = hung_open;
    rig.fabric.ops = &ops;
    sem_init(&may_register, 0, 0);
    fake_break_nic("fake0");
    ck_assert_int_eq(lane_open(&rig.fabric, 2, NULL, on_opened, &opened, &busy), 0);
    ck_assert(rig_wait(&rig, &opened.calls, 1, RIG_PATIENCE_MS));
    lane_prepare(busy, &wanted, 1, on_done, &prepared);
    for (int i = 0; i < RIG_PATIENCE_MS && !atomic_load_explicit(&registering, memory_order_relaxed); i++) {
        rig_idle(&rig, 1);
    }
    other = rig_lane(&rig);
    ck_assert_uint_eq(lane_nic(other), 1);
    ck_assert_int_eq(prepared.calls, 0);
    sem_post(&may_register);
    ck_assert(rig_wait(&rig, &prepared.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(prepared.status, 0);
    ck_assert_int_eq(rig_destroy(&rig, busy), 0);
    ck_assert_int_eq(rig_destroy(&rig, other), 0);
    close_slice(wanted);
    tear_down();
}
END_TEST

/* Each is tried once for a lane, and the failure says why. A single one is tried by every lane. */
START_TEST(where_all_fail_the_lane_does)
{
    struct result opened = {0};
    struct lane *lane;
    unsigned before;

    set_up(_i == 0 ? "efa-direct" : "tcp", 2);
    before = fake_calls(FAKE_ENDPOINT_OPEN); /* a bind is tried at the start */
    fake_fail_randomly(FAKE_ENDPOINT_OPEN, 100, -EIO);
    ck_assert_int_eq(lane_open(&rig.fabric, LANE_ANY_NIC, "127.0.0.1", on_opened, &opened, &lane), 0);
    ck_assert(rig_wait(&rig, &opened.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_lt(opened.status, 0);
    ck_assert_uint_eq(fake_calls(FAKE_ENDPOINT_OPEN), before + 2);
    for (int i = 0; i < 2; i++) {
        rig.fabric.nic_states[i].retry_at += LONG_MS;
    }
    ck_assert_int_eq(lane_open(&rig.fabric, LANE_ANY_NIC, "127.0.0.1", on_opened, &opened, &lane), 0);
    ck_assert(rig_wait(&rig, &opened.calls, 2, RIG_PATIENCE_MS));
    ck_assert_uint_eq(fake_calls(FAKE_ENDPOINT_OPEN), before + 3);
    fake_fail_randomly(FAKE_ENDPOINT_OPEN, 0, 0);
    ck_assert_uint_eq(rig.fabric.lanes + rig.fabric.nic_lanes[0] + rig.fabric.nic_lanes[1], 0);
    lane = rig_lane(&rig);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    tear_down();
}
END_TEST

START_TEST(triples)
{
    struct lane *lane;
    struct slice_triple triple;

    set_up(_i == 0 ? "tcp" : "verbs", 1);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slices[3]);
    triple = lane_triple(lane, &slices[3], 100, 50);
    ck_assert_uint_eq(triple.address, 100 + (_i == 0 ? 0 : (uint64_t)(uintptr_t)pages[3]));
    ck_assert_uint_eq(triple.length, 50);
    ck_assert_uint_ne(triple.key, 0);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    close_slice(&slices[3]);
    tear_down();
}
END_TEST

/* M9: the third of five fails. */
START_TEST(partial_failure)
{
    struct slice *wanted[] = {&slices[0], &slices[1], &slices[2], &slices[3], &slices[4]};
    struct result prepared = {0};
    struct lane *lane;

    set_up("verbs", 1);
    lane = rig_lane(&rig);
    fake_fail(FAKE_MR_OPEN, 2, -ENOMEM);
    lane_prepare(lane, wanted, 5, on_done, &prepared);
    ck_assert_int_eq(prepared.calls, 0);
    ck_assert(rig_wait(&rig, &prepared.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(prepared.status, -ENOMEM);
    lane_prepare(lane, wanted, 5, on_done, &prepared);
    ck_assert(rig_wait(&rig, &prepared.calls, 2, RIG_PATIENCE_MS));
    ck_assert_int_eq(prepared.status, 0);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), 6);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    for (int i = 0; i < 5; i++) {
        close_slice(&slices[i]);
    }
    tear_down();
}
END_TEST

/* Two lanes of one NIC want the same slice at once: one registration, by the second lane if the first fails. */
START_TEST(shared_preparation)
{
    struct slice *wanted = &slices[0];
    struct result first = {0}, second = {0};
    struct lane *a, *b;

    set_up("verbs", 1);
    a = rig_lane(&rig);
    b = rig_lane(&rig);
    fake_hold(FAKE_MR_OPEN, 1);
    if (_i == 1) {
        fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    }
    lane_prepare(a, &wanted, 1, on_done, &first);
    wait_held(FAKE_MR_OPEN, 1);
    lane_prepare(b, &wanted, 1, on_done, &second);
    rig_idle(&rig, 20);
    ck_assert_int_eq(second.calls, 0);
    fake_release(FAKE_MR_OPEN);
    ck_assert(rig_wait(&rig, &second.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(first.status, _i == 1 ? -ENOMEM : 0);
    ck_assert_int_eq(second.status, 0);
    ck_assert_uint_eq(fake_calls(FAKE_MR_OPEN), _i == 1 ? 2 : 1);
    ck_assert_int_eq(rig_destroy(&rig, a), 0);
    ck_assert_int_eq(rig_destroy(&rig, b), 0);
    close_slice(wanted);
    tear_down();
}
END_TEST

/* A lane that waits for another's registration is destroyed meanwhile. */
START_TEST(destroy_while_waiting)
{
    struct slice *wanted = &slices[0];
    struct result first = {0}, second = {0}, done = {0};
    struct lane *a, *b;

    set_up("efa-direct", 1);
    a = rig_lane(&rig);
    b = rig_lane(&rig);
    fake_hold(FAKE_MR_OPEN, 1);
    lane_prepare(a, &wanted, 1, on_done, &first);
    wait_held(FAKE_MR_OPEN, 1);
    lane_prepare(b, &wanted, 1, on_done, &second);
    rig_idle(&rig, 20);
    lane_destroy(b, on_done, &done);
    ck_assert_int_eq(second.calls, 0);
    ck_assert(rig_wait(&rig, &done.calls, 1, RIG_PATIENCE_MS)); /* not held up by the other's registration */
    ck_assert_int_eq(second.calls, 1);
    ck_assert_int_eq(second.status, -ECANCELED);
    fake_release(FAKE_MR_OPEN);
    ck_assert(rig_wait(&rig, &first.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(rig_destroy(&rig, a), 0);
    close_slice(wanted);
    tear_down();
}
END_TEST

/* A slice is closed while a lane registers it: the preparation ends first, then mr_ended, once. */
START_TEST(close_while_making)
{
    struct slice *wanted = &slices[0];
    struct result prepared = {0};
    struct lane *lane;

    set_up((_i & 1) != 0 ? "verbs" : "tcp", 1);
    lane = rig_lane(&rig);
    fake_hold(FAKE_MR_OPEN, 1);
    if ((_i & 2) != 0) {
        fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    }
    lane_prepare(lane, &wanted, 1, on_done, &prepared);
    wait_held(FAKE_MR_OPEN, 1);
    ck_assert_uint_eq(slice_close_registrations(wanted, &rig.fabric, &rig.owner), 1);
    fake_hold(FAKE_MR_CLOSE, 1);
    fake_release(FAKE_MR_OPEN);
    ck_assert(rig_wait(&rig, &prepared.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(prepared.status, (_i & 2) != 0 ? -ENOMEM : -ECANCELED);
    fake_release(FAKE_MR_CLOSE);
    ck_assert(rig_wait(&rig, &ended, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    ck_assert_int_eq(ended, 1);
    tear_down();
}
END_TEST

/* The slice's own closing is under way when its lane is destroyed: the domain waits for it, the endpoint does not. */
START_TEST(destroy_while_closing)
{
    struct result done = {0};
    struct lane *lane;

    set_up("tcp", 1);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slices[0]);
    rig_prepare(&rig, lane, &slices[1]);
    fake_hold(FAKE_MR_CLOSE, 1);
    ck_assert_uint_eq(slice_close_registrations(&slices[0], &rig.fabric, &rig.owner), 1);
    wait_held(FAKE_MR_CLOSE, 1);
    fake_log_clear();
    lane_destroy(lane, on_done, &done);
    ck_assert(rig_wait(&rig, &ended, 1, RIG_PATIENCE_MS));
    ck_assert_str_eq(fake_log(), "endpoint_close mr_close");
    ck_assert_int_eq(done.calls, 0);
    fake_release(FAKE_MR_CLOSE);
    ck_assert(rig_wait(&rig, &done.calls, 1, RIG_PATIENCE_MS));
    ck_assert_str_eq(fake_log(), "endpoint_close mr_close endpoint_free domain_close");
    ck_assert_int_eq(ended, 2);
    tear_down();
}
END_TEST

START_TEST(prove)
{
    struct result proved = {0};
    bool tcp = _i == 0;

    set_up(tcp ? "tcp" : "verbs", 1);
    ck_assert_int_eq(slice_prove(&slices[0], &rig.fabric, 0, &rig.owner, on_proved, &proved), 0);
    ck_assert(rig_wait(&rig, &proved.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(proved.status, 0);
    ck_assert_uint_eq(slices[0].mr_count, tcp ? 0 : 1);
    ck_assert_uint_eq(fake_mrs(), tcp ? 0 : 1);
    fake_fail(FAKE_MR_OPEN, 0, -ENOMEM);
    ck_assert_int_eq(slice_prove(&slices[1], &rig.fabric, 0, &rig.owner, on_proved, &proved), 0);
    ck_assert(rig_wait(&rig, &proved.calls, 2, RIG_PATIENCE_MS));
    ck_assert_int_eq(proved.status, -ENOMEM);
    ck_assert_ptr_nonnull(strstr(proved.why, "4096 bytes"));
    ck_assert_uint_eq(slices[1].mr_count, 0);
    close_slice(&slices[0]);
    tear_down();
}
END_TEST

START_TEST(close_while_proving)
{
    struct result proved = {0};

    set_up(_i == 0 ? "tcp" : "verbs", 1);
    fake_hold(FAKE_DOMAIN_OPEN, 1);
    ck_assert_int_eq(slice_prove(&slices[0], &rig.fabric, 0, &rig.owner, on_proved, &proved), 0);
    wait_held(FAKE_DOMAIN_OPEN, 1);
    ck_assert_uint_eq(slice_close_registrations(&slices[0], &rig.fabric, &rig.owner), 1);
    fake_release(FAKE_DOMAIN_OPEN);
    ck_assert(rig_wait(&rig, &ended, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(proved.calls, 1);
    ck_assert_int_eq(proved.status, -ECANCELED);
    tear_down();
}
END_TEST

/* A proof whose registration cannot be closed: both callbacks say so. */
START_TEST(prove_cannot_close)
{
    struct result proved = {0};

    set_up("tcp", 1);
    fake_fail(FAKE_MR_CLOSE, 0, -EBUSY);
    ck_assert_int_eq(slice_prove(&slices[0], &rig.fabric, 0, &rig.owner, on_proved, &proved), 0);
    ck_assert(rig_wait(&rig, &ended, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(proved.status, -EBUSY);
    ck_assert_int_eq(ended_badly, 1);
    tear_down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_lane");
    TCase *tests = tcase_create("fabric_lane");

    tcase_set_timeout(tests, UNIT_SECONDS);
    tcase_add_test(tests, order_tcp);
    tcase_add_test(tests, order_shared);
    tcase_add_loop_test(tests, failing_closes, 0, 4);
    tcase_add_loop_test(tests, destroy_while_opening, 0, 8);
    tcase_add_loop_test(tests, open_fails, 0, 2);
    tcase_add_test(tests, destroy_while_preparing);
    tcase_add_test(tests, destroy_while_adding_peers);
    tcase_add_test(tests, add_peers);
    tcase_add_test(tests, hung_close);
    tcase_add_test(tests, cap);
    tcase_add_test(tests, a_nic_that_fails_is_left_out);
    tcase_add_test(tests, a_lane_that_goes_elsewhere_disturbs_no_worker);
    tcase_add_loop_test(tests, where_all_fail_the_lane_does, 0, 2);
    tcase_add_loop_test(tests, triples, 0, 2);
    tcase_add_test(tests, partial_failure);
    tcase_add_loop_test(tests, shared_preparation, 0, 2);
    tcase_add_test(tests, destroy_while_waiting);
    tcase_add_loop_test(tests, close_while_making, 0, 4);
    tcase_add_test(tests, destroy_while_closing);
    tcase_add_loop_test(tests, prove, 0, 2);
    tcase_add_loop_test(tests, close_while_proving, 0, 2);
    tcase_add_test(tests, prove_cannot_close);
    suite_add_tcase(suite, tests);
    return unit_run(suite);
}
