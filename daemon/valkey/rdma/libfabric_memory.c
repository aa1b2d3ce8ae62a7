/* Memory of a queue pair: the window that the peer writes into, staging, and the control messages. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/valkey/rdma/libfabric_pair.h"

#define PARTS 3

static size_t whole_pages(size_t bytes, size_t page)
{
    return (bytes + page - 1) / page * page;
}

static int fail_call(char why[RDMA_WHY_BYTES], const char *what, size_t bytes)
{
    char text[64];

    snprintf(text, sizeof(text), "%s of %zu bytes", what, bytes);
    return pair_fail(why, text, -errno);
}

/*
 * Inaccessible pages around each part: what runs over the end of one must not land in another. A child that a library
 * forks must neither share these pages (a copy on write would take them away from the NIC) nor a core file show them.
 */
static int map(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES])
{
    struct pair_memory *memory = &pair->memory;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t sizes[PARTS] = {pair->window_bytes, pair->staging_bytes, 0};
    uint8_t **parts[PARTS] = {&memory->window, &memory->staging, &memory->control};
    size_t offset = page;
    uint8_t *base;

    memory->control_bytes = whole_pages((RDMA_RECEIVES + (size_t)pair->sends) * RDMA_CONTROL_BYTES, page);
    sizes[PARTS - 1] = memory->control_bytes;
    memory->bytes = page;
    for (size_t i = 0; i < PARTS; i++) {
        memory->bytes += sizes[i] + page;
    }
    base = mmap(NULL, memory->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return fail_call(why, "mmap", memory->bytes);
    }
    memory->base = base;
    if (madvise(base, memory->bytes, MADV_DONTFORK) != 0 || madvise(base, memory->bytes, MADV_DONTDUMP) != 0) {
        return fail_call(why, "madvise", memory->bytes);
    }
    for (size_t i = 0; i < PARTS; i++) {
        if (mprotect(base + offset, sizes[i], PROT_READ | PROT_WRITE) != 0) {
            return fail_call(why, "mprotect", sizes[i]);
        }
        *parts[i] = base + offset;
        offset += sizes[i] + page;
    }
    return 0;
}

static int register_part(struct rdma_queue_pair *pair, void *part, size_t bytes, uint64_t access, struct fid_mr **mr,
                         char why[RDMA_WHY_BYTES])
{
    int error = fi_mr_reg(pair->domain, part, bytes, access, 0, 0, 0, mr, NULL);

    if (error != 0) {
        snprintf(why, RDMA_WHY_BYTES, "fi_mr_reg of %zu bytes: %s (%d)%s", bytes, fi_strerror(-error), error,
                 error != -FI_ENOMEM ? "" : "; the limit of locked memory (LimitMEMLOCK of the unit) may be too low");
    }
    return error;
}

int memory_open(struct rdma_queue_pair *pair, char why[RDMA_WHY_BYTES])
{
    struct pair_memory *memory = &pair->memory;
    int error = map(pair, why);

    if (error == 0) {
        error = register_part(pair, memory->window, pair->window_bytes, FI_REMOTE_WRITE, &memory->window_mr, why);
    }
    if (error == 0) {
        error = register_part(pair, memory->staging, pair->staging_bytes, FI_WRITE, &memory->staging_mr, why);
    }
    if (error == 0) {
        error = register_part(pair, memory->control, memory->control_bytes, FI_RECV | FI_SEND, &memory->control_mr,
                              why);
    }
    return error;
}

void memory_close(struct rdma_queue_pair *pair)
{
    struct pair_memory *memory = &pair->memory;
    struct fid_mr *registered[PARTS] = {memory->window_mr, memory->staging_mr, memory->control_mr};

    for (size_t i = 0; i < PARTS; i++) {
        if (registered[i] != NULL) {
            fi_close(&registered[i]->fid);
        }
    }
    if (memory->base != NULL) {
        munmap(memory->base, memory->bytes);
    }
    *memory = (struct pair_memory){0};
}
