/*
 * Ending a client's connection. Closing a Unix socket closes what waits in it unread, descriptors in packets too, and
 * that may block; without any it does not, and needs no worker. Loop thread only.
 */
#ifndef GRD_LOCAL_HANG_UP_H
#define GRD_LOCAL_HANG_UP_H

#include <stdbool.h>

/* Shuts the connection down: the client sees the end at once, and can send no more. True: it is closed, too. False:
 * there may be descriptors in it, and the caller closes it on a worker. */
bool hang_up(int fd);

/* Whether the client has closed its socket, which is more than that it sends nothing any more. */
bool hung_up(int fd);

#endif
