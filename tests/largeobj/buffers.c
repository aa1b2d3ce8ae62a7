#include "buffers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 * 1024 * 1024)
#define KEEP_FROM ((size_t)256 * 1024)
#define KEEP_BYTES ((size_t)512 * 1024 * 1024)
#define KEEP_COUNT 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *buffer;
    size_t capacity;
} kept[KEEP_COUNT]; /* oldest first */
static size_t kept_count;
static size_t kept_bytes;

static size_t capacity_of(size_t len)
{
    size_t unit = len < HUGE_PAGE ? PAGE : HUGE_PAGE;

    return (len + unit - 1) / unit * unit;
}

/* With the lock held. */
static void *take(size_t at)
{
    void *buffer = kept[at].buffer;

    kept_bytes -= kept[at].capacity;
    kept_count--;
    memmove(&kept[at], &kept[at + 1], (kept_count - at) * sizeof(kept[0]));
    return buffer;
}

void *buffer_get(size_t len)
{
    size_t capacity = capacity_of(len);
    void *buffer = NULL;

    pthread_mutex_lock(&lock);
    for (size_t i = kept_count; i > 0 && !buffer; i--) {
        if (kept[i - 1].capacity == capacity)
            buffer = take(i - 1);
    }
    pthread_mutex_unlock(&lock);
    if (buffer)
        return buffer;
    if (posix_memalign(&buffer, capacity < HUGE_PAGE ? PAGE : HUGE_PAGE, capacity) != 0)
        return NULL;
    if (capacity >= HUGE_PAGE)
        madvise(buffer, capacity, MADV_HUGEPAGE);
    return buffer;
}

void buffer_put(void *buffer, size_t len)
{
    size_t capacity = capacity_of(len);
    void *drop[KEEP_COUNT];
    size_t drop_count = 0;

    if (capacity < KEEP_FROM || capacity > KEEP_BYTES) {
        free(buffer);
        return;
    }
    pthread_mutex_lock(&lock);
    while (kept_count == KEEP_COUNT || kept_bytes + capacity > KEEP_BYTES)
        drop[drop_count++] = take(0);
    kept[kept_count].buffer = buffer;
    kept[kept_count].capacity = capacity;
    kept_count++;
    kept_bytes += capacity;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < drop_count; i++)
        free(drop[i]);
}
