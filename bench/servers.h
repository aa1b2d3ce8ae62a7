/*
 * What a benchmark runs against: a real valkey-server with the test module and a real glide-rdmad, in a temporary
 * folder, on a free loopback port.
 */
#ifndef GRD_BENCH_SERVERS_H
#define GRD_BENCH_SERVERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct servers {
    char folder[64];
    char address[64];     /* of valkey-server */
    char socket_path[96]; /* of glide-rdmad */
    pid_t valkey, daemon;
};

/* Starts both and waits until they serve; prints what failed and returns false otherwise. */
bool servers_start(struct servers *servers, const char *module, const char *daemon, unsigned connections);

/* Programs of this process find the object that calls libfabric beside the daemon, as the daemon does. */
void servers_find_fabric_object(const char *daemon);

/* The bytes that the server's module moves at once; 0: it did not say. */
uint64_t servers_chunk_bytes(const struct servers *servers);

/* Ends both and removes the folder. */
void servers_stop(struct servers *servers);

#endif
