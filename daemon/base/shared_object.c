#include "daemon/base/shared_object.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
    const struct shared_object *object;
    char *path, *why;
    size_t path_size, why_size;
};

__attribute__((format(printf, 2, 3))) static void add_why(const struct search *search, const char *format, ...)
{
    size_t length = strlen(search->why);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(search->why + length, search->why_size - length, format, arguments);
    va_end(arguments);
}

/* Beside the program in the build tree; "" when the program's path cannot be told. */
static void build_tree_path(const struct shared_object *object, char *path, size_t size)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    path[0] = '\0';
    if (length <= 0) {
        return;
    }
    program[length] = '\0';
    slash = strrchr(program, '/');
    if (slash != NULL) {
        *slash = '\0';
        snprintf(path, size, "%s/%s/%s", program, object->folder, object->name);
    }
}

static void *load(const struct search *search, const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol;

    if (handle == NULL) {
        add_why(search, "; %s", dlerror());
        return NULL;
    }
    symbol = dlsym(handle, search->object->symbol);
    if (symbol == NULL) {
        add_why(search, "; %s", dlerror());
        return NULL;
    }
    snprintf(search->path, search->path_size, "%s", path);
    return symbol;
}

void *shared_object_load(const struct shared_object *object, char *path, size_t path_size, char *why,
                         size_t why_size)
{
    const struct search search = {object, path, why, path_size, why_size};
    const char *named = getenv(object->variable);
    void *symbol = NULL;
    char file[PATH_MAX + 128];

    if (named != NULL && named[0] != '\0') {
        return load(&search, named);
    }
    build_tree_path(object, file, sizeof(file));
    if (file[0] != '\0' && access(file, F_OK) == 0) {
        symbol = load(&search, file);
    } else {
        add_why(&search, "; %s: not there", file);
    }
    if (symbol == NULL) {
        snprintf(file, sizeof(file), GRD_PKGLIBDIR "/%s", object->name);
        symbol = load(&search, file);
    }
    return symbol;
}
