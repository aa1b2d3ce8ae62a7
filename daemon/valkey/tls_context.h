/*
 * What TLS connections share: the certificates and the key, read from files.
 *
 * Concepts. A store holds the settings and the OpenSSL context that was made of their files last. Each new connection
 * asks for the context by a load: a worker looks at the files, and reads them again when one has changed, so that
 * renewed certificates work without a restart. Connections that exist keep the context that they were made with.
 *
 * The server's certificate is always verified: chain, dates and name, TLS 1.2 or newer. There is no switch to go
 * without: whoever can put himself between the two would get the password, and with it the remote keys of client
 * memory.
 *
 * Secrets. The text of the key is wiped after reading, and so is whatever OpenSSL gives back; the key's own numbers lie
 * in OpenSSL's secure heap where the system grants that (locked, and left out of core files). What OpenSSL derives from
 * an RSA key for calculating, and the keys of the connections, are in ordinary memory: that is its choice, not ours.
 *
 * Loop thread only.
 */
#ifndef GRD_VALKEY_TLS_CONTEXT_H
#define GRD_VALKEY_TLS_CONTEXT_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "daemon/valkey/offload.h"

#define TLS_WHY_BYTES 512

/* As configured; NULL where not set. Whether they fit together is checked with the configuration. */
struct tls_settings {
    bool enabled;
    char *ca; /* file or folder; NULL: the system's authorities */
    char *certificate, *key; /* both or none */
    char *server_name; /* NULL: the host of the address */
};

struct tls_store;
struct tls_load;

/* One reference, the caller's; the settings are copied. NULL when out of memory. Reads no file. */
struct tls_store *tls_store_create(const struct tls_settings *settings);
/* NULL is allowed. */
void tls_store_unref(struct tls_store *store);

/* NULL: the host of the address. Lives as long as the store. */
const char *tls_store_server_name(const struct tls_store *store);

/* `context`: to be given to SSL_CTX_free; or NULL, and `why` names the file, what is wrong and what to do. */
typedef void (*tls_load_done)(void *owner, SSL_CTX *context, const char *why);

/* Looks at the files on a worker; `done` is called once, later. NULL when out of memory. */
struct tls_load *tls_load_start(struct tls_store *store, struct offload *offload, tls_load_done done, void *owner);

/* Look away: `done` is not called any more. Not after `done`. */
void tls_load_cancel(struct tls_load *load);

#endif
