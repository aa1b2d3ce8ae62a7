#include "daemon/local/quota.h"

#include "proto/errors.h"

void quota_resolve(const struct service *service, const struct config_socket *socket, bool admin,
                   const struct peer *peer, struct policy *policy)
{
    struct policy_subject subject = {
        .socket = socket->name, .uid = peer->uid, .gids = peer->groups, .gid_count = peer->group_count};
    if (admin)
        policy_without_sections(service->config, policy);
    else
        policy_resolve(service->config, &subject, policy);
    /* Such a client is not admitted (admission.c), but it may have come before a reload brought the sections. */
    if (!admin && peer->too_many_groups && policy_asks_groups(service->config))
        policy_allow_nothing(policy, "a [policy gid N] section, for a process of more groups than are looked at,");
}

void quota_apply(struct session *session)
{
    quota_resolve(session->service, session->socket, session->admin, &session->peer, &session->policy);
    session->user->policy = session->policy;
    transfers_limit_session(&session->service->transfers, &session->transfers, session->policy.values.in_flight);
}

void quota_error(struct memory_error *error, const struct policy *policy, enum policy_key key, uint64_t used,
                 uint64_t asked)
{
    char origin[POLICY_NAME_BYTES];
    uint64_t limit = policy_limit(policy, key);
    const char *bytes = key == POLICY_PINNED_BYTES ? " bytes" : "";
    policy_origin(policy, key, origin);
    memory_error_set(error, PROTO_ERR_OVER_QUOTA,
                     "%llu%s more would exceed %s = %llu%s: this user has %llu; give some back, or have the quota "
                     "raised",
                     (unsigned long long)asked, bytes, origin, (unsigned long long)limit, bytes,
                     (unsigned long long)used);
    error->quota = policy_key_name(key);
    error->used = used;
    error->limit = limit;
    error->asked = asked;
}

int quota_check(struct memory_error *error, const struct policy *policy, enum policy_key key, uint64_t used,
                uint64_t asked)
{
    uint64_t limit = policy_limit(policy, key);
    if (asked <= limit && used <= limit - asked)
        return 0;
    quota_error(error, policy, key, used, asked);
    return error->code;
}

json_t *quota_json(const struct policy *policy)
{
    json_t *quotas = json_object();
    for (enum policy_key key = 0; key < POLICY_QUOTAS; key++) {
        uint64_t limit = policy_limit(policy, key);
        if (limit != POLICY_NONE)
            json_object_set_new(quotas, policy_key_name(key), json_integer((json_int_t)limit));
    }
    return quotas;
}
