/*
 * Servers whose connection is over RDMA: is it, and who could read what crosses it?
 */
#include <string.h>

#include "client/ctl/doctor/doctor.h"
#include "client/ctl/text.h"

static const char *text_of(json_t *node, const char *member)
{
    const char *text = json_string_value(json_object_get(node, member));

    return text != NULL ? text : "";
}

static bool is_configured(json_t *node)
{
    return text_of(node, "rdma_address")[0] != '\0';
}

static bool is_down(json_t *node)
{
    return is_configured(node) && strcmp(text_of(node, "state"), "up") != 0;
}

static bool is_on_tcp(json_t *node)
{
    return is_configured(node) && text_of(node, "transport_why")[0] != '\0';
}

static bool tells_password(json_t *node)
{
    return is_configured(node) && json_is_true(json_object_get(node, "rdma_auth_in_clear"));
}

/* The first that it is true of, and how many there are; NULL: none. */
static json_t *first(json_t *nodes, bool (*wanted)(json_t *node), size_t *count)
{
    json_t *node, *found_first = NULL;
    size_t at;

    *count = 0;
    json_array_foreach(nodes, at, node) {
        if (wanted(node)) {
            found_first = found_first == NULL ? node : found_first;
            ++*count;
        }
    }
    return found_first;
}

static const char set_up[] =
    "it needs libfabric 2 or newer with the provider verbs, an RDMA device whose network has the server's address "
    "(rdma link), and a Valkey server, 9.1.2 or newer, with rdma-bind and rdma-port set; see transport, rdma_port and "
    "rdma_nodes in glide-rdmad.conf(5)";

void check_valkey_rdma(struct doctor *doctor, struct finding *finding)
{
    json_t *nodes = json_object_get(doctor->status, "nodes"), *node;
    char pinned[TEXT_NUMBER_BYTES];
    size_t configured, count;

    if (doctor->status == NULL) {
        found(finding, VERDICT_SKIPPED, "needs the daemon");
        return;
    }
    first(nodes, is_configured, &configured);
    if (configured == 0) {
        found(finding, VERDICT_SKIPPED, "no server is to be reached over RDMA");
    } else if ((node = first(nodes, is_down, &count)) != NULL) {
        found(finding, VERDICT_FAILED, "%zu of %zu servers: %s is %s: %s", count, configured,
              text_of(node, "address"), text_of(node, "state"), text_of(node, "why"));
        advise(finding, "%s", set_up);
    } else if ((node = first(nodes, is_on_tcp, &count)) != NULL) {
        found(finding, VERDICT_WARNING, "%zu of %zu servers: %s is reached over TCP instead: %s", count, configured,
              text_of(node, "address"), text_of(node, "transport_why"));
        advise(finding, "%s", set_up);
    } else if ((node = first(nodes, tells_password, &count)) != NULL) {
        found(finding, VERDICT_WARNING, "%s is reached over RDMA, and the password crosses the network in clear "
              "([valkey] rdma_auth_in_clear = yes)", text_of(node, "address"));
        advise(finding, "only where everybody on that network may be trusted; elsewhere use transport = tcp with "
                        "tls = yes");
    } else {
        text_bytes(pinned,
                   (uint64_t)json_integer_value(json_object_get(doctor_status(doctor, "memory", "memlock"), "queues")));
        found(finding, VERDICT_OK, "%zu servers over RDMA; their connections have %s registered", configured, pinned);
    }
}
