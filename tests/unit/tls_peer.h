/*
 * The other end of a TLS connection without a socket: an OpenSSL server that the test turns by hand, below a transport
 * of the class "tcp" that takes and gives as many bytes as the test says. Link it in place of transport_stream.c.
 */
#ifndef GRD_TESTS_TLS_PEER_H
#define GRD_TESTS_TLS_PEER_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "daemon/valkey/transport.h"

struct tls_peer {
    SSL *ssl;                /* the server; NULL before open */
    size_t piece;            /* bytes of one read or write below, at most; 0: none */
    size_t room;             /* bytes that are taken in all, SIZE_MAX: any */
    bool write_fails;        /* with -EPIPE, without a byte */
    bool ends;               /* nothing comes any more, and then the end */
    bool silent;             /* the server does nothing */
    unsigned addresses;      /* that are tried after the first: each begins with a server of its own */
    unsigned refusals;
    uint64_t attempt_ends;   /* of the address in use, uv_now; 0: never */
    const char *early;       /* said as soon as the server's side of the handshake is done, then NULL */
    unsigned closes;
    size_t from_daemon;      /* encrypted bytes that were taken */
    char plain[1 << 20];     /* what the server has read */
    size_t plain_length;
};

extern struct tls_peer tls_peer;

/* Makes a certificate for `names` (as in openssl.cnf) in a file that serves as tls_ca; `version` at most. */
void tls_peer_start(const char *ca_path, const char *names, int version);
void tls_peer_stop(void);
/* Lets the server work, and tells the transport above what there is; false when nothing happened. */
bool tls_peer_turn(void);
/* The server sends plain bytes. */
void tls_peer_say(const void *bytes, size_t length);

#endif
