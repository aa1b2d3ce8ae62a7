/*
 * The limit of one wait for a server's answer, in milliseconds. A timer of its own, so that whoever waits need not live
 * until a handle is closed. Loop thread only.
 */
#ifndef GRD_VALKEY_PATIENCE_H
#define GRD_VALKEY_PATIENCE_H

#include <uv.h>

struct patience;

/* `over` is called once, after `ms`, unless patience_end comes first. NULL: out of memory. */
struct patience *patience_start(uv_loop_t *loop, unsigned ms, void (*over)(void *context), void *context);

/* Ends it, before or after `over` or inside, and sets the pointer to NULL; nothing when that is NULL already. */
void patience_end(struct patience **patience);

#endif
