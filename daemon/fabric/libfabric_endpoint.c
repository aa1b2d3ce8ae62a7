/* Endpoints: each with a CQ, an AV and an EQ of its own (efa refuses a second endpoint on one AV). */
#include <errno.h>
#include <stdlib.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "daemon/fabric/libfabric_object.h"

#define ENTRIES_A_READ 16
#define READS_A_CALL 64 /* a peer that floods the queue must not keep other endpoints from their turn */

struct fabric_endpoint {
    struct fabric_domain *domain;
    struct fid_ep *ep; /* NULL once closed */
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_eq *eq;
    int wait_fd;
};

/* The efa provider aborts the process when it has an error to report and no EQ: it is bound on every provider. */
static int open_queues(struct fabric_endpoint *endpoint, char why[FABRIC_WHY_BYTES])
{
    const struct fabric_domain *domain = endpoint->domain;
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT,
                            .wait_obj = domain->provider->polled ? FI_WAIT_FD : FI_WAIT_NONE};
    struct fi_av_attr av = {.type = FI_AV_UNSPEC};
    int error;

    error = fi_eq_open(domain->fabric, &eq, &endpoint->eq, NULL);
    if (error != 0) {
        return fail(why, "fi_eq_open", error);
    }
    error = fi_cq_open(domain->domain, &cq, &endpoint->cq, NULL);
    if (error != 0) {
        return fail(why, "fi_cq_open", error);
    }
    error = fi_av_open(domain->domain, &av, &endpoint->av, NULL);
    if (error != 0) {
        return fail(why, "fi_av_open", error);
    }
    endpoint->wait_fd = -1;
    if (domain->provider->polled) {
        error = fi_control(&endpoint->cq->fid, FI_GETWAIT, &endpoint->wait_fd);
    }
    return error != 0 ? fail(why, "fi_control(FI_GETWAIT)", error) : 0;
}

static int bind_queues(struct fabric_endpoint *endpoint, char why[FABRIC_WHY_BYTES])
{
    int error = fi_ep_bind(endpoint->ep, &endpoint->eq->fid, 0);

    if (error != 0) {
        return fail(why, "fi_ep_bind(eq)", error);
    }
    error = fi_ep_bind(endpoint->ep, &endpoint->av->fid, 0);
    if (error != 0) {
        return fail(why, "fi_ep_bind(av)", error);
    }
    error = fi_ep_bind(endpoint->ep, &endpoint->cq->fid, FI_TRANSMIT | FI_RECV);
    if (error != 0) {
        return fail(why, "fi_ep_bind(cq)", error);
    }
    error = fi_enable(endpoint->ep);
    return error != 0 ? fail(why, "fi_enable", error) : 0;
}

int endpoint_open(struct fabric_domain *domain, struct fabric_endpoint **result, uint8_t address[FABRIC_ADDRESS_BYTES],
                  size_t *address_length, char why[FABRIC_WHY_BYTES])
{
    struct fabric_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    int error;

    if (endpoint == NULL) {
        return fail(why, "endpoint", -FI_ENOMEM);
    }
    endpoint->domain = domain;
    error = open_queues(endpoint, why);
    if (error != 0) {
        goto close_queues;
    }
    error = fi_endpoint(domain->domain, domain->info, &endpoint->ep, NULL);
    if (error != 0) {
        fail(why, "fi_endpoint", error);
        goto close_queues;
    }
    error = bind_queues(endpoint, why);
    if (error != 0) {
        goto close_endpoint;
    }
    *address_length = FABRIC_ADDRESS_BYTES;
    error = fi_getname(&endpoint->ep->fid, address, address_length);
    if (error != 0) {
        fail(why, "fi_getname", error);
        goto close_endpoint;
    }
    *result = endpoint;
    return 0;

close_endpoint:
    endpoint_close(endpoint);
close_queues:
    endpoint_free(endpoint);
    return error;
}

int endpoint_close(struct fabric_endpoint *endpoint)
{
    struct fid_ep *ep = endpoint->ep;

    endpoint->ep = NULL;
    return fi_close(&ep->fid);
}

int endpoint_free(struct fabric_endpoint *endpoint)
{
    struct fid *queues[] = {
        endpoint->cq != NULL ? &endpoint->cq->fid : NULL,
        endpoint->av != NULL ? &endpoint->av->fid : NULL,
        endpoint->eq != NULL ? &endpoint->eq->fid : NULL,
    };
    int first = 0;

    for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
        int error = queues[i] != NULL ? fi_close(queues[i]) : 0;
        if (first == 0) {
            first = error;
        }
    }
    free(endpoint);
    return first;
}

int endpoint_add_peer(struct fabric_endpoint *endpoint, const uint8_t *address, size_t length)
{
    uint8_t padded[FABRIC_ADDRESS_BYTES] = {0};
    fi_addr_t peer = FI_ADDR_UNSPEC;
    int inserted;

    /* the provider reads as many bytes as its own form has, whatever the server sent */
    if (length > sizeof(padded)) {
        return -EINVAL;
    }
    for (size_t i = 0; i < length; i++) {
        padded[i] = address[i];
    }
    inserted = fi_av_insert(endpoint->av, padded, 1, &peer, 0, NULL);
    if (inserted == 1) {
        return 0;
    }
    return inserted < 0 ? inserted : -EINVAL;
}

int endpoint_wait_fd(struct fabric_endpoint *endpoint)
{
    return endpoint->wait_fd;
}

/* An entry that is not taken makes every later read fail. What it says concerns the peer, who is told by Valkey. */
static ssize_t read_error_entry(struct fabric_endpoint *endpoint)
{
    struct fi_cq_err_entry entry = {0};

    return fi_cq_readerr(endpoint->cq, &entry, 0);
}

int endpoint_progress(struct fabric_endpoint *endpoint)
{
    struct fi_cq_entry entries[ENTRIES_A_READ];
    int count = 0;

    for (int i = 0; i < READS_A_CALL; i++) {
        ssize_t n = fi_cq_read(endpoint->cq, entries, ENTRIES_A_READ);
        if (n == -FI_EAVAIL) {
            n = read_error_entry(endpoint);
        }
        if (n == -FI_EAGAIN || n == 0) {
            break;
        }
        if (n < 0) {
            return (int)n;
        }
        count += (int)n;
    }
    return count;
}

int endpoint_try_wait(struct fabric_endpoint *endpoint)
{
    struct fid *queue = &endpoint->cq->fid;

    return fi_trywait(endpoint->domain->fabric, &queue, 1);
}
