#include "tests/unit/rdma_stand_in.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>

struct rdma_stand_in rdma_stand_in;

/* Its texts must live until the transport is closed. */
static struct transport_address to[64];
static unsigned used;

static int fake_open(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                     const struct transport_settings *settings, const struct transport_events *events, void *context,
                     struct transport **transport, char why[TRANSPORT_WHY_BYTES])
{
    /* Nobody listens on port 1. */
    const char *target = rdma_stand_in.does == RDMA_IS_REFUSED ? "127.0.0.1:1" : rdma_stand_in.leads_to;
    char text[128];

    rdma_stand_in.attempts++;
    snprintf(rdma_stand_in.address, sizeof(rdma_stand_in.address), "%s", address->text);
    ck_assert_int_eq(address->kind, TRANSPORT_RDMA);
    if (rdma_stand_in.does == RDMA_NO_LIBRARY) {
        snprintf(why, TRANSPORT_WHY_BYTES, "the library is not there");
        return -ENOENT;
    }
    snprintf(text, sizeof(text), "127.0.0.1:%s", address->port);
    ck_assert_uint_lt(used, sizeof(to) / sizeof(to[0]));
    ck_assert_int_eq(transport_address_parse(target != NULL ? target : text, &to[used], why), 0);
    return transport_tcp.open(loop, offload, &to[used++], settings, events, context, transport, why);
}

const struct transport_class transport_rdma = {.name = "rdma", .open = fake_open};
