/* Who is reached over RDMA, and where: transport, rdma_port and rdma_nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/reach.h"
#include "tests/unit/unit_main.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct reach *reach;
static char why[TRANSPORT_WHY_BYTES];

static void start(bool rdma, unsigned port, const char *nodes)
{
    free(reach);
    ck_assert_msg(reach_create(rdma, port, nodes, &reach, why) == 0, "%s", why);
}

/* "host:port" over RDMA, or "tcp". */
static void expect(const char *node, const char *wanted)
{
    struct transport_address address;
    struct topology_endpoint at;
    char text[TOPOLOGY_TEXT_BYTES] = "tcp";

    ck_assert_int_eq(transport_address_parse(node, &address, why), 0);
    if (reach_over_rdma(reach, &address, &at)) {
        topology_endpoint_text(&at, text);
    }
    ck_assert_msg(strcmp(text, wanted) == 0, "%s leads to %s instead of %s", node, text, wanted);
    transport_address_free(&address);
}

START_TEST(over_tcp_unless_said)
{
    expect("10.0.0.1:6379", "tcp"); /* without rules */
    start(false, 0, NULL);
    expect("10.0.0.1:6379", "tcp");
    expect("rdma://10.0.0.1:6379", "10.0.0.1:6379");
    ck_assert(!reach_has_rdma(reach));
    free(reach);
}
END_TEST

START_TEST(over_rdma_at_the_same_address)
{
    start(true, 0, NULL);
    expect("10.0.0.1:6379", "10.0.0.1:6379");
    expect("[fe80::1]:6379", "[fe80::1]:6379");
    expect("tcp://10.0.0.1:6379", "tcp");
    ck_assert(reach_has_rdma(reach));
    free(reach);
}
END_TEST

START_TEST(one_port_for_all)
{
    start(true, 7100, NULL);
    expect("10.0.0.1:6379", "10.0.0.1:7100");
    expect("rdma://10.0.0.1:6379", "10.0.0.1:6379"); /* it is an RDMA address already */
    free(reach);
}
END_TEST

START_TEST(nodes_that_are_elsewhere)
{
    start(true, 7100, "10.0.0.1=192.168.7.1, 10.0.0.2=192.168.7.2:7200, 10.0.0.3:6380=192.168.7.3:7300 [fe80::1]=[fe80::2], "
                      "c.example:6379=[fe80::3]:7400");
    expect("10.0.0.1:6379", "192.168.7.1:7100");
    expect("10.0.0.2:6379", "192.168.7.2:7200");
    expect("10.0.0.3:6380", "192.168.7.3:7300");
    expect("10.0.0.3:6379", "10.0.0.3:7100");
    expect("[fe80::1]:6379", "[fe80::2]:7100");
    expect("c.example:6379", "[fe80::3]:7400");
    expect("rdma://10.0.0.1:6379", "10.0.0.1:6379");
    start(true, 0, "10.0.0.1=192.168.7.1");
    expect("10.0.0.1:6379", "192.168.7.1:6379");
    free(reach);
}
END_TEST

START_TEST(the_entry_with_the_port_is_meant)
{
    static const char *const either[] = {"a=b, a:2=c", "a:2=c, a=b"};

    for (size_t i = 0; i < COUNT(either); i++) {
        start(true, 0, either[i]);
        expect("a:1", "b:1");
        expect("a:2", "c:2");
    }
    free(reach);
}
END_TEST

START_TEST(some_over_rdma_and_others_over_tcp)
{
    start(true, 7100, "old.example=tcp, mixed.example:2=tcp");
    expect("old.example:6379", "tcp");
    expect("new.example:6379", "new.example:7100");
    expect("mixed.example:1", "mixed.example:7100");
    expect("mixed.example:2", "tcp");
    start(false, 7100, "new.example, far.example:1=10.0.0.1");
    expect("old.example:6379", "tcp");
    expect("new.example:6379", "new.example:7100");
    expect("far.example:1", "10.0.0.1:7100");
    expect("far.example:2", "tcp");
    ck_assert(reach_has_rdma(reach));
    start(false, 0, "old.example=tcp");
    ck_assert(!reach_has_rdma(reach));
    free(reach);
}
END_TEST

START_TEST(what_is_wrong_is_said)
{
    static const struct {
        const char *nodes, *why;
    } wrong[] = {
        {"=b", "the host is empty"},
        {"a=", "the host is empty"},
        {"a:=b", "the port must be a number"},
        {"a:0=b", "the port must be a number"},
        {"a=b:65536", "the port must be a number"},
        {"a=b=c", "no host name has"},
        {"::1=b", "needs brackets"},
        {"a=fe80::1", "needs brackets"},
        {"[::1=b", "[IPv6]:port"},
        {"rdma://a:1=b", "HOST or HOST:PORT"},
        {"a=rdma://b:1", "HOST or HOST:PORT"},
        {"a=unix:/b", "HOST or HOST:PORT"},
        {"a=b, a=c", "'a' is named twice"},
        {"a:1=b a:1=tcp", "'a:1' is named twice"},
    };

    for (size_t i = 0; i < COUNT(wrong); i++) {
        int status = reach_create(true, 0, wrong[i].nodes, &reach, why);
        ck_assert_msg(status == -EINVAL, "%s gave %d", wrong[i].nodes, status);
        ck_assert_msg(strstr(why, wrong[i].why) != NULL, "%s gave: %s", wrong[i].nodes, why);
        ck_assert_ptr_null(reach);
    }
}
END_TEST

START_TEST(as_many_as_a_cluster_has)
{
    static char text[(REACH_NODES_MAX + 1) * 16];
    size_t used = 0;

    for (unsigned i = 0; i < REACH_NODES_MAX; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "n%u=r%u,", i, i);
    }
    start(false, 0, text);
    expect("n1023:1", "r1023:1");
    snprintf(text + used, sizeof(text) - used, "more");
    free(reach);
    ck_assert_int_eq(reach_create(false, 0, text, &reach, why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "more than 1024 nodes"));
}
END_TEST

UNIT_MAIN("reach", over_tcp_unless_said, over_rdma_at_the_same_address, one_port_for_all, nodes_that_are_elsewhere,
          the_entry_with_the_port_is_meant, some_over_rdma_and_others_over_tcp, what_is_wrong_is_said,
          as_many_as_a_cluster_has)
