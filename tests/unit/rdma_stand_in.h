/* A class "rdma" in the place of the real one: what it does is the test's to say. It leads to a TCP server. */
#ifndef GRD_TESTS_RDMA_STAND_IN_H
#define GRD_TESTS_RDMA_STAND_IN_H

#include "daemon/valkey/transport.h"

struct rdma_stand_in {
    enum { RDMA_NO_LIBRARY, RDMA_IS_REFUSED, RDMA_WORKS } does;
    const char *leads_to; /* "127.0.0.1:port"; NULL: the same port of 127.0.0.1 */
    unsigned attempts;
    char address[128]; /* of the last one */
};

extern struct rdma_stand_in rdma_stand_in;

#endif
