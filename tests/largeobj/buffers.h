/*
 * Memory of values. Large buffers are kept for reuse for a while, as the real module does with its segments: fresh
 * pages cost more than the transfer that fills them. Any thread.
 */
#ifndef LARGEOBJ_BUFFERS_H
#define LARGEOBJ_BUFFERS_H

#include <stddef.h>

/* Page aligned, content unset; NULL without memory. */
void *buffer_get(size_t len);

/* `len` is that of buffer_get. */
void buffer_put(void *buffer, size_t len);

#endif
