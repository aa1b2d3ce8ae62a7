/*
 * The table of operations behind which the RDMA connection of "Valkey Over RDMA" stands: one reliable queue pair with
 * its completion queue, events, registered window, staging memory and receives.
 *
 * It is filled by one shared object of ours, glide-rdmad-valkey-rdma.so (libfabric_*.c in this folder, libfabric's
 * verbs FI_EP_MSG endpoints), loaded when the first node asks for RDMA, so that a daemon that needs none loads nothing.
 * Tests fill the same table with a fake queue pair.
 *
 * The object knows nothing of the protocol but what a queue pair must know: that a receive takes RDMA_CONTROL_BYTES,
 * that there are RDMA_RECEIVES of them, and that one is posted again as soon as its completion was read. Windows,
 * advertisements, offsets and the counting of messages are stream.c's.
 *
 * Functions return 0 (or a count) or a negative errno / libfabric error (numbers below 256 are errno's). `open`,
 * `disconnect` and `close` may block and are called on a worker; everything else never blocks. One thread at a time has
 * a queue pair.
 */
#ifndef GRD_VALKEY_RDMA_OPS_H
#define GRD_VALKEY_RDMA_OPS_H

#include <stddef.h>
#include <stdint.h>

#define RDMA_OPS_ABI 1
#define RDMA_OPS_SYMBOL "glide_rdmad_valkey_rdma_ops"
#define RDMA_WHY_BYTES 512
#define RDMA_CONTROL_BYTES 32
#define RDMA_RECEIVES 1024

struct rdma_settings {
    const char *host;       /* numeric IPv4 or IPv6 address of the server */
    const char *port;
    size_t window_bytes;    /* what the server writes into; whole pages */
    size_t staging_bytes;   /* what is written to the server leaves from here; whole pages */
    unsigned sends;         /* writes and control messages that may be under way at once */
};

struct rdma_queue_pair; /* opaque, of the object */

/* Memory of a queue pair, registered, on pages of its own; valid from open to close. */
struct rdma_memory {
    const uint8_t *window;   /* the peer writes here at any time: copy before checking */
    uint64_t window_address; /* with window_rkey: what an advertisement says */
    uint32_t window_rkey;
    uint8_t *staging;
    size_t pinned_bytes;     /* all that it has registered, control messages and queues as far as they are known */
};

/* REFUSED, DISCONNECTED and FAILED: one of them is the last event; what is left to do is to close. */
enum rdma_event_kind {
    RDMA_CONNECTED,
    RDMA_REFUSED,      /* the set-up failed: nothing was sent */
    RDMA_DISCONNECTED, /* by the peer or by us, after every completion that came before it */
    RDMA_FAILED,       /* a completion with an error, or a queue that failed: the connection is lost */
    RDMA_MESSAGE,      /* a SEND of the peer */
    RDMA_PAYLOAD,      /* an RDMA WRITE WITH IMMEDIATE of the peer: that many bytes more are in the window */
    RDMA_SENT,         /* one of our writes or control messages was acknowledged by the peer's NIC, in order */
};

struct rdma_event {
    enum rdma_event_kind kind;
    uint32_t immediate;                     /* PAYLOAD: as the peer gave it, unchecked, in host order */
    size_t length;                          /* MESSAGE: bytes of the SEND, which may be other than RDMA_CONTROL_BYTES */
    uint8_t message[RDMA_CONTROL_BYTES];    /* MESSAGE: a copy */
    uint64_t token;                         /* SENT: as given to send or write */
    int status;                             /* REFUSED, FAILED: negative errno; REFUSED with -ECONNABORTED: the peer has
                                               accepted, and took it back before the connection was established */
    /* REFUSED: the reason that the peer gave (positive) or the errno of the connection manager (negative); FAILED: the
     * status of the work completion, or with -ECONNREFUSED such a reason, since a refusal may overtake the end of the
     * connecting. 0: none, `status` says all. */
    int provider_status;
};

struct rdma_ops {
    uint32_t abi; /* RDMA_OPS_ABI */

    /* "2.1": of the libfabric that was loaded. */
    void (*version)(char *text, size_t size);

    /* Blocks for up to some seconds: finds device and route, opens the endpoint, registers memory, posts every receive.
     * Negative with a sentence in `why`, and nothing is left. */
    int (*open)(const struct rdma_settings *settings, struct rdma_queue_pair **pair, struct rdma_memory *memory,
                char why[RDMA_WHY_BYTES]);
    /* Begins to connect: RDMA_CONNECTED, or RDMA_REFUSED, follows. */
    int (*connect)(struct rdma_queue_pair *pair);
    /* Numeric address of our own side, once connected. */
    int (*local_address)(const struct rdma_queue_pair *pair, char *text, size_t size);

    /* Descriptors that become readable when poll is due: their number, at most 2. They are the queue pair's own. */
    int (*descriptors)(const struct rdma_queue_pair *pair, int descriptors[2]);
    /* 0: sleeping on the descriptors is safe; -EAGAIN: poll first. */
    int (*try_wait)(struct rdma_queue_pair *pair);
    /* Events in the order of their completions; fewer than `capacity`: there are none left now. Posts again each receive
     * whose completion it reads. */
    size_t (*poll)(struct rdma_queue_pair *pair, struct rdma_event *events, size_t capacity);

    /* SEND of a control message, which is copied. -EAGAIN: no free slot, try again after a SENT. */
    int (*send)(struct rdma_queue_pair *pair, const uint8_t message[RDMA_CONTROL_BYTES], uint64_t token);
    /* RDMA WRITE WITH IMMEDIATE `length` of staging[offset, offset + length); these bytes stay untouched until its SENT.
     * -EAGAIN as send. */
    int (*write)(struct rdma_queue_pair *pair, size_t offset, size_t length, uint64_t remote_address, uint32_t rkey,
                 uint64_t token);

    /* Begins to disconnect; the peer sees it, completions may still come. */
    void (*disconnect)(struct rdma_queue_pair *pair);
    /* Ends and frees it, with its memory and descriptors, in any state. May block. */
    void (*close)(struct rdma_queue_pair *pair);

    const char *(*text)(int error);
};

typedef const struct rdma_ops *(*rdma_ops_function)(void);

#endif
