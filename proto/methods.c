#include "proto/methods.h"

#include <string.h>

#include "proto/shape_table.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define AT(type, member) .offset = offsetof(struct type, member)
#define SHAPE(type, rows) {.size = sizeof(struct type), .count = COUNT_OF(rows), .fields = (rows)}

/* Rows that many shapes share. */
#define ROW_NUMBER(type, member, low, high)                                                                           \
    {.name = #member, .kind = PROTO_KIND_UINT, AT(type, member), .min = (low), .max = (high)}
#define ROW_NUMBER_OPTIONAL(type, member, low, high)                                                                  \
    {.name = #member, .kind = PROTO_KIND_UINT, .need = PROTO_OPTIONAL, AT(type, member),                              \
     .flag = offsetof(struct type, has_##member), .min = (low), .max = (high)}
#define ROW_NUMBER_DEFAULT(type, member, low, high, value)                                                            \
    {.name = #member, .kind = PROTO_KIND_UINT, .need = PROTO_DEFAULTED, AT(type, member), .min = (low),               \
     .max = (high), .fallback = (value)}
#define ROW_BOOL(type, member) {.name = #member, .kind = PROTO_KIND_BOOL, AT(type, member)}
#define ROW_BOOL_DEFAULT(type, member, value)                                                                         \
    {.name = #member, .kind = PROTO_KIND_BOOL, .need = PROTO_DEFAULTED, AT(type, member), .fallback = (value)}
#define ROW_TEXT(type, member, necessity, high, choice)                                                               \
    {.name = #member, .kind = PROTO_KIND_TEXT, .need = (necessity), AT(type, member), .max = (high),                  \
     .words = (choice)}
#define ROW_KEY(type) {.name = "key", .kind = PROTO_KIND_KEY, AT(type, key)}

#define ID_MAX ((uint64_t)PROTO_ID_MAX)
#define CRC_MAX ((uint64_t)UINT32_MAX)

static const char *const type_words[] = {"memfd", NULL};
static const char *const level_words[] = {"error", "warn", "notice", "info", "debug", NULL};
static const char *const access_words[] = {"rw", "r", NULL};

/* --- parameters ------------------------------------------------------------------------------------------------- */

static const struct proto_field hello_params_rows[] = {
    ROW_NUMBER(proto_hello_params, protocol, 1, ID_MAX),
    ROW_TEXT(proto_hello_params, client, PROTO_OPTIONAL, PROTO_TEXT_BYTES, NULL),
};

static const struct proto_field register_params_rows[] = {
    ROW_TEXT(proto_register_params, type, PROTO_NEEDED, PROTO_TEXT_BYTES, type_words),
    ROW_NUMBER(proto_register_params, size, 1, PROTO_SIZE_MAX),
    ROW_NUMBER_DEFAULT(proto_register_params, offset, 0, PROTO_SIZE_MAX, 0),
    ROW_TEXT(proto_register_params, access, PROTO_DEFAULTED, PROTO_TEXT_BYTES, access_words),
    ROW_BOOL_DEFAULT(proto_register_params, populate, false),
    ROW_TEXT(proto_register_params, label, PROTO_OPTIONAL, PROTO_TEXT_BYTES, NULL),
};

static const struct proto_field close_params_rows[] = {
    ROW_NUMBER(proto_close_params, region, 1, ID_MAX),
    ROW_BOOL_DEFAULT(proto_close_params, force, false),
};

static const struct proto_field set_params_rows[] = {
    ROW_NUMBER(proto_set_params, region, 1, ID_MAX),
    ROW_NUMBER(proto_set_params, offset, 0, PROTO_SIZE_MAX),
    ROW_NUMBER(proto_set_params, length, 1, PROTO_SIZE_MAX),
    ROW_KEY(proto_set_params),
    ROW_NUMBER_OPTIONAL(proto_set_params, crc32c, 0, CRC_MAX),
    ROW_NUMBER_OPTIONAL(proto_set_params, ttl_ms, 1, PROTO_TTL_MS_MAX),
    ROW_NUMBER_OPTIONAL(proto_set_params, deadline_ms, 1, PROTO_TIME_MS_MAX),
};

static const struct proto_field get_params_rows[] = {
    ROW_NUMBER(proto_get_params, region, 1, ID_MAX),
    ROW_NUMBER(proto_get_params, offset, 0, PROTO_SIZE_MAX),
    ROW_NUMBER(proto_get_params, length, 1, PROTO_SIZE_MAX),
    ROW_KEY(proto_get_params),
    ROW_NUMBER_OPTIONAL(proto_get_params, deadline_ms, 1, PROTO_TIME_MS_MAX),
    ROW_BOOL_DEFAULT(proto_get_params, retry, true),
};

static const struct proto_field keys_params_rows[] = {
    {.name = "keys", .kind = PROTO_KIND_KEYS, AT(proto_keys_params, keys), .min = 1, .max = PROTO_KEYS},
};

static const struct proto_field expire_params_rows[] = {
    {.name = "keys", .kind = PROTO_KIND_KEYS, AT(proto_expire_params, keys), .min = 1, .max = PROTO_KEYS},
    ROW_NUMBER(proto_expire_params, ttl_ms, 1, PROTO_TTL_MS_MAX),
};

static const struct proto_field cancel_params_rows[] = {
    ROW_NUMBER(proto_cancel_params, id, 1, ID_MAX),
};

static const struct proto_field page_params_rows[] = {
    ROW_NUMBER_DEFAULT(proto_page_params, after, 0, ID_MAX, 0),
    ROW_NUMBER_DEFAULT(proto_page_params, limit, 1, PROTO_PAGE_ENTRIES, PROTO_PAGE_ENTRIES),
};

static const struct proto_field level_params_rows[] = {
    ROW_TEXT(proto_level_params, level, PROTO_OPTIONAL, PROTO_TEXT_BYTES, level_words),
};

static const struct proto_field drain_params_rows[] = {
    ROW_BOOL_DEFAULT(proto_drain_params, undo, false),
    ROW_NUMBER_OPTIONAL(proto_drain_params, wait_ms, 0, PROTO_TIME_MS_MAX),
};

/* --- results ---------------------------------------------------------------------------------------------------- */

static const struct proto_field hello_result_rows[] = {
    ROW_NUMBER(proto_hello_result, protocol, 1, ID_MAX),
    ROW_TEXT(proto_hello_result, server, PROTO_NEEDED, PROTO_MESSAGE_BYTES, NULL),
    ROW_BOOL(proto_hello_result, usable),
    ROW_TEXT(proto_hello_result, path, PROTO_OPTIONAL, PROTO_TEXT_BYTES, NULL),
    ROW_TEXT(proto_hello_result, why, PROTO_OPTIONAL, PROTO_MESSAGE_BYTES, NULL),
    {.name = "limits", .kind = PROTO_KIND_OBJECT, AT(proto_hello_result, limits)},
    {.name = "fabric", .kind = PROTO_KIND_OBJECT, AT(proto_hello_result, fabric)},
};

static const struct proto_field register_result_rows[] = {
    ROW_NUMBER(proto_register_result, region, 1, ID_MAX),
    ROW_NUMBER(proto_register_result, capacity, 0, PROTO_SIZE_MAX),
    ROW_BOOL(proto_register_result, shared),
    ROW_NUMBER(proto_register_result, page_size, 1, PROTO_SIZE_MAX),
};

static const struct proto_field close_result_rows[] = {
    ROW_BOOL(proto_close_result, memory_released),
};

static const struct proto_field set_result_rows[] = {
    ROW_TEXT(proto_set_result, path, PROTO_NEEDED, PROTO_TEXT_BYTES, NULL),
    {.name = "ttl_applied", .kind = PROTO_KIND_TRISTATE, .need = PROTO_OPTIONAL, AT(proto_set_result, ttl_applied)},
};

static const struct proto_field cancel_result_rows[] = {
    ROW_BOOL(proto_cancel_result, cancelled),
};

static const struct proto_field get_result_rows[] = {
    ROW_BOOL(proto_get_result, found),
    ROW_NUMBER(proto_get_result, length, 0, PROTO_SIZE_MAX),
    ROW_NUMBER_OPTIONAL(proto_get_result, crc32c, 0, CRC_MAX),
    ROW_TEXT(proto_get_result, path, PROTO_OPTIONAL, PROTO_TEXT_BYTES, NULL),
};

static const struct proto_field list_result_rows[] = {
    {.name = "keys", .kind = PROTO_KIND_ARRAY, AT(proto_list_result, keys), .max = PROTO_KEYS},
};

static const struct proto_field json_result_rows[] = {
    {.name = "", .kind = PROTO_KIND_WHOLE, AT(proto_json_result, object)},
};

/* --- notifications ---------------------------------------------------------------------------------------------- */

static const struct proto_field region_closed_rows[] = {
    ROW_NUMBER(proto_region_closed, region, 1, ID_MAX),
    ROW_TEXT(proto_region_closed, reason, PROTO_NEEDED, PROTO_MESSAGE_BYTES, NULL),
    ROW_BOOL(proto_region_closed, memory_released),
};

static const struct proto_field session_closed_rows[] = {
    {.name = "code", .kind = PROTO_KIND_CODE, AT(proto_session_closed, code)},
    ROW_TEXT(proto_session_closed, reason, PROTO_NEEDED, PROTO_MESSAGE_BYTES, NULL),
};

static const struct proto_field daemon_draining_rows[] = {
    ROW_NUMBER(proto_daemon_draining, deadline_ms, 0, PROTO_TIME_MS_MAX),
};

/* --- the list --------------------------------------------------------------------------------------------------- */

static const struct proto_shape shape_hello_params = SHAPE(proto_hello_params, hello_params_rows);
static const struct proto_shape shape_register_params = SHAPE(proto_register_params, register_params_rows);
static const struct proto_shape shape_close_params = SHAPE(proto_close_params, close_params_rows);
static const struct proto_shape shape_set_params = SHAPE(proto_set_params, set_params_rows);
static const struct proto_shape shape_get_params = SHAPE(proto_get_params, get_params_rows);
static const struct proto_shape shape_keys_params = SHAPE(proto_keys_params, keys_params_rows);
static const struct proto_shape shape_expire_params = SHAPE(proto_expire_params, expire_params_rows);
static const struct proto_shape shape_cancel_params = SHAPE(proto_cancel_params, cancel_params_rows);
static const struct proto_shape shape_page_params = SHAPE(proto_page_params, page_params_rows);
static const struct proto_shape shape_level_params = SHAPE(proto_level_params, level_params_rows);
static const struct proto_shape shape_drain_params = SHAPE(proto_drain_params, drain_params_rows);
static const struct proto_shape shape_empty = {.size = sizeof(struct proto_empty)};

static const struct proto_shape shape_hello_result = SHAPE(proto_hello_result, hello_result_rows);
static const struct proto_shape shape_register_result = SHAPE(proto_register_result, register_result_rows);
static const struct proto_shape shape_close_result = SHAPE(proto_close_result, close_result_rows);
static const struct proto_shape shape_set_result = SHAPE(proto_set_result, set_result_rows);
static const struct proto_shape shape_cancel_result = SHAPE(proto_cancel_result, cancel_result_rows);
static const struct proto_shape shape_get_result = SHAPE(proto_get_result, get_result_rows);
static const struct proto_shape shape_list_result = SHAPE(proto_list_result, list_result_rows);
static const struct proto_shape shape_json_result = SHAPE(proto_json_result, json_result_rows);

const struct proto_shape proto_shape_region_closed = SHAPE(proto_region_closed, region_closed_rows);
const struct proto_shape proto_shape_session_closed = SHAPE(proto_session_closed, session_closed_rows);
const struct proto_shape proto_shape_daemon_draining = SHAPE(proto_daemon_draining, daemon_draining_rows);

const struct proto_method proto_methods[PROTO_METHOD_COUNT] = {
#define METHOD_ENTRY(symbol, wire_name, where, fd, params_shape, result_shape)                                        \
    {.name = (wire_name), .sockets = (where), .takes_fd = (fd), .params = &shape_##params_shape,                      \
     .result = &shape_##result_shape},
    PROTO_METHODS(METHOD_ENTRY)
#undef METHOD_ENTRY
};

int proto_method_find(const char *name)
{
    for (int i = 0; i < PROTO_METHOD_COUNT; i++) {
        if (strcmp(proto_methods[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}
