#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "endpoint.h"
#include "fabric.h"

struct peer {
    LIST_ENTRY(peer) entry;
    unsigned int refs; /* under the lock */
    unsigned char addr[64];
    size_t len;
    fi_addr_t at[ENDPOINTS_MAX];
    unsigned int blocked_round[ENDPOINTS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, peer) peers = LIST_HEAD_INITIALIZER(peers);

/* libfabric trusts an address to have the form its endpoint was opened with, so a client's is looked at first. */
static bool plausible(const struct endpoint *endpoint, const unsigned char *addr, size_t len)
{
    sa_family_t family;

    switch (endpoint->info->addr_format) {
    case FI_SOCKADDR_IN:
        memcpy(&family, addr, sizeof(family));
        return len == sizeof(struct sockaddr_in) && family == AF_INET;
    case FI_SOCKADDR_IN6:
        memcpy(&family, addr, sizeof(family));
        return len == sizeof(struct sockaddr_in6) && family == AF_INET6;
    default:
        return len == endpoint->addr_len;
    }
}

static void remove_from_endpoints(struct peer *peer, unsigned int count)
{
    for (unsigned int i = 0; i < count; i++)
        fi_av_remove(fabric_endpoint(i)->av, &peer->at[i], 1, 0);
}

int peer_get(const unsigned char *addr, size_t len, struct peer **result, unsigned int *refused_by)
{
    unsigned int count = fabric_endpoint_count();
    struct peer *peer;
    int rc = 0;

    *refused_by = 0;
    if (len < sizeof(sa_family_t) || len > sizeof(peer->addr))
        return -EINVAL;
    pthread_mutex_lock(&lock);
    LIST_FOREACH(peer, &peers, entry) {
        if (peer->len == len && memcmp(peer->addr, addr, len) == 0) {
            peer->refs++;
            goto out;
        }
    }
    peer = calloc(1, sizeof(*peer));
    if (!peer) {
        rc = -ENOMEM;
        goto out;
    }
    peer->refs = 1;
    peer->len = len;
    memcpy(peer->addr, addr, len);
    for (unsigned int i = 0; i < count; i++) {
        struct endpoint *endpoint = fabric_endpoint(i);

        if (!plausible(endpoint, addr, len) || fi_av_insert(endpoint->av, addr, 1, &peer->at[i], 0, NULL) != 1) {
            remove_from_endpoints(peer, i);
            free(peer);
            peer = NULL;
            *refused_by = i;
            rc = -EINVAL;
            goto out;
        }
    }
    LIST_INSERT_HEAD(&peers, peer, entry);
out:
    pthread_mutex_unlock(&lock);
    *result = peer;
    return rc;
}

struct peer *peer_ref(struct peer *peer)
{
    pthread_mutex_lock(&lock);
    peer->refs++;
    pthread_mutex_unlock(&lock);
    return peer;
}

void peer_unref(struct peer *peer)
{
    if (!peer)
        return;
    pthread_mutex_lock(&lock);
    if (--peer->refs == 0) {
        LIST_REMOVE(peer, entry);
        remove_from_endpoints(peer, fabric_endpoint_count());
        free(peer);
    }
    pthread_mutex_unlock(&lock);
}

fi_addr_t peer_address(const struct peer *peer, unsigned int endpoint)
{
    return peer->at[endpoint];
}

bool peer_blocked(const struct peer *peer, unsigned int endpoint, unsigned int round)
{
    return peer->blocked_round[endpoint] == round;
}

void peer_set_blocked(struct peer *peer, unsigned int endpoint, unsigned int round)
{
    peer->blocked_round[endpoint] = round;
}
