#include "module_api.h"

#include <errno.h>

#define VM_DEFINE(ret, name, params) ret(*vm_##name) params;
VM_FUNCTIONS(VM_DEFINE)
#undef VM_DEFINE

typedef int vm_get_api_fn(const char *name, void *slot);

int module_api_init(struct vm_ctx *ctx, const char *name, int version)
{
    /* The server puts the look-up function into the first word of the context it passes to OnLoad. */
    vm_get_api_fn *get_api = *(vm_get_api_fn **)(void *)ctx;
    const struct {
        const char *name;
        void *slot;
    } wanted[] = {
#define VM_WANT(ret, name, params) {"ValkeyModule_" #name, &vm_##name},
        VM_FUNCTIONS(VM_WANT)
#undef VM_WANT
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (get_api(wanted[i].name, wanted[i].slot) != VM_OK)
            return -ENOSYS;
    }
    if (vm_IsModuleNameBusy(name))
        return -EBUSY;
    vm_SetModuleAttribs(ctx, name, version, VM_API_VERSION);
    return 0;
}
