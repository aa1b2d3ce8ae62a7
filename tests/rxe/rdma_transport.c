/*
 * Drives the transport of RESP over RDMA on a loop, over glide-rdmad-valkey-rdma.so, against a real server:
 * rdma_transport SCENARIO HOST PORT. Exit status 0, or 1 with what was not as it must be. test_rxe_resp_transport.py
 * says what each scenario shows.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/worker.h"
#include "daemon/valkey/rdma/stream.h"
#include "daemon/valkey/transport.h"

#define WAIT_NS UINT64_C(120000000000)
#define MOST (5 * 1024 * 1024)
#define PING "*1\r\n$4\r\nPING\r\n"
#define PING_BYTES (sizeof(PING) - 1)
#define PONG_BYTES 7
#define GET_K "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"

static struct {
    uv_loop_t loop;
    uv_timer_t tick;
    struct workers *workers;
    struct offload *offload;
    struct transport_address address;
    struct transport_settings settings;
    struct transport *transport;
    bool connected, closed;
    int error;
    char why[TRANSPORT_WHY_BYTES];
    char *in;
    size_t in_length;
    char *out;
    size_t out_length, out_sent;
} line;

__attribute__((format(printf, 2, 3), noreturn)) static void fail(int number, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf("line %d: ", number);
    vprintf(format, arguments);
    printf("; %s\n", line.why);
    va_end(arguments);
    exit(1);
}

#define HOLDS(a) do { if (!(a)) fail(__LINE__, "%s does not hold", #a); } while (0)

/* --- events --- */

static void on_connected(void *context)
{
    line.connected = true;
}

static void on_readable(void *context)
{
    ssize_t length = 1;

    while (length > 0) {
        HOLDS(line.in_length < MOST);
        length = line.transport->class->read(line.transport, line.in + line.in_length, MOST - line.in_length);
        line.in_length += length > 0 ? (size_t)length : 0;
    }
}

static void give(void)
{
    ssize_t taken = line.transport->class->write(line.transport, line.out + line.out_sent,
                                                 line.out_length - line.out_sent);

    line.out_sent += taken > 0 ? (size_t)taken : 0;
}

static void on_writable(void *context)
{
    if (line.out_sent < line.out_length) {
        give();
    }
}

static void on_closed(void *context, int error, const char *why)
{
    line.closed = true;
    line.error = error;
    snprintf(line.why, sizeof(line.why), "%s", why);
    line.transport->class->close(line.transport);
    line.transport = NULL;
}

static const struct transport_events events = {
    .connected = on_connected, .readable = on_readable, .writable = on_writable, .closed = on_closed};

/* --- steps --- */

static void on_tick(uv_timer_t *timer)
{
}

#define UNTIL(condition)                                                                                              \
    do {                                                                                                              \
        uint64_t until_end = uv_hrtime() + WAIT_NS;                                                                   \
        while (!(condition)) {                                                                                        \
            if (uv_hrtime() > until_end) {                                                                            \
                fail(__LINE__, "waited in vain for %s (%zu in, %zu of %zu out)", #condition, line.in_length,          \
                     line.out_sent, line.out_length);                                                                 \
            }                                                                                                         \
            uv_run(&line.loop, UV_RUN_ONCE);                                                                          \
        }                                                                                                             \
    } while (0)

/* As UNTIL, with the connection up. */
#define ALIVE_UNTIL(condition)                                                                                        \
    do {                                                                                                              \
        UNTIL(line.closed || (condition));                                                                            \
        HOLDS(!line.closed);                                                                                          \
    } while (0)

static void say(const void *bytes, size_t length)
{
    if (line.out_sent == line.out_length) {
        line.out_sent = 0;
        line.out_length = 0;
    }
    HOLDS(line.out_length + length <= MOST);
    memcpy(line.out + line.out_length, bytes, length);
    line.out_length += length;
    give();
}

/* A reply of these many bytes comes; then it is forgotten. */
static void expect(size_t length)
{
    ALIVE_UNTIL(line.in_length >= length);
    HOLDS(line.in_length == length);
    line.in_length = 0;
}

static void start(void)
{
    HOLDS(line.transport == NULL);
    line.connected = false;
    line.closed = false;
    line.in_length = 0;
    line.out_length = 0;
    line.out_sent = 0;
    if (transport_rdma.open(&line.loop, line.offload, &line.address, &line.settings, &events, NULL, &line.transport,
                            line.why) != 0) {
        fail(__LINE__, "cannot open");
    }
    UNTIL(line.connected || line.closed);
}

static void hang_up(void)
{
    line.transport->class->close(line.transport);
    line.transport = NULL;
}

/* --- scenarios --- */

static void pings(void)
{
    char text[64];

    for (int i = 0; i < 100; i++) {
        say(PING, PING_BYTES);
        expect(PONG_BYTES);
    }
    for (int i = 0; i < 10000; i++) {
        say(PING, PING_BYTES);
    }
    expect(10000 * PONG_BYTES);
    HOLDS(line.transport->class->local_address(line.transport, text, sizeof(text)) == 0);
    printf("%s\n", text);
}

/* There and back, of sizes around the ends of both windows. */
static void values(void)
{
    static const size_t sizes[] = {0, 1, 65000, 65536 - 24, 65536, 65537, 131072, 1048576, 1048577, 4000000};
    char *value = malloc(MOST), head[64];

    for (size_t i = 0; i < MOST; i++) {
        value[i] = (char)(i * 7919 >> 5);
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t size = sizes[s], length;

        say(head, (size_t)snprintf(head, sizeof(head), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%zu\r\n", size));
        say(value, size);
        say("\r\n", 2);
        expect(5);
        say(GET_K, sizeof(GET_K) - 1);
        length = (size_t)snprintf(head, sizeof(head), "$%zu\r\n", size);
        ALIVE_UNTIL(line.in_length == length + size + 2);
        HOLDS(memcmp(line.in, head, length) == 0);
        HOLDS(memcmp(line.in + length, value, size) == 0);
        line.in_length = 0;
    }
    free(value);
}

/* Each PING a message of its own, and nobody tells of answers: the question is the only proof. */
static void question(void)
{
    for (int i = 0; i < 2000; i++) {
        say(PING, PING_BYTES);
        expect(PONG_BYTES);
    }
}

/* The server looks at nothing for seconds, while each turn of the loop has a request. */
static void asleep(void)
{
    static const char sleep[] = "*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$1\r\n8\r\n";
    int requests = 0;

    say(sleep, sizeof(sleep) - 1);
    ALIVE_UNTIL(line.out_sent == line.out_length);
    while (requests < 20000 && line.in_length == 0) {
        say(PING, PING_BYTES);
        requests++;
        uv_run(&line.loop, UV_RUN_NOWAIT);
        HOLDS(!line.closed);
    }
    HOLDS(line.out_sent < line.out_length); /* the limit was met */
    HOLDS(requests > STREAM_UNPROVEN);
    expect(5 + (size_t)requests * PONG_BYTES);
}

static void idle(void)
{
    uint64_t end = uv_hrtime() + UINT64_C(12000000000);

    ALIVE_UNTIL(uv_hrtime() > end);
    say(PING, PING_BYTES);
    expect(PONG_BYTES);
}

/* The answer may be overtaken by the end, but never the other way round. */
static void quit(void)
{
    for (int i = 0; i < 10; i++) {
        say("*1\r\n$4\r\nQUIT\r\n", 14);
        UNTIL(line.closed);
        HOLDS(line.error == (line.in_length > 0 ? -ECONNRESET : -ECONNABORTED));
        HOLDS(line.in_length == 0 || line.in_length == 5);
        start();
        HOLDS(line.connected);
    }
}

static void again(void)
{
    for (int i = 0; i < 10; i++) {
        hang_up();
        start();
        HOLDS(line.connected);
        say(PING, PING_BYTES);
        expect(PONG_BYTES);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {{"pings", pings}, {"values", values}, {"question", question}, {"asleep", asleep},
                 {"idle", idle},   {"quit", quit},     {"again", again},       {"refused", NULL}};

int main(int argc, char **argv)
{
    char text[300];
    size_t s = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    HOLDS(argc == 4);
    while (s < sizeof(scenarios) / sizeof(scenarios[0]) && strcmp(scenarios[s].name, argv[1]) != 0) {
        s++;
    }
    HOLDS(s < sizeof(scenarios) / sizeof(scenarios[0]));
    uv_loop_init(&line.loop);
    uv_timer_init(&line.loop, &line.tick);
    uv_timer_start(&line.tick, on_tick, 100, 100);
    line.workers = workers_start(&line.loop);
    line.offload = offload_create(line.workers);
    line.settings.connect_timeout_ms = 60000;
    line.in = malloc(MOST);
    line.out = malloc(MOST);
    snprintf(text, sizeof(text), "rdma://%s:%s", argv[2], argv[3]);
    HOLDS(transport_address_parse(text, &line.address, line.why) == 0);
    start();
    if (scenarios[s].run == NULL) { /* nobody lets us in; a server's core may do so for a moment */
        UNTIL(line.closed);
        printf("%s\n", line.why);
    } else {
        HOLDS(line.connected);
        scenarios[s].run();
        hang_up();
    }
    UNTIL(workers_outstanding(line.workers) == 0);
    return 0;
}
