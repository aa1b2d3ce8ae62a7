/*
 * Intake of a received descriptor: is it a memory file that can be served safely?
 *
 * Runs on a worker, since any call on a foreign descriptor may block. F_GET_SEALS comes before everything else: it
 * fails on all but memory files, so that no other call ever touches a socket, a FUSE file or a device.
 */
#ifndef GRD_MEMORY_INTAKE_H
#define GRD_MEMORY_INTAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMORY_WHY_BYTES 512

struct intake {
    /* asked */
    int fd; /* borrowed */
    uint64_t offset, size;
    bool writable; /* access "rw" */
    /* found */
    dev_t device;
    ino_t inode;
    uint64_t page_size;
    int code; /* 0 or a proto error */
    char why[MEMORY_WHY_BYTES];
};

/* Fills the `found` members. Blocking. */
void intake_check(struct intake *intake);

#endif
