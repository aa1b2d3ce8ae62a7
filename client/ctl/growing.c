#include "client/ctl/growing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/report.h"

#define FIRST_BYTES ((uint64_t)4 << 20)
#define STEP_BYTES_MAX ((uint64_t)1 << 30)

static enum ctl_exit failed(const char *what)
{
    report("cannot %s memory for the value: %s", what, strerror(errno));
    return CTL_SYSTEM;
}

enum ctl_exit growing_open(struct growing *memory)
{
    *memory = (struct growing){.fd = memfd_create("glide-rdmactl", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    return memory->fd >= 0 ? CTL_OK : failed("make");
}

enum ctl_exit growing_extend(struct growing *memory, uint64_t most)
{
    uint64_t step = memory->size < FIRST_BYTES      ? FIRST_BYTES
                    : memory->size < STEP_BYTES_MAX ? memory->size
                                                    : STEP_BYTES_MAX;
    uint64_t size = most - memory->size < step ? most : memory->size + step;
    void *bytes;

    if (ftruncate(memory->fd, (off_t)size) != 0) {
        return failed("extend the");
    }
    bytes = memory->bytes == NULL ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0)
                                  : mremap(memory->bytes, memory->size, size, MREMAP_MAYMOVE);
    if (bytes == MAP_FAILED) {
        return failed("map the");
    }
    memory->bytes = bytes;
    memory->size = size;
    return CTL_OK;
}

static void unmap(struct growing *memory)
{
    if (memory->bytes != NULL) {
        munmap(memory->bytes, memory->size);
    }
    memory->bytes = NULL;
    memory->size = 0;
}

enum ctl_exit growing_seal(struct growing *memory)
{
    unmap(memory);
    if (ftruncate(memory->fd, (off_t)memory->used) != 0 ||
        fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return failed("seal the");
    }
    return CTL_OK;
}

void growing_close(struct growing *memory)
{
    unmap(memory);
    if (memory->fd >= 0) {
        close(memory->fd);
    }
    memory->fd = -1;
}
