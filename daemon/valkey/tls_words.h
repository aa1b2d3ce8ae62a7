/*
 * What went wrong with TLS, in words for an operator: which check failed, for which certificate, and what to do. Texts
 * of the other side are made printable. Pure functions.
 */
#ifndef GRD_VALKEY_TLS_WORDS_H
#define GRD_VALKEY_TLS_WORDS_H

#include <openssl/ssl.h>
#include <stddef.h>

/* The certificate that `verification` stopped at; `wanted` is the name that was looked for. */
void tls_words_certificate(X509_STORE_CTX *verification, const char *wanted, char *why, size_t size);

/* Of an entry of OpenSSL's error queue, 0 when it is empty: what it means, with what to do. */
void tls_words_error(unsigned long code, char *why, size_t size);

#endif
