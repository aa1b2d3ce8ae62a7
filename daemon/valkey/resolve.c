#include "daemon/valkey/resolve.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* What stands before the reasons, in a message of the same size. */
#define HEAD_BYTES 160

static void count_addresses(struct resolve *resolve);

/* Outlives its owner when the worker is slow, then `resolve` is NULL. */
struct resolve_lookup {
    struct offload_job job;
    struct resolve *resolve;
    char *host, *port;
    int status, system_error;
    struct addrinfo *result;
};

static void begin(struct resolve *resolve, uv_loop_t *loop, const struct transport_address *address, unsigned limit_ms)
{
    *resolve = (struct resolve){.address = address, .limit_ms = limit_ms, .deadline = uv_now(loop) + limit_ms};
}

static void run_lookup(struct offload_job *job)
{
    struct resolve_lookup *lookup = (struct resolve_lookup *)job;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

    lookup->status = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->result);
    lookup->system_error = errno;
}

static void free_lookup(struct resolve_lookup *lookup)
{
    if (lookup->result != NULL) {
        freeaddrinfo(lookup->result);
    }
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

static void lookup_done(struct offload_job *job)
{
    struct resolve_lookup *lookup = (struct resolve_lookup *)job;
    struct resolve *resolve = lookup->resolve;
    char why[TRANSPORT_WHY_BYTES] = "";
    int error = 0;

    if (resolve != NULL) {
        resolve->lookup = NULL;
        if (lookup->status != 0) {
            error = -EHOSTUNREACH;
            snprintf(why, sizeof(why), "cannot look up '%.120s': %s", resolve->address->host,
                     lookup->status == EAI_SYSTEM ? strerror(lookup->system_error) : gai_strerror(lookup->status));
        } else {
            resolve->found = lookup->result;
            resolve->next = resolve->found;
            lookup->result = NULL;
            count_addresses(resolve);
        }
    }
    free_lookup(lookup);
    if (resolve != NULL) {
        resolve->done(resolve, error, why);
    }
}

static int begin_lookup(struct resolve *resolve, struct offload *offload)
{
    struct resolve_lookup *lookup = calloc(1, sizeof(*lookup));

    if (lookup == NULL) {
        return -ENOMEM;
    }
    lookup->host = strdup(resolve->address->host);
    lookup->port = strdup(resolve->address->port);
    if (lookup->host == NULL || lookup->port == NULL) {
        free_lookup(lookup);
        return -ENOMEM;
    }
    lookup->resolve = resolve;
    resolve->lookup = lookup;
    offload_submit(offload, &lookup->job, run_lookup, lookup_done);
    return 1;
}

int resolve_start(struct resolve *resolve, uv_loop_t *loop, struct offload *offload,
                  const struct transport_address *address, unsigned limit_ms,
                  void (*done)(struct resolve *resolve, int error, const char *why))
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};

    begin(resolve, loop, address, limit_ms);
    resolve->done = done;
    if (getaddrinfo(address->host, address->port, &hints, &resolve->found) != 0) {
        resolve->found = NULL;
        return begin_lookup(resolve, offload);
    }
    resolve->next = resolve->found;
    count_addresses(resolve);
    return 0;
}

void resolve_given(struct resolve *resolve, uv_loop_t *loop, const struct transport_address *address,
                   unsigned limit_ms, const struct addrinfo *given)
{
    begin(resolve, loop, address, limit_ms);
    resolve->next = given;
}

const struct addrinfo *resolve_next(struct resolve *resolve)
{
    const struct addrinfo *next = resolve->next;

    if (next != NULL) {
        resolve->next = next->ai_next;
        resolve->current = next;
    }
    return next;
}

static void address_text(const struct addrinfo *address, char *text, size_t size)
{
    if (address == NULL || getnameinfo(address->ai_addr, address->ai_addrlen, text, (socklen_t)size, NULL, 0,
                                       NI_NUMERICHOST) != 0) {
        snprintf(text, size, "an address");
    }
}

bool resolve_several(const struct resolve *resolve)
{
    return resolve->count > 1;
}

const char *resolve_failed(struct resolve *resolve, const char *reason)
{
    size_t used = strlen(resolve->failures), room = sizeof(resolve->failures) - used;
    size_t part = (sizeof(resolve->failures) - HEAD_BYTES) / (resolve->count > 0 ? resolve->count : 1);
    char address[INET6_ADDRSTRLEN + 16];

    if (!resolve_several(resolve)) {
        snprintf(resolve->failures, sizeof(resolve->failures), "%s", reason);
        return resolve->failures;
    }
    address_text(resolve->current, address, sizeof(address));
    snprintf(resolve->failures + used, room < part ? room : part, "%s%s: %s", used > 0 ? "; " : "", address, reason);
    return resolve->failures;
}

static void count_addresses(struct resolve *resolve)
{
    resolve->count = 0;
    for (const struct addrinfo *address = resolve->next; address != NULL; address = address->ai_next) {
        resolve->count++;
    }
}

uint64_t resolve_share_ms(const struct resolve *resolve, uint64_t now)
{
    uint64_t addresses = 1;

    for (const struct addrinfo *other = resolve->next; other != NULL; other = other->ai_next) {
        addresses++;
    }
    return resolve->deadline > now ? (resolve->deadline - now + addresses - 1) / addresses : 0;
}

bool resolve_is_looking(const struct resolve *resolve)
{
    return resolve->lookup != NULL;
}

static void leave_lookup(struct resolve *resolve)
{
    if (resolve->lookup != NULL) {
        resolve->lookup->resolve = NULL;
        resolve->lookup = NULL;
    }
}

int resolve_give_up(struct resolve *resolve, char why[TRANSPORT_WHY_BYTES])
{
    leave_lookup(resolve);
    snprintf(why, TRANSPORT_WHY_BYTES, "looking up '%.120s' took longer than connect_timeout_ms = %u ms",
             resolve->address->host, resolve->limit_ms);
    return -ETIMEDOUT;
}

void resolve_end(struct resolve *resolve)
{
    leave_lookup(resolve);
    if (resolve->found != NULL) {
        freeaddrinfo(resolve->found);
    }
    *resolve = (struct resolve){0};
}
