/*
 * Memory that clients handed over: arenas, the regions that name them, the windows in use.
 *
 * Concepts. A *file* is a memory file as one user sees it: (account, device, inode); it knows which byte ranges are in
 * use by transfers, over all of the user's sessions. An *arena* is one mapped range of a file, cut in slices of
 * mr_max_bytes, each registered once a domain; it is charged once a NIC and lives until its last region is closed. A
 * *region* is a session's handle on (part of) an arena. Arenas are never shared between accounts (docs/architecture.md,
 * rule 4).
 *
 * The arena owns the memory file's descriptor and the mapping. No load or store of the daemon touches the mapping
 * (rule 5). What the provider refuses to let go of is quarantined: mapped and charged until the process ends.
 *
 * Loop thread only; blocking work runs on workers, at most two jobs an account.
 */
#ifndef GRD_MEMORY_MEMORY_H
#define GRD_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uthash.h>

#include "daemon/base/file_range.h"
#include "daemon/base/worker.h"
#include "daemon/fabric/lane.h"
#include "daemon/memory/budget.h"
#include "daemon/memory/extents.h"
#include "daemon/memory/intake.h"

struct memory_file;

struct memory {
    uv_loop_t *loop;
    struct workers *workers;
    struct fabric *fabric;
    struct budget budget;
    struct memory_file *files;   /* hash by memory_file_key */
    unsigned arenas;             /* mapped, quarantined ones apart */
    unsigned regions;
    unsigned quarantined;        /* arenas */
    void (*quarantine_grew)(struct memory *memory); /* called from inside of others: for later; may be NULL */
    void *quarantine_watcher;
};

/* What a user holds; embedded in the user, who must outlive refs: `released` says when they came to 0. */
struct memory_account {
    struct worker_owner owner;
    uint64_t pinned_bytes; /* charged to it, on all NICs */
    uint64_t pinned_on[FABRIC_NICS]; /* of these on each */
    unsigned regions;
    unsigned refs; /* regions, arenas and jobs that name this account */
    unsigned closing; /* descriptors that memory_close_fd has not closed yet */
    void (*released)(struct memory_account *account);
    void (*relieved)(struct memory_account *account); /* `closing` fell to MEMORY_CLOSING_MAX / 2 */
};

/*
 * Descriptors of an account may wait for ever to be closed, since two that hang hold up the rest: whoever has so many
 * waiting must send no more until `relieved` was called.
 */
#define MEMORY_CLOSING_MAX 256

void memory_init(struct memory *memory, uv_loop_t *loop, struct workers *workers, struct fabric *fabric,
                 const struct budget_settings *settings);
void memory_account_init(struct memory_account *account, void (*released)(struct memory_account *account),
                         void (*relieved)(struct memory_account *account));

/* Why a request was refused, with the numbers a program needs. */
struct memory_error {
    int code; /* proto error */
    const char *budget; /* "memlock", "device" or "registrations" with used, limit and asked; or NULL */
    const char *quota;  /* the same for a quota of the user: its name */
    const char *rule;   /* of a policy, that forbids it: its name; or NULL */
    uint64_t used, limit, asked; /* limit 0: no number was exceeded; of a budget UINT64_MAX: not known */
    bool both;          /* the provider refused, and both budgets are told: */
    uint64_t memlock_used, memlock_limit, device_used, device_limit; /* limits: UINT64_MAX: none */
    uint64_t capacity;  /* of the region, with OUT_OF_RANGE of a window */
    uint64_t missing_pages, pages; /* not allocated, of how many, with NOT_POPULATED; pages 0: nobody can tell */
    int os_errno; /* of the call that failed, with SYSTEM; or 0 */
    char text[MEMORY_WHY_BYTES];
};

/* Fills code and text, and zeroes the rest. */
void memory_error_set(struct memory_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct arena;

struct region {
    struct memory *memory;
    struct memory_account *account;
    struct arena *arena;
    uint64_t start; /* of the region inside the file, bytes */
    uint64_t size;  /* bytes */
    uint64_t page_size;
    bool writable;
    bool shared;        /* the arena existed before */
    unsigned windows;   /* in use: the region cannot be closed */
    LIST_ENTRY(region) arena_link;
    /* private: registration and closing */
    struct worker_job job;
    struct intake intake;
    bool populate;
    bool keeps_fd; /* shares an arena that may yet be refused for pages that this region would have had populated */
    uint64_t quota; /* of the account's pinned_bytes */
    void (*opened)(struct region *region, const struct memory_error *error);
    void (*closed)(struct region *region, bool memory_released);
};

struct region_request {
    int fd; /* consumed in every case */
    uint64_t offset, size;
    bool writable;
    bool populate;
    uint64_t quota; /* the account's pinned_bytes must not exceed this; UINT64_MAX: no quota */
};

/*
 * Registers a region: checks the descriptor, maps, charges, proves that it can be registered. `region` is the caller's
 * memory and must stay until `opened` was called, exactly once, later: error NULL (the region is open), or the reason
 * (the region is dead).
 */
void region_open(struct region *region, struct memory *memory, struct memory_account *account,
                 const struct region_request *request,
                 void (*opened)(struct region *region, const struct memory_error *error));

/*
 * Closes an open region with no windows in use. `closed` is called once, perhaps from inside, with memory_released:
 * true when nothing can reach the memory through this region any more; false when it is quarantined.
 */
void region_close(struct region *region, void (*closed)(struct region *region, bool memory_released));

/* --- windows ------------------------------------------------------------------------------------------------------ */

struct window {
    struct region *region;
    uint64_t length;
    struct extent extent; /* in file offsets */
};

/*
 * Takes [offset, offset + length) of an open region into use. 0, or a proto error with `error` filled: OUT_OF_RANGE,
 * DENIED (a GET into a region that is only readable), OVERLAP, OVER_LIMIT (more than PROTO_WINDOW_SLICES slices).
 */
int window_take(struct window *window, struct region *region, uint64_t offset, uint64_t length, bool writes,
                struct memory_error *error);
void window_release(struct window *window);

/* The slices a window lies on, in order; at most PROTO_WINDOW_SLICES. Returns their number. */
size_t window_slices(const struct window *window, struct slice **slices);

/* The bytes of a window for system calls on a worker, as jobs of the window's account; good while it is taken. */
void window_range(const struct window *window, struct file_range *range);

/* Triples for a lane that has every slice. Returns their number. */
size_t window_triples(const struct window *window, const struct lane *lane, struct slice_triple *triples);

/*
 * The NICs, one bit each, whose lanes may carry the window now: those that its arena is charged on, and those where
 * both budgets, and the user's quota, have room for it. Never 0. What it says holds until the loop goes on.
 */
uint32_t window_nics(const struct window *window);

/* Before lane_prepare on that NIC: charges the window's arena if it is not yet. 0, or a proto error with `error`. */
int window_charge(struct window *window, unsigned nic, struct memory_error *error);

/*
 * After a lane_prepare that failed: gives the charge back where nothing is registered on that NIC. True: the window has
 * another NIC to go to. `refused`: the provider did not take the memory; that NIC is not tried for it again.
 */
bool window_unprepared(struct window *window, unsigned nic, bool refused);

/* A lane on that NIC did not confirm that it let go: the arena stays mapped, and charged there, until the process
 * ends. */
void window_quarantine(struct window *window, unsigned nic);

/*
 * Closes a descriptor on a worker, as the account's job. Closing may block: a received one, and a socket in whose queue
 * there may still be others.
 */
void memory_close_fd(struct memory *memory, struct memory_account *account, int fd);

#endif
