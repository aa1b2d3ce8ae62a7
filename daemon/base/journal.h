/*
 * The journal's native protocol: one datagram an entry, each line of it a field. Never waits. Thread safe.
 */
#ifndef GRD_BASE_JOURNAL_H
#define GRD_BASE_JOURNAL_H

#include <stddef.h>

#define JOURNAL_PATH "/run/systemd/journal/socket"

/* A socket for entries, or -errno. */
int journal_open(void);

/*
 * Sends an entry: lines "FIELD=value\n" without other control characters. 0; -EAGAIN when the journal's queue is full;
 * another -errno when nobody listens at the path, or it is too long.
 */
int journal_send(int fd, const char *path, const char *entry, size_t length);

#endif
