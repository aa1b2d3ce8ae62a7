/*
 * libfabric, loaded at run time instead of linked.
 *
 * Valkey opens modules with RTLD_DEEPBIND. A library linked to a module, and all that it needs in turn, then calls
 * the C library's free() for memory that came from the allocator the server is linked with, and libnuma, which
 * libfabric needs, crashes on that before OnLoad runs. A plain dlopen() from the module gives libfabric the server's
 * allocator. Its interface is nearly all inline calls through tables, so only these entry points have to be found.
 */
#ifndef LARGEOBJ_FABRIC_LIB_H
#define LARGEOBJ_FABRIC_LIB_H

#include <stdint.h>

#include <rdma/fabric.h>

struct fabric_lib {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
};

extern struct fabric_lib fabric_lib;

/* Returns NULL, or why it could not be loaded. For OnLoad. */
const char *fabric_lib_load(void);

#endif
