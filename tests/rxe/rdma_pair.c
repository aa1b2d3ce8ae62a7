/*
 * Drives a queue pair of glide-rdmad-valkey-rdma.so against a real server, through each state that it can be closed in:
 * rdma_pair OBJECT SCENARIO HOST PORT. Exit status 0, or 1 with what was not as it must be. test_rxe_pair.py says what
 * each scenario shows.
 */
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "daemon/valkey/rdma/ops.h"

#define WINDOW (64 * 1024)
#define STAGING (64 * 1024)
#define SENDS 16
#define WAIT_MS 60000
#define EVENTS 8
#define CLOSED_PORT "1"
#define REJECTED_NO_LISTENER 8
#define RNR_EXCEEDED 13
#define FLUSHED 5
#define PING "*1\r\n$4\r\nPING\r\n"
#define PONG "+PONG\r\n"

enum { OPCODE_KEEPALIVE = 2, OPCODE_WINDOW = 3 };

struct peer {
    uint64_t address;
    uint32_t length, rkey, offset;
};

struct pair {
    struct rdma_queue_pair *handle;
    struct rdma_memory memory;
    struct peer peer;
    struct rdma_event last;        /* REFUSED, DISCONNECTED or FAILED, once over */
    bool connected, over;
    unsigned sent, payloads;
    size_t have;
    uint64_t next_token;
};

static const struct rdma_ops *ops;
static const char *host, *port;

__attribute__((format(printf, 2, 3), noreturn)) static void fail(int line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf("line %d: ", line);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    exit(1);
}

#define EQUAL(a, b) do { long a_ = (long)(a), b_ = (long)(b); \
        if (a_ != b_) fail(__LINE__, "%s is %ld, not %ld", #a, a_, b_); } while (0)
#define HOLDS(a) do { if (!(a)) fail(__LINE__, "%s does not hold", #a); } while (0)

static void take_message(struct pair *pair, const struct rdma_event *event)
{
    uint16_t opcode;
    uint64_t address;
    uint32_t words[2];

    EQUAL(event->length, RDMA_CONTROL_BYTES);
    memcpy(&opcode, event->message, sizeof(opcode));
    if (be16toh(opcode) == OPCODE_WINDOW) {
        memcpy(&address, event->message + 16, sizeof(address));
        memcpy(words, event->message + 24, sizeof(words));
        pair->peer = (struct peer){be64toh(address), be32toh(words[0]), be32toh(words[1]), 0};
    } else {
        EQUAL(be16toh(opcode), OPCODE_KEEPALIVE);
    }
}

static void take(struct pair *pair, const struct rdma_event *event)
{
    if (pair->over) {
        fail(__LINE__, "event %d after the last", event->kind);
    }
    switch (event->kind) {
    case RDMA_CONNECTED:
        pair->connected = true;
        break;
    case RDMA_MESSAGE:
        take_message(pair, event);
        break;
    case RDMA_PAYLOAD:
        pair->payloads++;
        pair->have += event->immediate;
        break;
    case RDMA_SENT:
        EQUAL(event->token, pair->sent); /* tokens count from 0: they come back in order */
        pair->sent++;
        break;
    default:
        pair->last = *event;
        pair->over = true;
    }
}

/* Sleeps on the descriptors as an event loop does, until something has come: a lost wake-up shows here. */
static void wait_for_event(struct pair *pair)
{
    struct rdma_event events[EVENTS];
    struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
    int descriptors[2];
    size_t count;

    EQUAL(ops->descriptors(pair->handle, descriptors), 2);
    for (;;) {
        count = ops->poll(pair->handle, events, EVENTS);
        for (size_t i = 0; i < count; i++) {
            take(pair, &events[i]);
        }
        if (count > 0) {
            return;
        }
        int ready = ops->try_wait(pair->handle);
        if (ready == -EAGAIN) {
            continue;
        }
        EQUAL(ready, 0);
        fds[0].fd = descriptors[0];
        fds[1].fd = descriptors[1];
        if (poll(fds, 2, WAIT_MS) == 0) {
            fail(__LINE__, "nothing came (connected %d, sent %u, payloads %u)", pair->connected, pair->sent,
                 pair->payloads);
        }
    }
}

#define WAIT_UNTIL(pair, condition) do { while (!(condition)) { \
        if ((pair)->over) fail(__LINE__, "ended by event %d: %s, status %d", (pair)->last.kind, \
                               ops->text((pair)->last.status), (pair)->last.provider_status); \
        wait_for_event(pair); } } while (0)

static void wait_until_over(struct pair *pair, enum rdma_event_kind kind)
{
    struct rdma_event event;

    while (!pair->over) {
        wait_for_event(pair);
    }
    EQUAL(pair->last.kind, kind);
    EQUAL(ops->poll(pair->handle, &event, 1), 0);
}

static void open_pair(struct pair *pair, const char *to_port)
{
    struct rdma_settings settings = {host, to_port, WINDOW, STAGING, SENDS};
    char why[RDMA_WHY_BYTES] = "";

    *pair = (struct pair){0};
    if (ops->open(&settings, &pair->handle, &pair->memory, why) != 0) {
        fail(__LINE__, "open: %s", why);
    }
    HOLDS(pair->memory.pinned_bytes >= WINDOW + STAGING + (RDMA_RECEIVES + SENDS) * RDMA_CONTROL_BYTES);
}

static void close_pair(struct pair *pair)
{
    ops->close(pair->handle);
}

static void advertise(struct pair *pair)
{
    uint8_t message[RDMA_CONTROL_BYTES] = {0, OPCODE_WINDOW};
    uint64_t address = htobe64(pair->memory.window_address);
    uint32_t words[2] = {htobe32(WINDOW), htobe32(pair->memory.window_rkey)};

    memcpy(message + 16, &address, sizeof(address));
    memcpy(message + 24, words, sizeof(words));
    EQUAL(ops->send(pair->handle, message, pair->next_token++), 0);
}

/* Connected, both windows known. The server now and then refuses for no reason: it is asked again. */
static void connect_pair(struct pair *pair)
{
    for (int attempt = 0; attempt < 5; attempt++) {
        open_pair(pair, port);
        EQUAL(ops->connect(pair->handle), 0);
        while (!pair->connected && !pair->over) {
            wait_for_event(pair);
        }
        if (pair->connected) {
            advertise(pair);
            WAIT_UNTIL(pair, pair->peer.length > 0);
            return;
        }
        printf("# refused: %s, status %d\n", ops->text(pair->last.status), pair->last.provider_status);
        close_pair(pair);
    }
    fail(__LINE__, "no connection");
}

/* Writes `text` from the staging; its fate is for the caller to see. */
static int write_text(struct pair *pair, const char *text)
{
    size_t length = strlen(text);
    int status;

    HOLDS(pair->peer.length - pair->peer.offset >= length);
    memcpy(pair->memory.staging, text, length);
    status = ops->write(pair->handle, 0, length, pair->peer.address + pair->peer.offset, pair->peer.rkey,
                        pair->next_token);
    if (status == 0) {
        pair->next_token++;
        pair->peer.offset += (uint32_t)length;
    }
    return status;
}

static void ping(struct pair *pair)
{
    size_t before = pair->have;

    EQUAL(write_text(pair, PING), 0);
    WAIT_UNTIL(pair, pair->have >= before + strlen(PONG));
    HOLDS(memcmp(pair->memory.window + before, PONG, strlen(PONG)) == 0);
    WAIT_UNTIL(pair, pair->sent == pair->next_token);
}

static void scenario_ping(void)
{
    struct pair pair;
    char address[64] = "";

    connect_pair(&pair);
    for (int i = 0; i < 100; i++) {
        ping(&pair);
    }
    EQUAL(ops->local_address(pair.handle, address, sizeof(address)), 0);
    printf("%s\n", address);
    ops->disconnect(pair.handle);
    wait_until_over(&pair, RDMA_DISCONNECTED);
    EQUAL(write_text(&pair, PING), -ENOTCONN);
    close_pair(&pair);
}

static void scenario_closed_port(void)
{
    struct pair pair;

    open_pair(&pair, CLOSED_PORT);
    EQUAL(ops->connect(pair.handle), 0);
    wait_until_over(&pair, RDMA_REFUSED);
    EQUAL(pair.last.status, -ECONNREFUSED);
    EQUAL(pair.last.provider_status, REJECTED_NO_LISTENER);
    close_pair(&pair);
}

static void scenario_no_device(void)
{
    struct rdma_settings settings = {"192.0.2.1", port, WINDOW, STAGING, SENDS};
    struct rdma_queue_pair *handle = NULL;
    struct rdma_memory memory;
    char why[RDMA_WHY_BYTES] = "";

    HOLDS(ops->open(&settings, &handle, &memory, why) < 0);
    printf("%s\n", why);
}

static void scenario_low_memlock(void)
{
    struct rdma_settings settings = {host, port, WINDOW, STAGING, SENDS};
    struct rdma_queue_pair *handle = NULL;
    struct rdma_memory memory;
    char why[RDMA_WHY_BYTES] = "";

    EQUAL(ops->open(&settings, &handle, &memory, why), -ENOMEM);
    printf("%s\n", why);
}

/* No more than `sends` are under way, and each slot comes free again. */
static void scenario_slots(void)
{
    struct pair pair;
    unsigned posted = 0;

    connect_pair(&pair);
    WAIT_UNTIL(&pair, pair.sent == pair.next_token);
    while (write_text(&pair, PING) == 0) {
        HOLDS(++posted <= SENDS);
    }
    EQUAL(posted, SENDS);
    EQUAL(write_text(&pair, PING), -EAGAIN);
    WAIT_UNTIL(&pair, pair.have == SENDS * strlen(PONG));
    WAIT_UNTIL(&pair, pair.sent == pair.next_token);
    ping(&pair);
    EQUAL(ops->write(pair.handle, STAGING, 1, pair.peer.address, pair.peer.rkey, 0), -EINVAL);
    EQUAL(ops->write(pair.handle, 1, STAGING, pair.peer.address, pair.peer.rkey, 0), -EINVAL);
    EQUAL(ops->write(pair.handle, 0, 0, pair.peer.address, pair.peer.rkey, 0), -EINVAL);
    close_pair(&pair);
}

/* The server says +OK, or is quicker to disconnect: either way the end comes once, as the last event. */
static void scenario_quit(void)
{
    struct pair pair;

    connect_pair(&pair);
    EQUAL(write_text(&pair, "*1\r\n$4\r\nQUIT\r\n"), 0);
    wait_until_over(&pair, RDMA_DISCONNECTED);
    close_pair(&pair);
}

/* A key that the server did not give. */
static void scenario_wrong_key(void)
{
    struct pair pair;

    connect_pair(&pair);
    pair.peer.rkey ^= 0xff;
    EQUAL(write_text(&pair, PING), 0);
    wait_until_over(&pair, RDMA_FAILED);
    HOLDS(pair.last.status < 0 && pair.last.provider_status != FLUSHED);
    close_pair(&pair);
}

/* More messages than the server has receives, while it looks at none. */
static void scenario_no_receives(void)
{
    struct pair pair;

    connect_pair(&pair);
    EQUAL(write_text(&pair, "*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$1\r\n3\r\n"), 0);
    while (!pair.over) {
        while (write_text(&pair, "\r\n") == 0) {
        }
        wait_for_event(&pair);
    }
    EQUAL(pair.last.kind, RDMA_FAILED);
    EQUAL(pair.last.provider_status, RNR_EXCEEDED);
    printf("%u were taken\n", pair.sent);
    close_pair(&pair);
}

/* More messages come than receives were posted: what is not posted again is missed soon. */
static void scenario_many(void)
{
    struct pair pair;

    connect_pair(&pair);
    while (pair.payloads <= RDMA_RECEIVES) {
        ping(&pair);
    }
    close_pair(&pair);
}

static void close_at_once(void)
{
    struct pair pair;

    open_pair(&pair, port);
    close_pair(&pair);
}

static void close_while_connecting(int polls)
{
    struct pair pair;
    struct rdma_event event;

    open_pair(&pair, port);
    EQUAL(ops->connect(pair.handle), 0);
    for (int i = 0; i < polls; i++) {
        ops->poll(pair.handle, &event, 1);
    }
    close_pair(&pair);
}

static void close_connected(void)
{
    struct pair pair;

    connect_pair(&pair);
    close_pair(&pair);
}

static void close_with_writes(bool disconnect_first)
{
    struct pair pair;

    connect_pair(&pair);
    while (write_text(&pair, PING) == 0) {
    }
    if (disconnect_first) {
        ops->disconnect(pair.handle);
    }
    close_pair(&pair);
}

static void close_connecting(void)
{
    for (int polls = 0; polls < 40; polls += 8) {
        close_while_connecting(polls);
    }
}

static void close_in_each_state(void)
{
    close_at_once();
    close_connected();
    close_with_writes(false);
    close_with_writes(true);
    scenario_quit();
    scenario_closed_port();
    scenario_no_device();
}

static unsigned lines(const char *path, const char *with)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(path, "r");

    HOLDS(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, with) != NULL;
    }
    fclose(file);
    return count;
}

static unsigned open_files(void)
{
    struct pollfd fds[256];
    unsigned count = 0;

    for (int i = 0; i < 256; i++) {
        fds[i] = (struct pollfd){.fd = i};
    }
    HOLDS(poll(fds, 256, 0) >= 0);
    for (int i = 0; i < 256; i++) {
        count += (fds[i].revents & POLLNVAL) == 0;
    }
    return count;
}

/* After a first round, which fills what libraries keep, nothing grows: descriptors, mappings, pinned memory. */
static void repeat(void (*closes)(void))
{
    unsigned files, mappings;

    closes();
    files = open_files();
    mappings = lines("/proc/self/maps", "\n");
    for (int i = 0; i < 3; i++) {
        closes();
    }
    EQUAL(open_files(), files);
    HOLDS(lines("/proc/self/maps", "\n") <= mappings + 2);
    EQUAL(lines("/proc/self/status", "VmPin:\t       0 kB"), 1);
}

static void scenario_closes(void)
{
    repeat(close_in_each_state);
}

static void scenario_closes_connecting(void)
{
    repeat(close_connecting);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"ping", scenario_ping},         {"closed-port", scenario_closed_port}, {"no-device", scenario_no_device},
    {"slots", scenario_slots},       {"quit", scenario_quit},               {"wrong-key", scenario_wrong_key},
    {"many", scenario_many},         {"no-receives", scenario_no_receives}, {"closes", scenario_closes},
    {"low-memlock", scenario_low_memlock}, {"closes-connecting", scenario_closes_connecting},
};

int main(int argc, char **argv)
{
    rdma_ops_function function;
    void *object;

    if (argc != 5) {
        fprintf(stderr, "usage: rdma_pair OBJECT SCENARIO HOST PORT\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    object = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        fail(__LINE__, "%s", dlerror());
    }
    *(void **)&function = dlsym(object, RDMA_OPS_SYMBOL);
    HOLDS(function != NULL);
    ops = function();
    EQUAL(ops->abi, RDMA_OPS_ABI);
    host = argv[3];
    port = argv[4];
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (strcmp(scenarios[i].name, argv[2]) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no scenario %s\n", argv[2]);
    return 2;
}
