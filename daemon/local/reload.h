/*
 * Reading the configuration again, on SIGHUP or the method `reload`: files on a worker, the change on the loop in one
 * step. A configuration that cannot be read, or whose values cannot be had, changes nothing. Loop thread only.
 *
 * What follows from a change: policies are resolved anew for every living session, which goes by them from its next
 * request on; connections to Valkey log in again with the password file as it is now; the level of the log is that of
 * the file, whatever `log.level` had set. See docs/architecture.md, "Reload and drain".
 */
#ifndef GRD_LOCAL_RELOAD_H
#define GRD_LOCAL_RELOAD_H

#include "daemon/local/session.h"

struct reload_request;
TAILQ_HEAD(reload_requests, reload_request);

struct reloader {
    struct service *service;
    struct config *config;  /* in force; borrowed */
    const char *path;       /* borrowed */
    uv_signal_t hangup;
    struct worker_owner owner;
    struct worker_job job;
    bool running, again;    /* another was asked for while the files were being read: they are read once more */
    struct reload_requests waiting, later; /* answered after this run, after the next one */

    /* of a run; the worker's while it reads */
    bool pins;
    struct config next;
    struct pin_limit limit;
    int status;
    char why[CONFIG_WHY_BYTES];
};

/*
 * Keeps a SIGHUP, which would end the process, until reload_init: before any other thread is there. For a daemon that is
 * told to reload while it starts.
 */
void reload_hold_signal(void);

/* Watches SIGHUP; one that was kept is served in the first turn of the loop. `config` is that of the service. */
void reload_init(struct reloader *reloader, struct service *service, struct config *config, const char *path);
/* From here on it is ignored. */
void reload_close(struct reloader *reloader);

/* Begins, or sees to another run after this one. `request` is answered at its end; NULL: nobody asks. */
void reload_begin(struct reloader *reloader, struct reload_request *request);

#endif
