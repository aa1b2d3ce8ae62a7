#include "daemon/local/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#define OVERFLOW_UID 65534 /* the kernel's default */

static int read_groups(int socket_fd, struct peer *peer)
{
    gid_t found[PEER_GROUPS];
    socklen_t length = sizeof found;
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, found, &length) != 0) {
        if (errno != ERANGE)
            return -errno;
        peer->too_many_groups = true;
        length = 0;
    }
    peer->groups = malloc(sizeof peer->gid + length);
    if (peer->groups == NULL)
        return -ENOMEM;
    peer->groups[0] = peer->gid;
    memcpy(peer->groups + 1, found, length);
    peer->group_count = 1 + length / sizeof found[0];
    return 0;
}

static int read_credentials(int socket_fd, struct ucred *credentials)
{
    socklen_t length = sizeof *credentials;
    return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, credentials, &length) == 0 ? 0 : -errno;
}

int peer_uid(int socket_fd, uid_t *uid)
{
    struct ucred credentials;
    int status = read_credentials(socket_fd, &credentials);
    if (status == 0)
        *uid = credentials.uid;
    return status;
}

int peer_read(int socket_fd, struct peer *peer)
{
    struct ucred credentials;
    socklen_t length;
    memset(peer, 0, sizeof *peer);
    int status = read_credentials(socket_fd, &credentials);
    if (status != 0)
        return status;
    peer->pid = credentials.pid;
    peer->uid = credentials.uid;
    peer->gid = credentials.gid;
    status = read_groups(socket_fd, peer);
    if (status != 0)
        return status;
    length = sizeof peer->pidfd;
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &peer->pidfd, &length) != 0)
        peer->pidfd = -1;
    return 0;
}

void peer_release(struct peer *peer)
{
    if (peer->pidfd >= 0)
        close(peer->pidfd);
    free(peer->groups);
    peer->pidfd = -1;
    peer->groups = NULL;
}

uid_t peer_overflow_uid(void)
{
    unsigned uid;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re"); /* that of "fs" is for files */
    if (file == NULL)
        return OVERFLOW_UID;
    if (fscanf(file, "%u", &uid) != 1)
        uid = OVERFLOW_UID;
    fclose(file);
    return uid;
}
