/*
 * One blocked command: RDMA_GET, RDMA_SET or TCP_SET, from its start to its reply.
 *
 * Concepts
 *   A transfer is started on the main thread, after every check, and blocks its client. A worker thread cuts the
 *   value in chunks and pieces, hands these to the endpoints, waits for them, computes the checksum, and applies the
 *   fault switches. What belongs to the key space (the commit of a SET) or to other clients is done on the main
 *   thread again, also when the client has left. The reply can come before the end (test-error-while-running):
 *   answering and moving bytes are independent of each other.
 *
 *   It is counted: one reference for the worker and one for each piece the fabric still holds, which keeps the value
 *   and the peer's address alive for as long as bytes may move.
 */
#ifndef LARGEOBJ_TRANSFER_H
#define LARGEOBJ_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "module_api.h"

struct blob;
struct peer;

enum transfer_kind {
    TRANSFER_RDMA_GET,
    TRANSFER_RDMA_SET,
    TRANSFER_TCP_SET,
};

struct region {
    uint64_t rkey;
    uint64_t addr;
    uint64_t len;
};

struct transfer_request {
    enum transfer_kind kind;
    struct vm_string *key;
    struct blob *blob;
    struct peer *peer; /* NULL for TCP_SET */
    const struct region *regions;
    size_t region_count;
    bool check_crc;
    uint32_t crc;
};

/* Blocks the client and starts the transfer, or answers an error. Takes references of blob and peer, and copies the
 * rest. Main thread. */
void transfer_start(struct vm_ctx *ctx, const struct transfer_request *request);

/* The connection has ended: lets go of a transfer that was to be never answered. Main thread. */
void transfer_client_left(uint64_t client_id);

/* Keeps what the main thread needs for commits. For OnLoad. */
void transfer_init(struct vm_ctx *ctx);

/* Store of a blob under a key, and its reply text: NULL when it is stored or stale, which both answer OK. */
const char *transfer_store(struct vm_ctx *ctx, struct vm_string *key, struct blob *blob);

#endif
