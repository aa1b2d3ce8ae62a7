/* glide-rdmad-fabric.so: the table of operations over libfabric. Its one exported symbol is at the end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rdma/fi_errno.h>

#include "daemon/fabric/libfabric_object.h"

#define KEY_ATTEMPTS 8

struct fabric_mr {
    struct fid_mr *mr;
};

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Those built into the library, layered combinations ("tcp;ofi_rxm") left out. */
static void providers(char *text, size_t size)
{
    struct fi_info *all;
    size_t length = 0;

    text[0] = '\0';
    if (fi_getinfo(LIBFABRIC_API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &all) != 0) {
        return;
    }
    for (struct fi_info *at = all; at != NULL; at = at->next) {
        const char *name = at->fabric_attr->prov_name;
        if (strncmp(name, "ofi_", 4) == 0 || strchr(name, ';') != NULL || has_word(text, name) ||
            length + strlen(name) + 2 > size) {
            continue;
        }
        length += (size_t)snprintf(text + length, size - length, "%s%s", length > 0 ? " " : "", name);
    }
    fi_freeinfo(all);
}

static int domain_open(const struct fabric_settings *settings, struct fabric_domain **result,
                       char why[FABRIC_WHY_BYTES])
{
    struct fabric_domain *domain = calloc(1, sizeof(*domain));
    int error;

    if (domain == NULL) {
        return fail(why, "domain", -FI_ENOMEM);
    }
    domain->provider = provider_find(settings->provider);
    error = info_pick(settings, &domain->info, why);
    if (error != 0) {
        goto free_domain;
    }
    error = fi_fabric(domain->info->fabric_attr, &domain->fabric, NULL);
    if (error != 0) {
        fail(why, "fi_fabric", error);
        goto free_info;
    }
    error = fi_domain(domain->fabric, domain->info, &domain->domain, NULL);
    if (error != 0) {
        fail(why, "fi_domain", error);
        goto close_fabric;
    }
    *result = domain;
    return 0;

close_fabric:
    fi_close(&domain->fabric->fid);
free_info:
    fi_freeinfo(domain->info);
free_domain:
    free(domain);
    return error;
}

static int domain_close(struct fabric_domain *domain)
{
    int first = fi_close(&domain->domain->fid);
    int error = fi_close(&domain->fabric->fid);

    fi_freeinfo(domain->info);
    free(domain);
    return first != 0 ? first : error;
}

/*
 * Memory that may only be read (a sealed or read-only memfd) is registered for remote reads alone: any local access
 * flag would ask the device for write permission on its pages.
 */
static uint64_t access_flags(unsigned access)
{
    uint64_t flags = 0;

    if ((access & FABRIC_REMOTE_READ) != 0) {
        flags |= FI_REMOTE_READ;
    }
    if ((access & FABRIC_REMOTE_WRITE) != 0) {
        flags |= FI_REMOTE_WRITE | FI_READ | FI_WRITE;
    }
    return flags;
}

/*
 * Ports, and with them endpoint addresses, are used again: only an unguessable key keeps a peer that still talks to a
 * lane of the past from naming memory of the present.
 */
static int random_key(const struct fi_info *info, uint64_t *key)
{
    size_t bytes = info->domain_attr->mr_key_size;

    if (getrandom(key, sizeof(*key), 0) != (ssize_t)sizeof(*key)) {
        return -EIO;
    }
    if (bytes > 0 && bytes < sizeof(*key)) {
        *key &= (UINT64_C(1) << (8 * bytes)) - 1;
    }
    return 0;
}

static int mr_open(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **result,
                   uint64_t *key)
{
    bool chosen = (domain->info->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0;
    struct fabric_mr *mr = calloc(1, sizeof(*mr));
    int error = -ENOMEM;

    if (mr == NULL) {
        return error;
    }
    for (int i = 0; i < KEY_ATTEMPTS; i++) {
        uint64_t wanted = 0;
        error = chosen ? random_key(domain->info, &wanted) : 0;
        if (error == 0) {
            error = fi_mr_reg(domain->domain, base, length, access_flags(access), 0, wanted, 0, &mr->mr, NULL);
        }
        if (error != -FI_ENOKEY) {
            break;
        }
    }
    if (error != 0) {
        free(mr);
        return error;
    }
    *key = fi_mr_key(mr->mr);
    *result = mr;
    return 0;
}

static int mr_close(struct fabric_mr *mr)
{
    int error = fi_close(&mr->mr->fid);

    free(mr);
    return error;
}

static const struct fabric_ops table = {
    .abi = FABRIC_OPS_ABI,
    .version = libfabric_version,
    .providers = providers,
    .query = fabric_query,
    .domain_open = domain_open,
    .domain_close = domain_close,
    .endpoint_open = endpoint_open,
    .endpoint_close = endpoint_close,
    .endpoint_free = endpoint_free,
    .endpoint_add_peer = endpoint_add_peer,
    .endpoint_wait_fd = endpoint_wait_fd,
    .endpoint_progress = endpoint_progress,
    .endpoint_try_wait = endpoint_try_wait,
    .mr_open = mr_open,
    .mr_close = mr_close,
    .text = libfabric_text,
};

__attribute__((visibility("default"))) const struct fabric_ops *glide_rdmad_fabric_ops(void);

const struct fabric_ops *glide_rdmad_fabric_ops(void)
{
    return &table;
}
