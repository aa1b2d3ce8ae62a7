/*
 * An OpenSSL context from files. Everything is read here, also the folder of authorities: OpenSSL itself would open
 * files of such a folder during a handshake, on the loop. Blocking; thread safe, for workers.
 */
#ifndef GRD_VALKEY_TLS_FILES_H
#define GRD_VALKEY_TLS_FILES_H

#include <stdint.h>

#include "daemon/valkey/tls_context.h"

/* A number that differs when a file has changed: device, inode, size and times of each. */
uint64_t tls_files_print(const struct tls_settings *settings);

/* A context to be given to SSL_CTX_free; or NULL, and `why` names the key of the configuration and the file. */
SSL_CTX *tls_files_read(const struct tls_settings *settings, char why[TLS_WHY_BYTES]);

#endif
