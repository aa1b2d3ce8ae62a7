#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/valkey/transport.h"
#include "tests/unit/stub_valkey.h"
#include "tests/unit/unit_main.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- addresses --- */

START_TEST(addresses)
{
    static const struct {
        const char *text, *host, *port;
        enum transport_kind kind;
    } good[] = {
        {"127.0.0.1:6379", "127.0.0.1", "6379", TRANSPORT_UNSAID},
        {"valkey.example.com:1", "valkey.example.com", "1", TRANSPORT_UNSAID},
        {"[::1]:65535", "::1", "65535", TRANSPORT_UNSAID},
        {"[fe80::1%eth0]:6379", "fe80::1%eth0", "6379", TRANSPORT_UNSAID},
        {"unix:/run/valkey/valkey.sock", "/run/valkey/valkey.sock", NULL, TRANSPORT_UNIX},
        {"tcp://valkey.example.com:6379", "valkey.example.com", "6379", TRANSPORT_TCP},
        {"rdma://192.0.2.7:6379", "192.0.2.7", "6379", TRANSPORT_RDMA},
        {"rdma://valkey.example.com:7100", "valkey.example.com", "7100", TRANSPORT_RDMA},
        {"rdma://[2001:db8::7]:6379", "2001:db8::7", "6379", TRANSPORT_RDMA},
        {"rdma:6379", "rdma", "6379", TRANSPORT_UNSAID}, /* a host of that name */
    };
    static const char *const bad[] = {"", ":", ":6379", "host", "host:", "host:0", "host:65536", "host:123456",
                                      "host:-1", "host:+1", "host:6379x", "host: 6379", "::1:6379", "[::1]",
                                      "[::1]6379", "[::1:6379", "[]:6379", "unix:", "unix:relative", "unix:@abstract",
                                      "ho st:1", "host\n:1", "redis://host:6379", "a/b:1", "rdma:", "rdma://",
                                      "rdma://host", "rdma://host:", "rdma://:6379", "rdma://host:0", "rdma:host:1",
                                      "rdma:/host:1", "rdma://host:1/", "rdma://::1:1", "rdma://rdma://host:1",
                                      "rdma://unix:/path", "RDMA://host:1", "tcp://", "tcp://host", "tcp:host:1",
                                      "unix:rdma://host:1"};
    struct transport_address address;
    char why[TRANSPORT_WHY_BYTES], long_path[200];

    for (size_t i = 0; i < COUNT(good); i++) {
        ck_assert_int_eq(transport_address_parse(good[i].text, &address, why), 0);
        ck_assert_str_eq(address.text, good[i].text);
        ck_assert_str_eq(address.host, good[i].host);
        if (good[i].port != NULL) {
            ck_assert_str_eq(address.port, good[i].port);
        } else {
            ck_assert_ptr_null(address.port);
        }
        ck_assert_int_eq(address.kind, good[i].kind);
        ck_assert_str_eq(transport_class_for(&address, NULL)->name, good[i].kind == TRANSPORT_RDMA ? "rdma"
                                                                    : good[i].port == NULL        ? "unix"
                                                                                                  : "tcp");
        transport_address_free(&address);
        transport_address_free(&address);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        why[0] = '\0';
        ck_assert_msg(transport_address_parse(bad[i], &address, why) == -EINVAL, "%s", bad[i]);
        ck_assert_uint_gt(strlen(why), 10);
        ck_assert_ptr_null(address.text);
    }
    snprintf(long_path, sizeof(long_path), "unix:/%0106d", 0);
    ck_assert_int_eq(transport_address_parse(long_path, &address, why), 0);
    transport_address_free(&address);
    snprintf(long_path, sizeof(long_path), "unix:/%0107d", 0);
    ck_assert_int_eq(transport_address_parse(long_path, &address, why), -EINVAL);
}
END_TEST

/* --- streams --- */

struct line {
    struct bench bench;
    struct stub stub;
    struct offload *offload;
    struct transport_address address;
    struct transport *transport;
    struct transport_settings settings;
    int connected, readable, writable, closed, error;
    bool inside; /* a call of the transport is running: no callback may come */
    char why[TRANSPORT_WHY_BYTES];
    char read[256];
    size_t read_length;
    enum { CLOSE_NEVER, CLOSE_IN_CONNECTED, CLOSE_IN_READABLE } close_in;
};

static struct line line;

static void hang_up(void)
{
    struct transport *transport = line.transport;

    line.transport = NULL;
    if (transport != NULL) {
        transport->class->close(transport);
    }
}

static void on_connected(void *context)
{
    ck_assert(!line.inside);
    line.connected++;
    if (line.close_in == CLOSE_IN_CONNECTED) {
        hang_up();
    }
}

static void on_readable(void *context)
{
    ssize_t length = 1;

    ck_assert(!line.inside);
    line.readable++;
    if (line.close_in == CLOSE_IN_READABLE) {
        hang_up();
        return;
    }
    line.inside = true;
    while (length > 0) {
        length = line.transport->class->read(line.transport, line.read + line.read_length, 3);
        line.read_length += length > 0 ? (size_t)length : 0;
    }
    line.inside = false;
}

static void on_writable(void *context)
{
    ck_assert(!line.inside);
    line.writable++;
}

static void on_closed(void *context, int error, const char *why)
{
    ck_assert(!line.inside);
    line.closed++;
    line.error = error;
    snprintf(line.why, sizeof(line.why), "%s", why);
    hang_up();
}

static const struct transport_events events = {
    .connected = on_connected, .readable = on_readable, .writable = on_writable, .closed = on_closed};

static void start(void)
{
    memset(&line, 0, sizeof(line));
    bench_start(&line.bench);
    line.offload = offload_create(line.bench.workers);
    line.settings.connect_timeout_ms = 20000;
}

static int open_to(const char *text)
{
    char why[TRANSPORT_WHY_BYTES];
    int status;

    ck_assert_int_eq(transport_address_parse(text, &line.address, why), 0);
    line.inside = true;
    status = transport_class_for(&line.address, NULL)
                 ->open(&line.bench.loop, line.offload, &line.address, &line.settings, &events, &line,
                        &line.transport, line.why);
    line.inside = false;
    ck_assert_int_eq(status == 0, line.transport != NULL);
    return status;
}

static void stop(void)
{
    hang_up();
    WAIT(&line.bench, workers_outstanding(line.bench.workers) == 0);
    offload_unref(line.offload);
    transport_address_free(&line.address);
    bench_stop(&line.bench);
}

static ssize_t put(const void *bytes, size_t length)
{
    line.inside = true;
    ssize_t taken = line.transport->class->write(line.transport, bytes, length);
    line.inside = false;
    return taken;
}

static void echo(struct stub_peer *peer, const redisReply *words)
{
    stub_say(peer, "+hello to you\r\n");
}

/* The descriptor of the connection to the stub: the only one of this process whose peer has its port. */
static int find_fd(void)
{
    struct sockaddr_in peer;
    int port = atoi(strrchr(line.stub.address, ':') + 1);

    for (int fd = 3; fd < 1024; fd++) {
        socklen_t length = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == port) {
            return fd;
        }
    }
    return -1;
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof(value);

    ck_assert_int_eq(getsockopt(fd, level, name, &value, &length), 0);
    return value;
}

/* Noticed after 30 s idle and three probes 10 s apart, or 30 s of data that nobody acknowledges. */
START_TEST(a_server_gone_without_a_word)
{
    start();
    stub_start(&line.stub, &line.bench, NULL);
    ck_assert_int_eq(open_to(line.stub.address), 0);
    WAIT(&line.bench, line.connected == 1);
    int fd = find_fd();
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 30);
    ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 10);
    ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 30000);
    ck_assert_int_ne(option(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    stub_stop(&line.stub);
    stop();
}
END_TEST

START_TEST(tcp)
{
    char text[64];

    start();
    stub_start(&line.stub, &line.bench, NULL);
    line.stub.command = echo;
    ck_assert_int_eq(open_to(line.stub.address), 0);
    ck_assert_int_eq(put("x", 1), -ENOTCONN);
    WAIT(&line.bench, line.connected == 1);
    ck_assert_int_eq(line.transport->class->local_address(line.transport, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "127.0.0.1");
    ck_assert_int_eq(put("*1\r\n$4\r\nPING\r\n", 14), 14);
    WAIT(&line.bench, line.read_length == 15);
    ck_assert_uint_eq(bench_active_timers(&line.bench), 0);
    stub_hang_up(stub_first(&line.stub));
    WAIT(&line.bench, line.closed == 1);
    ck_assert_int_eq(line.error, -ECONNRESET);
    stub_stop(&line.stub);
    stop();
}
END_TEST

/* A name with two addresses, of which the server has one. */
START_TEST(every_address_is_tried)
{
    char text[32];

    start();
    stub_start(&line.stub, &line.bench, NULL);
    snprintf(text, sizeof(text), "localhost:%s", strrchr(line.stub.address, ':') + 1);
    ck_assert_int_eq(open_to(text), 0);
    WAIT(&line.bench, line.connected + line.closed == 1);
    ck_assert_msg(line.connected == 1, "%s", line.why);
    stub_stop(&line.stub);
    stop();
}
END_TEST

/* A name with two addresses in a given order: what a name server says, played by ld --wrap. */
static const char *const *played_addresses;
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    int status = 0;

    if (strcmp(host, "played.example") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return __real_getaddrinfo(host, port, hints, found);
    }
    for (size_t i = 0; status == 0 && played_addresses[i] != NULL; i++) {
        status = __real_getaddrinfo(played_addresses[i], port, hints, found);
        found = &(*found)->ai_next;
    }
    return status;
}

#define FILLERS 4

/* Takes the one place that a listener with a backlog of 0 has. */
static void fill_queue(const struct sockaddr_in *address, int fillers[FILLERS])
{
    struct pollfd entries[FILLERS];

    for (int i = 0; i < FILLERS; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(fillers[i], (const struct sockaddr *)address, sizeof(*address));
        entries[i] = (struct pollfd){.fd = fillers[i], .events = POLLOUT};
    }
    ck_assert_int_ge(poll(entries, FILLERS, 30000), 1);
}

/* The first takes no connection and says nothing: it gets half of the time, and the second the rest. */
START_TEST(a_dead_address_leaves_time_for_the_next)
{
    static const char *const both[] = {"127.0.0.2", "127.0.0.1", NULL};
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *port;
    char text[64];
    int fillers[FILLERS], listener;

    start();
    stub_start(&line.stub, &line.bench, NULL);
    port = strrchr(line.stub.address, ':') + 1;
    inet_pton(AF_INET, "127.0.0.2", &address.sin_addr);
    address.sin_port = htons((uint16_t)atoi(port));
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    fill_queue(&address, fillers);
    played_addresses = both;
    line.settings.connect_timeout_ms = 2000;
    snprintf(text, sizeof(text), "played.example:%s", port);
    uint64_t begun = uv_hrtime();
    ck_assert_int_eq(open_to(text), 0);
    WAIT(&line.bench, line.connected + line.closed == 1);
    ck_assert_msg(line.connected == 1, "%s", line.why);
    begun = (uv_hrtime() - begun) / 1000000;
    ck_assert_uint_ge(begun, 900);
    ck_assert_uint_lt(begun, 1800);
    for (size_t i = 0; i < COUNT(fillers); i++) {
        close(fillers[i]);
    }
    close(listener);
    stub_stop(&line.stub);
    stop();
}
END_TEST

/* What is told then names each address. */
START_TEST(no_address_serves)
{
    static const char *const both[] = {"127.0.0.2", "127.0.0.3", NULL};
    char text[64];

    start();
    stub_start(&line.stub, &line.bench, NULL);
    snprintf(text, sizeof(text), "played.example:%s", strrchr(line.stub.address, ':') + 1);
    for (size_t i = 0; both[i] != NULL; i++) {
        bench_keep_port(&line.bench, both[i], (unsigned)atoi(strrchr(text, ':') + 1));
    }
    played_addresses = both;
    ck_assert_int_eq(open_to(text), 0);
    WAIT(&line.bench, line.connected + line.closed == 1);
    ck_assert_int_eq(line.error, -ECONNREFUSED);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), ": 127.0.0.2: ");
    ck_assert_msg(strstr(line.why, text) != NULL && strstr(line.why, "refused; 127.0.0.3: Connection refused") != NULL,
                  "%s", line.why);
    stub_stop(&line.stub);
    stop();
}
END_TEST

START_TEST(nobody_there)
{
    start();
    stub_start(&line.stub, &line.bench, NULL);
    stub_stop(&line.stub);
    int status = open_to(line.stub.address);
    if (status == 0) {
        WAIT(&line.bench, line.closed == 1);
        status = line.error;
    }
    ck_assert_int_eq(status, -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(line.why, "Connection refused"));
    stop();

    start();
    ck_assert_int_eq(open_to("unix:/nowhere/valkey.sock"), -ENOENT);
    bench_idle(&line.bench, 20);
    ck_assert_int_eq(line.closed, 0);
    stop();
}
END_TEST

START_TEST(no_such_name)
{
    start();
    ck_assert_int_eq(open_to("double..dot:6379"), 0);
    WAIT(&line.bench, line.closed == 1);
    ck_assert_int_eq(line.error, -EHOSTUNREACH);
    ck_assert_ptr_nonnull(strstr(line.why, "double..dot"));
    stop();
}
END_TEST

/* A listener whose queue is full takes no connection: the SYN is not answered. */
START_TEST(connect_timeout)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    char text[32];
    int fillers[FILLERS], listener;

    start();
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    fill_queue(&address, fillers);
    snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
    line.settings.connect_timeout_ms = 100;
    ck_assert_int_eq(open_to(text), 0);
    WAIT(&line.bench, line.closed == 1);
    ck_assert_int_eq(line.error, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(line.why, "100 ms"));
    for (size_t i = 0; i < COUNT(fillers); i++) {
        close(fillers[i]);
    }
    close(listener);
    stop();
}
END_TEST

static sem_t gate;

static void hang(struct offload_job *job)
{
    sem_wait(&gate);
}

static void hung(struct offload_job *job)
{
}

/* A name server that does not answer, played by two jobs of the same owner that do not end. */
START_TEST(lookup_timeout)
{
    struct offload_job jobs[2];

    sem_init(&gate, 0, 0);
    start();
    offload_submit(line.offload, &jobs[0], hang, hung);
    offload_submit(line.offload, &jobs[1], hang, hung);
    line.settings.connect_timeout_ms = 50;
    ck_assert_int_eq(open_to("localhost:6379"), 0);
    WAIT(&line.bench, line.closed == 1);
    ck_assert_int_eq(line.error, -ETIMEDOUT);
    transport_address_free(&line.address);
    ck_assert_int_eq(open_to("localhost:6379"), 0);
    hang_up();
    sem_post(&gate);
    sem_post(&gate);
    WAIT(&line.bench, workers_outstanding(line.bench.workers) == 0);
    ck_assert_int_eq(line.closed, 1);
    stop();
}
END_TEST

START_TEST(partial_write)
{
    size_t length = 64 * 1024 * 1024, sent;
    char *bytes = calloc(1, length);
    char number[32];
    int written = snprintf(number, sizeof(number), "*1\r\n$%zu\r\n", length);

    start();
    stub_start(&line.stub, &line.bench, NULL);
    line.stub.paused = true;
    ck_assert_int_eq(open_to(line.stub.address), 0);
    WAIT(&line.bench, line.connected == 1 && line.stub.open == 1);
    ck_assert_int_eq(put(number, (size_t)written), written);
    ssize_t taken = put(bytes, length);
    ck_assert(taken > 0 && (size_t)taken < length);
    sent = (size_t)taken;
    while ((taken = put(bytes + sent, length - sent)) > 0) {
        sent += (size_t)taken;
    }
    ck_assert_int_eq(taken, 0);
    int told = line.writable; /* and then once for each time that not all is taken */
    bench_idle(&line.bench, 20);
    stub_resume(&line.stub);
    while (sent < length) {
        WAIT(&line.bench, line.writable > told);
        told = line.writable;
        sent += (size_t)put(bytes + sent, length - sent);
    }
    ck_assert_int_eq(put("\r\n", 2), 2);
    WAIT(&line.bench, line.stub.commands == 1);
    ck_assert_uint_eq(stub_first(&line.stub)->bytes, length + (size_t)written + 2);
    int before = line.writable;
    bench_idle(&line.bench, 20);
    ck_assert_int_eq(line.writable, before);
    free(bytes);
    stub_stop(&line.stub);
    stop();
}
END_TEST

/* Writing to a connection that is gone fails, and what had come before can still be read. */
START_TEST(replies_survive_a_failed_write)
{
    start();
    stub_start(&line.stub, &line.bench, NULL);
    ck_assert_int_eq(open_to(line.stub.address), 0);
    WAIT(&line.bench, line.connected == 1 && line.stub.open == 1);
    stub_say(stub_first(&line.stub), "+proof\r\n");
    stub_hang_up(stub_first(&line.stub));
    uv_run(&line.stub.bench->loop, UV_RUN_NOWAIT);
    if (line.transport != NULL) {
        put("x", 1);
        usleep(10000);
        if (line.transport != NULL && line.closed == 0) {
            ssize_t taken = put("x", 1);
            ck_assert_int_le(taken, 1);
        }
    }
    WAIT(&line.bench, line.closed == 1);
    ck_assert_uint_eq(line.read_length, 8);
    stub_stop(&line.stub);
    stop();
}
END_TEST

START_TEST(close_inside)
{
    start();
    stub_start(&line.stub, &line.bench, NULL);
    line.close_in = CLOSE_IN_CONNECTED;
    ck_assert_int_eq(open_to(line.stub.address), 0);
    WAIT(&line.bench, line.transport == NULL);
    stub_stop(&line.stub);
    stop();

    start();
    stub_start(&line.stub, &line.bench, NULL);
    line.close_in = CLOSE_IN_READABLE;
    ck_assert_int_eq(open_to(line.stub.address), 0);
    WAIT(&line.bench, line.connected == 1 && line.stub.open == 1);
    stub_say(stub_first(&line.stub), "+x\r\n");
    WAIT(&line.bench, line.transport == NULL);
    ck_assert_int_eq(line.closed, 0);
    stub_stop(&line.stub);
    stop();

    start();
    stub_start(&line.stub, &line.bench, NULL);
    ck_assert_int_eq(open_to(line.stub.address), 0);
    hang_up();
    bench_idle(&line.bench, 20);
    ck_assert_int_eq(line.connected + line.closed, 0);
    stub_stop(&line.stub);
    stop();
}
END_TEST

UNIT_MAIN("transport", addresses, tcp, a_server_gone_without_a_word, every_address_is_tried,
          a_dead_address_leaves_time_for_the_next,
          no_address_serves, nobody_there, no_such_name, connect_timeout, lookup_timeout,
          partial_write, replies_survive_a_failed_write, close_inside)
