#include "fabric_lib.h"

#include <dlfcn.h>
#include <stddef.h>

struct fabric_lib fabric_lib;

const char *fabric_lib_load(void)
{
    const struct {
        const char *name;
        void *slot;
    } wanted[] = {
        {"fi_getinfo", &fabric_lib.getinfo},   {"fi_freeinfo", &fabric_lib.freeinfo},
        {"fi_dupinfo", &fabric_lib.dupinfo},   {"fi_fabric", &fabric_lib.fabric},
        {"fi_strerror", &fabric_lib.strerror},
    };
    void *lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!lib)
        return dlerror();
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = dlsym(lib, wanted[i].name);

        if (!symbol)
            return dlerror();
        *(void **)wanted[i].slot = symbol;
    }
    return NULL;
}
