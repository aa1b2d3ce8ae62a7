/*
 * Permissions of users: what the policy sections let a session do (config/policy.h), and the words of a refusal.
 *
 * Each check costs the same however many sections, users and keys there are, but for the logarithm of the number of
 * prefixes. A refusal is DENIED, or TOO_LARGE for a value; its text names rule and section, `rule` the key of the
 * section, and `limit` and `asked` are there where numbers were compared. Private to local/ and admin/. Loop thread
 * only. See docs/architecture.md, "Permissions".
 */
#ifndef GRD_LOCAL_PERMISSION_H
#define GRD_LOCAL_PERMISSION_H

#include <jansson.h>

#include "daemon/config/policy.h"
#include "daemon/memory/memory.h"
#include "proto/methods.h"

/* 0, or DENIED: the method is not among `methods`, or changes values where `read_only` is set. */
int permission_method(const struct policy *policy, int method, struct memory_error *error);

/* Whether a key begins with one of `key_prefixes`. */
bool permission_allows_key(const struct policy *policy, const struct proto_key *key);

/* The same, with the words. The key is not among them: it may be long, and is the client's. */
int permission_key(const struct policy *policy, const struct proto_key *key, struct memory_error *error);

/* 0, or TOO_LARGE: a value of so many bytes must not be stored. */
int permission_value(const struct policy *policy, uint64_t bytes, struct memory_error *error);

/* 0, or DENIED: longer than `max_ttl_ms`. */
int permission_ttl(const struct policy *policy, uint64_t ttl_ms, struct memory_error *error);

/* The time to live of a set that names none; 0: none. */
uint64_t permission_default_ttl(const struct policy *policy);

/*
 * New reference: {"read_only": true, ...}, those that forbid or change something. *bytes (may be NULL): at most so long
 * as text.
 */
json_t *permission_json(const struct policy *policy, size_t *bytes);

#endif
