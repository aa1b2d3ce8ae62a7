/*
 * The orderly end: stop accepting, let transfers finish within drain_ms, take the rest back (lanes first), close every
 * session, region, lane and registration, and say what did not close.
 */
#ifndef GRD_STOP_H
#define GRD_STOP_H

#include "daemon/local/listener.h"
#include "daemon/local/service.h"

/* Exit statuses (sysexits.h), documented in glide-rdmad(8). */
#define EXIT_STATUS_USAGE 64
#define EXIT_STATUS_LEFT_OPEN 75
#define EXIT_STATUS_CONFIG 78

enum stop_stage { STOP_NOT, STOP_DRAINING, STOP_SESSIONS, STOP_DEPLOYMENT, STOP_MEMORY, STOP_DONE };

struct stop {
    struct service *service;
    struct listeners *listeners;
    enum stop_stage stage;
    bool done;  /* the loop need not go on */
    int status; /* of the process */
    int rounds; /* of LAST_PACKETS_MS that the sessions had */
    uv_timer_t timer;
    uv_signal_t signals[2];
    uv_timer_t restart; /* runs out at once when too much is quarantined */
    uv_check_t check; /* looks for progress between the loop's turns while stopping */
};

/* Watches SIGTERM, SIGINT and the memory in quarantine ([memory] quarantine_restart_bytes). */
void stop_init(struct stop *stop, struct service *service, struct listeners *listeners);

/* Begins the end, as the signals do. Idempotent. When all is closed, or time is up, stop->done is true, and
 * stop->status the exit status. */
void stop_begin(struct stop *stop);

#endif
