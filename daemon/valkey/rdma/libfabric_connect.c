/*
 * The way to a connection, on a thread of its own that ends with it: resolving a route, creating the queue pair and
 * taking it through its states are calls of the kernel's that wait, milliseconds each, and the loop must not.
 *
 * The thread is made by open, sleeps until connect orders it to begin, and has the event queue and the endpoint until
 * it has told the outcome. Afterwards they are of whoever polls. Close ends it, wherever it is.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/valkey/rdma/libfabric_pair.h"

#define STACK_BYTES (256 * 1024)

static void ring(int bell)
{
    uint64_t one = 1;

    while (write(bell, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

/* Sleeps until there is an order or, where that is waited for as well, something in the event queue. */
static void sleep_on(const struct pair_connector *connector, int queue)
{
    struct pollfd fds[2] = {{.fd = connector->order_bell, .events = POLLIN}, {.fd = queue, .events = POLLIN}};

    poll(fds, queue >= 0 ? 2 : 1, -1);
}

static enum pair_order order_of(struct pair_connector *connector)
{
    return (enum pair_order)atomic_load(&connector->order);
}

static void take_bell(int bell)
{
    uint64_t count;

    if (read(bell, &count, sizeof(count)) < 0) {
        return; /* not rung: another look at the order does no harm */
    }
}

/* True once the outcome is known; false: it is to stop. */
static bool find_outcome(struct rdma_queue_pair *pair, struct rdma_event *outcome)
{
    struct pair_connector *connector = &pair->connector;
    struct fid *queue = &pair->eq->fid;
    int error = fi_connect(pair->ep, pair->info->dest_addr, NULL, 0);

    if (error != 0) {
        *outcome = (struct rdma_event){.kind = RDMA_REFUSED, .status = error};
        return true;
    }
    while (order_of(connector) != ORDER_STOP) {
        if (pair_read_connecting(pair, outcome)) {
            return true;
        }
        if (fi_trywait(pair->fabric, &queue, 1) == 0) {
            sleep_on(connector, connector->queue);
        }
    }
    return false;
}

static void *run(void *argument)
{
    struct rdma_queue_pair *pair = argument;
    struct pair_connector *connector = &pair->connector;

    while (order_of(connector) == ORDER_NONE) {
        sleep_on(connector, -1);
    }
    take_bell(connector->order_bell);
    if (order_of(connector) == ORDER_CONNECT && find_outcome(pair, &connector->outcome)) {
        atomic_store(&connector->done, true);
        ring(connector->done_bell);
    }
    return NULL;
}

/* Signals are of the program's own threads. */
static int start_thread(struct rdma_queue_pair *pair)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&pair->connector.thread, &attributes, run, pair);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    pair->connector.started = error == 0;
    return -error;
}

static int watch(const struct pair_connector *connector, int descriptor)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(connector->watch, EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : -errno;
}

int connector_open(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES])
{
    struct pair_connector *connector = &pair->connector;
    int error = fi_control(&pair->eq->fid, FI_GETWAIT, &connector->queue);

    if (error != 0) {
        return pair_fail(why, "fi_control(FI_GETWAIT)", error);
    }
    connector->order_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    connector->done_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    connector->watch = epoll_create1(EPOLL_CLOEXEC);
    if (connector->order_bell < 0 || connector->done_bell < 0 || connector->watch < 0) {
        return pair_fail(why, "descriptors", -errno);
    }
    error = watch(connector, connector->done_bell);
    if (error == 0) {
        error = start_thread(pair);
    }
    return error != 0 ? pair_fail(why, "thread", error) : 0;
}

void connector_begin(struct rdma_queue_pair *pair)
{
    atomic_store(&pair->connector.order, ORDER_CONNECT);
    ring(pair->connector.order_bell);
}

const struct rdma_event *connector_outcome(struct rdma_queue_pair *pair)
{
    return atomic_load(&pair->connector.done) ? &pair->connector.outcome : NULL;
}

int connector_hand_over(struct rdma_queue_pair *pair)
{
    take_bell(pair->connector.done_bell);
    return watch(&pair->connector, pair->connector.queue);
}

static void close_descriptor(int descriptor)
{
    if (descriptor >= 0) {
        close(descriptor);
    }
}

void connector_close(struct rdma_queue_pair *pair)
{
    struct pair_connector *connector = &pair->connector;

    if (connector->started) {
        atomic_store(&connector->order, ORDER_STOP);
        ring(connector->order_bell);
        pthread_join(connector->thread, NULL);
    }
    close_descriptor(connector->order_bell);
    close_descriptor(connector->done_bell);
    close_descriptor(connector->watch);
}
