/* The keys of connections over RDMA: what follows from them, and what is refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"
#include "daemon/valkey/reach.h"
#include "tests/unit/unit_main.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct config config;
static char why[CONFIG_WHY_BYTES];

static int load(const char *valkey)
{
    char path[] = "/tmp/grd-config-rdma-XXXXXX";
    int fd = mkstemp(path), status;
    FILE *file = fdopen(fd, "w");

    ck_assert_ptr_nonnull(file);
    fprintf(file, "[valkey]\n%s", valkey);
    fclose(file);
    why[0] = '\0';
    status = config_load(&config, path, why);
    remove(path);
    return status;
}

START_TEST(nodes_that_nothing_is_said_of)
{
    static const struct {
        const char *keys;
        bool rdma;
    } good[] = {
        {"", false},
        {"transport = tcp\n", false},
        {"transport = rdma\naddress = a:1\n", true},
        {"address = rdma://a:1\n", false}, /* there are no others */
        {"address = rdma://a:1\ntransport = rdma\n", true},
        {"address = tcp://a:1\n", false},
        {"seeds = a:1, b:1\n", false},
        {"seeds = tcp://a:1, b:1\n", false},
        {"seeds = rdma://a:1, rdma://b:1\n", true}, /* as the seeds say */
        {"seeds = rdma://a:1, rdma://b:1\ntransport = tcp\n", false},
        {"seeds = rdma://a:1, b:1\ntransport = tcp\n", false},
        {"seeds = rdma://a:1, tcp://b:1\ntransport = rdma\n", true},
        {"seeds = a:1\ntransport = tcp\nrdma_nodes = b:1\n  c:1=d:2\n", false},
        {"seeds = a:1\ntransport = rdma\nrdma_port = 7100\nrdma_fallback = tcp\n", true},
        {"address = a:1\ntransport = rdma\nrdma_nodes = a=b:7100\n", true},
        {"address = a:1\nrdma_nodes = a=b:7100\n", false},
        {"address = a:1\nrdma_address = b\n", false}, /* the one server alone */
        {"transport = rdma\nrdma_address = [::1]:7100\n", true},
        {"address = rdma://a:1\npassword_file = /p\nrdma_auth_in_clear = yes\n", false},
        {"seeds = a:1\npassword_file = /p\n", false},
    };

    for (size_t i = 0; i < COUNT(good); i++) {
        ck_assert_msg(load(good[i].keys) == 0, "%s gave: %s", good[i].keys, why);
        ck_assert_msg(config.valkey.reach->rdma == good[i].rdma, "%s", good[i].keys);
        config_free(&config);
    }
}
END_TEST

START_TEST(one_server_at_another_rdma_address)
{
    static const struct {
        const char *keys, *host, *port;
    } cases[] = {
        {"address = a:1\nrdma_address = b\n", "b", "1"},
        {"address = a:1\nrdma_address = b\nrdma_port = 2\n", "b", "2"},
        {"address = a:1\nrdma_address = b:3\nrdma_port = 2\n", "b", "3"},
        {"address = [::1]:1\nrdma_address = [fd00::1]:3\n", "fd00::1", "3"},
        {"rdma_address = b\ntransport = rdma\n", "b", "6379"},
    };
    struct transport_address address;
    struct topology_endpoint at;

    for (size_t i = 0; i < COUNT(cases); i++) {
        ck_assert_msg(load(cases[i].keys) == 0, "%s gave: %s", cases[i].keys, why);
        ck_assert_int_eq(transport_address_parse(config.valkey.address, &address, why), 0);
        ck_assert(reach_over_rdma(config.valkey.reach, &address, &at));
        ck_assert_str_eq(at.host, cases[i].host);
        ck_assert_str_eq(at.port, cases[i].port);
        transport_address_free(&address);
        config_free(&config);
    }
}
END_TEST

START_TEST(what_would_surprise_is_refused)
{
    static const struct {
        const char *keys, *why;
    } wrong[] = {
        {"transport = udp\n", "transport: \"udp\" is none of tcp, rdma"},
        {"rdma_fallback = yes\n", "rdma_fallback: \"yes\" is none of none, tcp"},
        {"rdma_fallback =\n", "[valkey] rdma_fallback must not be empty"},
        {"rdma_port = 65536\n", "outside 0..65535"},
        /* How would the nodes be reached that the cluster names? */
        {"seeds = rdma://a:1, b:1\n", "set transport"},
        {"seeds = rdma://a:1, tcp://b:1\n", "set transport"},
        /* Two that say different things. */
        {"address = rdma://a:1\ntransport = tcp\n", "says its transport itself"},
        {"address = tcp://a:1\ntransport = rdma\n", "says its transport itself"},
        {"address = unix:/a\ntransport = rdma\n", "says its transport itself"},
        {"address = rdma://a:1\nrdma_port = 2\n", "says where the server is"},
        {"address = rdma://a:1\nrdma_nodes = a=b\n", "says where the server is"},
        {"address = rdma://a:1\nrdma_address = b\n", "rdma_address is set, but address = rdma://a:1 says where"},
        {"address = unix:/a\nrdma_address = b\n", "rdma_address is set, but address = unix:/a says where"},
        {"seeds = a:1\nrdma_address = b\n", "with seeds, write the servers that are reached elsewhere as rdma_nodes"},
        {"address = a:1\nrdma_address = b\nrdma_nodes = a=c\n", "with rdma_nodes, write"},
        {"rdma_address = b, c\n", "rdma_address = b, c is not one"},
        {"rdma_address = b=c\n", "rdma_address = b=c is not one"},
        {"rdma_address = ::1\n", "rdma_address: '::1' is no address"},
        {"address = a:1\nrdma_address = b\npassword_file = /p\n", "rdma_auth_in_clear = yes"},
        {"address = a:1\nrdma_address = b\ntls = yes\n", "there is no TLS over RDMA"},
        /* Keys that would do nothing. */
        {"rdma_address = tcp\n", "rdma_address is set, but no server"},
        {"rdma_port = 7100\n", "rdma_port is set, but no server is reached over RDMA"},
        {"seeds = a:1\nrdma_nodes = a=tcp\n", "rdma_nodes is set, but no server"},
        {"address = a:1\nrdma_nodes = b=c\n", "rdma_nodes is set, but no server"},
        {"rdma_fallback = tcp\n", "rdma_fallback is set, but no server"},
        {"rdma_auth_in_clear = yes\n", "rdma_auth_in_clear is set, but no server"},
        {"transport = rdma\nrdma_nodes = ::1\n", "rdma_nodes: '::1' is no address"},
        /* What would cross the network in clear. */
        {"address = rdma://a:1\ntls = yes\n", "there is no TLS over RDMA"},
        {"seeds = a:1\ntls = yes\nrdma_nodes = b\n", "there is no TLS over RDMA"},
        {"seeds = rdma://a:1, b:1\ntransport = tcp\ntls = yes\n", "there is no TLS over RDMA"},
        {"address = rdma://a:1\npassword_file = /p\n", "rdma_auth_in_clear = yes"},
        {"seeds = a:1\ntransport = rdma\npassword_file = /p\nrdma_fallback = tcp\n", "rdma_auth_in_clear = yes"},
        {"seeds = a:1\nrdma_nodes = b\npassword_file = /p\n", "rdma_auth_in_clear = yes"},
    };

    for (size_t i = 0; i < COUNT(wrong); i++) {
        int status = load(wrong[i].keys);
        ck_assert_msg(status == -EINVAL, "%s gave %d", wrong[i].keys, status);
        ck_assert_msg(strstr(why, wrong[i].why) != NULL, "%s gave: %s", wrong[i].keys, why);
        config_free(&config);
    }
}
END_TEST

UNIT_MAIN("config_rdma", nodes_that_nothing_is_said_of, one_server_at_another_rdma_address,
          what_would_surprise_is_refused)
