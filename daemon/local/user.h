/*
 * Users: (socket, uid), the unit of quotas, queues and sharing (docs/architecture.md, rule 4). A user lives as long as
 * it has sessions, regions, jobs or commands. Loop thread only.
 */
#ifndef GRD_LOCAL_USER_H
#define GRD_LOCAL_USER_H

#include <sys/types.h>
#include <uthash.h>

#include "daemon/local/pace.h"
#include "daemon/local/service.h"

struct user_key {
    const struct config_socket *socket;
    uid_t uid;
};

struct user {
    struct user_key key;
    uint64_t id; /* for the admin socket */
    struct service *service;
    struct policy policy; /* of its latest session: sessions of one user may differ by their groups */
    struct memory_account memory;
    struct transfer_user transfers;
    unsigned sessions;
    unsigned keys; /* commands of keys.* that wait for the server */
    struct user_turn turn;
    uint64_t owes_until; /* ms, see pace.h */
    UT_hash_handle hh;
};

/* The user of a new session, with its session counted; NULL when out of memory. */
struct user *user_enter(struct service *service, const struct config_socket *socket, uid_t uid);

/* Counts a session down; frees the user when nothing names it any more. */
void user_leave(struct user *user);

/*
 * Whether a user may send `count` more commands of keys.*, all of which share one connection: as long as no less room
 * is left for all others than the user then takes. So however many flood it, one more finds room. Counts them if so.
 */
bool user_take_keys(struct user *user, size_t count);

/* One of them has ended; may free the user. */
void user_key_ended(struct user *user);

#endif
