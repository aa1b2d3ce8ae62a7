/*
 * Who is at the other end of a connection: taken once, at accept, from the kernel. No name service is asked.
 */
#ifndef GRD_LOCAL_PEER_H
#define GRD_LOCAL_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* More groups than so many are not looked at: see `too_many_groups`. */
#define PEER_GROUPS 1024

struct peer {
    pid_t pid; /* in our PID namespace; 0 when it has none there */
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned: the primary group, then the supplementary ones */
    size_t group_count;
    bool too_many_groups; /* then only the primary one is known */
    int pidfd; /* owned; -1 where the kernel has no SO_PEERPIDFD */
};

/* Of the process at the other end of a connected socket, as it was when that connected: the uid alone, and everything. 0
 * or -errno; peer_release after peer_read in case of 0. */
int peer_uid(int socket_fd, uid_t *uid);
int peer_read(int socket_fd, struct peer *peer);
void peer_release(struct peer *peer);

/*
 * The uid that stands for every user who has none in our user namespace, and who therefore cannot be told from others.
 * Reads a file of /proc: at start only.
 */
uid_t peer_overflow_uid(void);

#endif
