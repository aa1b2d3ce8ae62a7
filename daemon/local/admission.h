/*
 * Whether a connection becomes a session. Private to local/. Loop thread only.
 */
#ifndef GRD_LOCAL_ADMISSION_H
#define GRD_LOCAL_ADMISSION_H

#include "daemon/local/quota.h"

struct admission {
    const struct config_socket *socket;
    bool admin;
    const struct peer *peer;
    const struct user *user; /* with the new session counted; NULL: out of memory */
};

/*
 * 0, or why the peer is not admitted, as an error and a reason for its session.closed: OVER_LIMIT ([limits] sessions),
 * OVER_QUOTA (sessions of the user), DENIED (a user whom the policy does not admit, or who cannot be told from
 * others; more groups than are looked at, where policies ask for groups), SYSTEM.
 */
int admission_check(const struct service *service, const struct admission *admission, char *why, size_t size);

#endif
