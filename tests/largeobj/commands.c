#include "commands.h"

#include <string.h>
#include <strings.h>

#include "settings.h"

bool parse_u64(const struct vm_string *s, uint64_t *value)
{
    size_t len;
    const char *p = vm_StringPtrLen(s, &len);
    uint64_t n = 0;
    size_t i = len > 0 && p[0] == '+' ? 1 : 0;

    if (i == len)
        return false;
    for (; i < len; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(p[i] - '0'), &n))
            return false;
    }
    *value = n;
    return true;
}

bool word_is(const struct vm_string *s, const char *word)
{
    size_t len;
    const char *p = vm_StringPtrLen(s, &len);

    return len == strlen(word) && strncasecmp(p, word, len) == 0;
}

const char *blocking_denied(struct vm_ctx *ctx)
{
    int flags = vm_GetContextFlags(ctx);

    if (flags & VM_CTX_LUA)
        return "ERR Blocking module command called from Lua script";
    if (flags & VM_CTX_MULTI)
        return "ERR Blocking module command called from transaction";
    if (flags & VM_CTX_DENY_BLOCKING)
        return "ERR Blocking module command called from a client that must not block";
    return NULL;
}

int command_old_set(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    return argc == 3 ? command_tcp_set(ctx, argv, argc) : command_rdma_set(ctx, argv, argc);
}

int command_old_get(struct vm_ctx *ctx, struct vm_string **argv, int argc)
{
    return argc == 2 ? command_tcp_get(ctx, argv, argc) : command_rdma_get(ctx, argv, argc);
}

struct command {
    const char *name;
    vm_command_fn *run;
    const char *flags;
    int key; /* position of the key, 0 for none */
    const char *categories;
};

/* A script runs as a client of its own, whose end nobody would see. */
#define HELLO "fast deny-script", 0, "connection fast largeobj"
#define WRITE "write deny-oom fast", 1, "write fast largeobj"
#define READ "readonly fast", 1, "read fast largeobj"

static const struct command current_names[] = {
    {"BLOB.RDMA_HELLO", command_rdma_hello, HELLO},
    {"BLOB.RDMA_SET", command_rdma_set, WRITE},
    {"BLOB.RDMA_GET", command_rdma_get, READ},
    {"BLOB.TCP_SET", command_tcp_set, WRITE},
    {"BLOB.TCP_GET", command_tcp_get, READ},
    {"BLOB.INFO", command_info, READ},
    {NULL},
};

static const struct command old_names[] = {
    {"BLOB.HELLO", command_rdma_hello, HELLO},
    {"BLOB.SET", command_old_set, WRITE},
    {"BLOB.GET", command_old_get, READ},
    {"BLOB.INFO", command_info, READ},
    {NULL},
};

int commands_register(struct vm_ctx *ctx)
{
    const struct command *list = settings.names == NAMES_OLD ? old_names : current_names;

    if (vm_AddACLCategory(ctx, "largeobj") != VM_OK)
        return VM_ERR;
    for (const struct command *c = list; c->name; c++) {
        if (vm_CreateCommand(ctx, c->name, c->run, c->flags, c->key, c->key, c->key ? 1 : 0) != VM_OK ||
            vm_SetCommandACLCategories(vm_GetCommand(ctx, c->name), c->categories) != VM_OK)
            return VM_ERR;
    }
    return VM_OK;
}
