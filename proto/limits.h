/*
 * Limits of the control protocol, in one place. Both sides include this file; PROTOCOL.md quotes it.
 */
#ifndef GRD_PROTO_LIMITS_H
#define GRD_PROTO_LIMITS_H

#include <stdint.h>

/* Version that `hello` negotiates. A daemon refuses a newer one and serves every older one down to MIN. */
#define PROTO_VERSION 1
#define PROTO_VERSION_MIN 1

/* One JSON message a packet, bytes. */
#define PROTO_MESSAGE_BYTES (64 * 1024)

/* The kernel attaches at most SCM_MAX_FD descriptors to a packet; we must be able to receive, and close, them all. */
#define PROTO_FDS_RECEIVED_MAX 253

/* Socket buffer asked for on both sides, bytes: the default queues only some 167 small packets. */
#define PROTO_SOCKET_BUFFER_BYTES (256 * 1024)

/* A key is 1 to 16 KiB of any bytes; one request names at most 256 of them. */
#define PROTO_KEY_BYTES (16 * 1024)
#define PROTO_KEYS 256

/* Entries of a page of a long list. */
#define PROTO_PAGE_ENTRIES 256

/* The message of an error answer is cut beyond this, bytes, so that an error answer always fits a packet. */
#define PROTO_ERROR_MESSAGE_BYTES 4096

/* `id` of a request: 1 .. 2^53-1, so that it survives every JSON implementation. */
#define PROTO_ID_MAX ((INT64_C(1) << 53) - 1)

/* Sizes and offsets, bytes: JSON integers, at most 2^53-1 for the same reason. */
#define PROTO_SIZE_MAX ((UINT64_C(1) << 53) - 1)

/* Free text of a client: its name in `hello`, the label of a region; bytes of UTF-8. */
#define PROTO_TEXT_BYTES 256

/* Time parameters, ms: 1 ms to 30 days. */
#define PROTO_TIME_MS_MAX UINT64_C(2592000000)

/* Time to live of a key, ms: 1 ms to 100 years. */
#define PROTO_TTL_MS_MAX UINT64_C(3153600000000)

/* A BLOB command takes at most so many (rkey, address, length) triples (large-object server, limits). */
#define PROTO_WINDOW_SLICES 256

#define PROTO_CLIENT_SOCKET "/run/glide-rdmad/glide-rdmad.sock"
#define PROTO_ADMIN_SOCKET "/run/glide-rdmad/admin.sock"

#endif
