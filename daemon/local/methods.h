/*
 * The methods of the control protocol: one function each. Private to local/.
 *
 * A method gets decoded parameters (released by dispatch afterwards; what it keeps it takes out) and a descriptor that
 * is its own when the method takes one, else -1. It answers at once, or opens a request that is answered later.
 */
#ifndef GRD_LOCAL_METHODS_H
#define GRD_LOCAL_METHODS_H

#include "daemon/local/session.h"

struct call {
    struct session *session;
    uint64_t id;
    int method;
    union proto_any_params params;
    int fd;
};

/* The numbers of an error, for its data; NULL where it has none. */
json_t *error_numbers(const struct memory_error *error);

void method_hello(struct call *call);
void method_region_register(struct call *call);
void method_region_close(struct call *call);
void method_transfer_set(struct call *call);
void method_transfer_get(struct call *call);
void method_transfer_cancel(struct call *call);
void method_keys(struct call *call);
void method_status(struct call *call);
void method_admin_clients(struct call *call);
void method_admin_nodes(struct call *call);
void method_admin_regions(struct call *call);
void method_admin_transfers(struct call *call);
void method_admin_users(struct call *call);
void method_admin_metrics(struct call *call);
void method_admin_log_level(struct call *call);
void method_admin_reload(struct call *call);
void method_admin_drain(struct call *call);

#endif
