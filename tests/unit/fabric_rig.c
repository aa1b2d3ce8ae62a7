#include "tests/unit/fabric_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

uint64_t now_us(void)
{
    return uv_hrtime() / 1000;
}

static void on_tick(uv_timer_t *timer)
{
}

void rig_start(struct rig *rig, const char *provider, const struct fabric_ops *ops)
{
    memset(rig, 0, sizeof(*rig));
    ck_assert_int_eq(uv_loop_init(&rig->loop), 0);
    uv_timer_init(&rig->loop, &rig->tick);
    rig->workers = workers_start(&rig->loop);
    ck_assert_ptr_nonnull(rig->workers);
    worker_owner_init(&rig->owner);
    rig->config = (struct fabric_config){.provider = strdup(provider), .bind = strdup("127.0.0.1"), .lanes_max = 8};
    ck_assert_int_eq(fabric_start(&rig->fabric, &rig->loop, rig->workers, &rig->config, ops), 0);
    ck_assert_msg(rig->fabric.usable, "%s", rig->fabric.why);
}

void rig_stop(struct rig *rig)
{
    ck_assert_uint_eq(rig->fabric.lanes, 0);
    fabric_stop(&rig->fabric);
    workers_stop(rig->workers);
    uv_close((uv_handle_t *)&rig->tick, NULL);
    uv_run(&rig->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&rig->loop), 0);
    free(rig->config.provider);
    free(rig->config.bind);
}

bool rig_wait(struct rig *rig, const int *calls, int wanted, unsigned ms)
{
    uint64_t end = now_us() + ms * UINT64_C(1000);

    while (*calls < wanted && now_us() < end) {
        uv_timer_start(&rig->tick, on_tick, ms < 20 ? ms : 20, 0);
        uv_run(&rig->loop, UV_RUN_ONCE);
    }
    uv_timer_stop(&rig->tick);
    return *calls >= wanted;
}

void rig_idle(struct rig *rig, unsigned ms)
{
    int never = 0;

    rig_wait(rig, &never, 1, ms);
}

void on_opened(void *context, struct lane *lane, int status, const char *why)
{
    struct result *result = context;

    result->calls++;
    result->status = status;
    result->lane = lane;
    snprintf(result->why, sizeof(result->why), "%s", why);
}

void on_done(void *context, int status)
{
    struct result *result = context;

    result->calls++;
    result->status = status;
}

void on_proved(void *context, int status, const char *why)
{
    struct result *result = context;

    result->calls++;
    result->status = status;
    snprintf(result->why, sizeof(result->why), "%s", why);
}

struct lane *rig_lane(struct rig *rig)
{
    struct result result = {0};
    struct lane *lane;

    ck_assert_int_eq(lane_open(&rig->fabric, LANE_ANY_NIC, NULL, on_opened, &result, &lane), 0);
    ck_assert_int_eq(result.calls, 0);
    ck_assert(rig_wait(rig, &result.calls, 1, RIG_PATIENCE_MS));
    ck_assert_msg(result.status == 0, "%s", result.why);
    ck_assert_ptr_eq(result.lane, lane);
    return lane;
}

void rig_prepare(struct rig *rig, struct lane *lane, struct slice *slice)
{
    struct result result = {0};

    lane_prepare(lane, &slice, 1, on_done, &result);
    ck_assert(rig_wait(rig, &result.calls, 1, RIG_PATIENCE_MS));
    ck_assert_int_eq(result.status, 0);
    ck_assert(lane_has(lane, slice));
}

int rig_destroy(struct rig *rig, struct lane *lane)
{
    struct result result = {0};

    lane_destroy(lane, on_done, &result);
    ck_assert_int_eq(result.calls, 0);
    ck_assert(rig_wait(rig, &result.calls, 1, RIG_PATIENCE_MS));
    return result.status;
}

uint8_t *map_memory(size_t bytes, uint8_t fill)
{
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(memory, MAP_FAILED);
    memset(memory, fill, bytes);
    return memory;
}

void peer_start(struct peer *peer, const char *operation, size_t bytes, long count, uint8_t fill)
{
    char name[] = "rma_peer", verb[8], bytes_text[24], count_text[24], descriptor[] = "3";
    char *arguments[] = {name, verb, bytes_text, count_text, descriptor, NULL};
    const char *program = getenv("RMA_PEER");
    posix_spawn_file_actions_t actions;
    int to[2], from[2];

    ck_assert_ptr_nonnull(program);
    snprintf(verb, sizeof(verb), "%s", operation);
    snprintf(bytes_text, sizeof(bytes_text), "%zu", bytes);
    snprintf(count_text, sizeof(count_text), "%ld", count);
    peer->bytes = bytes;
    peer->buffer_fd = memfd_create("peer", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(peer->buffer_fd, (off_t)bytes), 0);
    peer->buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, peer->buffer_fd, 0);
    ck_assert_ptr_ne(peer->buffer, MAP_FAILED);
    memset(peer->buffer, fill, bytes);
    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    posix_spawn_file_actions_adddup2(&actions, peer->buffer_fd, 3);
    ck_assert_int_eq(posix_spawn(&peer->pid, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    peer->to = fdopen(to[1], "w");
    peer->from = fdopen(from[0], "r");
}

void peer_go(struct peer *peer, const struct lane *lane, const struct slice *slice, uint64_t offset)
{
    struct slice_triple triple = lane_triple(lane, slice, offset, peer->bytes);
    size_t length;
    const uint8_t *address = lane_address(lane, &length);

    for (size_t i = 0; i < length; i++) {
        fprintf(peer->to, "%02x", address[i]);
    }
    fprintf(peer->to, " %" PRIu64 " %" PRIu64 "\n", triple.key, triple.address);
    fflush(peer->to);
}

int peer_answer(struct rig *rig, struct peer *peer, double *microseconds)
{
    struct pollfd readable = {.fd = fileno(peer->from), .events = POLLIN};
    double us;
    int status;

    while (poll(&readable, 1, 0) == 0) {
        rig_idle(rig, 1);
    }
    ck_assert_int_eq(fscanf(peer->from, "%d %lf", &status, &us), 2);
    if (microseconds != NULL) {
        *microseconds = us;
    }
    return status;
}

void peer_end(struct peer *peer)
{
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, NULL, 0);
    fclose(peer->to);
    fclose(peer->from);
    munmap(peer->buffer, peer->bytes);
    close(peer->buffer_fd);
}
