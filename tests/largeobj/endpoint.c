#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "clock.h"
#include "fabric_lib.h"
#include "peer.h"
#include "stats.h"

#define REAP_MAX 10
#define EAGAIN_PAUSE_MS 1
#define IN_FLIGHT_LIMIT 64

static void take_submitted(struct endpoint *e, bool *stop)
{
    pthread_mutex_lock(&e->lock);
    TAILQ_CONCAT(&e->pending, &e->submitted, entry);
    *stop = e->stop;
    pthread_mutex_unlock(&e->lock);
}

static void op_release(struct fabric_op *op)
{
    if (op->mr)
        fi_close(&op->mr->fid);
    op->mr = NULL;
    op->events->released(op);
}

static void op_end(struct endpoint *e, struct fabric_op *op, int error)
{
    atomic_fetch_sub(&e->load, 1);
    op->events->ended(op, error);
}

/* Returns 0, -FI_EAGAIN, or another negative errno. */
static ssize_t post(struct endpoint *e, struct fabric_op *op)
{
    fi_addr_t peer = peer_address(op->peer, e->index);
    void *desc = NULL;
    ssize_t rc;

    if ((e->info->domain_attr->mr_mode & FI_MR_LOCAL) && !op->mr) {
        rc = fi_mr_reg(e->domain, op->buf, op->len, FI_READ | FI_WRITE, 0, e->next_mr_key++, 0, &op->mr, NULL);
        if (rc)
            return rc == -FI_EAGAIN ? -FI_EIO : rc;
    }
    if (op->mr)
        desc = fi_mr_desc(op->mr);
    if (op->write) {
        struct iovec local = {.iov_base = op->buf, .iov_len = op->len};
        struct fi_rma_iov remote = {.addr = op->remote_addr, .len = op->len, .key = op->remote_key};
        struct fi_msg_rma msg = {
            .msg_iov = &local,
            .desc = &desc,
            .iov_count = 1,
            .addr = peer,
            .rma_iov = &remote,
            .rma_iov_count = 1,
            .context = &op->context,
        };

        /* Without delivery-complete the reply could overtake the payload, and tcp reports a bad key as success. */
        return fi_writemsg(e->ep, &msg, FI_DELIVERY_COMPLETE);
    }
    return fi_read(e->ep, op->buf, op->len, desc, peer, op->remote_addr, op->remote_key, &op->context);
}

/* Posts what can be posted. Returns whether an operation waits for a peer that took none (EAGAIN). */
static bool post_pending(struct endpoint *e)
{
    struct fabric_op *op = TAILQ_FIRST(&e->pending);
    int64_t now = now_ns();
    bool again = false;

    e->round++;
    while (op) {
        struct fabric_op *next = TAILQ_NEXT(op, entry);
        ssize_t rc;

        if (atomic_load_explicit(op->cancelled, memory_order_relaxed)) {
            TAILQ_REMOVE(&e->pending, op, entry);
            op_end(e, op, -ECANCELED);
            op_release(op);
            op = next;
            continue;
        }
        if (e->in_flight_count >= op->max_in_flight || e->in_flight_count >= e->limit)
            break;
        /* One peer that takes nothing must not hold up the others, and its own operations keep their order. */
        if (peer_blocked(op->peer, e->index, e->round)) {
            rc = -FI_EAGAIN;
        } else {
            rc = post(e, op);
            if (rc == -FI_EAGAIN)
                peer_set_blocked(op->peer, e->index, e->round);
        }
        if (rc == -FI_EAGAIN && op->deadline == 0)
            op->deadline = now + op->eagain_timeout_ns;
        if (rc == -FI_EAGAIN && now < op->deadline) {
            again = true;
            op = next;
            continue;
        }
        TAILQ_REMOVE(&e->pending, op, entry);
        if (rc == 0) {
            op->deadline = now + op->op_timeout_ns;
            TAILQ_INSERT_TAIL(&e->in_flight, op, entry);
            e->in_flight_count++;
            atomic_fetch_add(&e->operations, 1);
            if (e->in_flight_count > atomic_load(&e->in_flight_max))
                atomic_store(&e->in_flight_max, e->in_flight_count);
            op->events->posted(op);
        } else {
            op_end(e, op, rc == -FI_EAGAIN ? -EHOSTUNREACH : -EIO);
            op_release(op);
        }
        op = next;
    }
    return again;
}

static void complete(struct endpoint *e, struct fabric_op *op, int error)
{
    /* An operation that was given up has ended before; only its memory waited for this. */
    if (!op->orphan) {
        TAILQ_REMOVE(&e->in_flight, op, entry);
        e->in_flight_count--;
        op_end(e, op, error);
    }
    op_release(op);
}

/* Returns how many entries there were. */
static ssize_t reap(struct endpoint *e)
{
    struct fi_cq_entry entries[REAP_MAX];
    struct fi_cq_err_entry failed = {0};
    ssize_t n = fi_cq_read(e->cq, entries, REAP_MAX);

    if (n == -FI_EAVAIL) {
        if (fi_cq_readerr(e->cq, &failed, 0) != 1)
            return 0;
        /* An error that names no operation is no reason to stop. */
        if (failed.op_context)
            complete(e, failed.op_context, -EIO);
        return 1;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (entries[i].op_context)
            complete(e, entries[i].op_context, 0);
    }
    return n > 0 ? n : 0;
}

static void expire(struct endpoint *e)
{
    int64_t now = now_ns();
    struct fabric_op *op = TAILQ_FIRST(&e->in_flight);

    while (op) {
        struct fabric_op *next = TAILQ_NEXT(op, entry);

        if (now >= op->deadline) {
            /* It cannot be cancelled: leave it to the fabric, with its buffer, and free its place. */
            TAILQ_REMOVE(&e->in_flight, op, entry);
            e->in_flight_count--;
            op->orphan = true;
            atomic_fetch_add(&stats.timeouts, 1);
            op_end(e, op, -ETIMEDOUT);
        }
        op = next;
    }
}

static int wait_ms(struct endpoint *e, bool again)
{
    const struct fabric_op *op;
    int64_t first = INT64_MAX;
    int64_t ms;

    if (again)
        return EAGAIN_PAUSE_MS;
    TAILQ_FOREACH(op, &e->in_flight, entry) {
        if (op->deadline < first)
            first = op->deadline;
    }
    if (first == INT64_MAX)
        return -1;
    ms = (first - now_ns()) / NS_PER_MS + 1;
    if (ms < 0)
        return 0;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void *run(void *arg)
{
    struct endpoint *e = arg;
    struct fid *fids[] = {&e->cq->fid};
    bool stop = false;

    for (;;) {
        struct epoll_event events[2];
        bool again;

        take_submitted(e, &stop);
        if (stop)
            return NULL;
        again = post_pending(e);
        if (reap(e) > 0)
            continue;
        expire(e);
        /* Not to be slept on while the provider has work of its own to do. */
        if (fi_trywait(e->fabric, fids, 1) != 0)
            continue;
        if (epoll_wait(e->epoll_fd, events, 2, wait_ms(e, again)) > 0) {
            uint64_t count;

            if (read(e->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
                return NULL;
        }
    }
}

void endpoint_submit(struct endpoint *e, struct fabric_op_list *ops, unsigned int count)
{
    uint64_t one = 1;

    atomic_fetch_add(&e->load, count);
    pthread_mutex_lock(&e->lock);
    TAILQ_CONCAT(&e->submitted, ops, entry);
    pthread_mutex_unlock(&e->lock);
    /* It fails only when the counter is full, and then the thread is awake anyway. */
    if (write(e->wake_fd, &one, sizeof(one)) < 0)
        return;
}

static bool is_ip_address(const char *s)
{
    unsigned char buf[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, s, buf) == 1 || inet_pton(AF_INET6, s, buf) == 1;
}

static int find_info(struct endpoint *e, const char *provider, const char *where)
{
    struct fi_info *hints = fabric_lib.dupinfo(NULL);
    struct fi_info *list = NULL;
    const struct fi_info *best = NULL;
    bool ip = is_ip_address(where);
    int rc = -ENOMEM;

    if (!hints)
        return rc;
    hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->fabric_attr->prov_name = strdup(provider);
    if (!ip)
        hints->domain_attr->name = strdup(where);
    if (!hints->fabric_attr->prov_name || (!ip && !hints->domain_attr->name))
        goto free_hints;
    rc = fabric_lib.getinfo(FI_VERSION(2, 0), ip ? where : NULL, NULL, ip ? FI_SOURCE : 0, hints, &list);
    if (rc)
        goto free_hints;
    /* A bare name also matches layered variants such as "tcp;ofi_rxm", which other peers do not understand; and an
     * interface has an entry for each address family, of which IPv4 is the one that everybody has. */
    for (const struct fi_info *i = list; i; i = i->next) {
        if (strcmp(i->fabric_attr->prov_name, provider) != 0)
            continue;
        if (!best || (i->addr_format == FI_SOCKADDR_IN && best->addr_format != FI_SOCKADDR_IN))
            best = i;
    }
    rc = -ENODEV;
    if (best) {
        e->info = fabric_lib.dupinfo(best);
        rc = e->info ? 0 : -ENOMEM;
    }
    fabric_lib.freeinfo(list);
free_hints:
    fabric_lib.freeinfo(hints);
    return rc;
}

static int open_fabric(struct endpoint *e, const char *provider, const char *where, const char **step)
{
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
    int rc;

    *step = "fi_getinfo";
    if ((rc = find_info(e, provider, where)) != 0)
        return rc;
    e->limit = IN_FLIGHT_LIMIT;
    if (e->info->tx_attr->size > 0 && e->info->tx_attr->size < e->limit)
        e->limit = (unsigned int)e->info->tx_attr->size;
    /* Room for operations that were given up and complete late. */
    cq_attr.size = 4 * IN_FLIGHT_LIMIT;
    *step = "fi_fabric";
    if ((rc = fabric_lib.fabric(e->info->fabric_attr, &e->fabric, NULL)) != 0)
        return rc;
    *step = "fi_domain";
    if ((rc = fi_domain(e->fabric, e->info, &e->domain, NULL)) != 0)
        return rc;
    *step = "fi_av_open";
    if ((rc = fi_av_open(e->domain, &av_attr, &e->av, NULL)) != 0)
        return rc;
    *step = "fi_cq_open";
    if ((rc = fi_cq_open(e->domain, &cq_attr, &e->cq, NULL)) != 0)
        return rc;
    *step = "fi_endpoint";
    if ((rc = fi_endpoint(e->domain, e->info, &e->ep, NULL)) != 0)
        return rc;
    *step = "fi_ep_bind";
    if ((rc = fi_ep_bind(e->ep, &e->av->fid, 0)) != 0 ||
        (rc = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV)) != 0)
        return rc;
    *step = "fi_enable";
    if ((rc = fi_enable(e->ep)) != 0)
        return rc;
    *step = "fi_getname";
    e->addr_len = sizeof(e->addr);
    return fi_getname(&e->ep->fid, e->addr, &e->addr_len);
}

static int watch(struct endpoint *e, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int start_thread(struct endpoint *e)
{
    sigset_t all, old;
    int cq_fd;
    int rc;

    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->wake_fd < 0 || e->epoll_fd < 0)
        return -errno;
    if ((rc = fi_control(&e->cq->fid, FI_GETWAIT, &cq_fd)) != 0)
        return rc;
    if ((rc = watch(e, e->wake_fd)) != 0 || (rc = watch(e, cq_fd)) != 0)
        return rc;
    /* Signals are for the server's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = -pthread_create(&e->thread, NULL, run, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    e->running = rc == 0;
    return rc;
}

int endpoint_open(struct endpoint **endpoint, unsigned int index, const char *provider, const char *where, char *why,
                  size_t why_size)
{
    struct endpoint *e = calloc(1, sizeof(*e));
    const char *step = "out of memory";
    int rc;

    if (!e) {
        snprintf(why, why_size, "%s", step);
        return -ENOMEM;
    }
    e->index = index;
    e->wake_fd = e->epoll_fd = -1;
    e->next_mr_key = 1;
    pthread_mutex_init(&e->lock, NULL);
    TAILQ_INIT(&e->submitted);
    TAILQ_INIT(&e->pending);
    TAILQ_INIT(&e->in_flight);
    rc = open_fabric(e, provider, where, &step);
    if (rc == 0) {
        step = "progress thread";
        rc = start_thread(e);
    }
    if (rc) {
        snprintf(why, why_size, "%s: %s: %s", where, step, fabric_lib.strerror(-rc));
        endpoint_close(e);
        return rc;
    }
    *endpoint = e;
    return 0;
}

static void close_fid(struct fid *fid)
{
    if (fid)
        fi_close(fid);
}

void endpoint_halt(struct endpoint *e)
{
    struct fabric_op_list none = TAILQ_HEAD_INITIALIZER(none);

    if (!e->running)
        return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_mutex_unlock(&e->lock);
    endpoint_submit(e, &none, 0);
    pthread_join(e->thread, NULL);
    e->running = false;
}

void endpoint_close(struct endpoint *e)
{
    endpoint_halt(e);
    close_fid(e->ep ? &e->ep->fid : NULL);
    close_fid(e->cq ? &e->cq->fid : NULL);
    close_fid(e->av ? &e->av->fid : NULL);
    close_fid(e->domain ? &e->domain->fid : NULL);
    close_fid(e->fabric ? &e->fabric->fid : NULL);
    if (e->info)
        fabric_lib.freeinfo(e->info);
    if (e->wake_fd >= 0)
        close(e->wake_fd);
    if (e->epoll_fd >= 0)
        close(e->epoll_fd);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
