/*
 * keys.exists, keys.delete, keys.expire and keys.info: one command a key, pipelined on the control connection of the
 * node that serves the key, which no transfer blocks; one entry a key in the answer, in the order of the request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/local/methods.h"
#include "daemon/local/permission.h"
#include "daemon/valkey/key_command.h"
#include "proto/errors.h"
#include "proto/shape.h"
#include "proto/text.h"

struct keys_request;

struct keys_command {
    struct key_command base;
    struct keys_request *request;
    size_t index;
};

struct keys_request {
    struct request base; /* its session is NULL when it has ended: then nobody gets an answer */
    struct user *user;
    struct counters *counters; /* of the service */
    struct proto_keys keys; /* owned: the commands' words are in here */
    char ttl[24];           /* keys.expire */
    json_t *entries; /* owned: array, one entry a key */
    bool failed;     /* out of memory for an entry */
    size_t waiting;
    struct keys_command commands[];
};

static void free_request(struct request *request)
{
    struct keys_request *keys = (struct keys_request *)request;
    struct proto_keys_params params = {.keys = keys->keys};
    proto_shape_free(proto_methods[PROTO_METHOD_KEYS_EXISTS].params, &params);
    json_decref(keys->entries);
    free(keys);
}

/* As many entries as a request may name fit a packet. */
#define ENTRY_MESSAGE_BYTES 144

/* Counts it as well. */
static json_t *error_entry(struct counters *counters, int code, const char *message)
{
    char quoted[ENTRY_MESSAGE_BYTES];
    count_refused(counters, code);
    return json_pack("{s:{s:s,s:s}}", "error", "name", proto_error_name(code), "message",
                     proto_text_quote(quoted, sizeof quoted, message, strlen(message)));
}

static bool in_range(const redisReply *value, uint64_t most)
{
    return value->type == REDIS_REPLY_INTEGER && value->integer >= 0 && (uint64_t)value->integer <= most;
}

/* Values of BLOB.INFO: a flat array of names and values; older servers answer an error for a missing key. */
static json_t *info_entry(struct counters *counters, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_NIL ||
        (reply->type == REDIS_REPLY_ERROR && strcmp(reply->str, "ERR not found") == 0))
        return json_pack("{s:b}", "found", 0);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 0)
        return error_entry(counters, PROTO_ERR_SERVER_ERROR, "the server's answer to BLOB.INFO has an unknown form");
    json_t *entry = json_pack("{s:b}", "found", 1);
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->str == NULL)
            continue;
        if (strcasecmp(name->str, "len") == 0 && in_range(value, PROTO_SIZE_MAX))
            json_object_set_new(entry, "length", json_integer(value->integer));
        else if (strcasecmp(name->str, "crc") == 0 && in_range(value, UINT32_MAX))
            json_object_set_new(entry, "crc32c", json_integer(value->integer));
        else if (strcasecmp(name->str, "tier") == 0 && value->str != NULL)
            json_object_set_new(entry, "tier", proto_text_json(value->str, value->len));
    }
    return entry;
}

/* The command of a method, and the member of its entries. */
static const struct {
    const char *command, *member;
} kinds[PROTO_METHOD_COUNT] = {
    [PROTO_METHOD_KEYS_EXISTS] = {"EXISTS", "exists"},
    [PROTO_METHOD_KEYS_DELETE] = {"DEL", "deleted"},
    [PROTO_METHOD_KEYS_EXPIRE] = {"PEXPIRE", "expired"},
    [PROTO_METHOD_KEYS_INFO] = {"BLOB.INFO", NULL},
};

static json_t *entry_of(struct counters *counters, int method, const redisReply *reply)
{
    if (method == PROTO_METHOD_KEYS_INFO &&
        (reply->type != REDIS_REPLY_ERROR || strcmp(reply->str, "ERR not found") == 0))
        return info_entry(counters, reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        if (strncasecmp(reply->str, "ERR unknown command", 19) == 0)
            return error_entry(counters, PROTO_ERR_NOT_USABLE, "the server has no large-object module loaded");
        bool wrong_type = strncmp(reply->str, "WRONGTYPE", 9) == 0;
        return error_entry(counters, wrong_type ? PROTO_ERR_WRONG_TYPE : PROTO_ERR_SERVER_ERROR, reply->str);
    }
    if (reply->type != REDIS_REPLY_INTEGER)
        return error_entry(counters, PROTO_ERR_SERVER_ERROR, "the server answered no integer");
    return json_pack("{s:b}", kinds[method].member, reply->integer > 0);
}

/* One of the commands, or the sending of them all, is over. */
static void part_done(struct keys_request *request)
{
    if (--request->waiting > 0)
        return;
    if (request->base.session == NULL)
        free_request(&request->base);
    else if (request->failed)
        session_answer(&request->base, NULL);
    else
        session_answer(&request->base, json_pack("{s:O}", "keys", request->entries));
}

/* Consumes the entry; the last one answers. */
static void entry_done(struct keys_command *command, json_t *entry)
{
    struct keys_request *request = command->request;
    user_key_ended(request->user);
    if (json_array_set_new(request->entries, command->index, entry) != 0)
        request->failed = true;
    part_done(request);
}

static void done(struct key_command *base, const redisReply *reply, int code, const char *why)
{
    struct keys_command *command = (struct keys_command *)base;
    struct counters *counters = command->request->counters;
    entry_done(command, reply != NULL ? entry_of(counters, command->request->base.method, reply)
                                      : error_entry(counters, code, why));
}

static void start(struct deployment *deployment, struct keys_request *request, size_t index)
{
    struct keys_command *command = &request->commands[index];
    const struct proto_key *key = &request->keys.items[index];
    command->request = request;
    command->index = index;
    struct memory_error refusal = {0};
    if (permission_key(&request->base.session->policy, key, &refusal) != 0) {
        entry_done(command, error_entry(request->counters, refusal.code, refusal.text));
        return;
    }
    command->base = (struct key_command){
        .argc = request->ttl[0] != '\0' ? 3 : 2,
        .argv = {kinds[request->base.method].command, (const char *)key->data, request->ttl},
        .lengths = {strlen(kinds[request->base.method].command), key->length, strlen(request->ttl)},
        .done = done,
    };
    key_command_start(deployment, &command->base);
}

/* Takes the keys out of the call. NULL: out of memory. */
static struct keys_request *new_request(struct call *call)
{
    struct proto_keys *keys = &call->params.keys.keys;
    struct keys_request *request = calloc(1, sizeof *request + keys->count * sizeof request->commands[0]);
    if (request == NULL || (request->entries = json_array()) == NULL) {
        free(request);
        return NULL;
    }
    if (call->method == PROTO_METHOD_KEYS_EXPIRE)
        snprintf(request->ttl, sizeof request->ttl, "%" PRIu64, call->params.expire.ttl_ms);
    request->keys = *keys;
    *keys = (struct proto_keys){0};
    request->user = call->session->user;
    request->counters = &call->session->service->counters;
    request->base.id = call->id;
    request->base.method = call->method;
    request->base.free = free_request;
    request->base.leaves = true;
    for (size_t i = 0; i < request->keys.count; i++)
        json_array_append_new(request->entries, json_null());
    return request;
}

void method_keys(struct call *call)
{
    struct session *session = call->session;
    struct deployment *deployment = session->service->deployment;
    struct memory_error refusal = {0};
    if (call->method == PROTO_METHOD_KEYS_EXPIRE &&
        permission_ttl(&session->policy, call->params.expire.ttl_ms, &refusal) != 0) {
        session_reply_error(session, (int64_t)call->id, refusal.code, refusal.text, error_numbers(&refusal));
        return;
    }
    struct keys_request *request = new_request(call);
    if (request == NULL) {
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_SYSTEM, "the daemon is out of memory", NULL);
        return;
    }
    if (!user_take_keys(session->user, request->keys.count)) {
        free_request(&request->base);
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_BUSY,
                            "too many commands of this user wait for the server; try again later", NULL);
        return;
    }
    session_open_request(session, &request->base);
    request->waiting = request->keys.count + 1; /* one more, so that the answer comes after the last was sent */
    for (size_t i = 0; i < request->keys.count; i++)
        start(deployment, request, i);
    part_done(request);
}
