#include "client/ctl/doctor/watch.h"

#include <string.h>
#include <time.h>

#define PIECE 4096

static uint64_t now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

uint64_t watch_count(const unsigned char *bytes, uint64_t length, unsigned char value)
{
    unsigned char pattern[PIECE];
    uint64_t count = 0;

    memset(pattern, value, sizeof(pattern));
    for (uint64_t at = 0; at < length; at += PIECE) {
        uint64_t part = length - at < PIECE ? length - at : PIECE;

        if (memcmp(bytes + at, pattern, part) == 0) {
            count += part;
            continue;
        }
        for (uint64_t i = 0; i < part; i++) {
            count += bytes[at + i] == value;
        }
    }
    return count;
}

uint64_t watch_changed(const unsigned char *bytes, uint64_t length, unsigned char canary, uint64_t milliseconds)
{
    uint64_t end = now_ms() + milliseconds, changed = 0;

    for (unsigned looks = 0; changed == 0 && (looks < 2 || now_ms() < end); looks++) {
        /* Others write the memory: the compiler must not remember it. */
        __asm__ volatile("" : : "r"(bytes) : "memory");
        changed = length - watch_count(bytes, length, canary);
    }
    return changed;
}
