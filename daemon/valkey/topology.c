#include "daemon/valkey/topology.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

#define BUCKETS (2 * TOPOLOGY_NODES)
#define NO_NODE TOPOLOGY_NODES

/* While a map is read: its nodes by endpoint, so that a map of single slots is not read in quadratic time. */
struct reading {
    struct topology *map;
    uint16_t buckets[BUCKETS]; /* index of a node plus one; 0: free */
    const struct topology_endpoint *asked;
    char *why;
};

__attribute__((format(printf, 2, 3))) static int refuse(char *why, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, TOPOLOGY_WHY_BYTES, format, arguments);
    va_end(arguments);
    return -EPROTO;
}

/* --- endpoints --- */

/* Of host names, addresses and zones; nothing that could be taken for something else in an address or a log. */
static bool is_host(const char *text, size_t length)
{
    if (length == 0 || length >= TOPOLOGY_HOST_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr(".-_:%", text[i]) == NULL) {
            return false;
        }
        if (text[i] == '\0') {
            return false;
        }
    }
    return true;
}

static bool set_port(struct topology_endpoint *endpoint, long long port)
{
    if (port < 1 || port > 65535) {
        return false;
    }
    snprintf(endpoint->port, sizeof(endpoint->port), "%u", (unsigned)port);
    return true;
}

bool topology_endpoint_same(const struct topology_endpoint *one, const struct topology_endpoint *other)
{
    return strcmp(one->host, other->host) == 0 && strcmp(one->port, other->port) == 0;
}

void topology_endpoint_text(const struct topology_endpoint *endpoint, char text[TOPOLOGY_TEXT_BYTES])
{
    bool six = strchr(endpoint->host, ':') != NULL;

    snprintf(text, TOPOLOGY_TEXT_BYTES, "%s%s%s:%s", six ? "[" : "", endpoint->host, six ? "]" : "", endpoint->port);
}

int topology_endpoint_parse(const char *text, size_t length, const struct topology_endpoint *asked,
                            struct topology_endpoint *endpoint)
{
    size_t colon = length;
    long long port = 0;

    while (colon > 0 && text[colon - 1] != ':') {
        colon--;
    }
    if (colon == 0 || colon == length || length - colon > 5) {
        return -EPROTO;
    }
    for (size_t i = colon; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -EPROTO;
        }
        port = port * 10 + (text[i] - '0');
    }
    length = colon - 1;
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    memset(endpoint, 0, sizeof(*endpoint));
    if (length == 0) {
        memcpy(endpoint->host, asked->host, sizeof(endpoint->host));
    } else if (is_host(text, length)) {
        memcpy(endpoint->host, text, length);
    } else {
        return -EPROTO;
    }
    return set_port(endpoint, port) ? 0 : -EPROTO;
}

/* --- nodes --- */

static unsigned bucket_of(const struct topology_endpoint *endpoint)
{
    uint32_t hash = 2166136261U;

    for (const char *at = endpoint->host; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 16777619U;
    }
    for (const char *at = endpoint->port; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 16777619U;
    }
    return hash % BUCKETS;
}

/* The node of an endpoint, entered if it is new; negative when there are too many. */
static int enter_node(struct reading *reading, const struct topology_endpoint *endpoint)
{
    struct topology *map = reading->map;
    unsigned bucket = bucket_of(endpoint);

    for (; reading->buckets[bucket] != 0; bucket = (bucket + 1) % BUCKETS) {
        unsigned index = reading->buckets[bucket] - 1U;
        if (topology_endpoint_same(&map->nodes[index].endpoint, endpoint)) {
            return (int)index;
        }
    }
    if (map->count == TOPOLOGY_NODES) {
        return refuse(reading->why, "the cluster has more than %d primaries", TOPOLOGY_NODES);
    }
    map->nodes[map->count].endpoint = *endpoint;
    reading->buckets[bucket] = (uint16_t)(map->count + 1);
    return (int)map->count++;
}

/* --- the reply --- */

/* [host or nil, port, ...]. 1: the server itself does not know the host. */
static int read_endpoint(const struct reading *reading, const redisReply *entry, struct topology_endpoint *endpoint)
{
    const redisReply *host, *port;

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 2) {
        return refuse(reading->why, "CLUSTER SLOTS was answered by something that is no list of slots");
    }
    host = entry->element[0];
    port = entry->element[1];
    memset(endpoint, 0, sizeof(*endpoint));
    if (port->type != REDIS_REPLY_INTEGER || !set_port(endpoint, port->integer)) {
        return refuse(reading->why, "CLUSTER SLOTS names a node without a port");
    }
    if (host->type == REDIS_REPLY_NIL || (host->type == REDIS_REPLY_STRING && host->len == 0)) {
        memcpy(endpoint->host, reading->asked->host, sizeof(endpoint->host));
        return 0;
    }
    if (host->type == REDIS_REPLY_STRING && host->len == 1 && host->str[0] == '?') {
        return 1;
    }
    if (host->type != REDIS_REPLY_STRING || !is_host(host->str, host->len)) {
        return refuse(reading->why, "CLUSTER SLOTS names a node whose host is neither a name nor an address");
    }
    memcpy(endpoint->host, host->str, host->len);
    return 0;
}

static int enter_slots(struct reading *reading, int index, long long first, long long last, size_t replicas)
{
    struct topology *map = reading->map;
    struct topology_node *node = &map->nodes[index];

    for (long long slot = first; slot <= last; slot++) {
        if (map->owners[slot] != NO_NODE) {
            return refuse(reading->why, "CLUSTER SLOTS names slot %lld twice", slot);
        }
        map->owners[slot] = (uint16_t)index;
    }
    node->slots += (unsigned)(last - first + 1);
    node->replicas = (unsigned)replicas;
    map->covered += (unsigned)(last - first + 1);
    return 0;
}

/* [first, last, primary, replica...] */
static int read_range(struct reading *reading, const redisReply *range)
{
    struct topology_endpoint endpoint;
    long long first, last;
    int status;

    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 || range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER) {
        return refuse(reading->why, "CLUSTER SLOTS was answered by something that is no list of slots");
    }
    first = range->element[0]->integer;
    last = range->element[1]->integer;
    if (first < 0 || last < first || last >= SLOTS) {
        return refuse(reading->why, "CLUSTER SLOTS names the slots %lld to %lld", first, last);
    }
    status = read_endpoint(reading, range->element[2], &endpoint);
    if (status != 0) {
        return status < 0 ? status : 0;
    }
    status = enter_node(reading, &endpoint);
    return status < 0 ? status : enter_slots(reading, status, first, last, range->elements - 3);
}

static int read_map(struct reading *reading, const redisReply *reply)
{
    for (size_t i = 0; i < SLOTS; i++) {
        reading->map->owners[i] = NO_NODE;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        int status = read_range(reading, reply->element[i]);
        if (status != 0) {
            return status;
        }
    }
    return reading->map->count > 0 ? 0 : refuse(reading->why, "the node knows no primary that serves a slot");
}

int topology_parse(const redisReply *reply, const struct topology_endpoint *asked, struct topology **map,
                   char why[TOPOLOGY_WHY_BYTES])
{
    struct reading *reading;
    char quoted[TOPOLOGY_WHY_BYTES - 32];
    int status;

    *map = NULL;
    if (reply->type == REDIS_REPLY_ERROR) {
        refuse(why, "CLUSTER SLOTS: %s", proto_text_quote(quoted, sizeof(quoted), reply->str, reply->len));
        return -EREMOTEIO;
    }
    if (reply->type != REDIS_REPLY_ARRAY) {
        return refuse(why, "CLUSTER SLOTS was answered by something that is no list of slots");
    }
    reading = calloc(1, sizeof(*reading));
    if (reading == NULL || (reading->map = calloc(1, sizeof(**map))) == NULL) {
        free(reading);
        snprintf(why, TOPOLOGY_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    reading->asked = asked;
    reading->why = why;
    status = read_map(reading, reply);
    if (status == 0) {
        *map = reading->map;
    } else {
        free(reading->map);
    }
    free(reading);
    return status;
}

/* --- comparing and changing --- */

static const struct topology_endpoint *owner(const struct topology *map, unsigned slot)
{
    return map->owners[slot] < map->count ? &map->nodes[map->owners[slot]].endpoint : NULL;
}

bool topology_same(const struct topology *one, const struct topology *other)
{
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        const struct topology_endpoint *a = owner(one, slot), *b = owner(other, slot);
        if ((a == NULL) != (b == NULL) || (a != NULL && !topology_endpoint_same(a, b))) {
            return false;
        }
    }
    return true;
}

int topology_move(struct topology *map, unsigned slot, const struct topology_endpoint *endpoint)
{
    size_t index = 0;

    while (index < map->count && !topology_endpoint_same(&map->nodes[index].endpoint, endpoint)) {
        index++;
    }
    if (index == TOPOLOGY_NODES) {
        return -ENOSPC;
    }
    if (index == map->count) {
        map->nodes[map->count++] = (struct topology_node){.endpoint = *endpoint};
    }
    if (map->owners[slot] < map->count) {
        map->nodes[map->owners[slot]].slots--;
    } else {
        map->covered++;
    }
    map->owners[slot] = (uint16_t)index;
    map->nodes[index].slots++;
    return 0;
}
