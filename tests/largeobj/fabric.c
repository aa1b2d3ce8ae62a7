#include "fabric.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "endpoint.h"
#include "fabric_lib.h"
#include "settings.h"

/* Providers by the names of largeobj.fabric-provider. A further one is an entry here and in the list of settings.c. */
static const char *const providers[] = {
    [PROVIDER_EMULATED] = "tcp",
    [PROVIDER_VERBS] = "verbs;ofi_rxm",
};

static struct endpoint *endpoints[ENDPOINTS_MAX];
static unsigned int endpoint_count;

static char *next_entry(char **rest)
{
    char *entry;

    while ((entry = strsep(rest, ",")) != NULL) {
        entry += strspn(entry, " ");
        entry[strcspn(entry, " ")] = 0;
        if (*entry)
            return entry;
    }
    return NULL;
}

void fabric_start(struct vm_ctx *ctx)
{
    char list[sizeof(settings.interfaces)];
    char *rest = list;
    const char *missing;
    const char *entry;
    char why[256];

    /* The layer over verbs makes each completion queue large enough for so many peers; by default for 256, which is
     * more than small devices and soft-RoCE allow. */
    if (settings.provider == PROVIDER_VERBS)
        setenv("FI_UNIVERSE_SIZE", "16", 0);
    missing = fabric_lib_load();

    if (missing) {
        vm_Log(ctx, "warning", "largeobj: fabric unavailable, RDMA path disabled: %s", missing);
        return;
    }
    snprintf(list, sizeof(list), "%s", settings.interfaces);
    while ((entry = next_entry(&rest)) != NULL) {
        char hex[FABRIC_HEX_MAX];

        if (endpoint_count == ENDPOINTS_MAX) {
            vm_Log(ctx, "warning", "largeobj: more than %u fabric interfaces, the rest is not used", ENDPOINTS_MAX);
            break;
        }
        if (endpoint_open(&endpoints[endpoint_count], endpoint_count, providers[settings.provider], entry, why,
                          sizeof(why)) != 0) {
            vm_Log(ctx, "warning", "largeobj: fabric unavailable, RDMA path disabled: %s", why);
            while (endpoint_count > 0)
                endpoint_close(endpoints[--endpoint_count]);
            return;
        }
        endpoint_count++;
        fabric_address_hex(endpoint_count - 1, hex);
        vm_Log(ctx, "notice", "largeobj: fabric service %u address %s", endpoint_count - 1, hex);
    }
    if (endpoint_count == 0)
        vm_Log(ctx, "warning", "largeobj: fabric unavailable, RDMA path disabled: no interface configured");
}

void fabric_stop(void)
{
    /* Transfers may still hold on to the endpoints; the process ends right after this, so only the threads do. */
    for (unsigned int i = 0; i < endpoint_count; i++)
        endpoint_halt(endpoints[i]);
}

unsigned int fabric_endpoint_count(void)
{
    return endpoint_count;
}

struct endpoint *fabric_endpoint(unsigned int index)
{
    return endpoints[index];
}

static unsigned int random_below(unsigned int n)
{
    static _Thread_local uint64_t state;

    /* Spreading load needs no good randomness. */
    if (state == 0)
        state = (uint64_t)now_ns() | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned int)((state >> 32) % n);
}

unsigned int fabric_pick(const unsigned int planned[ENDPOINTS_MAX])
{
    unsigned int a, b;

    if (endpoint_count < 2)
        return 0;
    a = random_below(endpoint_count);
    b = (a + 1 + random_below(endpoint_count - 1)) % endpoint_count;
    return atomic_load(&endpoints[a]->load) + planned[a] <= atomic_load(&endpoints[b]->load) + planned[b] ? a : b;
}

size_t fabric_max_message(void)
{
    size_t max = SIZE_MAX;

    for (unsigned int i = 0; i < endpoint_count; i++) {
        if (endpoints[i]->info->ep_attr->max_msg_size < max)
            max = endpoints[i]->info->ep_attr->max_msg_size;
    }
    return max;
}

void fabric_address_hex(unsigned int index, char hex[FABRIC_HEX_MAX])
{
    static const char digits[] = "0123456789abcdef";
    const struct endpoint *e = endpoints[index];
    size_t n = 0;

    for (size_t i = 0; i < e->addr_len && n + 2 < FABRIC_HEX_MAX; i++) {
        hex[n++] = digits[e->addr[i] >> 4];
        hex[n++] = digits[e->addr[i] & 15];
    }
    hex[n] = 0;
}
