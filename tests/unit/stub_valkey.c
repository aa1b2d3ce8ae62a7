#include "tests/unit/stub_valkey.h"

#include <check.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * --- the loop's clock ---
 *
 * While a bench is there, libuv's clock goes on in turns of the loop only, and never by more than TURN_NS in one: a
 * process that gets no processor for a while does not see the limits and pauses of the daemon pass meanwhile. So a test
 * may say how long something takes, however many others run at the same time.
 */

#define TURN_NS UINT64_C(6000000) /* more than the longest sleep of a turn */

/* Set by the thread of the loop; workers look at the clock too. */
static struct {
    atomic_bool played, turning;
    _Atomic uint64_t now, limit; /* between two turns; the latest of this one */
    _Atomic uint64_t behind;     /* the real time, during a turn */
} played_clock;

static uint64_t real_ns(void)
{
    struct timespec time;

    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t played_ns(void)
{
    uint64_t now, limit;

    if (!played_clock.turning) {
        return played_clock.now;
    }
    now = real_ns() - played_clock.behind;
    limit = played_clock.limit;
    return now < limit ? now : limit;
}

/* In place of that of the C library, also for libuv. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time)
{
    uint64_t now;

    if (!played_clock.played || (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)) {
        return (int)syscall(SYS_clock_gettime, clock, time);
    }
    now = played_ns();
    time->tv_sec = (time_t)(now / 1000000000);
    time->tv_nsec = (long)(now % 1000000000);
    return 0;
}

static void clock_play(void)
{
    played_clock.now = real_ns();
    played_clock.played = true;
}

static void clock_begin_turn(void)
{
    played_clock.behind = real_ns() - played_clock.now;
    played_clock.limit = played_clock.now + TURN_NS;
    played_clock.turning = true;
}

static void clock_end_turn(void)
{
    played_clock.now = played_ns();
    played_clock.turning = false;
}

/* --- bench --- */

static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static void on_tick(uv_timer_t *timer)
{
}

void bench_start(struct bench *bench)
{
    uv_loop_t first;

    /* The first loop of a process opens descriptors that libuv keeps. */
    ck_assert_int_eq(uv_loop_init(&first), 0);
    uv_loop_close(&first);
    memset(bench, 0, sizeof(*bench));
    bench->descriptors = count_descriptors();
    clock_play();
    ck_assert_int_eq(uv_loop_init(&bench->loop), 0);
    uv_timer_init(&bench->loop, &bench->tick);
    bench->workers = workers_start(&bench->loop);
    ck_assert_ptr_nonnull(bench->workers);
}

void bench_turn(struct bench *bench)
{
    clock_begin_turn();
    uv_timer_start(&bench->tick, on_tick, 5, 0);
    uv_run(&bench->loop, UV_RUN_ONCE);
    uv_timer_stop(&bench->tick);
    clock_end_turn();
}

void bench_idle(struct bench *bench, unsigned ms)
{
    uint64_t end = uv_hrtime() + ms * UINT64_C(1000000);

    while (uv_hrtime() < end) {
        bench_turn(bench);
    }
}

void bench_skip(unsigned ms)
{
    ck_assert(played_clock.played && !played_clock.turning);
    played_clock.now += ms * UINT64_C(1000000);
}

static void count_timer(uv_handle_t *handle, void *count)
{
    if (handle->type == UV_TIMER && uv_is_active(handle)) {
        ++*(unsigned *)count;
    }
}

unsigned bench_active_timers(struct bench *bench)
{
    unsigned count = 0;

    uv_walk(&bench->loop, count_timer, &count);
    return count;
}

void bench_stop(struct bench *bench)
{
    WAIT(bench, workers_outstanding(bench->workers) == 0);
    workers_stop(bench->workers);
    played_clock.played = false;
    uv_close((uv_handle_t *)&bench->tick, NULL);
    uv_run(&bench->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&bench->loop), 0);
    while (bench->kept_count > 0) {
        close(bench->kept[--bench->kept_count]);
    }
    ck_assert_int_eq(count_descriptors(), bench->descriptors);
}

/* --- stub --- */

static void peer_closed(uv_handle_t *handle)
{
    struct stub_peer *peer = handle->data;

    redisReaderFree(peer->reader);
    free(peer);
}

static bool leave(struct stub_peer *peer)
{
    if (peer->closing) {
        return false;
    }
    peer->closing = true;
    peer->stub->open--;
    LIST_REMOVE(peer, link);
    return true;
}

void stub_hang_up(struct stub_peer *peer)
{
    if (leave(peer)) {
        uv_close((uv_handle_t *)&peer->handle, peer_closed);
    }
}

void stub_reset(struct stub_peer *peer)
{
    if (leave(peer)) {
        uv_tcp_close_reset(&peer->handle.tcp, peer_closed);
    }
}

static void lend_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct stub_peer *peer = handle->data;

    *buffer = uv_buf_init(peer->buffer, sizeof(peer->buffer));
}

static void take_command(struct stub_peer *peer, redisReply *words)
{
    peer->commands++;
    peer->stub->commands++;
    peer->stub->hellos += stub_is(words, "BLOB.RDMA_HELLO") ? 1 : 0;
    if (peer->stub->command != NULL) {
        peer->stub->command(peer, words);
    }
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
    struct stub_peer *peer = stream->data;

    if (length < 0) {
        stub_hang_up(peer);
        return;
    }
    peer->bytes += (size_t)length;
    peer->reads++;
    ck_assert_int_eq(redisReaderFeed(peer->reader, buffer->base, (size_t)length), REDIS_OK);
    while (!peer->closing) {
        void *words = NULL;
        ck_assert_int_eq(redisReaderGetReply(peer->reader, &words), REDIS_OK);
        if (words == NULL) {
            break;
        }
        take_command(peer, words);
        freeReplyObject(words);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct stub *stub = listener->data;
    struct stub_peer *peer = calloc(1, sizeof(*peer));

    ck_assert_ptr_nonnull(peer);
    peer->stub = stub;
    peer->reader = redisReaderCreate();
    if (listener->type == UV_TCP) {
        uv_tcp_init(&stub->bench->loop, &peer->handle.tcp);
    } else {
        uv_pipe_init(&stub->bench->loop, &peer->handle.pipe, 0);
    }
    peer->handle.stream.data = peer;
    ck_assert_int_eq(uv_accept(listener, &peer->handle.stream), 0);
    peer->number = ++stub->connections;
    stub->open++;
    LIST_INSERT_HEAD(&stub->peers, peer, link);
    if (!stub->paused) {
        uv_read_start(&peer->handle.stream, lend_buffer, on_read);
    }
    if (stub->accepted != NULL) {
        stub->accepted(peer);
    }
}

static void prepare(struct stub *stub, struct bench *bench)
{
    memset(stub, 0, sizeof(*stub));
    stub->bench = bench;
    LIST_INIT(&stub->peers);
}

static void listen_at(struct stub *stub)
{
    stub->listener.stream.data = stub;
    ck_assert_int_eq(uv_listen(&stub->listener.stream, 128, on_connection), 0);
}

/* A socket at the address; where the port is 0, it is chosen. Several of this user may be at one. */
static int bound_socket(struct sockaddr_in *address)
{
    socklen_t length = sizeof(*address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)address, sizeof(*address)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)address, &length), 0);
    return fd;
}

void bench_keep_port(struct bench *bench, const char *ip, unsigned port)
{
    struct sockaddr_in address;

    ck_assert_uint_lt(bench->kept_count, sizeof(bench->kept) / sizeof(bench->kept[0]));
    ck_assert_int_eq(uv_ip4_addr(ip, (int)port, &address), 0);
    bench->kept[bench->kept_count++] = bound_socket(&address);
}

void stub_start_at(struct stub *stub, struct bench *bench, const char *ip, unsigned port)
{
    struct sockaddr_in address;

    prepare(stub, bench);
    ck_assert_int_eq(uv_ip4_addr(ip, (int)port, &address), 0);
    uv_tcp_init(&bench->loop, &stub->listener.tcp);
    ck_assert_int_eq(uv_tcp_open(&stub->listener.tcp, bound_socket(&address)), 0);
    listen_at(stub);
    bench_keep_port(bench, ip, ntohs(address.sin_port));
    snprintf(stub->address, sizeof(stub->address), "%s:%u", ip, ntohs(address.sin_port));
}

void stub_start(struct stub *stub, struct bench *bench, const char *path)
{
    if (path == NULL) {
        stub_start_at(stub, bench, "127.0.0.1", 0);
        return;
    }
    prepare(stub, bench);
    unlink(path);
    uv_pipe_init(&bench->loop, &stub->listener.pipe, 0);
    ck_assert_int_eq(uv_pipe_bind(&stub->listener.pipe, path), 0);
    snprintf(stub->address, sizeof(stub->address), "unix:%s", path);
    listen_at(stub);
}

void stub_stop(struct stub *stub)
{
    while (!LIST_EMPTY(&stub->peers)) {
        stub_hang_up(LIST_FIRST(&stub->peers));
    }
    uv_close((uv_handle_t *)&stub->listener, NULL);
    bench_idle(stub->bench, 10);
}

void stub_resume(struct stub *stub)
{
    struct stub_peer *peer;

    stub->paused = false;
    LIST_FOREACH(peer, &stub->peers, link)
    {
        uv_read_start(&peer->handle.stream, lend_buffer, on_read);
    }
}

static void written(uv_write_t *request, int status)
{
    free(request->data);
    free(request);
}

void stub_send(struct stub_peer *peer, const char *bytes, size_t length)
{
    uv_write_t *request = calloc(1, sizeof(*request));
    char *copy = malloc(length);
    uv_buf_t buffer = uv_buf_init(copy, (unsigned)length);

    memcpy(copy, bytes, length);
    request->data = copy;
    if (peer->closing || uv_write(request, &peer->handle.stream, &buffer, 1, written) != 0) {
        written(request, 0);
    }
}

void stub_say(struct stub_peer *peer, const char *text)
{
    stub_send(peer, text, strlen(text));
}

bool stub_is(const redisReply *words, const char *command)
{
    return words->type == REDIS_REPLY_ARRAY && words->elements > 0 && strcasecmp(words->element[0]->str, command) == 0;
}

struct stub_peer *stub_first(struct stub *stub)
{
    struct stub_peer *peer, *first = NULL;

    LIST_FOREACH(peer, &stub->peers, link)
    {
        first = first == NULL || peer->number < first->number ? peer : first;
    }
    return first;
}
