/*
 * A scripted Valkey server on the test's own loop (TCP on 127.0.0.1 or a Unix socket), and the loop, workers and
 * waiting around it. The script sees every command and answers what it likes, or nothing.
 */
#ifndef GRD_TESTS_STUB_VALKEY_H
#define GRD_TESTS_STUB_VALKEY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "daemon/base/worker.h"

/* Runs the loop until the condition holds; fails the test after 10 s of the loop's clock, see bench_turn. */
#define WAIT(bench, condition)                                                                                        \
    do {                                                                                                              \
        uint64_t wait_end = uv_hrtime() + UINT64_C(10000000000);                                                      \
        while (!(condition)) {                                                                                        \
            ck_assert_msg(uv_hrtime() < wait_end, "waited in vain for %s", #condition);                               \
            bench_turn(bench);                                                                                        \
        }                                                                                                             \
    } while (0)

struct bench {
    uv_loop_t loop;
    uv_timer_t tick;
    struct workers *workers;
    int descriptors; /* open at the start */
    int kept[32];    /* sockets that hold a port, see bench_keep_port */
    unsigned kept_count;
};

void bench_start(struct bench *bench);
/* Everything must be closed by then: handles, jobs and descriptors. */
void bench_stop(struct bench *bench);
/* One turn of the loop, at most 5 ms. What libuv takes for the time only goes on in it, and by 6 ms at most: a machine
 * with much to do does not make the daemon's limits run out. */
void bench_turn(struct bench *bench);
void bench_idle(struct bench *bench, unsigned ms);
/* Lets so much time pass at once: what is due by then happens in the next turn, and nothing happens meanwhile. */
void bench_skip(unsigned ms);
/* Active timers on the loop, the bench's own left out: what would wake an idle daemon. */
unsigned bench_active_timers(struct bench *bench);

struct stub;

struct stub_peer {
    LIST_ENTRY(stub_peer) link;
    struct stub *stub;
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } handle;
    redisReader *reader;
    unsigned commands; /* received */
    unsigned reads;    /* pieces in which they came */
    unsigned number;   /* of the connection, from 1 */
    size_t bytes;      /* received */
    bool closing;
    char buffer[65536];
};

struct stub {
    struct bench *bench;
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } listener;
    char address[128];
    void (*accepted)(struct stub_peer *peer);
    void (*command)(struct stub_peer *peer, const redisReply *words);
    void *context;
    unsigned connections, commands, open, hellos;
    bool paused; /* new connections are not read from */
    LIST_HEAD(, stub_peer) peers;
};

/* `path` NULL: TCP on a port of the system's choice. */
void stub_start(struct stub *stub, struct bench *bench, const char *path);
/* Keeps a port of this machine from every other process until the end of the bench. Nothing listens there, unless a
 * stub does. */
void bench_keep_port(struct bench *bench, const char *ip, unsigned port);

/* TCP on a certain address; `port` 0: the system's choice. The port stays this test's own, also after stub_stop. */
void stub_start_at(struct stub *stub, struct bench *bench, const char *ip, unsigned port);
/* Closes the listener and every connection. */
void stub_stop(struct stub *stub);
void stub_resume(struct stub *stub);

void stub_send(struct stub_peer *peer, const char *bytes, size_t length);
void stub_say(struct stub_peer *peer, const char *text);
void stub_hang_up(struct stub_peer *peer);
/* With a reset instead of an orderly end. */
void stub_reset(struct stub_peer *peer);
bool stub_is(const redisReply *words, const char *command);
/* The peer whose connection was made first, or NULL. */
struct stub_peer *stub_first(struct stub *stub);

#endif
