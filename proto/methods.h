/*
 * Methods and notifications of the control protocol, with the shape of their parameters and results.
 *
 * Each shape is a C struct and a table of fields. The same table decodes and encodes, on both sides, so the names of
 * the wire stand here and nowhere else. PROTOCOL.md documents them for other languages.
 */
#ifndef GRD_PROTO_METHODS_H
#define GRD_PROTO_METHODS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

/* Bytes of a key: {"key": "text"} where they are UTF-8 without U+0000, {"key_b64": "..."} otherwise. */
struct proto_key {
    uint8_t *data; /* malloc'ed by decoding; borrowed when encoding */
    size_t length;
};

struct proto_keys {
    struct proto_key *items;
    size_t count;
};

enum proto_access { PROTO_ACCESS_READ_WRITE, PROTO_ACCESS_READ };

/* --- parameters ------------------------------------------------------------------------------------------------- */

struct proto_hello_params {
    uint64_t protocol;
    char *client; /* optional text */
};

struct proto_register_params { /* region.register; carries the memfd */
    char *type;                /* "memfd" */
    uint64_t size;             /* bytes, > 0 */
    uint64_t offset;           /* bytes from the start of the file, multiple of its page size; default 0 */
    char *access;              /* "rw" (default) or "r" */
    bool populate;             /* default false */
    char *label;               /* optional text for status */
};

struct proto_close_params {
    uint64_t region;
    bool force;
};

struct proto_set_params {
    uint64_t region, offset, length;
    struct proto_key key;
    bool has_crc32c;
    uint64_t crc32c;
    bool has_ttl_ms; /* PEXPIRE pipelined behind the SET */
    uint64_t ttl_ms;
    bool has_deadline_ms;
    uint64_t deadline_ms;
};

struct proto_get_params {
    uint64_t region, offset, length;
    struct proto_key key;
    bool has_deadline_ms;
    uint64_t deadline_ms;
    bool retry; /* default true: run again where that is safe, instead of answering an error that may pass */
};

struct proto_keys_params { /* keys.exists, keys.delete, keys.info */
    struct proto_keys keys;
};

struct proto_expire_params { /* keys.expire */
    struct proto_keys keys;
    uint64_t ttl_ms;
};

struct proto_cancel_params { /* transfer.cancel */
    uint64_t id; /* of the request to take back */
};

struct proto_page_params { /* long lists: entries with id > after, at most limit of them; the answer may hold `next` */
    uint64_t after;
    uint64_t limit; /* default and maximum PROTO_PAGE_ENTRIES */
};

struct proto_level_params { /* log.level */
    char *level; /* optional: the level to set */
};

struct proto_drain_params {
    bool undo;
    bool has_wait_ms;
    uint64_t wait_ms; /* for the answer; without it the daemon's drain_ms */
};

struct proto_empty {
    char unused;
};

/* --- results ----------------------------------------------------------------------------------------------------- */

struct proto_hello_result {
    uint64_t protocol;
    char *server; /* "glide-rdmad 0.1.0" */
    bool usable;  /* can transfers be carried now? */
    char *path;   /* optional: "rdma", "tcp", "mixed" */
    char *why;    /* optional: why not, or why not by RDMA */
    json_t *limits; /* {message_bytes, regions, in_flight, region_bytes, requests}: see PROTOCOL.md */
    json_t *fabric; /* {provider, interfaces, libfabric} */
};

struct proto_register_result {
    uint64_t region, capacity, page_size;
    bool shared;
};

struct proto_close_result {
    bool memory_released;
};

enum proto_tristate { PROTO_ABSENT, PROTO_FALSE, PROTO_TRUE, PROTO_UNKNOWN }; /* left out, false, true, "unknown" */

struct proto_set_result {
    char *path;        /* "rdma" or "tcp" */
    enum proto_tristate ttl_applied; /* with ttl_ms, else absent; false: the key was gone already */
};

struct proto_cancel_result {
    bool cancelled; /* the request was open and is being taken back; its own answer says how it ended */
};

struct proto_get_result {
    bool found;
    uint64_t length;     /* bytes written at the start of the window; 0 when not found */
    bool has_crc32c;
    uint64_t crc32c;     /* the server's, as stored */
    char *path;          /* "rdma" or "tcp"; NULL (left out) where nothing was carried */
};

struct proto_list_result { /* keys.*: "keys": one entry a key, in the order of the request */
    json_t *keys;
};

struct proto_json_result { /* status and the admin methods: an object, see PROTOCOL.md */
    json_t *object;
};

/* --- the list ---------------------------------------------------------------------------------------------------- */

/* X(SYMBOL, "name", socket, takes a descriptor, params shape, result shape) */
#define PROTO_METHODS(X)                                                                                              \
    X(HELLO, "hello", PROTO_ON_BOTH, false, hello_params, hello_result)                                               \
    X(REGION_REGISTER, "region.register", PROTO_ON_CLIENT, true, register_params, register_result)                    \
    X(REGION_CLOSE, "region.close", PROTO_ON_CLIENT, false, close_params, close_result)                               \
    X(TRANSFER_SET, "transfer.set", PROTO_ON_CLIENT, false, set_params, set_result)                                   \
    X(TRANSFER_GET, "transfer.get", PROTO_ON_CLIENT, false, get_params, get_result)                                   \
    X(TRANSFER_CANCEL, "transfer.cancel", PROTO_ON_CLIENT, false, cancel_params, cancel_result)                       \
    X(KEYS_EXISTS, "keys.exists", PROTO_ON_CLIENT, false, keys_params, list_result)                                   \
    X(KEYS_DELETE, "keys.delete", PROTO_ON_CLIENT, false, keys_params, list_result)                                   \
    X(KEYS_INFO, "keys.info", PROTO_ON_CLIENT, false, keys_params, list_result)                                       \
    X(KEYS_EXPIRE, "keys.expire", PROTO_ON_CLIENT, false, expire_params, list_result)                                 \
    X(STATUS, "status", PROTO_ON_BOTH, false, empty, json_result)                                                     \
    X(ADMIN_CLIENTS, "clients", PROTO_ON_ADMIN, false, page_params, json_result)                                      \
    X(ADMIN_NODES, "nodes", PROTO_ON_ADMIN, false, page_params, json_result)                                          \
    X(ADMIN_REGIONS, "regions", PROTO_ON_ADMIN, false, page_params, json_result)                                      \
    X(ADMIN_TRANSFERS, "transfers", PROTO_ON_ADMIN, false, page_params, json_result)                                  \
    X(ADMIN_USERS, "users", PROTO_ON_ADMIN, false, page_params, json_result)                                          \
    X(ADMIN_METRICS, "metrics", PROTO_ON_ADMIN, false, empty, json_result)                                            \
    X(ADMIN_LOG_LEVEL, "log.level", PROTO_ON_ADMIN, false, level_params, json_result)                                 \
    X(ADMIN_RELOAD, "reload", PROTO_ON_ADMIN, false, empty, json_result)                                              \
    X(ADMIN_DRAIN, "drain", PROTO_ON_ADMIN, false, drain_params, json_result)

enum proto_sockets { PROTO_ON_CLIENT = 1, PROTO_ON_ADMIN = 2, PROTO_ON_BOTH = 3 };

enum proto_method_id {
#define PROTO_METHOD_ENUM(symbol, name, sockets, fd, params, result) PROTO_METHOD_##symbol,
    PROTO_METHODS(PROTO_METHOD_ENUM)
#undef PROTO_METHOD_ENUM
        PROTO_METHOD_COUNT
};

struct proto_shape; /* a table of fields; opaque here, see proto/shape.h */

/* Notifications, daemon to client; a client must ignore those it does not know. */
#define PROTO_NOTIFY_REGION_CLOSED "region.closed"     /* proto_shape_region_closed */
#define PROTO_NOTIFY_SESSION_CLOSED "session.closed"   /* proto_shape_session_closed: the last packet */
#define PROTO_NOTIFY_DAEMON_DRAINING "daemon.draining" /* proto_shape_daemon_draining */
#define PROTO_NOTIFY_DAEMON_RESUMED "daemon.resumed"   /* no params */

struct proto_region_closed { /* the daemon closed a region on its own */
    uint64_t region;
    char *reason;
    bool memory_released;
};

struct proto_session_closed { /* the last packet before the daemon closes a session on purpose */
    int64_t code; /* an error of proto/errors.h */
    char *reason;
};

struct proto_daemon_draining {
    uint64_t deadline_ms; /* until what still runs is cancelled */
};

extern const struct proto_shape proto_shape_region_closed;
extern const struct proto_shape proto_shape_session_closed;
extern const struct proto_shape proto_shape_daemon_draining;

struct proto_method {
    const char *name;
    unsigned sockets;
    bool takes_fd;
    const struct proto_shape *params;
    const struct proto_shape *result;
};

extern const struct proto_method proto_methods[PROTO_METHOD_COUNT];

/* Id of a method by name, or -1. Thread safe. */
int proto_method_find(const char *name);

/* Large enough for every parameter shape. */
union proto_any_params {
    struct proto_hello_params hello;
    struct proto_register_params region_register;
    struct proto_close_params region_close;
    struct proto_set_params set;
    struct proto_get_params get;
    struct proto_keys_params keys;
    struct proto_expire_params expire;
    struct proto_cancel_params cancel;
    struct proto_page_params page;
    struct proto_level_params level;
    struct proto_drain_params drain;
    struct proto_empty empty;
};

#endif
