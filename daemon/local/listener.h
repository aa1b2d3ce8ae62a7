/*
 * Listening sockets: passed by systemd (LISTEN_FDS), or made here. Loop thread only.
 *
 * A passed socket stays systemd's: it is never unlinked, and clients that connect while the daemon restarts wait in its
 * queue. One made here is made under a tight umask, gets its group and mode before anybody can connect, and is unlinked
 * at the end; a lock keeps two daemons from making the same one (socket_lock.h).
 */
#ifndef GRD_LOCAL_LISTENER_H
#define GRD_LOCAL_LISTENER_H

#include "daemon/local/service.h"

#define LISTENER_WHY_BYTES 512

struct listener {
    struct service *service;
    const struct config_socket *socket;
    bool admin;
    int fd;      /* owned */
    int held;    /* owned: a connection that can neither be served nor closed yet; -1: none */
    int lock_fd; /* owned, see socket_lock.h; -1: the socket was passed, and its file is not ours */
    struct worker_job job; /* closes it */
    struct worker_owner owner;
    uv_poll_t poll;
    uv_timer_t retry; /* when no descriptor was left for a connection, a user makes too many, or one is held */
    bool complained;
};

struct listeners {
    struct listener items[CONFIG_SOCKETS + 1];
    size_t count;
};

/*
 * Opens every configured socket, or takes the passed ones: a descriptor named "admin" is the admin socket, any other
 * name NAME the client socket [socket NAME]; an unnamed one is the only client socket there is. With passed sockets
 * none is made here. 0, or -errno with `why`; then nothing is left open.
 */
int listeners_open(struct listeners *listeners, struct service *service, char why[LISTENER_WHY_BYTES]);

/* Stops accepting; unlinks what was made here. `listeners` must stay until no job of workers is outstanding. */
void listeners_close(struct listeners *listeners);

#endif
