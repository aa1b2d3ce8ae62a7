#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "peer.h"

#define BUCKETS 1024u

struct session {
    LIST_ENTRY(session) entry;
    uint64_t client_id;
    struct peer *peer;
};

/* Client ids are handed out in order, so their low bits spread well. */
static LIST_HEAD(, session) buckets[BUCKETS];
static unsigned int count;

static struct session *find(uint64_t client_id)
{
    struct session *session;

    LIST_FOREACH(session, &buckets[client_id % BUCKETS], entry) {
        if (session->client_id == client_id)
            return session;
    }
    return NULL;
}

int session_add(uint64_t client_id, struct peer *peer)
{
    struct session *session;

    if (find(client_id))
        return -EEXIST;
    session = calloc(1, sizeof(*session));
    if (!session)
        return -ENOMEM;
    session->client_id = client_id;
    session->peer = peer;
    LIST_INSERT_HEAD(&buckets[client_id % BUCKETS], session, entry);
    count++;
    return 0;
}

struct peer *session_peer(uint64_t client_id)
{
    const struct session *session = find(client_id);

    return session ? session->peer : NULL;
}

void session_drop(uint64_t client_id)
{
    struct session *session = find(client_id);

    if (!session)
        return;
    LIST_REMOVE(session, entry);
    peer_unref(session->peer);
    free(session);
    count--;
}

unsigned int session_count(void)
{
    return count;
}
