/*
 * The table of operations behind which everything that calls libfabric stands.
 *
 * It is filled by one shared object of ours, glide-rdmad-fabric.so (libfabric_ops.c), loaded at start, so that a daemon
 * on a host without libfabric starts and says why it cannot carry transfers, and so that an administrator can choose
 * the libfabric that is loaded (docs/architecture.md, "libfabric"). Tests fill the same table with a fake to force
 * faults.
 *
 * Functions return 0 (or a count) or a negative errno / libfabric error (their numbers below 256 are errno's); `text`
 * turns one into words. Thread safety: one endpoint is progressed by one thread at a time; everything else may be
 * called from several threads at once (FI_THREAD_SAFE). Every *_close is called once for its object, whatever it
 * returns: efa and ofi_rxm free the object even when they fail.
 */
#ifndef GRD_FABRIC_OPS_H
#define GRD_FABRIC_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_OPS_ABI 2
#define FABRIC_OPS_SYMBOL "glide_rdmad_fabric_ops"
#define FABRIC_ADDRESS_BYTES 64 /* largest fi_getname() we accept: EFA 32, IPv6 28 */
#define FABRIC_WHY_BYTES 1024 /* three places looked at, each with the linker's sentence */
#define FABRIC_NICS 32

struct fabric_settings {
    const char *provider;   /* "tcp", "efa-direct" or "verbs": never another than the configured one */
    const char *bind;       /* tcp, verbs: local address to bind, text; NULL: the provider's first */
    const char *interfaces; /* comma separated domain names, NULL for all */
    const char *nic;        /* of query's list: domain_open opens this one; NULL: the first */
    const char *near;       /* tcp with interfaces, without bind: an address of the family that is wanted, or NULL */
};

/* What a NIC (for tcp: the host) offers. */
struct fabric_nic {
    char name[64];
    uint64_t max_message_bytes;
    uint64_t registrations; /* domain_attr->mr_cnt; 0: not stated */
    bool absent;            /* listed in settings->interfaces, but not there now */
    bool virtual_addresses; /* remote addresses are virtual ones, else offsets from the start of the MR */
};

struct fabric_domain;   /* a fabric and a domain: opaque, of the object */
struct fabric_endpoint; /* an endpoint with CQ, AV and EQ of its own */
struct fabric_mr;       /* a memory registration */

enum { FABRIC_REMOTE_READ = 1, FABRIC_REMOTE_WRITE = 2 };

struct fabric_ops {
    uint32_t abi; /* FABRIC_OPS_ABI */
    /* The mapping of registered memory must stay accessible even where the provider pins: bytes move through it, as a
     * test's fake moves them. */
    bool keep_mappings;

    /* "2.1" and "tcp efa verbs ...": of the library that was loaded. */
    void (*version)(char *text, size_t size);
    void (*providers)(char *text, size_t size);

    /* NICs of the configured provider: their number, or negative with a sentence in `why`. With settings->interfaces
     * these, in their order, as long as one of them is there; on tcp without, or with a bind, the host as one NIC. */
    int (*query)(const struct fabric_settings *settings, struct fabric_nic *nics, size_t capacity,
                 char why[FABRIC_WHY_BYTES]);

    /* A domain on settings->nic; on tcp bound to settings->bind, or an address of the interface. */
    int (*domain_open)(const struct fabric_settings *settings, struct fabric_domain **domain,
                       char why[FABRIC_WHY_BYTES]);
    int (*domain_close)(struct fabric_domain *domain);

    /* An enabled endpoint and its address. */
    int (*endpoint_open)(struct fabric_domain *domain, struct fabric_endpoint **endpoint,
                         uint8_t address[FABRIC_ADDRESS_BYTES], size_t *address_length, char why[FABRIC_WHY_BYTES]);
    /* Closes the endpoint alone, the first step of revocation; its queues stay until endpoint_free. */
    int (*endpoint_close)(struct fabric_endpoint *endpoint);
    /* Closes CQ, AV and EQ, and frees the object; after endpoint_close. The first error. */
    int (*endpoint_free)(struct fabric_endpoint *endpoint);
    /* Inserts one peer address in the AV. */
    int (*endpoint_add_peer)(struct fabric_endpoint *endpoint, const uint8_t *address, size_t length);

    /* Descriptor that is readable when progress is due; -1: this provider needs no progress from us. */
    int (*endpoint_wait_fd)(struct fabric_endpoint *endpoint);
    /* Reads the CQ until it is empty, error entries included: entries read, or negative (the queue failed). */
    int (*endpoint_progress)(struct fabric_endpoint *endpoint);
    /* 0: sleeping on the wait fd is safe; -EAGAIN: progress first. */
    int (*endpoint_try_wait)(struct fabric_endpoint *endpoint);

    /* Registers [base, base + length) for remote access and says the key that travels. */
    int (*mr_open)(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **mr,
                   uint64_t *key);
    int (*mr_close)(struct fabric_mr *mr);

    const char *(*text)(int error);
};

typedef const struct fabric_ops *(*fabric_ops_function)(void);

#endif
