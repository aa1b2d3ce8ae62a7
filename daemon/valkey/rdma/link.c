#include "daemon/valkey/rdma/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/valkey/rdma/object.h"

#define DESCRIPTORS 2

_Static_assert(RDMA_WHY_BYTES >= PIN_ACCOUNT_WHY_BYTES, "the reason of a refused charge fits");

struct rdma_link {
    struct offload_job job; /* opens, later closes */
    uv_loop_t *loop;
    struct offload *offload;
    const struct rdma_link_events *events;
    void *owner; /* NULL: nobody wants it any more */
    bool opening; /* a worker has it */
    unsigned holders; /* handles and jobs that still have it */

    struct rdma_settings settings;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    const struct pin_account *pins;
    uint64_t charged;

    const struct rdma_ops *ops;
    struct rdma_queue_pair *pair; /* NULL: not open */
    struct rdma_memory memory;
    int status;
    char why[RDMA_WHY_BYTES];

    uv_poll_t polls[DESCRIPTORS];
    unsigned watched;
};

static int charge(struct rdma_link *link, uint64_t bytes)
{
    if (link->pins != NULL) {
        int status = link->pins->charge(link->pins->context, bytes, link->why);

        if (status != 0) {
            return status;
        }
    }
    link->charged += bytes;
    return 0;
}

static void give_back(struct rdma_link *link, uint64_t bytes)
{
    link->charged -= bytes;
    if (link->pins != NULL && bytes > 0) {
        link->pins->release(link->pins->context, bytes);
    }
}

static void let_go(struct rdma_link *link)
{
    if (--link->holders == 0) {
        give_back(link, link->charged);
        free(link);
    }
}

/* --- closing --- */

static void run_close(struct offload_job *job)
{
    struct rdma_link *link = (struct rdma_link *)job;

    link->ops->disconnect(link->pair); /* it waits for the kernel now and then: not on the loop */
    link->ops->close(link->pair);
}

static void closed(struct offload_job *job)
{
    let_go((struct rdma_link *)job);
}

static void handle_closed(uv_handle_t *handle)
{
    let_go(handle->data);
}

/* The caller's hold passes to the job, or ends. */
static void close_pair(struct rdma_link *link)
{
    if (link->pair == NULL) {
        let_go(link);
        return;
    }
    for (unsigned i = 0; i < link->watched; i++) {
        link->holders++;
        uv_close((uv_handle_t *)&link->polls[i], handle_closed); /* takes the descriptor out of the loop at once */
    }
    offload_submit(link->offload, &link->job, run_close, closed);
}

void rdma_link_end(struct rdma_link *link)
{
    link->owner = NULL;
    if (!link->opening) {
        close_pair(link);
    }
}

/* --- opening --- */

static void run_open(struct offload_job *job)
{
    struct rdma_link *link = (struct rdma_link *)job;

    link->ops = rdma_object_find(link->why);
    link->status = link->ops == NULL ? -ENOENT
                                     : link->ops->open(&link->settings, &link->pair, &link->memory, link->why);
}

/* What is registered is known now. */
static int correct_charge(struct rdma_link *link)
{
    uint64_t pinned = link->memory.pinned_bytes;

    if (pinned > link->charged) {
        return charge(link, pinned - link->charged);
    }
    give_back(link, link->charged - pinned);
    return 0;
}

static void opened(struct offload_job *job)
{
    struct rdma_link *link = (struct rdma_link *)job;

    link->opening = false;
    if (link->status != 0) {
        link->pair = NULL;
        give_back(link, link->charged);
    } else if (link->owner != NULL) {
        link->status = correct_charge(link);
    }
    if (link->owner == NULL) {
        close_pair(link);
    } else {
        link->events->opened(link->owner, link->status, link->why);
    }
}

int rdma_link_open(uv_loop_t *loop, struct offload *offload, const struct addrinfo *target,
                   const struct rdma_settings *settings, const struct pin_account *pins,
                   const struct rdma_link_events *events, void *owner, struct rdma_link **begun,
                   char why[RDMA_WHY_BYTES])
{
    struct rdma_link *link = calloc(1, sizeof(*link));
    int status = 0;

    *begun = NULL;
    if (link == NULL) {
        snprintf(why, RDMA_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    link->loop = loop;
    link->offload = offload;
    link->settings = *settings;
    link->settings.host = link->host;
    link->settings.port = link->port;
    link->pins = pins;
    link->events = events;
    link->owner = owner;
    link->holders = 1;
    if (getnameinfo(target->ai_addr, target->ai_addrlen, link->host, sizeof(link->host), link->port,
                    sizeof(link->port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(link->why, sizeof(link->why), "an address is neither IPv4 nor IPv6");
        status = -EAFNOSUPPORT;
    } else {
        status = charge(link, RDMA_LINK_PINNED(settings));
    }
    if (status != 0) {
        snprintf(why, RDMA_WHY_BYTES, "%s", link->why);
        free(link);
        return status;
    }
    link->opening = true;
    *begun = link;
    offload_submit(offload, &link->job, run_open, opened);
    return 0;
}

/* --- open --- */

const struct rdma_ops *rdma_link_ops(const struct rdma_link *link)
{
    return link->ops;
}

struct rdma_queue_pair *rdma_link_pair(const struct rdma_link *link)
{
    return link->pair;
}

const struct rdma_memory *rdma_link_memory(const struct rdma_link *link)
{
    return &link->memory;
}

const struct rdma_settings *rdma_link_settings(const struct rdma_link *link)
{
    return &link->settings;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct rdma_link *link = poll->data;

    if (link->owner != NULL) {
        link->events->due(link->owner);
    }
}

int rdma_link_watch(struct rdma_link *link)
{
    int descriptors[DESCRIPTORS];
    int count = link->ops->descriptors(link->pair, descriptors);

    for (int i = 0; i < count; i++) {
        uv_poll_t *poll = &link->polls[link->watched];
        int status = uv_poll_init(link->loop, poll, descriptors[i]);

        if (status != 0) {
            return status;
        }
        poll->data = link;
        link->watched++;
        status = uv_poll_start(poll, UV_READABLE, on_poll);
        if (status != 0) {
            return status;
        }
    }
    return count < 0 ? count : 0;
}
