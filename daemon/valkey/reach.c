#include "daemon/valkey/reach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS ", \t"
#define OVER_TCP "tcp"
#define ANY_PORT "1" /* stands in where none is given */

/* "host", "host:port", "[v6]" or "[v6]:port" */
static int parse_place(const char *text, struct topology_endpoint *place, char why[TRANSPORT_WHY_BYTES])
{
    const char *behind = text[0] == '[' ? strchr(text, ']') : text;
    bool has_port = behind != NULL && strchr(behind, ':') != NULL;
    char whole[TOPOLOGY_TEXT_BYTES];
    struct transport_address address;
    int length = snprintf(whole, sizeof(whole), "%s%s", text, has_port ? "" : ":" ANY_PORT), status;

    if (length < 0 || (size_t)length >= sizeof(whole)) {
        snprintf(why, TRANSPORT_WHY_BYTES, "'%.80s' is too long for the address of a node", text);
        return -EINVAL;
    }
    if (strchr(text, '=') != NULL) {
        snprintf(why, TRANSPORT_WHY_BYTES, "'%.80s' contains a '=', which no host name has", text);
        return -EINVAL;
    }
    status = transport_address_parse(whole, &address, why);
    if (status == 0 && address.kind != TRANSPORT_UNSAID) {
        snprintf(why, TRANSPORT_WHY_BYTES, "'%.80s': a node is written as HOST or HOST:PORT here", text);
        status = -EINVAL;
    } else if (status == 0) {
        snprintf(place->host, sizeof(place->host), "%s", address.host);
        snprintf(place->port, sizeof(place->port), "%s", has_port ? address.port : "");
    }
    transport_address_free(&address);
    return status;
}

static int parse_rule(char *word, struct reach_rule *rule, char why[TRANSPORT_WHY_BYTES])
{
    char *at = strchr(word, '=');
    int status;

    if (at != NULL) {
        *at++ = '\0';
    }
    status = parse_place(word, &rule->node, why);
    if (status != 0 || at == NULL) {
        return status;
    }
    rule->tcp = strcmp(at, OVER_TCP) == 0;
    return rule->tcp ? 0 : parse_place(at, &rule->at, why);
}

static const struct reach_rule *find(const struct reach *reach, const char *host, const char *port)
{
    for (size_t i = 0; i < reach->count; i++) {
        const struct topology_endpoint *node = &reach->rules[i].node;
        if (strcmp(node->host, host) == 0 && strcmp(node->port, port) == 0) {
            return &reach->rules[i];
        }
    }
    return NULL;
}

static int parse_rules(char *text, struct reach *reach, char why[TRANSPORT_WHY_BYTES])
{
    char *rest = NULL;

    for (char *word = strtok_r(text, SEPARATORS, &rest); word != NULL; word = strtok_r(NULL, SEPARATORS, &rest)) {
        struct reach_rule rule = {.tcp = false};
        int status;
        if (reach->count == REACH_NODES_MAX) {
            snprintf(why, TRANSPORT_WHY_BYTES, "more than %d nodes", REACH_NODES_MAX);
            return -EINVAL;
        }
        status = parse_rule(word, &rule, why);
        if (status != 0) {
            return status;
        }
        if (find(reach, rule.node.host, rule.node.port) != NULL) {
            snprintf(why, TRANSPORT_WHY_BYTES, "'%.80s' is named twice", word);
            return -EINVAL;
        }
        reach->rules[reach->count++] = rule;
    }
    return 0;
}

/* No more than there can be entries in so many bytes. */
static size_t rules_in(const char *text)
{
    size_t most = text != NULL ? strlen(text) / 2 + 1 : 0;

    return most < REACH_NODES_MAX ? most : REACH_NODES_MAX;
}

int reach_create(bool rdma, unsigned port, const char *nodes, struct reach **reach, char why[TRANSPORT_WHY_BYTES])
{
    char *copy = strdup(nodes != NULL ? nodes : "");
    int status = -ENOMEM;

    *reach = calloc(1, sizeof(**reach) + rules_in(nodes) * sizeof((*reach)->rules[0]));
    if (*reach != NULL && copy != NULL) {
        (*reach)->rdma = rdma;
        if (port != 0) {
            snprintf((*reach)->port, sizeof((*reach)->port), "%u", port % 65536);
        }
        status = parse_rules(copy, *reach, why);
    } else {
        snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
    }
    free(copy);
    if (status != 0) {
        free(*reach);
        *reach = NULL;
    }
    return status;
}

bool reach_has_rdma(const struct reach *reach)
{
    for (size_t i = 0; i < reach->count; i++) {
        if (!reach->rules[i].tcp) {
            return true;
        }
    }
    return reach->rdma;
}

static void set_port(struct topology_endpoint *endpoint, const char *port)
{
    if (port[0] != '\0') {
        snprintf(endpoint->port, sizeof(endpoint->port), "%s", port);
    }
}

/* `at` is the node's address. */
static bool by_rules(const struct reach *reach, struct topology_endpoint *at)
{
    const struct reach_rule *rule = find(reach, at->host, at->port);

    if (rule == NULL) {
        rule = find(reach, at->host, "");
    }
    set_port(at, reach->port);
    if (rule == NULL) {
        return reach->rdma;
    }
    if (rule->at.host[0] != '\0') {
        memcpy(at->host, rule->at.host, sizeof(at->host));
        set_port(at, rule->at.port);
    }
    return !rule->tcp;
}

bool reach_over_rdma(const struct reach *reach, const struct transport_address *address, struct topology_endpoint *at)
{
    if (address->kind == TRANSPORT_UNIX) {
        return false;
    }
    snprintf(at->host, sizeof(at->host), "%s", address->host);
    snprintf(at->port, sizeof(at->port), "%s", address->port);
    return address->kind == TRANSPORT_UNSAID ? reach != NULL && by_rules(reach, at) : address->kind == TRANSPORT_RDMA;
}
