#include "client/private.h"

bool window_inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return length > 0 && offset < size && length <= size - offset;
}

static bool overlap(const struct window_use *use, uint64_t offset, uint64_t length)
{
    /* Compared by differences: offset + length may be the end of the address range. */
    if (use->offset <= offset) {
        return offset - use->offset < use->length;
    }
    return use->offset - offset < length;
}

bool windows_try_lock(struct window_list *list, struct window_use *use, uint64_t offset, uint64_t length, bool writes)
{
    struct window_use *other;

    LIST_FOREACH(other, list, entry) {
        if ((writes || other->writes) && overlap(other, offset, length)) {
            return false;
        }
    }
    *use = (struct window_use){.offset = offset, .length = length, .writes = writes};
    LIST_INSERT_HEAD(list, use, entry);
    return true;
}

void windows_unlock(struct window_use *use)
{
    LIST_REMOVE(use, entry);
}
