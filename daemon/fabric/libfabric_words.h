/*
 * What both objects that call libfabric say of it: glide-rdmad-fabric.so and glide-rdmad-valkey-rdma.so. Included by
 * their files (libfabric_*.c) only.
 */
#ifndef GRD_FABRIC_LIBFABRIC_WORDS_H
#define GRD_FABRIC_LIBFABRIC_WORDS_H

#include <stddef.h>

#include <rdma/fabric.h>

/* The interface that this code was written for; a newer library keeps serving it. */
#define LIBFABRIC_API FI_VERSION(2, 0)

/* "2.1": of the library that was loaded. */
void libfabric_version(char *text, size_t size);
/* The library's words for an error, of either sign. */
const char *libfabric_text(int error);

#endif
