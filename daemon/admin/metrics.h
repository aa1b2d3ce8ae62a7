/*
 * The daemon's numbers as OpenMetrics text: for the admin socket and the TCP listener. Loop thread only.
 *
 * The list below is all there is; docs/operations.md shows the same rows, and a test compares the two. Sets of labels
 * are bounded: by tables (operations, outcomes, methods, errors), by the configuration (nodes, NICs), and for users by
 * METRICS_USERS.
 */
#ifndef GRD_ADMIN_METRICS_H
#define GRD_ADMIN_METRICS_H

#include "daemon/local/service.h"
#include "daemon/metrics/text.h"

/* Users with samples of their own, those that use most; the sums of all others have the uid "other". */
#define METRICS_USERS 16

/* X(SYMBOL, "name", TYPE, "unit", "help") */
#define METRICS(X)                                                                                                    \
    X(DAEMON, "glide_rdmad_daemon", INFO, "", "Versions of the daemon and of libfabric, and the provider.")           \
    X(UPTIME, "glide_rdmad_uptime_seconds", GAUGE, "seconds", "Time since the daemon was started.")                   \
    X(USABLE, "glide_rdmad_usable", GAUGE, "", "1: transfers can be carried at this moment.")                         \
    X(DRAINING, "glide_rdmad_draining", GAUGE, "", "1: no new transfers and registrations are taken.")                \
    X(PINNED, "glide_rdmad_pinned_bytes", GAUGE, "bytes",                                                             \
      "Registered memory that is charged to the budget, quarantined memory included.")                                \
    X(LIMIT, "glide_rdmad_limit_bytes", GAUGE, "bytes", "Limit of the budget; missing where it has none.")            \
    X(QUARANTINE, "glide_rdmad_quarantine_bytes", GAUGE, "bytes",                                                     \
      "Registered memory that did not close and stays charged until the daemon ends.")                                \
    X(CONNECTION_BYTES, "glide_rdmad_connection_pinned_bytes", GAUGE, "bytes",                                        \
      "Registered memory that connections over RDMA hold for themselves; part of the memlock budget.")                \
    X(ARENAS, "glide_rdmad_arenas", GAUGE, "", "Registered ranges of memory files.")                                  \
    X(REGIONS, "glide_rdmad_regions", GAUGE, "", "Open regions of all sessions.")                                     \
    X(SESSIONS, "glide_rdmad_sessions", GAUGE, "", "Connections of clients and operators.")                           \
    X(ADMITTED, "glide_rdmad_sessions_opened", COUNTER, "", "Connections that were admitted.")                        \
    X(OPEN_REGISTRATIONS, "glide_rdmad_open_registrations", GAUGE, "", "Registrations that are charged on the NIC.")  \
    X(REGISTRATIONS, "glide_rdmad_registrations", COUNTER, "", "Calls that registered memory on the NIC.")            \
    X(LANES, "glide_rdmad_lanes", GAUGE, "", "Fabric endpoints, those being opened or destroyed included.")           \
    X(IN_FLIGHT, "glide_rdmad_transfers_in_flight", GAUGE, "",                                                        \
      "Transfers that were taken from the queue and are not answered.")                                               \
    X(QUEUED, "glide_rdmad_transfers_queued", GAUGE, "", "Transfers that wait for their turn.")                       \
    X(TRANSFERS, "glide_rdmad_transfers", COUNTER, "", "Transfers that were answered, by the row of the outcome table.") \
    X(TRANSFER_BYTES, "glide_rdmad_transfer_bytes", COUNTER, "bytes", "Bytes of values that were stored or delivered.") \
    X(TRANSFER_TIME, "glide_rdmad_transfer_seconds", HISTOGRAM, "seconds",                                            \
      "Time of transfers by stage: queue (accepted to sent), server (sent to its answer), total; and by size.")       \
    X(RERUNS, "glide_rdmad_transfer_reruns", COUNTER, "", "Attempts of transfers beyond the first.")                  \
    X(COLLATERAL, "glide_rdmad_transfer_reruns_collateral", COUNTER, "",                                              \
      "Attempts beyond the first because another transfer on the same registration was taken back.")                  \
    X(REQUESTS, "glide_rdmad_requests", COUNTER, "", "Requests by method.")                                           \
    X(REFUSED, "glide_rdmad_refused", COUNTER, "",                                                                    \
      "Answers and keys with an error, connections not admitted, and sessions that were ended, by error.")           \
    X(NODE_UP, "glide_rdmad_node_up", GAUGE, "", "1: the connection for commands on keys is up.")                     \
    X(NODE_CARRIERS, "glide_rdmad_node_carriers", GAUGE, "", "Connections that can carry a transfer.")                \
    X(NODE_BUSY, "glide_rdmad_node_carriers_busy", GAUGE, "", "Connections that carry a transfer.")                   \
    X(RECONNECTS, "glide_rdmad_node_reconnects", COUNTER, "", "Times the connection to the node was made anew.")      \
    X(REVOCATIONS, "glide_rdmad_node_revocations", COUNTER, "", "Lanes that were destroyed to take a transfer back.") \
    X(NODE_FALLBACK, "glide_rdmad_node_rdma_fallback", GAUGE, "",                                                     \
      "1: the connections are made over TCP, because RDMA failed and rdma_fallback = tcp.")                           \
    X(WORKERS_BUSY, "glide_rdmad_worker_jobs_running", GAUGE, "", "Worker threads at work, of 8.")                    \
    X(WORKERS_QUEUED, "glide_rdmad_worker_jobs_queued", GAUGE, "", "Jobs that wait for a worker thread.")             \
    X(LOOP, "glide_rdmad_loop_longest_callback_seconds", GAUGE, "seconds", "Longest turn of the event loop so far.")  \
    X(LEFT_OUT, "glide_rdmad_log_lines_left_out", COUNTER, "", "Log lines left out: too many, or no room.")          \
    X(USER_PINNED, "glide_rdmad_user_pinned_bytes", GAUGE, "bytes", "Registered memory of the user.")                 \
    X(USER_REGIONS, "glide_rdmad_user_regions", GAUGE, "", "Open regions of the user.")                               \
    X(USER_SESSIONS, "glide_rdmad_user_sessions", GAUGE, "", "Sessions of the user.")                                 \
    X(USER_IN_FLIGHT, "glide_rdmad_user_transfers_in_flight", GAUGE, "", "Transfers of the user that were sent.")     \
    X(USER_QUEUED, "glide_rdmad_user_transfers_queued", GAUGE, "", "Transfers of the user that wait for their turn.")

/* Appends the whole text, "# EOF" included. */
void metrics_render(const struct service *service, struct metrics_text *text);

#endif
