#include "tests/unit/rdma_rig.h"

#include <check.h>
#include <errno.h>
#include <netdb.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/rdma/object.h"

#define READ_BYTES (4 * 1024 * 1024)

struct rdma_rig rig;
static sem_t gate;

/* --- what is played --- */

const struct rdma_ops *__wrap_rdma_object_find(char why[RDMA_WHY_BYTES]);
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

const struct rdma_ops *__wrap_rdma_object_find(char why[RDMA_WHY_BYTES])
{
    if (rig.no_object) {
        snprintf(why, RDMA_WHY_BYTES, "RDMA to Valkey is not available: no library");
        return NULL;
    }
    return &fake_rdma_ops;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    int status;

    if ((hints->ai_flags & AI_NUMERICHOST) != 0) {
        return __real_getaddrinfo(host, port, hints, found);
    }
    if (strcmp(host, "hung.example") == 0) {
        sem_wait(&gate);
    } else if (strcmp(host, "both.example") != 0) {
        return EAI_NONAME;
    }
    status = __real_getaddrinfo("192.0.2.1", port, hints, found);
    return status != 0 ? status : __real_getaddrinfo("192.0.2.2", port, hints, &(*found)->ai_next);
}

void rig_hang(const char *host)
{
    sem_wait(&gate);
}

void rig_release(void)
{
    sem_post(&gate);
}

static int charge(void *context, uint64_t bytes, char why[PIN_ACCOUNT_WHY_BYTES])
{
    if (rig.charged + bytes > rig.budget) {
        snprintf(why, PIN_ACCOUNT_WHY_BYTES, "the budget is full");
        return -ENOSPC;
    }
    rig.charged += bytes;
    rig.charged_ever += bytes;
    return 0;
}

static void release(void *context, uint64_t bytes)
{
    ck_assert_uint_ge(rig.charged, bytes);
    rig.charged -= bytes;
}

static const struct pin_account pins = {.charge = charge, .release = release};

/* --- the owner of the transport --- */

void rig_hang_up(void)
{
    struct transport *transport = rig.transport;

    rig.transport = NULL;
    if (transport != NULL) {
        transport->class->close(transport);
    }
}

static void on_connected(void *context)
{
    ck_assert(!rig.inside);
    rig.connected++;
    if (rig.close_in == CLOSE_IN_CONNECTED) {
        rig_hang_up();
    }
}

static void on_readable(void *context)
{
    ssize_t length = 1;

    ck_assert(!rig.inside);
    rig.readable++;
    if (rig.close_in == CLOSE_IN_READABLE) {
        rig_hang_up();
        return;
    }
    rig.inside = true;
    while (length > 0) {
        length = rig.transport->class->read(rig.transport, rig.read + rig.read_length, rig.read_most);
        rig.read_length += length > 0 ? (size_t)length : 0;
        ck_assert_uint_lt(rig.read_length, READ_BYTES - rig.read_most);
    }
    rig.inside = false;
}

ssize_t rig_write(const void *bytes, size_t length)
{
    bool inside = rig.inside;
    ssize_t taken;

    rig.inside = true;
    taken = rig.transport->class->write(rig.transport, bytes, length);
    rig.inside = inside;
    return taken;
}

/* In pieces, as many requests would. */
static void give(void)
{
    ssize_t taken = 1;

    while (taken > 0 && rig.put_used < rig.put_length) {
        size_t left = rig.put_length - rig.put_used;

        taken = rig_write(rig.put + rig.put_used, left < rig.put_piece ? left : rig.put_piece);
        rig.put_used += taken > 0 ? (size_t)taken : 0;
    }
}

static void on_writable(void *context)
{
    ck_assert(!rig.inside);
    rig.writable++;
    if (rig.close_in == CLOSE_IN_WRITABLE) {
        rig_hang_up();
        return;
    }
    give();
}

void rig_put(const void *bytes, size_t length)
{
    ck_assert_uint_eq(rig.put_used, rig.put_length);
    rig.put = bytes;
    rig.put_length = length;
    rig.put_used = 0;
    give();
}

static void on_closed(void *context, int error, const char *why)
{
    ck_assert(!rig.inside);
    rig.closed++;
    rig.error = error;
    snprintf(rig.why, sizeof(rig.why), "%s", why);
    rig_hang_up();
}

static const struct transport_events events = {
    .connected = on_connected, .readable = on_readable, .writable = on_writable, .closed = on_closed};

/* --- life --- */

void rig_start(void)
{
    memset(&rig, 0, sizeof(rig));
    sem_init(&gate, 0, 0);
    bench_start(&rig.bench);
    rig.offload = offload_create(rig.bench.workers);
    rig.settings.connect_timeout_ms = 60000;
    rig.settings.pins = &pins;
    rig.budget = UINT64_MAX;
    rig.read = malloc(READ_BYTES);
    rig.read_most = 1000;
    rig.put_piece = SIZE_MAX;
}

void rig_turn(void)
{
    if (!rig.stopped) {
        fake_rdma_turn();
    }
}

int rig_open(const char *text)
{
    int status;

    transport_address_free(&rig.address);
    ck_assert_int_eq(transport_address_parse(text, &rig.address, rig.why), 0);
    rig.connected = 0;
    rig.closed = 0;
    rig.read_length = 0;
    rig.inside = true;
    status = transport_class_for(&rig.address, NULL)
                 ->open(&rig.bench.loop, rig.offload, &rig.address, &rig.settings, &events, &rig, &rig.transport,
                        rig.why);
    rig.inside = false;
    ck_assert_int_eq(status == 0, rig.transport != NULL);
    return status;
}

void rig_connect(void)
{
    ck_assert_int_eq(rig_open("rdma://192.0.2.1:6379"), 0);
    RIG_WAIT(rig.connected + rig.closed == 1);
    ck_assert_msg(rig.connected == 1, "%s", rig.why);
}

struct rdma_queue_pair *rig_pair(void)
{
    struct rdma_queue_pair *pair = fake_rdma_last();

    ck_assert_ptr_nonnull(pair);
    return pair;
}

void rig_stop(void)
{
    rig_hang_up();
    WAIT(&rig.bench, workers_outstanding(rig.bench.workers) == 0);
    bench_idle(&rig.bench, 5);
    ck_assert_uint_eq(rig.charged, 0);
    fake_rdma_reset();
    offload_unref(rig.offload);
    transport_address_free(&rig.address);
    bench_stop(&rig.bench);
    free(rig.read);
    sem_destroy(&gate);
}
