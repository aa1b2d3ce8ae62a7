/*
 * Bytes of a client's memory file, moved by system calls that fail where the memory cannot be had (rule 5 of
 * docs/architecture.md): no load or store of ours meets a hole or a huge page that is missing.
 *
 * Reading is pread(). Writing is process_vm_writev() on our own mapping: pwrite() does not exist for huge pages, it
 * appends instead of writing at the offset when the client sets O_APPEND on the file that it shares with us, and it
 * waits for the file's lock, which the client can hold.
 *
 * Not sendfile(): it lets the socket refer to the client's pages beyond its return, so that bytes of a set which was
 * taken back would still be read from memory that serves something else by then (rule 1).
 *
 * The calls may wait for memory, so they belong on a worker. Thread safe.
 */
#ifndef GRD_BASE_FILE_RANGE_H
#define GRD_BASE_FILE_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct worker_owner;

/* All borrowed: whoever made it keeps file and mapping until nobody uses it. */
struct file_range {
    int fd;
    uint64_t offset; /* of the range in the file, bytes */
    uint64_t length;
    void *mapped;    /* the range in our mapping; writable where file_range_write is used */
    struct worker_owner *owner; /* of jobs that move its bytes */
};

/* Move `length` bytes between `buffer` and the range, from `at` on. 0, or a negative errno: some may have moved. */
int file_range_read(const struct file_range *range, uint64_t at, void *buffer, size_t length);
int file_range_write(const struct file_range *range, uint64_t at, const void *buffer, size_t length);

#endif
