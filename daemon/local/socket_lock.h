/*
 * One process at a time makes, and listens on, the socket at a path.
 *
 * A socket file that a crash left behind is told from a living one by connecting to it, and is then removed. Two
 * daemons that start at once could both find it dead, and the slower one would remove what the other had just made. So
 * each holds a lock (flock) on the file PATH.lock, mode 0600, from before the look until its own socket is gone. The
 * kernel gives the lock of a dead process back; the file that it leaves means nothing. Start and end only: the calls
 * are short, but go to the file system.
 */
#ifndef GRD_LOCAL_SOCKET_LOCK_H
#define GRD_LOCAL_SOCKET_LOCK_H

/* Takes the lock of a socket's path: 0 and *fd, the caller's until socket_lock_give(). -EADDRINUSE: another process has
 * it; -ENAMETOOLONG; or -errno, where the file cannot be made or opened. */
int socket_lock_take(const char *path, int *fd);

/* Removes the lock's file and closes `fd`; -1: does nothing. The socket must be gone from the path, or be another's. */
void socket_lock_give(const char *path, int fd);

#endif
