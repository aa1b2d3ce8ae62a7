#include "daemon/memory/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/memory/touch.h"
#include "proto/errors.h"

static void arena_settle(struct arena *arena);

static struct arena *arena_of(struct worker_job *job)
{
    return (struct arena *)((char *)job - offsetof(struct arena, job));
}

static uint64_t arena_bytes(const struct arena *arena)
{
    return arena->end - arena->start;
}

struct memory_file *memory_file_get(struct memory *memory, const struct memory_file_key *key)
{
    struct memory_file *file = NULL;
    HASH_FIND(hh, memory->files, key, sizeof *key, file);
    if (file != NULL)
        return file;
    file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    memcpy(&file->key, key, sizeof *key); /* padding included: it is hashed */
    extents_init(&file->extents);
    LIST_INIT(&file->arenas);
    HASH_ADD(hh, memory->files, key, sizeof file->key, file);
    return file;
}

static void file_drop(struct memory *memory, struct memory_file *file)
{
    if (file->refs > 0)
        return;
    HASH_DEL(memory->files, file);
    free(file);
}

struct arena *arena_find(const struct memory_file *file, uint64_t start, uint64_t end, bool writable)
{
    struct arena *arena;
    LIST_FOREACH(arena, &file->arenas, file_link) {
        if (arena->state == ARENA_CLOSING || arena->quarantined || (writable && !arena->writable))
            continue;
        if (arena->start <= start && end <= arena->end)
            return arena;
    }
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int fail_call(struct arena *arena, const char *call)
{
    int number = errno;
    memory_error_set(&arena->failure, PROTO_ERR_SYSTEM, "%s of %llu bytes: %s", call,
                     (unsigned long long)arena_bytes(arena), strerror(number));
    arena->failure.os_errno = number;
    return arena->failure.code;
}

/* MAP_NORESERVE: huge pages are not set aside in the daemon's name. */
static int map(struct arena *arena)
{
    int protection = arena->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    size_t length = (size_t)arena_bytes(arena);
    void *base = mmap(NULL, length, protection, MAP_SHARED | MAP_NORESERVE, arena->fd, (off_t)arena->start);
    if (base == MAP_FAILED)
        return fail_call(arena, "mmap");
    arena->base = base;
    if (madvise(base, length, MADV_DONTDUMP) != 0)
        return fail_call(arena, "madvise(MADV_DONTDUMP)");
    return madvise(base, length, MADV_DONTFORK) == 0 ? 0 : fail_call(arena, "madvise(MADV_DONTFORK)");
}

/* Worker. */
static void map_run(struct worker_job *job)
{
    struct arena *arena = arena_of(job);
    if (map(arena) != 0)
        return;
    struct touch touch = {.fd = arena->fd,
                          .base = arena->base,
                          .start = arena->start,
                          .length = arena_bytes(arena),
                          .page_size = arena->page_size,
                          .writable = arena->writable};
    (void)(arena->populate ? touch_populate(&touch, &arena->failure) : touch_check(&touch, &arena->failure));
}

static void give_up_fd(struct region *region)
{
    if (region->keeps_fd)
        memory_close_fd(region->memory, region->account, region->intake.fd);
    region->keeps_fd = false;
}

/* Nobody uses the arena any more: ends its registrations, then its mapping. */
static void arena_end(struct arena *arena)
{
    struct fabric *fabric = arena->memory->fabric;
    unsigned pending = 0;
    arena->state = ARENA_CLOSING;
    for (size_t i = arena->slices != NULL ? arena->slice_count : 0; i-- > 0;) { /* as they were made, backwards */
        for (unsigned nic = 0; nic < fabric->nic_count; nic++)
            arena->closing[nic] += slice_on_nic(&arena->slices[i], fabric, nic) ? 1 : 0;
        pending += slice_close_registrations(&arena->slices[i], fabric, &arena->account->owner);
    }
    if (pending == 0)
        arena_settle(arena);
}

/* Its regions hear of it when nothing is mapped and charged any more, so that they can ask again at once. */
static void arena_fail(struct arena *arena, const struct memory_error *error)
{
    arena->failure = *error;
    arena_end(arena);
}

static void slice_mr_ended(struct slice *slice, unsigned nic, int status)
{
    struct arena *arena = slice->owner;
    if (status < 0) {
        log_error("the fabric did not confirm the end of a registration (%d)", status);
        arena_quarantine_nic(arena, budget_nic(&arena->memory->budget, nic));
    }
    if (arena->state != ARENA_CLOSING)
        return;
    /* The home's charge goes with the mapping. */
    if (arena->closing[nic] > 0 && --arena->closing[nic] == 0 && nic != arena->home)
        arena_release_nic(arena, nic);
    arena_settle(arena);
}

static int cut_slices(struct arena *arena)
{
    uint64_t step = arena->memory->fabric->config->mr_max_bytes;
    uint64_t length = arena_bytes(arena);
    arena->slice_count = (size_t)((length + step - 1) / step);
    arena->slices = calloc(arena->slice_count, sizeof *arena->slices);
    if (arena->slices == NULL)
        return -ENOMEM;
    unsigned access = FABRIC_REMOTE_READ | (arena->writable ? FABRIC_REMOTE_WRITE : 0u);
    for (size_t i = 0; i < arena->slice_count; i++) {
        uint64_t at = i * step;
        uint64_t rest = length - at;
        slice_init(&arena->slices[i], arena->base + at, (size_t)(rest < step ? rest : step), access, slice_mr_ended,
                   arena);
    }
    return 0;
}

static void open_regions(struct arena *arena)
{
    arena->state = ARENA_OPEN;
    /* A callback may close its region, the last one included: take the list apart first. */
    struct region *waiting = LIST_FIRST(&arena->regions);
    while (waiting != NULL) {
        struct region *next = LIST_NEXT(waiting, arena_link);
        give_up_fd(waiting);
        region_report_opened(waiting, NULL);
        waiting = next;
    }
}

static void prove_next(struct arena *arena);

/* Its home turned out not to work, and nothing is registered yet: makes another NIC its home. */
static bool move_home(struct arena *arena)
{
    const struct fabric *fabric = arena->memory->fabric;
    const struct region *region = LIST_FIRST(&arena->regions);
    struct memory_error error = {0};
    unsigned before = arena->home;

    if (arena->proved > 0 || region == NULL || fabric->domain_per_lane || !fabric_nic_left_out(fabric, before))
        return false;
    arena_release_nic(arena, before);
    arena->home = budget_choose(&arena->memory->budget, arena_charge(arena));
    if (arena->home != before && !fabric_nic_left_out(fabric, arena->home) &&
        arena_charge_nic(arena, arena->home, region->quota, &error) == 0)
        return true;
    arena->home = before;
    (void)arena_charge_nic(arena, before, region->quota, &error); /* as it was, in the same turn of the loop */
    return false;
}

static void proved(void *context, int status, const char *why)
{
    struct arena *arena = context;
    if (status < 0 && move_home(arena)) {
        prove_next(arena);
        return;
    }
    if (status == 0) {
        arena->proved++;
        prove_next(arena);
        return;
    }
    struct memory_error error = {0};
    budget_explain_refusal(&arena->memory->budget, arena->home, arena_charge(arena), status, why, &error);
    arena_fail(arena, &error);
}

/* Where each lane has a domain of its own (tcp), one registration proves all: it pins nothing and costs nothing.
 * Without a fabric there is nothing to prove: the values of the region move over TCP, or not at all. */
static size_t proofs_needed(const struct arena *arena)
{
    const struct fabric *fabric = arena->memory->fabric;
    if (!fabric->usable)
        return 0;
    return fabric->domain_per_lane ? 1 : arena->slice_count;
}

static void prove_next(struct arena *arena)
{
    struct memory *memory = arena->memory;
    size_t needed = proofs_needed(arena);
    if (arena->proved == needed) {
        open_regions(arena);
        return;
    }
    struct memory_error error = {0};
    int status = slice_prove(&arena->slices[arena->proved], memory->fabric, arena->home, &arena->account->owner, proved,
                             arena);
    if (status == 0)
        return;
    if (status == -ENETDOWN)
        memory_error_set(&error, PROTO_ERR_NOT_USABLE, "%s", memory->fabric->why);
    else
        memory_error_set(&error, PROTO_ERR_SYSTEM, "the daemon is out of memory");
    arena_fail(arena, &error);
}

static void map_done(struct worker_job *job)
{
    struct arena *arena = arena_of(job);
    struct memory_error error = {0};
    if (arena->failure.code != 0) {
        arena_end(arena);
        return;
    }
    if (cut_slices(arena) != 0) {
        memory_error_set(&error, PROTO_ERR_SYSTEM, "the daemon is out of memory");
    } else {
        prove_next(arena);
        return;
    }
    arena_fail(arena, &error);
}

static struct arena *new_arena(struct memory_file *file, const struct region *region)
{
    uint64_t page = region->page_size;
    struct arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL)
        return NULL;
    arena->memory = region->memory;
    arena->account = region->account;
    arena->file = file;
    arena->state = ARENA_OPENING;
    arena->fd = region->intake.fd;
    arena->start = region->start;
    arena->end = region->start + (region->size + page - 1) / page * page;
    arena->page_size = page;
    arena->writable = region->writable;
    arena->populate = region->populate;
    LIST_INIT(&arena->regions);
    return arena;
}

int arena_create(struct memory_file *file, struct region *region, struct memory_error *error)
{
    struct memory *memory = region->memory;
    struct arena *arena = new_arena(file, region);
    if (arena == NULL) {
        memory_error_set(error, PROTO_ERR_SYSTEM, "the daemon is out of memory");
    } else {
        arena->home = budget_choose(&memory->budget, arena_charge(arena));
        (void)arena_charge_nic(arena, arena->home, region->quota, error);
    }
    if (error->code != 0) {
        memory_close_fd(memory, region->account, region->intake.fd);
        file_drop(memory, file);
        free(arena);
        return error->code;
    }
    LIST_INSERT_HEAD(&file->arenas, arena, file_link);
    file->refs++;
    arena->account->refs++;
    memory->arenas++;
    arena_attach(arena, region);
    workers_submit(memory->workers, &arena->account->owner, &arena->job, map_run, map_done);
    return 0;
}

void arena_attach(struct arena *arena, struct region *region)
{
    region->arena = arena;
    LIST_INSERT_HEAD(&arena->regions, region, arena_link);
}

/* --- closing ------------------------------------------------------------------------------------------------------ */

static void unmap_run(struct worker_job *job)
{
    struct arena *arena = arena_of(job);
    if (arena->base != NULL)
        munmap(arena->base, (size_t)arena_bytes(arena));
    close(arena->fd);
}

/* The regions of an arena that could not be opened. */
static void fail_regions(struct arena *arena)
{
    struct region *region;
    while ((region = LIST_FIRST(&arena->regions)) != NULL) {
        LIST_REMOVE(region, arena_link);
        region->arena = NULL;
        if (region->keeps_fd && arena->failure.code == PROTO_ERR_NOT_POPULATED) {
            region->keeps_fd = false;
            region_place(region);
            continue;
        }
        give_up_fd(region);
        region_report_opened(region, &arena->failure);
    }
}

static void arena_forget(struct arena *arena)
{
    struct memory *memory = arena->memory;
    struct memory_account *account = arena->account;
    LIST_REMOVE(arena, file_link);
    arena->file->refs--;
    file_drop(memory, arena->file);
    arena->file = NULL;
    arena_leave_account(arena);
    memory->arenas--;
    struct region *closer = arena->closer;
    bool released = !arena->quarantined;
    fail_regions(arena);
    if (released) {
        free(arena->slices);
        free(arena);
    }
    if (closer != NULL) {
        closer->arena = NULL;
        region_report_closed(closer, released);
    }
    memory_account_drop(account);
}

static void unmap_done(struct worker_job *job)
{
    struct arena *arena = arena_of(job);
    arena_release_all(arena);
    arena_forget(arena);
}

/* Goes on with a closing arena: unmaps it when the last registration has ended, or leaves it mapped for ever. */
static void arena_settle(struct arena *arena)
{
    for (size_t i = 0; arena->slices != NULL && i < arena->slice_count; i++)
        if (arena->slices[i].mr_count > 0)
            return;
    if (arena->quarantined) {
        arena_release_all(arena);
        arena_forget(arena);
        return;
    }
    workers_submit(arena->memory->workers, &arena->account->owner, &arena->job, unmap_run, unmap_done);
}

void arena_detach(struct arena *arena, struct region *region)
{
    LIST_REMOVE(region, arena_link);
    if (!LIST_EMPTY(&arena->regions)) {
        region->arena = NULL;
        region_report_closed(region, !arena->quarantined);
        return;
    }
    arena->closer = region;
    arena_end(arena);
}
