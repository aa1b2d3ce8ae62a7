/*
 * Quotas of users: which hold for a session, and the words and numbers of a refusal. What is used is counted where it
 * is used (struct user); the limit is that of the session which asks. Private to local/ and admin/. Loop thread only.
 * See docs/architecture.md, "Quotas".
 */
#ifndef GRD_LOCAL_QUOTA_H
#define GRD_LOCAL_QUOTA_H

#include <jansson.h>

#include "daemon/local/session.h"

/* What the configuration says about a peer of a socket; the admin socket knows no sections. */
void quota_resolve(const struct service *service, const struct config_socket *socket, bool admin,
                   const struct peer *peer, struct policy *policy);

/*
 * Resolves anew what holds for a session, quotas and permissions, which goes by it from now on: at its start, and when
 * the configuration was read again, before the old one is freed. What the session has begun goes on.
 */
void quota_apply(struct session *session);

/* Fills a refusal: OVER_QUOTA, with the section that set the quota. `asked`: how much more. */
void quota_error(struct memory_error *error, const struct policy *policy, enum policy_key key, uint64_t used,
                 uint64_t asked);

/* 0, or OVER_QUOTA as above when `used` and `asked` together exceed the quota. */
int quota_check(struct memory_error *error, const struct policy *policy, enum policy_key key, uint64_t used,
                uint64_t asked);

/* New reference: {"pinned_bytes": ..., ...} with the quotas that there are. */
json_t *quota_json(const struct policy *policy);

#endif
