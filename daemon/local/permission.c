#include "daemon/local/permission.h"

#include "daemon/config/method_list.h"
#include "daemon/config/prefixes.h"
#include "proto/errors.h"
#include "proto/shape.h"

static void refuse(struct memory_error *error, int code, const struct policy *policy, enum policy_key key,
                   const char *what)
{
    char origin[POLICY_NAME_BYTES];

    policy_origin(policy, key, origin);
    memory_error_set(error, code, "%s %s", origin, what);
    error->rule = policy_key_name(key);
}

int permission_method(const struct policy *policy, int method, struct memory_error *error)
{
    const char *name = proto_methods[method].name;
    char what[96];

    if (!method_list_has(policy->values.methods, method)) {
        snprintf(what, sizeof(what), "does not allow %s", name);
        refuse(error, PROTO_ERR_DENIED, policy, POLICY_METHODS, what);
    } else if (policy->values.read_only && method_changes_values(method)) {
        snprintf(what, sizeof(what), "= yes does not allow %s", name);
        refuse(error, PROTO_ERR_DENIED, policy, POLICY_READ_ONLY, what);
    }
    return error->code;
}

bool permission_allows_key(const struct policy *policy, const struct proto_key *key)
{
    const struct prefixes *prefixes = policy->values.key_prefixes;

    return prefixes == NULL || prefixes_allow(prefixes, key->data, key->length);
}

int permission_key(const struct policy *policy, const struct proto_key *key, struct memory_error *error)
{
    if (!permission_allows_key(policy, key)) {
        refuse(error, PROTO_ERR_DENIED, policy, POLICY_KEY_PREFIXES, "does not allow this key");
    }
    return error->code;
}

static int compare(const struct policy *policy, enum policy_key key, int code, uint64_t asked, const char *unit,
                   struct memory_error *error)
{
    uint64_t limit = policy_limit(policy, key);
    char what[96];

    if (asked > limit) {
        snprintf(what, sizeof(what), "= %llu%s does not allow %llu%s", (unsigned long long)limit, unit,
                 (unsigned long long)asked, unit);
        refuse(error, code, policy, key, what);
        error->limit = limit;
        error->asked = asked;
    }
    return error->code;
}

int permission_value(const struct policy *policy, uint64_t bytes, struct memory_error *error)
{
    return compare(policy, POLICY_MAX_VALUE, PROTO_ERR_TOO_LARGE, bytes, " bytes", error);
}

int permission_ttl(const struct policy *policy, uint64_t ttl_ms, struct memory_error *error)
{
    return compare(policy, POLICY_MAX_TTL, PROTO_ERR_DENIED, ttl_ms, " ms", error);
}

uint64_t permission_default_ttl(const struct policy *policy)
{
    uint64_t ttl = policy->values.default_ttl_ms, most = policy->values.max_ttl_ms;

    if (ttl > most) {
        ttl = most;
    }
    return ttl == POLICY_NONE ? 0 : ttl;
}

static json_t *method_names(uint64_t methods)
{
    json_t *names = json_array();

    for (int i = 0; i < PROTO_METHOD_COUNT; i++) {
        if ((proto_methods[i].sockets & PROTO_ON_CLIENT) != 0 && method_list_has(methods, i)) {
            json_array_append_new(names, json_string(proto_methods[i].name));
        }
    }
    return names;
}

static json_t *prefix_list(const struct prefixes *prefixes)
{
    struct proto_key items[PREFIXES_MAX];

    for (size_t i = 0; i < prefixes->count; i++) {
        items[i] = (struct proto_key){.data = prefixes->items[i].bytes, .length = prefixes->items[i].length};
    }
    return proto_keys_encode(&(struct proto_keys){.items = items, .count = prefixes->count});
}

static void add_number(json_t *permissions, const struct policy *policy, enum policy_key key)
{
    uint64_t number = policy_limit(policy, key);

    if (number != POLICY_NONE) {
        json_object_set_new(permissions, policy_key_name(key), json_integer((json_int_t)number));
    }
}

json_t *permission_json(const struct policy *policy, size_t *bytes)
{
    const struct policy_values *values = &policy->values;
    json_t *permissions = json_object();

    if (bytes != NULL) { /* all names of methods; base64 and what is around it */
        *bytes = 512 + (values->key_prefixes != NULL ? 2 * PREFIXES_BYTES + 24 * values->key_prefixes->count : 0);
    }
    if (values->methods != METHODS_ALL) {
        json_object_set_new(permissions, policy_key_name(POLICY_METHODS), method_names(values->methods));
    }
    if (values->key_prefixes != NULL) {
        json_object_set_new(permissions, policy_key_name(POLICY_KEY_PREFIXES), prefix_list(values->key_prefixes));
    }
    if (values->read_only) {
        json_object_set_new(permissions, policy_key_name(POLICY_READ_ONLY), json_true());
    }
    add_number(permissions, policy, POLICY_DEFAULT_TTL);
    add_number(permissions, policy, POLICY_MAX_TTL);
    add_number(permissions, policy, POLICY_MAX_VALUE);
    return permissions;
}
