/*
 * The fabric of the server: its endpoints, and which of them carries an operation.
 *
 * Started once in OnLoad and stopped at the server's end, on the main thread; the set of endpoints does not change in
 * between, so any thread may look at it.
 */
#ifndef LARGEOBJ_FABRIC_H
#define LARGEOBJ_FABRIC_H

#include <stddef.h>

#include "module_api.h"

#define ENDPOINTS_MAX 16u

struct endpoint;

/* Opens one endpoint for each entry of largeobj.fabric-interfaces. Failure is logged and leaves the module without
 * RDMA: then there are no endpoints. */
void fabric_start(struct vm_ctx *ctx);
void fabric_stop(void);

unsigned int fabric_endpoint_count(void);
struct endpoint *fabric_endpoint(unsigned int index);

/* The less loaded of two endpoints chosen at random; `planned` counts operations the caller has yet to submit. */
unsigned int fabric_pick(const unsigned int planned[ENDPOINTS_MAX]);

/* Largest length of one operation. */
size_t fabric_max_message(void);

/* Address of an endpoint as lower-case hex, for HELLO. */
#define FABRIC_HEX_MAX 129
void fabric_address_hex(unsigned int index, char hex[FABRIC_HEX_MAX]);

#endif
