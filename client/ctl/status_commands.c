/*
 * status: on the client socket, or on the admin socket where that is named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/commands.h"
#include "client/ctl/control.h"
#include "client/ctl/keys.h"
#include "client/ctl/table.h"
#include "client/ctl/text.h"

#define ANSWER_MS 10000

/* The members of one object; where the daemon does not tell one, it is 0, "-" or false. */

static void label(const char *name)
{
    printf("%-11s", name);
}

static void print_text(const char *before, json_t *object, const char *member)
{
    char *text = table_cell(CELL_TEXT, json_object_get(object, member));

    printf("%s%s", before, text);
    free(text);
}

static unsigned long long number(json_t *object, const char *member)
{
    return (unsigned long long)json_integer_value(json_object_get(object, member));
}

/* "1 lane", "2 lanes" */
static void print_count(json_t *object, const char *member, const char *one)
{
    unsigned long long count = number(object, member);

    printf("%llu %s%s", count, one, count == 1 ? "" : "s");
}

static void print_bytes(json_t *object, const char *member)
{
    char out[TEXT_NUMBER_BYTES];

    printf("%s", text_bytes(out, number(object, member)));
}

/* ", usable", or ", NOT usable: " and why */
static void print_usable(json_t *object)
{
    if (json_is_true(json_object_get(object, "usable"))) {
        printf(", usable");
    } else {
        print_text(", NOT usable: ", object, "why");
    }
}

static void print_daemon(json_t *daemon)
{
    char uptime[TEXT_NUMBER_BYTES];

    label("daemon");
    print_text("glide-rdmad ", daemon, "version");
    printf(", up %s, ", text_duration(uptime, number(daemon, "uptime_ms") * 1000));
    print_count(daemon, "sessions", "session");
    printf("%s", json_is_true(json_object_get(daemon, "draining")) ? ", draining" : "");
    print_usable(daemon);
    putchar('\n');
}

static void print_fabric(json_t *fabric)
{
    json_t *interface;
    size_t at;

    label("fabric");
    print_text("provider ", fabric, "provider");
    print_text(", libfabric ", fabric, "libfabric");
    printf(", ");
    print_count(fabric, "lanes", "lane");
    json_array_foreach(json_object_get(fabric, "interfaces"), at, interface) {
        char *name = table_cell(CELL_TEXT, interface);

        printf("%s%s", at == 0 ? ", on " : " ", name);
        free(name);
    }
    print_usable(fabric);
    putchar('\n');
}

static bool has_text(json_t *object, const char *member)
{
    return json_string_length(json_object_get(object, member)) > 0;
}

#define ALL_SLOTS 16384

/* Where RDMA leads elsewhere than the node's name says, and why it is not used. */
static void print_rdma(json_t *node)
{
    static const char scheme[] = "rdma://";
    const char *at = json_string_value(json_object_get(node, "rdma_address"));
    const char *name = json_string_value(json_object_get(node, "address"));

    if (at == NULL || name == NULL || at[0] == '\0') {
        return;
    }
    if (strcmp(at, name) != 0 && (strncmp(at, scheme, strlen(scheme)) != 0 || strcmp(at + strlen(scheme), name) != 0)) {
        print_text(" (", node, "rdma_address");
        printf(")");
    }
    if (has_text(node, "transport_why")) {
        print_text(" instead of RDMA: ", node, "transport_why");
    }
}

static void print_node(json_t *node)
{
    label("server");
    print_text("", node, "address");
    print_text(" is ", node, "state");
    if (number(node, "slots") != ALL_SLOTS) { /* a node of a cluster */
        print_text(", ", node, "role");
        printf(", ");
        print_count(node, "slots", "slot");
    }
    print_text(", transport ", node, "transport");
    print_rdma(node);
    print_text(", provider ", node, "provider");
    printf(", ");
    print_count(node, "carriers", "carrier");
    printf(" (%llu busy), ", number(node, "carriers_busy"));
    print_count(node, "reconnects", "reconnect");
    printf(", ");
    print_count(node, "revocations", "revocation");
    if (has_text(node, "why")) {
        print_text("; ", node, "why");
    }
    if (has_text(node, "path_why")) {
        print_text("; values over ", node, "path");
        print_text(": ", node, "path_why");
    }
    if (has_text(node, "session_why")) {
        print_text("; no session: ", node, "session_why");
    }
    putchar('\n');
}

/* "4.0 MiB of 16.0 MiB", or "4.0 MiB, no limit" */
static void print_use(json_t *object)
{
    print_bytes(object, "used");
    if (number(object, "limit") > 0) {
        printf(" of ");
        print_bytes(object, "limit");
    } else {
        printf(", no limit");
    }
}

static void print_memlock(json_t *memory)
{
    json_t *memlock = json_object_get(memory, "memlock");

    if (!json_is_object(memlock)) {
        return;
    }
    label("memlock");
    print_use(memlock);
    print_text(", limit from ", memlock, "source");
    if (number(memlock, "queues") > 0) {
        printf(", connections ");
        print_bytes(memlock, "queues");
    }
    printf(", quarantined ");
    print_bytes(memlock, "quarantined");
    if (number(memory, "quarantine_restart_bytes") > 0) {
        printf(" (restart above ");
        print_bytes(memory, "quarantine_restart_bytes");
        printf(")");
    }
    putchar('\n');
}

static void print_device(json_t *device)
{
    label("device");
    print_text("", device, "nic");
    printf(": ");
    print_use(device);
    printf("; %llu", number(device, "registrations"));
    if (number(device, "registrations_limit") > 0) {
        printf(" of %llu", number(device, "registrations_limit"));
    }
    printf(" registrations, %llu made so far\n", number(device, "registrations_total"));
}

static void print_memory(json_t *memory)
{
    json_t *device;
    size_t at;

    label("memory");
    print_bytes(memory, "pinned_bytes");
    printf(" of ");
    print_bytes(memory, "limit_bytes");
    printf(" registered, ");
    print_count(memory, "regions", "region");
    printf(" in ");
    print_count(memory, "arenas", "arena");
    putchar('\n');
    print_memlock(memory);
    json_array_foreach(json_object_get(memory, "devices"), at, device) {
        print_device(device);
    }
}

/* Only the ways in which a transfer did end. */
static void print_transfers(json_t *transfers)
{
    const char *outcome, *before = ". Ended: ";
    json_t *count;

    label("transfers");
    printf("%llu open, %llu of them queued", number(transfers, "open"), number(transfers, "queued"));
    if (number(transfers, "run_again") > 0) {
        printf("; %llu attempts were run again", number(transfers, "run_again"));
    }
    json_object_foreach(json_object_get(transfers, "ended"), outcome, count) {
        if (json_integer_value(count) > 0) {
            char *name = text_safe(outcome, strlen(outcome));

            printf("%s%s %" JSON_INTEGER_FORMAT, before, name, json_integer_value(count));
            before = "; "; /* names hold commas */
            free(name);
        }
    }
    putchar('\n');
}

/* Quotas or permissions of a user, where there are any. */
static void print_policy(json_t *user, const char *title, const char *member)
{
    if (json_object_size(json_object_get(user, member)) > 0) {
        char *cell = table_cell(CELL_QUOTAS, json_object_get(user, member));

        label(title);
        printf("%s\n", cell);
        free(cell);
    }
}

static void print_user(json_t *user)
{
    label("this user");
    printf("uid %llu", number(user, "uid"));
    print_text(" on socket ", user, "socket");
    printf(": ");
    print_count(user, "sessions", "session");
    printf(", ");
    print_count(user, "regions", "region");
    printf(", ");
    print_bytes(user, "pinned_bytes");
    printf(" registered, ");
    print_count(user, "transfers", "transfer");
    putchar('\n');
    print_policy(user, "quotas", "quotas");
    print_policy(user, "policy", "permissions");
}

static void print_limits(json_t *limits)
{
    label("limits");
    printf("region_bytes ");
    print_bytes(limits, "region_bytes");
    printf(", regions %llu, requests %llu, queue %llu, sessions_per_user %llu, regions_per_user %llu\n",
           number(limits, "regions"), number(limits, "requests"), number(limits, "queue"),
           number(limits, "sessions_per_user"), number(limits, "regions_per_user"));
}

static void print_status(json_t *status)
{
    static const struct {
        const char *member;
        void (*print)(json_t *object);
    } parts[] = {
        {"daemon", print_daemon},       {"fabric", print_fabric}, {"nodes", print_node},     {"memory", print_memory},
        {"transfers", print_transfers}, {"user", print_user},     {"limits", print_limits},
    };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_t *part = json_object_get(status, parts[i].member), *entry;
        size_t at;

        if (json_is_object(part)) {
            parts[i].print(part);
        }
        json_array_foreach(part, at, entry) {
            parts[i].print(entry);
        }
    }
}

enum ctl_exit command_status(const struct options *options)
{
    const char *path = options->admin ? options->admin_socket_path : options->socket_path;
    struct control *control;
    json_t *result = NULL;
    enum ctl_exit status =
        control_open(path, !options->admin, options->deadline_ms > 0 ? options->deadline_ms : ANSWER_MS, &control);

    if (status != CTL_OK) {
        return status;
    }
    status = control_call(control, "status", NULL, &result);
    control_close(control);
    if (status != CTL_OK) {
        return status;
    }
    if (options->json) {
        print_json(result);
    } else {
        print_status(result);
        json_decref(result);
    }
    return CTL_OK;
}
