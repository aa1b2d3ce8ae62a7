/* Which NICs of the configured provider there are: fi_getinfo() and its choice. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "daemon/fabric/libfabric_object.h"

static const struct provider known[] = {
    {.name = "tcp", .prov_name = "tcp", .by_address = true, .polled = true, .one_nic = true},
    {.name = "verbs", .prov_name = "verbs;ofi_rxm", .by_address = true, .polled = true},
    {.name = "efa-direct", .prov_name = "efa", .fabric_name = "efa-direct"},
};

int fail(char why[FABRIC_WHY_BYTES], const char *what, long error)
{
    snprintf(why, FABRIC_WHY_BYTES, "%s: %s (%ld)", what, fi_strerror((int)-error), error);
    return (int)error;
}

const struct provider *provider_find(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, name) == 0) {
            return &known[i];
        }
    }
    return NULL;
}

/*
 * All memory modes are offered: the provider returns those it needs, and the key and address form follow from them.
 * FI_RX_CQ_DATA: a promise that costs a passive target nothing; without it newer libraries hide efa-direct on devices
 * that lack unsolicited write receive.
 */
static struct fi_info *make_hints(const struct provider *provider)
{
    struct fi_info *hints = fi_allocinfo();

    if (hints == NULL) {
        return NULL;
    }
    hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->fabric_attr->prov_name = strdup(provider->prov_name);
    if (provider->fabric_name != NULL) {
        hints->fabric_attr->name = strdup(provider->fabric_name);
    }
    if (hints->fabric_attr->prov_name == NULL || (provider->fabric_name != NULL && hints->fabric_attr->name == NULL)) {
        fi_freeinfo(hints);
        return NULL;
    }
    return hints;
}

/* The next of a list's comma separated words; false: there is none. */
static bool next_word(const char **list, char *word, size_t size)
{
    size_t length;

    *list += strspn(*list, ", \t");
    length = strcspn(*list, ", \t");
    if (length == 0) {
        return false;
    }
    snprintf(word, size, "%.*s", (int)length, *list);
    *list += length;
    return true;
}

/* Is `name` one of the words? */
static bool listed(const char *list, const char *name)
{
    char word[64];

    while (next_word(&list, word, sizeof(word))) {
        if (strcmp(word, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_interfaces(const struct fabric_settings *settings)
{
    return settings->interfaces != NULL && settings->interfaces[strspn(settings->interfaces, ", \t")] != '\0';
}

/* tcp: its NICs are those that are listed; else the host is one, with whatever address the settings bind it to. */
static bool is_host(const struct provider *provider, const struct fabric_settings *settings)
{
    return provider->one_nic && (!has_interfaces(settings) || settings->bind != NULL);
}

/* An interface has several addresses: one that peers can use who are reached from `near`. A link-local one says nothing
 * to another host. */
static bool has_fitting_address(const struct fabric_settings *settings, const struct fi_info *info)
{
    const struct sockaddr_in6 *v6 = info->src_addr;
    bool is_v6 = info->addr_format == FI_SOCKADDR_IN6;

    if (is_v6 && v6 != NULL && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
        return false;
    }
    return settings->near == NULL || (strchr(settings->near, ':') != NULL) == is_v6;
}

static bool fits(const struct provider *provider, const struct fabric_settings *settings, const struct fi_info *info)
{
    if (strcmp(info->fabric_attr->prov_name, provider->prov_name) != 0) {
        return false;
    }
    if (provider->fabric_name != NULL && strcmp(info->fabric_attr->name, provider->fabric_name) != 0) {
        return false;
    }
    if (settings->nic != NULL && strcmp(settings->nic, info->domain_attr->name) != 0) {
        return false;
    }
    if (provider->one_nic && !is_host(provider, settings) && !has_fitting_address(settings, info)) {
        return false;
    }
    return !has_interfaces(settings) || listed(settings->interfaces, info->domain_attr->name);
}

static int get_info(const struct provider *provider, const struct fabric_settings *settings, struct fi_info **all,
                    char why[FABRIC_WHY_BYTES])
{
    const char *node = provider->by_address ? settings->bind : NULL;
    const char *filter = getenv("FI_PROVIDER");
    struct fi_info *hints = make_hints(provider);
    int error;

    if (hints == NULL) {
        return fail(why, "fi_allocinfo", -FI_ENOMEM);
    }
    error = fi_getinfo(LIBFABRIC_API, node, NULL, node != NULL ? FI_SOURCE : 0, hints, all);
    fi_freeinfo(hints);
    if (error != 0) {
        snprintf(why, FABRIC_WHY_BYTES, "no NIC for provider %s%s%s%s%s: fi_getinfo: %s; `fi_info -p '%s'` lists what "
                 "libfabric sees",
                 provider->name, node != NULL ? " at address " : "", node != NULL ? node : "",
                 filter != NULL ? " while FI_PROVIDER=" : "", filter != NULL ? filter : "", fi_strerror(-error),
                 provider->prov_name);
    }
    return error;
}

static int unknown(const struct fabric_settings *settings, char why[FABRIC_WHY_BYTES])
{
    snprintf(why, FABRIC_WHY_BYTES, "[fabric] provider = %s is none of efa-direct, tcp, verbs", settings->provider);
    return -EINVAL;
}

/* The first that fits: a NIC is listed once for each address and protocol it has. */
static const struct fi_info *first_fitting(const struct provider *provider, const struct fabric_settings *settings,
                                           const struct fi_info *all)
{
    while (all != NULL && !fits(provider, settings, all)) {
        all = all->next;
    }
    return all;
}

int info_pick(const struct fabric_settings *settings, struct fi_info **info, char why[FABRIC_WHY_BYTES])
{
    const struct provider *provider = provider_find(settings->provider);
    const struct fi_info *found;
    struct fi_info *all;
    int error;

    if (provider == NULL) {
        return unknown(settings, why);
    }
    error = get_info(provider, settings, &all, why);
    if (error != 0) {
        return error;
    }
    found = first_fitting(provider, settings, all);
    if (found != NULL) {
        *info = fi_dupinfo(found);
        error = *info != NULL ? 0 : fail(why, "fi_dupinfo", -FI_ENOMEM);
    } else {
        error = -ENODEV;
        snprintf(why, FABRIC_WHY_BYTES, "provider %s has no interface %s%s", provider->name,
                 settings->nic != NULL ? settings->nic : "that fits",
                 settings->near != NULL ? " with an address of the kind by which Valkey is reached" : "");
    }
    fi_freeinfo(all);
    return error;
}

static void describe(const struct fi_info *info, const char *name, struct fabric_nic *nic)
{
    *nic = (struct fabric_nic){
        .max_message_bytes = info->ep_attr->max_msg_size,
        .registrations = info->domain_attr->mr_cnt,
        .virtual_addresses = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0,
    };
    snprintf(nic->name, sizeof(nic->name), "%s", name);
}

static bool is_known(const struct fabric_nic *nics, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(nics[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The number of those that are there; *count: of all that are listed. */
static size_t query_listed(const struct provider *provider, struct fabric_settings settings, const struct fi_info *all,
                           struct fabric_nic *nics, size_t capacity, size_t *count)
{
    const char *list = settings.interfaces;
    char name[sizeof(nics->name)];
    size_t present = 0;

    settings.nic = name;
    *count = 0;
    while (*count < capacity && next_word(&list, name, sizeof(name))) {
        const struct fi_info *info = first_fitting(provider, &settings, all);
        if (is_known(nics, *count, name)) {
            continue;
        }
        if (info != NULL) {
            describe(info, name, &nics[(*count)++]);
            present++;
        } else {
            nics[*count] = (struct fabric_nic){.absent = true};
            memcpy(nics[(*count)++].name, name, sizeof(name));
        }
    }
    return present;
}

static size_t query_all(const struct provider *provider, const struct fabric_settings *settings,
                        const struct fi_info *all, struct fabric_nic *nics, size_t capacity)
{
    bool host = is_host(provider, settings);
    size_t count = 0;

    for (const struct fi_info *at = all; at != NULL && count < capacity; at = at->next) {
        const char *name = host ? "host" : at->domain_attr->name;
        if (fits(provider, settings, at) && !is_known(nics, count, name)) {
            describe(at, name, &nics[count++]);
        }
    }
    return count;
}

int fabric_query(const struct fabric_settings *settings, struct fabric_nic *nics, size_t capacity,
                 char why[FABRIC_WHY_BYTES])
{
    const struct provider *provider = provider_find(settings->provider);
    struct fi_info *all;
    size_t count, present;
    int error;

    if (provider == NULL) {
        return unknown(settings, why);
    }
    error = get_info(provider, settings, &all, why);
    if (error != 0) {
        return error;
    }
    if (has_interfaces(settings) && !is_host(provider, settings)) {
        present = query_listed(provider, *settings, all, nics, capacity, &count);
    } else {
        present = count = query_all(provider, settings, all, nics, capacity);
    }
    fi_freeinfo(all);
    if (present == 0) {
        snprintf(why, FABRIC_WHY_BYTES, "provider %s has no NIC that fits%s%s", provider->name,
                 settings->interfaces != NULL ? " [fabric] interfaces = " : "",
                 settings->interfaces != NULL ? settings->interfaces : "");
        return -ENODEV;
    }
    return (int)count;
}
