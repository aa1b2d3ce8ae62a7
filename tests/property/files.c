/*
 * Memory files as their owners see them, through a mapping of the test's own, and the daemon's mappings of them.
 * A NIC writes to pages, not through a mapping: so does file_land, also after the daemon has unmapped them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/property/model.h"

struct file {
    int fd;
    ino_t inode;
    uint8_t *bytes;
    uint8_t shadow[FILE_BYTES]; /* what the owner wrote */
    uint8_t known[FILE_BYTES];  /* 255 where it must still stand there */
};

struct mapping {
    LIST_ENTRY(mapping) link;
    uint8_t *base;
    uint64_t length;
    struct place place;
    int fd;       /* the daemon's */
    bool doubted; /* a close failed that may concern it */
    bool certain; /* it concerns it: the mapping must stay */
};

/* The linker leads the daemon's calls here (--wrap). */
void *__real_mmap64(void *, size_t, int, int, int, off_t);
void *__wrap_mmap64(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
int __wrap_munmap(void *, size_t);

static struct file files[FILES];
static LIST_HEAD(, mapping) mappings = LIST_HEAD_INITIALIZER(mappings);

void files_init(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        struct stat status;
        files[i].fd = memfd_create("property", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        RIG_CHECK(files[i].fd >= 0 && ftruncate(files[i].fd, FILE_BYTES) == 0 &&
                      fcntl(files[i].fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && fstat(files[i].fd, &status) == 0,
                  "errno %d", errno);
        files[i].inode = status.st_ino;
    }
    for (unsigned i = 0; i < FILES; i++) {
        void *bytes = __real_mmap64(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, files[i].fd, 0);
        RIG_CHECK(bytes != MAP_FAILED, "errno %d", errno);
        memset(bytes, 0, FILE_BYTES); /* the daemon wants memory that its owner has touched */
        files[i].bytes = bytes;
    }
}

int file_fd(unsigned file)
{
    return files[file].fd;
}

const uint8_t *file_bytes(unsigned file)
{
    return files[file].bytes;
}

void files_reset(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        file_fill(i, 0, FILE_BYTES, (uint8_t)random_next(), 1);
    }
}

void file_yield(unsigned file, uint64_t start, uint64_t end)
{
    memset(files[file].known + start, 0, end - start);
}

void file_fill(unsigned file, uint64_t start, uint64_t end, uint8_t first, uint8_t step)
{
    for (uint64_t i = start; i < end; i++) {
        files[file].shadow[i] = (uint8_t)(first + step * (i - start));
    }
    memcpy(files[file].bytes + start, files[file].shadow + start, end - start);
    memset(files[file].known + start, 255, end - start);
}

void file_land(struct place place, const uint8_t *bytes, uint64_t length, const char *who)
{
    struct file *file = &files[place.file];

    for (uint64_t i = 0; i < length; i++) {
        RIG_CHECK(file->known[place.at + i] == 0,
                  "%s writes to byte %llu of file %u, which its client has back and filled again", who,
                  (unsigned long long)(place.at + i), place.file);
    }
    memcpy(file->bytes + place.at, bytes, length);
}

void files_check(const char *when)
{
    for (unsigned f = 0; f < FILES; f++) {
        const struct file *file = &files[f];
        unsigned different = 0;
        for (size_t i = 0; i < FILE_BYTES; i++) {
            different |= (unsigned)(file->bytes[i] ^ file->shadow[i]) & file->known[i];
        }
        RIG_CHECK(different == 0, "bytes of file %u that its client owns have changed (%s)", f, when);
    }
}

/* --- the daemon's mappings ---------------------------------------------------------------------------------------- */

static struct mapping *find(const uint8_t *address)
{
    struct mapping *mapping;

    LIST_FOREACH (mapping, &mappings, link) {
        if (address >= mapping->base && address < mapping->base + mapping->length) {
            return mapping;
        }
    }
    return NULL;
}

bool place_of(const uint8_t *registered, struct place *place)
{
    const struct mapping *mapping = find(registered);

    if (mapping == NULL) {
        return false;
    }
    *place = (struct place){.file = mapping->place.file,
                            .at = mapping->place.at + (uint64_t)(registered - mapping->base)};
    return true;
}

bool mapping_holds(const uint8_t *base, uint64_t length, const uint8_t *address)
{
    return address >= base && address < base + length;
}

uint64_t mapped_bytes(void)
{
    const struct mapping *mapping;
    uint64_t bytes = 0;

    LIST_FOREACH (mapping, &mappings, link) {
        bytes += mapping->length;
    }
    return bytes;
}

void mapping_in_doubt(const uint8_t *base, bool certain)
{
    struct mapping *mapping = find(base);

    RIG_CHECK(mapping != NULL || !certain, "a registration is closed after its memory was unmapped");
    if (mapping != NULL) {
        mapping->doubted = true;
        mapping->certain |= certain;
    }
}

uint64_t mappings_settle(void)
{
    struct mapping *mapping;
    uint64_t bytes = mapped_bytes();

    LIST_FOREACH (mapping, &mappings, link) {
        RIG_CHECK(mapping->doubted, "%llu bytes of file %u are still mapped, although every close of theirs went well",
                  (unsigned long long)mapping->length, mapping->place.file);
    }
    while ((mapping = LIST_FIRST(&mappings)) != NULL) {
        LIST_REMOVE(mapping, link);
        __real_munmap(mapping->base, mapping->length);
        close(mapping->fd);
        free(mapping);
    }
    return bytes;
}

void *__wrap_mmap64(void *wish, size_t length, int protection, int flags, int fd, off_t offset)
{
    void *base = __real_mmap64(wish, length, protection, flags, fd, offset);
    struct stat status;

    if (base == MAP_FAILED || fd < 0 || fstat(fd, &status) != 0) {
        return base;
    }
    for (unsigned i = 0; i < FILES; i++) {
        if (files[i].inode == status.st_ino) {
            struct mapping *mapping = calloc(1, sizeof(*mapping));
            mapping->base = base;
            mapping->length = length;
            mapping->place = (struct place){.file = i, .at = (uint64_t)offset};
            mapping->fd = fd;
            LIST_INSERT_HEAD(&mappings, mapping, link);
        }
    }
    return base;
}

int __wrap_munmap(void *base, size_t length)
{
    struct mapping *mapping = find(base);

    if (mapping != NULL) {
        RIG_CHECK(!mapping->certain, "memory is unmapped that a failed close left within reach");
        server_check_unmapped(base, length);
        LIST_REMOVE(mapping, link);
        free(mapping);
    }
    return __real_munmap(base, length);
}
