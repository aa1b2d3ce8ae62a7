/*
 * Arenas: mapped, charged and registered ranges of one user's memory file. Private to memory/.
 */
#ifndef GRD_MEMORY_ARENA_H
#define GRD_MEMORY_ARENA_H

#include "daemon/memory/memory.h"

struct memory_file_key {
    struct memory_account *account;
    dev_t device;
    ino_t inode;
};

struct memory_file {
    struct memory_file_key key;
    struct extents extents; /* windows in use, in file offsets */
    LIST_HEAD(, arena) arenas;
    unsigned refs; /* arenas */
    UT_hash_handle hh;
};

enum arena_state { ARENA_OPENING, ARENA_OPEN, ARENA_CLOSING };

struct arena {
    struct memory *memory;
    struct memory_account *account;
    struct memory_file *file;
    LIST_ENTRY(arena) file_link;
    enum arena_state state;
    int fd;              /* owned: open as long as the mapping */
    uint8_t *base;       /* owned mapping, MADV_DONTDUMP and MADV_DONTFORK */
    uint64_t start, end; /* in the file, whole pages */
    uint64_t page_size;  /* of the file */
    bool writable;
    bool populate;
    unsigned home;       /* the NIC that it was proved on and is always charged on */
    uint32_t charged;    /* NICs, one bit each, as the two below */
    uint32_t refused;    /* their provider did not take it */
    uint32_t quarantined; /* something there did not close: mapped, and charged there, until the process ends */
    unsigned closing[FABRIC_NICS]; /* while CLOSING: registrations in the NIC's own domain */
    struct slice *slices; /* owned array */
    size_t slice_count;
    size_t proved;
    LIST_HEAD(, region) regions; /* open ones; waiting ones while OPENING, or after a failure */
    struct region *closer;       /* the last region, answered when the arena is gone */
    struct worker_job job;
    struct memory_error failure; /* code 0: none; else why it could not be opened */
};

/* The file of a key, made if need be; NULL when out of memory. */
struct memory_file *memory_file_get(struct memory *memory, const struct memory_file_key *key);

/* An arena of the file that holds the range and allows the access, and is not closing; or NULL. */
struct arena *arena_find(const struct memory_file *file, uint64_t start, uint64_t end, bool writable);

/*
 * Makes an arena for `region` from its intake: charges, then maps and proves on workers. Takes the descriptor in every
 * case. 0, or an error (`error` filled) with no callback; else the arena reports to each of its regions.
 */
int arena_create(struct memory_file *file, struct region *region, struct memory_error *error);

/* Adds a region to an arena that is opening or open; in the latter case the caller reports. */
void arena_attach(struct arena *arena, struct region *region);

/* Takes an open region out and reports it closed, at once or when the arena, no longer needed, is gone. */
void arena_detach(struct arena *arena, struct region *region);

/* What it takes on one NIC. */
struct charge arena_charge(const struct arena *arena);

/* Charges it on a NIC, and its user, within `quota` of the user's bytes. 0, or a proto error with `error` filled. */
int arena_charge_nic(struct arena *arena, unsigned nic, uint64_t quota, struct memory_error *error);
/* Gives that back, if it is charged there and not quarantined. */
void arena_release_nic(struct arena *arena, unsigned nic);
void arena_release_all(struct arena *arena);
void arena_quarantine_nic(struct arena *arena, unsigned nic);
/* Takes what is quarantined off its user, who may be gone before the daemon is; the budgets keep it. */
void arena_leave_account(struct arena *arena);

/* Whether a slice is registered, or being registered or closed, in the NIC's own domain. */
bool arena_on_nic(const struct arena *arena, unsigned nic);

/* Finds or makes the arena of a region whose descriptor was taken in, and reports as region_open() promises. */
void region_place(struct region *region);

/* What memory.c does when a region's opening or closing has ended. */
void region_report_opened(struct region *region, const struct memory_error *error);
void region_report_closed(struct region *region, bool memory_released);

/* Counts a reference of the account down. */
void memory_account_drop(struct memory_account *account);

#endif
