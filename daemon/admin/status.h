/*
 * What operators and clients are shown of the daemon's state, as JSON. Loop thread only.
 */
#ifndef GRD_ADMIN_STATUS_H
#define GRD_ADMIN_STATUS_H

#include <jansson.h>

#include "daemon/local/session.h"

/* New reference. The whole daemon: {daemon, fabric, nodes, memory, transfers}. */
json_t *status_daemon(const struct service *service);

/* New reference. status_daemon and what is the session's and its user's own: regions, use and limits. */
json_t *status_session(const struct session *session);

/* New reference. A page of the nodes, those known for longest first: {"nodes": [...], "next"?}. */
json_t *status_nodes(const struct service *service, uint64_t after, uint64_t limit);

/* New reference. A page of all sessions, oldest first: {"clients": [...], "next"?}. */
json_t *status_clients(const struct service *service, uint64_t after, uint64_t limit);

/* New reference. A page of all users, oldest first: {"users": [...], "next"?}; those of the admin socket, too. */
json_t *status_users(const struct service *service, uint64_t after, uint64_t limit);

/* New references: pages of all regions and of all transfers, oldest first, {"regions"|"transfers": [...], "next"?}. */
json_t *status_regions(const struct service *service, uint64_t after, uint64_t limit);
json_t *status_transfers(const struct service *service, uint64_t after, uint64_t limit);

#endif
