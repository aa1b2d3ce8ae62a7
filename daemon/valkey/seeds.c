#include "daemon/valkey/seeds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_one(const char *text, struct seed *seed, char why[TRANSPORT_WHY_BYTES])
{
    struct transport_address address;
    int status = transport_address_parse(text, &address, why);

    if (status != 0) {
        return status;
    }
    if (address.port == NULL) {
        snprintf(why, TRANSPORT_WHY_BYTES, "'%.80s' is no seed: nodes of a cluster are reached as host:port", text);
        status = -EINVAL;
    } else {
        snprintf(seed->endpoint.host, sizeof(seed->endpoint.host), "%s", address.host);
        snprintf(seed->endpoint.port, sizeof(seed->endpoint.port), "%s", address.port);
        seed->kind = address.kind;
    }
    transport_address_free(&address);
    return status;
}

static int parse_all(char *text, struct seed *seeds, size_t *count, char why[TRANSPORT_WHY_BYTES])
{
    char *rest = NULL;

    for (char *word = strtok_r(text, ", \t", &rest); word != NULL; word = strtok_r(NULL, ", \t", &rest)) {
        int status;
        if (*count == SEEDS_MAX) {
            snprintf(why, TRANSPORT_WHY_BYTES, "more than %d seeds", SEEDS_MAX);
            return -EINVAL;
        }
        status = parse_one(word, &seeds[*count], why);
        if (status != 0) {
            return status;
        }
        ++*count;
    }
    if (*count == 0) {
        snprintf(why, TRANSPORT_WHY_BYTES, "no seed is given: host:port, host:port");
    }
    return *count > 0 ? 0 : -EINVAL;
}

int seeds_parse(const char *text, struct seed **seeds, size_t *count, char why[TRANSPORT_WHY_BYTES])
{
    char *copy = strdup(text);
    int status = -ENOMEM;

    *count = 0;
    *seeds = calloc(SEEDS_MAX, sizeof(**seeds));
    if (copy != NULL && *seeds != NULL) {
        status = parse_all(copy, *seeds, count, why);
    } else {
        snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
    }
    free(copy);
    if (status != 0) {
        free(*seeds);
        *seeds = NULL;
    }
    return status;
}

enum transport_kind seeds_kind(const char *text, const struct topology_endpoint *endpoint)
{
    enum transport_kind kind = TRANSPORT_UNSAID;
    char why[TRANSPORT_WHY_BYTES];
    struct seed *seeds;
    size_t count;

    if (strstr(text, "://") == NULL || seeds_parse(text, &seeds, &count, why) != 0) {
        return kind;
    }
    for (size_t i = 0; i < count; i++) {
        if (topology_endpoint_same(&seeds[i].endpoint, endpoint) && seeds[i].kind != TRANSPORT_UNSAID) {
            kind = seeds[i].kind;
            break;
        }
    }
    free(seeds);
    return kind;
}
