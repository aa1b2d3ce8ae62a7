/*
 * clients, regions, transfers, users, nodes: lists of the admin socket.
 */
#include <stdlib.h>

#include "client/ctl/commands.h"
#include "client/ctl/control.h"
#include "client/ctl/keys.h"
#include "client/ctl/report.h"
#include "client/ctl/table.h"
#include "proto/methods.h"

#define ANSWER_MS 10000

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct list {
    enum proto_method_id method;
    const struct column *columns;
    size_t count;
};

static json_t *page_params(json_int_t after)
{
    return need_memory(json_pack("{s:I,s:i}", "after", after, "limit", PROTO_PAGE_ENTRIES));
}

/* *next: where the following page begins, or 0 after the last one. */
static enum ctl_exit add_page(json_t *page, const char *name, json_t *entries, json_int_t *next)
{
    json_t *found = json_object_get(page, name), *member = json_object_get(page, "next");
    json_int_t after = json_integer_value(member);

    if (!json_is_array(found) || (member != NULL && after <= *next)) {
        report("%s: the daemon's answer cannot be understood", name);
        return CTL_PROTOCOL;
    }
    if (json_array_extend(entries, found) != 0) {
        need_memory(NULL);
    }
    *next = after;
    return CTL_OK;
}

/* Follows the pages to the last one. */
static enum ctl_exit collect(struct control *control, const struct list *list, json_t *entries)
{
    const char *name = proto_methods[list->method].name;
    json_int_t next = 0;
    enum ctl_exit status;

    do {
        json_t *params = page_params(next);
        json_t *page = NULL;

        status = control_call(control, name, params, &page);
        json_decref(params);
        if (status == CTL_OK) {
            status = add_page(page, name, entries, &next);
            json_decref(page);
        }
    } while (status == CTL_OK && next > 0);
    return status;
}

static void print(const struct options *options, const struct list *list, json_t *entries)
{
    if (options->json) {
        print_json(need_memory(json_pack("{s:O}", proto_methods[list->method].name, entries)));
    } else {
        table_print(list->columns, list->count, entries);
    }
}

static enum ctl_exit show(const struct options *options, const struct list *list)
{
    struct control *control;
    json_t *entries = need_memory(json_array());
    enum ctl_exit status = control_open(options->admin_socket_path, false,
                                        options->deadline_ms > 0 ? options->deadline_ms : ANSWER_MS, &control);

    if (status == CTL_OK) {
        status = collect(control, list, entries);
        control_close(control);
    }
    if (status == CTL_OK) {
        print(options, list, entries);
    }
    json_decref(entries);
    return status;
}

enum ctl_exit command_clients(const struct options *options)
{
    static const struct column columns[] = {
        {"ID", "id", CELL_NUMBER},          {"UID", "uid", CELL_NUMBER},           {"PID", "pid", CELL_NUMBER},
        {"SOCKET", "socket", CELL_TEXT},    {"STATE", "state", CELL_TEXT},         {"REGIONS", "regions", CELL_NUMBER},
        {"REQUESTS", "requests", CELL_NUMBER}, {"NAME", "name", CELL_TEXT},
    };
    static const struct list list = {PROTO_METHOD_ADMIN_CLIENTS, columns, COUNT(columns)};

    return show(options, &list);
}

enum ctl_exit command_regions(const struct options *options)
{
    static const struct column columns[] = {
        {"ID", "id", CELL_NUMBER},       {"SESSION", "session", CELL_NUMBER}, {"REGION", "region", CELL_NUMBER},
        {"UID", "uid", CELL_NUMBER},     {"PID", "pid", CELL_NUMBER},         {"SOCKET", "socket", CELL_TEXT},
        {"SIZE", "size", CELL_BYTES},    {"ACCESS", "access", CELL_TEXT},     {"SHARED", "shared", CELL_BOOLEAN},
        {"IN USE", "windows", CELL_NUMBER}, {"STATE", "state", CELL_TEXT},    {"LABEL", "label", CELL_TEXT},
    };
    static const struct list list = {PROTO_METHOD_ADMIN_REGIONS, columns, COUNT(columns)};

    return show(options, &list);
}

enum ctl_exit command_transfers(const struct options *options)
{
    static const struct column columns[] = {
        {"ID", "id", CELL_NUMBER},           {"SESSION", "session", CELL_NUMBER}, {"UID", "uid", CELL_NUMBER},
        {"SOCKET", "socket", CELL_TEXT},     {"KIND", "kind", CELL_TEXT},         {"STATE", "state", CELL_TEXT},
        {"LENGTH", "length", CELL_BYTES},    {"AGE", "age_us", CELL_MICROSECONDS}, {"CARRIER", "carrier", CELL_TEXT},
    };
    static const struct list list = {PROTO_METHOD_ADMIN_TRANSFERS, columns, COUNT(columns)};

    return show(options, &list);
}

enum ctl_exit command_users(const struct options *options)
{
    static const struct column columns[] = {
        {"ID", "id", CELL_NUMBER},             {"UID", "uid", CELL_NUMBER},
        {"SOCKET", "socket", CELL_TEXT},       {"SESSIONS", "sessions", CELL_NUMBER},
        {"REGIONS", "regions", CELL_NUMBER},   {"REGISTERED", "pinned_bytes", CELL_BYTES},
        {"IN FLIGHT", "in_flight", CELL_NUMBER}, {"QUEUED", "queued", CELL_NUMBER},
        {"QUOTAS", "quotas", CELL_QUOTAS},
    };
    static const struct list list = {PROTO_METHOD_ADMIN_USERS, columns, COUNT(columns)};

    return show(options, &list);
}

enum ctl_exit command_nodes(const struct options *options)
{
    static const struct column columns[] = {
        {"ADDRESS", "address", CELL_TEXT},         {"ROLE", "role", CELL_TEXT},
        {"SLOTS", "slots", CELL_NUMBER},           {"REPLICAS", "replicas", CELL_NUMBER},
        {"STATE", "state", CELL_TEXT},             {"TRANSPORT", "transport", CELL_TEXT},
        {"PROVIDER", "provider", CELL_TEXT},       {"PATH", "path", CELL_TEXT},
        {"CARRIERS", "carriers", CELL_NUMBER},
        {"BUSY", "carriers_busy", CELL_NUMBER},    {"RECONNECTS", "reconnects", CELL_NUMBER},
        {"REVOCATIONS", "revocations", CELL_NUMBER}, {"WHY", "why", CELL_TEXT},
        {"WHY NO RDMA", "transport_why", CELL_TEXT}, {"WHY NO SESSION", "session_why", CELL_TEXT},
    };
    static const struct list list = {PROTO_METHOD_ADMIN_NODES, columns, COUNT(columns)};

    return show(options, &list);
}
