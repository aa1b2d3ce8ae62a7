/* glide-rdmad-valkey-rdma.so: the table of operations over libfabric. Its one exported symbol is at the end. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <rdma/fi_rma.h>

#include "daemon/fabric/libfabric_words.h"
#include "daemon/valkey/rdma/libfabric_pair.h"

static int connect_pair(struct rdma_queue_pair *pair)
{
    if (pair->state != PAIR_OPEN) {
        return -EISCONN;
    }
    pair->state = PAIR_CONNECTING;
    connector_begin(pair);
    return 0;
}

static int local_address(const struct rdma_queue_pair *pair, char *text, size_t size)
{
    struct sockaddr_storage address = {0};
    size_t length = sizeof(address);
    int error = fi_getname(&pair->ep->fid, &address, &length);
    const void *number = &((const struct sockaddr_in *)&address)->sin_addr;

    if (error != 0) {
        return error;
    }
    if (address.ss_family == AF_INET6) {
        number = &((const struct sockaddr_in6 *)&address)->sin6_addr;
    }
    return inet_ntop(address.ss_family, number, text, (socklen_t)size) != NULL ? 0 : -errno;
}

static int descriptors(const struct rdma_queue_pair *pair, int found[2])
{
    int error = fi_control(&pair->cq->fid, FI_GETWAIT, &found[0]);

    found[1] = pair->connector.watch;
    return error != 0 ? error : 2;
}

/* The slot of the next send, which counts once it was posted; NULL with the error when there can be none. */
static struct pair_slot *next_slot(struct rdma_queue_pair *pair, uint64_t token, int *error)
{
    struct pair_slot *slot = &pair->slots[pair->next];

    if (pair->state != PAIR_CONNECTED) {
        *error = -ENOTCONN;
        return NULL;
    }
    if (pair->under_way == pair->sends) {
        *error = -EAGAIN;
        return NULL;
    }
    slot->token = token;
    return slot;
}

static int posted(struct rdma_queue_pair *pair, ssize_t status)
{
    if (status == 0) {
        pair->next = (pair->next + 1) % pair->sends;
        pair->under_way++;
    }
    return (int)status;
}

static int send_message(struct rdma_queue_pair *pair, const uint8_t message[RDMA_CONTROL_BYTES], uint64_t token)
{
    int error = 0;
    struct pair_slot *slot = next_slot(pair, token, &error);
    uint8_t *copy;

    if (slot == NULL) {
        return error;
    }
    copy = pair->memory.control + (RDMA_RECEIVES + (size_t)pair->next) * RDMA_CONTROL_BYTES;
    memcpy(copy, message, RDMA_CONTROL_BYTES);
    return posted(pair, fi_send(pair->ep, copy, RDMA_CONTROL_BYTES, fi_mr_desc(pair->memory.control_mr),
                                FI_ADDR_UNSPEC, slot));
}

static int write_staged(struct rdma_queue_pair *pair, size_t offset, size_t length, uint64_t remote_address,
                        uint32_t rkey, uint64_t token)
{
    int error = 0;
    struct pair_slot *slot;

    if (length == 0 || length > pair->staging_bytes || offset > pair->staging_bytes - length) {
        return -EINVAL;
    }
    slot = next_slot(pair, token, &error);
    if (slot == NULL) {
        return error;
    }
    return posted(pair, fi_writedata(pair->ep, pair->memory.staging + offset, length,
                                     fi_mr_desc(pair->memory.staging_mr), length, FI_ADDR_UNSPEC, remote_address, rkey,
                                     slot));
}

static void disconnect(struct rdma_queue_pair *pair)
{
    if (pair->state == PAIR_CONNECTED && !pair->disconnecting) {
        pair->disconnecting = true;
        fi_shutdown(pair->ep, 0); /* fails where the peer was first */
    }
}

static const struct rdma_ops table = {
    .abi = RDMA_OPS_ABI,
    .version = libfabric_version,
    .open = pair_open,
    .connect = connect_pair,
    .local_address = local_address,
    .descriptors = descriptors,
    .try_wait = pair_try_wait,
    .poll = pair_poll,
    .send = send_message,
    .write = write_staged,
    .disconnect = disconnect,
    .close = pair_close,
    .text = libfabric_text,
};

__attribute__((visibility("default"))) const struct rdma_ops *glide_rdmad_valkey_rdma_ops(void);

const struct rdma_ops *glide_rdmad_valkey_rdma_ops(void)
{
    return &table;
}
