#include "daemon/local/admission.h"

#include <stdio.h>

#include "proto/errors.h"

/* Who has no uid in our user namespace shows as the overflow uid: many users, one name, one memory budget. */
static bool nameless(const struct service *service, const struct admission *admission, const struct policy *policy)
{
    return admission->peer->uid == service->overflow_uid && !policy_admits_uid(policy);
}

int admission_check(const struct service *service, const struct admission *admission, char *why, size_t size)
{
    const struct peer *peer = admission->peer;
    uint64_t sessions = service->config->limits.sessions;
    struct memory_error error = {0};
    struct policy policy;
    quota_resolve(service, admission->socket, admission->admin, peer, &policy);
    if (admission->user == NULL) {
        error.code = PROTO_ERR_SYSTEM;
        snprintf(why, size, "the daemon is out of memory");
    } else if (nameless(service, admission, &policy)) {
        error.code = PROTO_ERR_DENIED;
        snprintf(why, size,
                 "uid %u stands for every user without a uid in the daemon's user namespace, and no [policy uid %u] "
                 "says admit = yes",
                 peer->uid, peer->uid);
    } else if (!policy.values.admit) {
        char origin[POLICY_NAME_BYTES];
        policy_origin(&policy, POLICY_ADMIT, origin);
        error.code = PROTO_ERR_DENIED;
        snprintf(why, size, "%s = no for uid %u", origin, peer->uid);
    } else if (peer->too_many_groups && policy_asks_groups(service->config)) {
        error.code = PROTO_ERR_DENIED;
        snprintf(why, size, "the process has more than %d groups, and a [policy gid N] asks for them", PEER_GROUPS);
    } else if (service->session_count >= sessions) {
        error.code = PROTO_ERR_OVER_LIMIT;
        snprintf(why, size, "the daemon has as many sessions as [limits] sessions = %llu allows",
                 (unsigned long long)sessions);
    } else if (quota_check(&error, &policy, POLICY_SESSIONS, admission->user->sessions - 1, 1) != 0) {
        snprintf(why, size, "%s", error.text);
    }
    return error.code;
}
