#include "tests/fuzz/fuzz.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIPTORS 1024
#define LINES 256

void rig_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list arguments;
    const char *slash = strrchr(file, '/');

    fprintf(stderr, "PROPERTY DOES NOT HOLD: %s:%d: %s: ", slash != NULL ? slash + 1 : file, line, condition);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

unsigned fuzz_descriptors(void)
{
    static struct pollfd all[DESCRIPTORS];
    unsigned count = 0;

    for (int i = 0; i < DESCRIPTORS; i++) {
        all[i] = (struct pollfd){.fd = i};
    }
    if (poll(all, DESCRIPTORS, 0) < 0) {
        return 0;
    }
    for (int i = 0; i < DESCRIPTORS; i++) {
        count += (all[i].revents & POLLNVAL) == 0;
    }
    return count;
}

bool fuzz_line(struct fuzz_lines *lines, const char **line, size_t *length)
{
    const char *end;

    if (lines->at == lines->end) {
        return false;
    }
    end = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
    *line = lines->at;
    *length = (size_t)((end != NULL ? end : lines->end) - lines->at);
    lines->at = end != NULL ? end + 1 : lines->end;
    return true;
}

unsigned fuzz_number(const char *line, size_t length, unsigned limit, unsigned fallback)
{
    unsigned number = 0;
    size_t i;

    for (i = 0; i < length && line[i] >= '0' && line[i] <= '9'; i++) {
        if (number < limit) {
            number = number * 10 + (unsigned)(line[i] - '0');
        }
    }
    return i == 0 ? fallback : number < limit ? number : limit;
}

/* --- lines as genes --- */

struct piece {
    const uint8_t *at;
    size_t length; /* with its end */
};

static size_t split(const uint8_t *data, size_t size, struct piece *pieces)
{
    size_t count = 0, start = 0;

    for (size_t i = 0; i < size && count < LINES; i++) {
        if (data[i] == '\n' || i + 1 == size) {
            pieces[count++] = (struct piece){.at = data + start, .length = i + 1 - start};
            start = i + 1;
        }
    }
    return count;
}

static void move(struct piece *pieces, size_t *count, unsigned seed)
{
    size_t from = (seed >> 4) % *count, to = (seed >> 12) % *count;
    struct piece piece = pieces[from];

    switch ((seed >> 20) % 4) {
    case 0: /* left out */
        memmove(pieces + from, pieces + from + 1, (*count - from - 1) * sizeof(*pieces));
        --*count;
        break;
    case 1: /* doubled, there */
        memmove(pieces + to + 1, pieces + to, (*count - to) * sizeof(*pieces));
        pieces[to] = piece;
        ++*count;
        break;
    case 2:
        pieces[from] = pieces[to];
        pieces[to] = piece;
        break;
    default: /* the rest is cut off */
        *count = from + 1;
        break;
    }
}

size_t fuzz_mutate_lines(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    static struct piece pieces[LINES + 1];
    size_t count = split(data, size, pieces), used = 0;
    uint8_t *out;

    if (count < 2 || count == LINES || (seed & 1) == 0) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    move(pieces, &count, seed);
    out = malloc(max_size);
    if (out == NULL) {
        return size;
    }
    for (size_t i = 0; i < count && used + pieces[i].length <= max_size; i++) {
        memcpy(out + used, pieces[i].at, pieces[i].length);
        used += pieces[i].length;
        if (out[used - 1] != '\n' && used < max_size) {
            out[used++] = '\n';
        }
    }
    memcpy(data, out, used);
    free(out);
    return used;
}
