/*
 * Shared objects of ours that stand between the daemon and a library, so that it starts where there is none. Thread
 * safe, and may block: files are read. What was loaded stays.
 */
#ifndef GRD_BASE_SHARED_OBJECT_H
#define GRD_BASE_SHARED_OBJECT_H

#include <stddef.h>

struct shared_object {
    const char *name;     /* "glide-rdmad-fabric.so" */
    const char *folder;   /* in the build tree, below the folder of the program */
    const char *variable; /* of the environment: names a file that is to be used, and no other */
    const char *symbol;   /* a function of it */
};

/*
 * Finds it by the variable, else beside the program in the build tree, else where it is installed, and loads it. The
 * address of the symbol, with the file's name in `path`. NULL when none can be used; then for each file that was tried
 * "; " and what the linker says of it was added to the string `why`.
 */
void *shared_object_load(const struct shared_object *object, char *path, size_t path_size, char *why,
                         size_t why_size);

#endif
