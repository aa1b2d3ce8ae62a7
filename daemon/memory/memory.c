#include "daemon/memory/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/memory/arena.h"
#include "proto/errors.h"

void memory_init(struct memory *memory, uv_loop_t *loop, struct workers *workers, struct fabric *fabric,
                 const struct budget_settings *settings)
{
    memset(memory, 0, sizeof *memory);
    memory->loop = loop;
    memory->workers = workers;
    memory->fabric = fabric;
    budget_init(&memory->budget, settings, fabric);
}

void memory_account_init(struct memory_account *account, void (*released)(struct memory_account *account),
                         void (*relieved)(struct memory_account *account))
{
    memset(account, 0, sizeof *account);
    worker_owner_init(&account->owner);
    account->released = released;
    account->relieved = relieved;
}

void memory_account_drop(struct memory_account *account)
{
    if (--account->refs == 0)
        account->released(account);
}

void memory_error_set(struct memory_error *error, int code, const char *format, ...)
{
    va_list arguments;
    memset(error, 0, sizeof *error);
    error->code = code;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
}

/* --- closing of received descriptors ------------------------------------------------------------------------------ */

struct close_job {
    struct worker_job job;
    struct memory_account *account;
    int fd;
};

static void close_run(struct worker_job *job)
{
    close(((struct close_job *)job)->fd);
}

static void close_done(struct worker_job *job)
{
    struct memory_account *account = ((struct close_job *)job)->account;
    free(job);
    if (--account->closing == MEMORY_CLOSING_MAX / 2)
        account->relieved(account);
    memory_account_drop(account);
}

void memory_close_fd(struct memory *memory, struct memory_account *account, int fd)
{
    struct close_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        /* Better a loop that may wait than a descriptor that leaks. */
        log_warn("out of memory: a received descriptor is closed on the loop");
        close(fd);
        return;
    }
    job->fd = fd;
    job->account = account;
    account->refs++;
    account->closing++;
    workers_submit(memory->workers, &account->owner, &job->job, close_run, close_done);
}

/* --- regions ------------------------------------------------------------------------------------------------------ */

static struct region *region_of(struct worker_job *job)
{
    return (struct region *)((char *)job - offsetof(struct region, job));
}

static void region_uncount(struct region *region)
{
    region->memory->regions--;
    region->account->regions--;
}

void region_report_opened(struct region *region, const struct memory_error *error)
{
    struct memory_account *account = region->account;
    if (error != NULL)
        region_uncount(region);
    region->opened(region, error);
    if (error != NULL)
        memory_account_drop(account);
}

void region_report_closed(struct region *region, bool memory_released)
{
    struct memory_account *account = region->account;
    region_uncount(region);
    region->closed(region, memory_released);
    memory_account_drop(account);
}

static void intake_run(struct worker_job *job)
{
    intake_check(&region_of(job)->intake);
}

static void share(struct region *region, struct arena *arena)
{
    region->shared = true;
    region->keeps_fd = arena->state == ARENA_OPENING && region->populate && !arena->populate;
    if (!region->keeps_fd)
        memory_close_fd(region->memory, region->account, region->intake.fd);
    arena_attach(arena, region);
    if (arena->state == ARENA_OPEN)
        region_report_opened(region, NULL);
}

static void intake_done(struct worker_job *job)
{
    struct region *region = region_of(job);
    const struct intake *intake = &region->intake;
    struct memory_error error = {0};
    if (intake->code != 0) {
        memory_close_fd(region->memory, region->account, intake->fd);
        memory_error_set(&error, intake->code, "%s", intake->why);
        region_report_opened(region, &error);
        return;
    }
    region->page_size = intake->page_size;
    region_place(region);
}

void region_place(struct region *region)
{
    struct memory *memory = region->memory;
    const struct intake *intake = &region->intake;
    struct memory_error error = {0};
    region->shared = false;
    struct memory_file_key key;
    memset(&key, 0, sizeof key);
    key.account = region->account;
    key.device = intake->device;
    key.inode = intake->inode;
    struct memory_file *file = memory_file_get(memory, &key);
    if (file == NULL) {
        memory_close_fd(memory, region->account, intake->fd);
        memory_error_set(&error, PROTO_ERR_SYSTEM, "the daemon is out of memory");
        region_report_opened(region, &error);
        return;
    }
    struct arena *arena = arena_find(file, region->start, region->start + region->size, region->writable);
    if (arena != NULL)
        share(region, arena);
    else if (arena_create(file, region, &error) != 0)
        region_report_opened(region, &error);
}

void region_open(struct region *region, struct memory *memory, struct memory_account *account,
                 const struct region_request *request,
                 void (*opened)(struct region *region, const struct memory_error *error))
{
    memset(region, 0, sizeof *region);
    region->memory = memory;
    region->account = account;
    region->start = request->offset;
    region->size = request->size;
    region->writable = request->writable;
    region->populate = request->populate;
    region->quota = request->quota;
    region->intake = (struct intake){
        .fd = request->fd, .offset = request->offset, .size = request->size, .writable = request->writable};
    region->opened = opened;
    memory->regions++;
    account->regions++;
    account->refs++;
    workers_submit(memory->workers, &account->owner, &region->job, intake_run, intake_done);
}

void region_close(struct region *region, void (*closed)(struct region *region, bool memory_released))
{
    region->closed = closed;
    arena_detach(region->arena, region);
}
