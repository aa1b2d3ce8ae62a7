/* Lanes over the real tcp provider: what lane_destroy promises, against a peer in another process. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/fabric_rig.h"
#include "tests/unit/unit_main.h"

#define BYTES ((size_t)256 << 20)
#define OLD 0xAA    /* what the memory held while the lane lived */
#define REFILL 0xDD /* what its next user put there */
#define SENT 0xBB
#define ATTEMPTS 40 /* to meet a message in the middle */

static int ended;

static void on_mr_ended(struct slice *slice, unsigned nic, int status)
{
    ck_assert_int_eq(status, 0);
    ended++;
}

static size_t count_other(const uint8_t *memory, size_t bytes, uint8_t value)
{
    size_t other = 0;

    for (size_t i = 0; i < bytes; i++) {
        other += memory[i] != value;
    }
    return other;
}

/* Runs the loop until the byte has changed, which says that a transfer is on its way. */
static void wait_for_change(struct rig *rig, const volatile uint8_t *byte, uint8_t from)
{
    uint64_t end = now_us() + 60000000;

    while (*byte == from) {
        ck_assert(now_us() < end);
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
}

/* One whole message in each direction through a fresh lane. */
static void check_lane_works(struct rig *rig, struct slice *slice)
{
    struct lane *lane = rig_lane(rig);
    struct peer writer, reader;

    rig_prepare(rig, lane, slice);
    peer_start(&writer, "write", BYTES, 1, 0xC1);
    peer_go(&writer, lane, slice, 0);
    ck_assert_int_eq(peer_answer(rig, &writer, NULL), 0);
    ck_assert_uint_eq(count_other(slice->base, BYTES, 0xC1), 0);
    peer_start(&reader, "read", BYTES, 1, 0);
    peer_go(&reader, lane, slice, 0);
    ck_assert_int_eq(peer_answer(rig, &reader, NULL), 0);
    ck_assert_uint_eq(count_other(reader.buffer, BYTES, 0xC1), 0);
    peer_end(&writer);
    peer_end(&reader);
    ck_assert_int_eq(rig_destroy(rig, lane), 0);
}

/*
 * Destroys a lane in the middle of a message and fills its memory anew at once. On a busy machine the message may be
 * over before the lane is: then all is done again.
 */
static void interrupt(struct rig *rig, struct slice *slice, struct peer *peer, const char *operation)
{
    bool writing = strcmp(operation, "write") == 0, middle = false;

    for (int attempt = 0; attempt < ATTEMPTS && !middle; attempt++) {
        struct lane *lane = rig_lane(rig);
        uint8_t *moving = slice->base;
        uint8_t before = OLD;

        memset(slice->base, OLD, BYTES);
        rig_prepare(rig, lane, slice);
        peer_start(peer, operation, BYTES, 1, writing ? SENT : 0);
        if (!writing) {
            moving = peer->buffer;
            before = 0;
        }
        peer_go(peer, lane, slice, 0);
        wait_for_change(rig, &moving[BYTES / 8], before);
        ck_assert_int_eq(rig_destroy(rig, lane), 0);
        middle = moving[BYTES - 1] == before;
        memset(slice->base, REFILL, BYTES);
        if (!middle) {
            peer_end(peer);
        }
    }
    ck_assert(middle);
}

/* L4, L5, L6: a write that is taken back in the middle of its bytes changes nothing afterwards. */
START_TEST(late_write)
{
    struct rig rig;
    struct slice slice;
    struct peer peer;

    rig_start(&rig, "tcp", NULL);
    slice_init(&slice, map_memory(BYTES, OLD), BYTES, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, on_mr_ended, NULL);
    interrupt(&rig, &slice, &peer, "write");
    rig_idle(&rig, 3000);
    ck_assert_uint_eq(count_other(slice.base, BYTES, REFILL), 0);
    ck_assert_int_ge(ended, 1);
    ck_assert_uint_eq(slice.mr_count, 0);
    peer_end(&peer);

    check_lane_works(&rig, &slice);
    rig_stop(&rig);
}
END_TEST

/* The other direction: a read that is taken back gets nothing that was put there afterwards. */
START_TEST(late_read)
{
    struct rig rig;
    struct slice slice;
    struct peer peer;
    size_t got = 0, secret = 0;

    rig_start(&rig, "tcp", NULL);
    slice_init(&slice, map_memory(BYTES, OLD), BYTES, FABRIC_REMOTE_READ, on_mr_ended, NULL);
    interrupt(&rig, &slice, &peer, "read");
    rig_idle(&rig, 3000);
    for (size_t i = 0; i < BYTES; i++) {
        secret += peer.buffer[i] == REFILL;
        got += peer.buffer[i] == OLD;
    }
    ck_assert_uint_eq(secret, 0);
    ck_assert_uint_gt(got, 0);
    ck_assert_uint_lt(got, BYTES);
    peer_end(&peer);
    slice.access |= FABRIC_REMOTE_WRITE;
    check_lane_works(&rig, &slice);
    rig_stop(&rig);
}
END_TEST

/* A lane goes on, undisturbed, while another over the same memory is destroyed. */
START_TEST(other_lane_goes_on)
{
    struct rig rig;
    struct slice slice;
    struct lane *doomed, *other;
    struct peer a, b;

    rig_start(&rig, "tcp", NULL);
    slice_init(&slice, map_memory(2 * BYTES, OLD), 2 * BYTES, FABRIC_REMOTE_WRITE, on_mr_ended, NULL);
    doomed = rig_lane(&rig);
    other = rig_lane(&rig);
    rig_prepare(&rig, doomed, &slice);
    rig_prepare(&rig, other, &slice);
    peer_start(&a, "write", BYTES, 1, SENT);
    peer_start(&b, "write", BYTES, 1, 0xB2);
    peer_go(&a, doomed, &slice, 0);
    peer_go(&b, other, &slice, BYTES);
    wait_for_change(&rig, &slice.base[BYTES + BYTES / 8], OLD);

    ck_assert_int_eq(rig_destroy(&rig, doomed), 0);
    ck_assert_int_eq(peer_answer(&rig, &b, NULL), 0);
    ck_assert_uint_eq(count_other(slice.base + BYTES, BYTES, 0xB2), 0);
    ck_assert_int_eq(rig_destroy(&rig, other), 0);
    peer_end(&a);
    peer_end(&b);
    rig_stop(&rig);
}
END_TEST

/* A key of the past names nothing, and an access that was not given is refused. */
START_TEST(wrong_access)
{
    struct rig rig;
    struct slice slice;
    struct lane *lane;
    struct peer peer;

    rig_start(&rig, "tcp", NULL);
    slice_init(&slice, map_memory(1 << 20, OLD), 1 << 20, FABRIC_REMOTE_READ, on_mr_ended, NULL);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slice);
    peer_start(&peer, "write", 1 << 20, 1, SENT);
    peer_go(&peer, lane, &slice, 0);
    ck_assert_int_lt(peer_answer(&rig, &peer, NULL), 0);
    ck_assert_uint_eq(count_other(slice.base, 1 << 20, OLD), 0);
    peer_end(&peer);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    rig_stop(&rig);
}
END_TEST

/*
 * Rule 5: where a page of client memory cannot be had, no transfer of any size succeeds; a load or store by libfabric
 * inside this process would be SIGBUS. The page is behind the end of its file here, which no real region's is; a hole
 * that cannot be filled, for want of memory or huge pages, is the same to the processor.
 */
START_TEST(pages_that_cannot_be_had)
{
    static const size_t sizes[] = {1, 4096, 9000, 70000};
    size_t bytes = sizes[_i / 2];
    bool writing = _i % 2 == 0;
    int fd = memfd_create("gone", MFD_CLOEXEC);
    struct rig rig;
    struct slice slice;
    struct lane *lane;
    struct peer peer;
    uint8_t *memory;

    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    rig_start(&rig, "tcp", NULL);
    slice_init(&slice, memory, bytes, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, on_mr_ended, NULL);
    lane = rig_lane(&rig);
    rig_prepare(&rig, lane, &slice);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    peer_start(&peer, writing ? "write" : "read", bytes, 1, SENT);
    peer_go(&peer, lane, &slice, 0);
    if (writing) {
        ck_assert_int_lt(peer_answer(&rig, &peer, NULL), 0);
    } else { /* tcp tells the reader nothing: it has time limits of its own */
        rig_idle(&rig, 500);
        ck_assert_uint_eq(count_other(peer.buffer, bytes, SENT), 0);
    }
    peer_end(&peer);
    ck_assert_int_eq(rig_destroy(&rig, lane), 0);
    rig_stop(&rig);
    munmap(memory, bytes);
    close(fd);
}
END_TEST

START_TEST(prove_leaves_nothing)
{
    struct rig rig;
    struct slice slice;
    struct result proved = {0};

    rig_start(&rig, "tcp", NULL);
    slice_init(&slice, map_memory(1 << 20, OLD), 1 << 20, FABRIC_REMOTE_READ, on_mr_ended, NULL);
    ck_assert_int_eq(slice_prove(&slice, &rig.fabric, 0, &rig.owner, on_proved, &proved), 0);
    ck_assert(rig_wait(&rig, &proved.calls, 1, RIG_PATIENCE_MS));
    ck_assert_msg(proved.status == 0, "%s", proved.why);
    ck_assert_uint_eq(slice.mr_count, 0);
    ck_assert_int_eq(ended, 0);
    rig_stop(&rig);
}
END_TEST

/* Nothing to do: neither the progress thread nor a worker runs (rule 7). */
START_TEST(idle_lanes_cost_nothing)
{
    struct rig rig;
    struct lane *lanes[4];
    uv_rusage_t before, after;
    long switches = 0;

    rig_start(&rig, "tcp", NULL);
    for (int i = 0; i < 4; i++) {
        lanes[i] = rig_lane(&rig);
    }
    struct timespec second = {1, 0};
    /* Threads may still be on their way to rest in the first second; what wakes up again and again does so in each. */
    for (int attempt = 0; attempt < 5; attempt++) {
        uv_getrusage(&before);
        nanosleep(&second, NULL);
        uv_getrusage(&after);
        switches = (long)(after.ru_nvcsw - before.ru_nvcsw);
        if (switches <= 3) { /* the sleep itself is one */
            break;
        }
    }
    ck_assert_int_le(switches, 3);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(rig_destroy(&rig, lanes[i]), 0);
    }
    rig_stop(&rig);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {late_write,   late_read,            other_lane_goes_on,
                                  wrong_access, prove_leaves_nothing, idle_lanes_cost_nothing};
    Suite *suite = suite_create("fabric_tcp");
    TCase *tcase = tcase_create("fabric_tcp");

    tcase_set_timeout(tcase, 170);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        tcase_add_test(tcase, tests[i]);
    }
    tcase_add_loop_test(tcase, pages_that_cannot_be_had, 0, 8);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
