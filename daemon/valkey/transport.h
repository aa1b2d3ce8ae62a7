/*
 * Transports of the RESP byte stream, behind one table of functions: TCP, Unix sockets, TLS over TCP, and RDMA. Another
 * one is a class of its own here and a line in transport_class_for.
 *
 * A transport owns its descriptors and its place in the event loop; it reports by callbacks on the loop's thread, never
 * from inside open, read, write or close. Nothing above assumes a descriptor or POLLOUT: RDMA has several descriptors
 * and no such event.
 */
#ifndef GRD_VALKEY_TRANSPORT_H
#define GRD_VALKEY_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/base/pin_account.h"
#include "daemon/valkey/offload.h"
#include "daemon/valkey/tls_context.h"

#define TRANSPORT_WHY_BYTES 768 /* a certificate is told with both its names, and what to do; of several addresses */

enum transport_kind {
    TRANSPORT_UNSAID, /* "host:port" */
    TRANSPORT_TCP,    /* "tcp://host:port", with TLS or without */
    TRANSPORT_RDMA,   /* "rdma://host:port" */
    TRANSPORT_UNIX,   /* "unix:/path" */
};

struct transport_address {
    char *text; /* as configured: "host:port", "[::1]:port", "rdma://host:port", "unix:/path" */
    char *host; /* without brackets, a name or a numeric address; or the path of a Unix socket */
    char *port; /* NULL for a Unix socket */
    enum transport_kind kind;
};

struct transport_settings {
    unsigned connect_timeout_ms; /* from open to connected, all together: look-up, every address, handshake */
    struct tls_store *tls;       /* NULL: without TLS */
    const struct pin_account *pins; /* of what RDMA registers for a connection; NULL: not counted */
};

struct transport_events {
    void (*connected)(void *context);
    /* Call read until it returns 0 or fails: there may be no second event for bytes that are here already. */
    void (*readable)(void *context);
    void (*writable)(void *context); /* after a write that took less than it was given */
    /* Ended by the other side or failed, `error` a negative errno; then call close. `why` lives until close. */
    void (*closed)(void *context, int error, const char *why);
};

/* The first member of every transport; the rest belongs to its class. */
struct transport {
    const struct transport_class *class;
};

struct transport_class {
    const char *name; /* for status: "tcp", "tls", "unix", "rdma" */
    /*
     * Begins to connect (DNS and files on a worker). 0 and the transport, or negative with `why` and no callback ever.
     * A name's addresses are tried in turn, each with an equal share of the time that is left. `address` and `settings`
     * must live until close.
     */
    int (*open)(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                const struct transport_settings *settings, const struct transport_events *events, void *context,
                struct transport **transport, char why[TRANSPORT_WHY_BYTES]);
    /* Bytes read; 0: nothing now; negative: `closed` follows or has come. */
    ssize_t (*read)(struct transport *transport, void *buffer, size_t capacity);
    /* Tries at once. Bytes taken, which from now on may have left; fewer than given: `writable` will come. Negative:
     * `closed` follows; none of these bytes left. Under TLS a byte may have left as soon as one of its record has; over
     * RDMA none is taken outside of `writable`, which comes at the end of the loop's turn for all that wait. */
    ssize_t (*write)(struct transport *transport, const void *bytes, size_t length);
    /* While held no `readable` comes, so that the server has to wait: for who has no room for more. Call read once
     * after letting go: bytes that are here already give no event. */
    void (*hold)(struct transport *transport, bool held);
    /* An answer has come to a request whose last byte was number `bytes`, counted from 1, of all that write has taken.
     * NULL where nobody needs to know: RDMA has no other proof that the server keeps up. */
    void (*answered)(struct transport *transport, uint64_t bytes);
    /* Numeric address of our own side, reachable from the server; negative where there is none (Unix socket). */
    int (*local_address)(const struct transport *transport, char *text, size_t size);
    /*
     * Of tcp alone, for TLS, which finds out only after `connected` whether the peer will do. It will not: the name's
     * next address is tried, as after a connection that was refused, and `connected` or `closed` follows, not from
     * inside; `why` is part of what the latter says. Allowed inside any callback, `closed` too.
     */
    void (*refuse)(struct transport *transport, int error, const char *why);
    /* uv_now at which the share of time of the address in use ends. */
    uint64_t (*attempt_ends)(const struct transport *transport);
    /* Ends it and frees it; no callback afterwards. Allowed inside any callback. */
    void (*close)(struct transport *transport);
};

/* Splits "host:port", "[v6]:port", either behind "tcp://" or "rdma://", or "unix:/path". 0, -EINVAL with `why`, or
 * -ENOMEM; free with transport_address_free, which accepts a zeroed or freed one. */
int transport_address_parse(const char *text, struct transport_address *address, char why[TRANSPORT_WHY_BYTES]);
void transport_address_free(struct transport_address *address);

/* The class that carries an address; `tls` as in the settings. */
const struct transport_class *transport_class_for(const struct transport_address *address, const struct tls_store *tls);

/* Implemented in transport_stream.c: one code for both, since they differ in how an address becomes a sockaddr. */
extern const struct transport_class transport_tcp;
extern const struct transport_class transport_unix;

/* transport_tls.c: over transport_tcp. */
extern const struct transport_class transport_tls;

/* rdma/transport_rdma.c: Valkey over RDMA. */
extern const struct transport_class transport_rdma;

#endif
