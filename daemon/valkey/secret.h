/*
 * Memory for passwords: left out of core files, and wiped before it is given back. Thread safe.
 */
#ifndef GRD_VALKEY_SECRET_H
#define GRD_VALKEY_SECRET_H

#include <stddef.h>

/* Zeroed; whole pages of its own. NULL when out of memory. */
void *secret_alloc(size_t length);
/* NULL is allowed. `length` as asked for. */
void secret_free(void *secret, size_t length);

#endif
