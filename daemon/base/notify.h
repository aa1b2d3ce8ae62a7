/*
 * Messages to the service manager over $NOTIFY_SOCKET (sd_notify's protocol); nothing happens without it.
 */
#ifndef GRD_BASE_NOTIFY_H
#define GRD_BASE_NOTIFY_H

/* `message`: lines such as "READY=1\nSTATUS=...". Failures are logged once and otherwise ignored. */
void notify_send(const char *message);

#endif
