/* A queue pair from the search for its device to the posted receives, and its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fabric/libfabric_words.h"
#include "daemon/valkey/rdma/libfabric_pair.h"

#define PROVIDER "verbs" /* alone: a layer over it (verbs;ofi_rxm) has headers of its own on the wire */
#define IMMEDIATE_BYTES 4

int pair_fail(char why[RDMA_WHY_BYTES], const char *what, long error)
{
    snprintf(why, RDMA_WHY_BYTES, "%s: %s (%ld)", what, libfabric_text((int)error), error);
    return (int)error;
}

/* FI_RX_CQ_DATA: a write with immediate uses up a receive. The protocol leaves out shared receives (XRC). */
static struct fi_info *make_hints(const struct rdma_queue_pair *pair, bool is_v6)
{
    struct fi_info *hints = fi_allocinfo();

    if (hints == NULL) {
        return NULL;
    }
    hints->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
    hints->mode = FI_RX_CQ_DATA;
    hints->addr_format = is_v6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_MSG;
    hints->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
    hints->rx_attr->size = RDMA_RECEIVES;
    hints->tx_attr->size = pair->sends;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->cq_data_size = IMMEDIATE_BYTES;
    hints->fabric_attr->prov_name = strdup(PROVIDER);
    if (hints->fabric_attr->prov_name == NULL) {
        fi_freeinfo(hints);
        return NULL;
    }
    return hints;
}

/* Routing the address chooses the device. */
static int find_device(struct rdma_queue_pair *pair, const struct rdma_settings *settings, char why[RDMA_WHY_BYTES])
{
    const char *filter = getenv("FI_PROVIDER");
    struct fi_info *hints = make_hints(pair, strchr(settings->host, ':') != NULL);
    struct fi_info *all = NULL, *found;
    int error;

    if (hints == NULL) {
        return pair_fail(why, "fi_allocinfo", -FI_ENOMEM);
    }
    error = fi_getinfo(LIBFABRIC_API, settings->host, settings->port, FI_NUMERICHOST, hints, &all);
    fi_freeinfo(hints);
    found = all;
    while (found != NULL && strcmp(found->fabric_attr->prov_name, PROVIDER) != 0) {
        found = found->next;
    }
    if (found != NULL) {
        pair->info = fi_dupinfo(found);
        error = pair->info != NULL ? 0 : pair_fail(why, "fi_dupinfo", -FI_ENOMEM);
    } else {
        error = error != 0 ? error : -FI_ENODEV;
        snprintf(why, RDMA_WHY_BYTES, "no RDMA device leads to %s%s%s: %s (%d); the route must go over the network "
                 "interface of a device that was there when this program started and allows %d receives and %u sends; "
                 "`fi_info -p %s -t FI_EP_MSG` lists them",
                 settings->host, filter != NULL ? " while FI_PROVIDER=" : "", filter != NULL ? filter : "",
                 libfabric_text(error), error, RDMA_RECEIVES, pair->sends, PROVIDER);
    }
    fi_freeinfo(all);
    return error;
}

static int open_domain(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES])
{
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq = {
        .format = FI_CQ_FORMAT_DATA, .size = RDMA_RECEIVES + pair->sends, .wait_obj = FI_WAIT_FD};
    int error = fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL);

    if (error != 0) {
        return pair_fail(why, "fi_fabric", error);
    }
    error = fi_domain(pair->fabric, pair->info, &pair->domain, NULL);
    if (error != 0) {
        return pair_fail(why, "fi_domain", error);
    }
    error = fi_eq_open(pair->fabric, &eq, &pair->eq, NULL);
    if (error != 0) {
        return pair_fail(why, "fi_eq_open", error);
    }
    error = fi_cq_open(pair->domain, &cq, &pair->cq, NULL);
    return error != 0 ? pair_fail(why, "fi_cq_open", error) : 0;
}

static int open_endpoint(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES])
{
    int error = fi_endpoint(pair->domain, pair->info, &pair->ep, NULL);

    if (error != 0) {
        return pair_fail(why, "fi_endpoint", error);
    }
    error = fi_ep_bind(pair->ep, &pair->eq->fid, 0);
    if (error != 0) {
        return pair_fail(why, "fi_ep_bind(eq)", error);
    }
    error = fi_ep_bind(pair->ep, &pair->cq->fid, FI_TRANSMIT | FI_RECV);
    if (error != 0) {
        return pair_fail(why, "fi_ep_bind(cq)", error);
    }
    error = fi_enable(pair->ep);
    return error != 0 ? pair_fail(why, "fi_enable", error) : 0;
}

int pair_post_receive(struct rdma_queue_pair *pair, uint8_t *buffer)
{
    return (int)fi_recv(pair->ep, buffer, RDMA_CONTROL_BYTES, fi_mr_desc(pair->memory.control_mr), FI_ADDR_UNSPEC,
                        buffer);
}

/* All of them, before the connection is asked for: the server sends as soon as it has accepted. */
static int post_receives(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES])
{
    int error = 0;

    for (size_t i = 0; i < RDMA_RECEIVES && error == 0; i++) {
        error = pair_post_receive(pair, pair->memory.control + i * RDMA_CONTROL_BYTES);
    }
    return error != 0 ? pair_fail(why, "fi_recv", error) : 0;
}

static int open_all(struct rdma_queue_pair *pair, const struct rdma_settings *settings, char why[RDMA_WHY_BYTES])
{
    int error = find_device(pair, settings, why);

    if (error == 0) {
        error = open_domain(pair, why);
    }
    if (error == 0) {
        error = memory_open(pair, why);
    }
    if (error == 0) {
        error = open_endpoint(pair, why);
    }
    if (error == 0) {
        error = post_receives(pair, why);
    }
    return error != 0 ? error : connector_open(pair, why);
}

static int check(const struct rdma_settings *settings, char why[RDMA_WHY_BYTES])
{
    if (settings->window_bytes == 0 || settings->window_bytes > UINT32_MAX || settings->staging_bytes == 0 ||
        settings->sends == 0) {
        snprintf(why, RDMA_WHY_BYTES, "a queue pair with %zu bytes of window, %zu bytes of staging and %u sends",
                 settings->window_bytes, settings->staging_bytes, settings->sends);
        return -EINVAL;
    }
    return 0;
}

int pair_open(const struct rdma_settings *settings, struct rdma_queue_pair **result, struct rdma_memory *memory,
              char why[RDMA_WHY_BYTES])
{
    struct rdma_queue_pair *pair;
    int error = check(settings, why);

    if (error != 0) {
        return error;
    }
    pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        return pair_fail(why, "queue pair", -ENOMEM);
    }
    pair->window_bytes = settings->window_bytes;
    pair->staging_bytes = settings->staging_bytes;
    pair->sends = settings->sends;
    pair->connector.order_bell = pair->connector.done_bell = pair->connector.watch = -1;
    pair->slots = calloc(pair->sends, sizeof(pair->slots[0]));
    error = pair->slots != NULL ? open_all(pair, settings, why) : pair_fail(why, "sends", -ENOMEM);
    if (error != 0) {
        pair_close(pair);
        return error;
    }
    *memory = (struct rdma_memory){
        .window = pair->memory.window,
        .window_address = (uintptr_t)pair->memory.window,
        .window_rkey = (uint32_t)fi_mr_key(pair->memory.window_mr),
        .staging = pair->memory.staging,
        .pinned_bytes = pair->window_bytes + pair->staging_bytes + pair->memory.control_bytes,
    };
    *result = pair;
    return 0;
}


/* The endpoint before its memory: once its queue pair is destroyed nobody writes into the memory any more. */
void pair_close(struct rdma_queue_pair *pair)
{
    connector_close(pair);
    if (pair->ep != NULL) {
        fi_close(&pair->ep->fid);
    }
    memory_close(pair);
    if (pair->cq != NULL) {
        fi_close(&pair->cq->fid);
    }
    if (pair->eq != NULL) {
        fi_close(&pair->eq->fid);
    }
    if (pair->domain != NULL) {
        fi_close(&pair->domain->fid);
    }
    if (pair->fabric != NULL) {
        fi_close(&pair->fabric->fid);
    }
    fi_freeinfo(pair->info);
    free(pair->slots);
    free(pair);
}
