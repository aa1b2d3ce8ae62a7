/*
 * Whose packets are served when. In one turn of the loop a user's sessions together are served for USER_TURN_US. A
 * session that has more, or comes later in the turn, is taken out of the poll and waits in its user's line until the
 * user's next turn: that is the next turn of the loop, in which the users that wait are served one after the other before
 * what the poll finds; for a user that is slow (pace.h) it is PACE_WAIT_MS later. So others wait for a user's share of a
 * turn, not for its flood; a turn of the loop is bounded however many sessions have something; and who waits costs
 * nothing. Every step is O(1). Private to local/. Loop thread only.
 */
#ifndef GRD_LOCAL_SCHEDULE_H
#define GRD_LOCAL_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

struct service;
struct session;
struct user;

#define USER_TURN_US 50

enum user_line {
    USER_IN_NO_LINE, /* nobody of it waits */
    USER_SERVED,     /* at this moment */
    USER_NEXT,       /* in the next turn of the loop */
    USER_SLOW        /* when its wait is over */
};

/* Of the daemon. */
struct schedule {
    TAILQ_HEAD(user_queue, user) next, slow; /* `slow` in the order in which their waits end */
    uv_idle_t turn;  /* runs while there is one in `next`: the loop does not sleep */
    uv_timer_t wait; /* runs while there is one in `slow` */
};

/* Of a user. */
struct user_turn {
    TAILQ_HEAD(session_queue, session) waiting; /* in the order in which they are served */
    enum user_line line;
    TAILQ_ENTRY(user) link;        /* in its line */
    uint64_t turn_ns;              /* the turn of the loop that the rest is about, as loop_watch has it */
    bool open;                     /* the user has a share of it */
    uint64_t served_ns;            /* of that */
    uint64_t next_ms;              /* before that a slow user has no further turn */
};

void schedule_init(struct service *service);
/* Before the loop ends. */
void schedule_stop(struct service *service);

void schedule_user_init(struct user *user);
/* The user ends; none of its sessions waits. */
void schedule_user_end(struct user *user);

/* Whether a session may be served now that nobody of its user waits; and whether its user's share is not used up yet. */
bool schedule_admits(struct user *user);
bool schedule_goes_on(struct user *user);
/* What was done for a user took that long. */
void schedule_served(struct user *user, uint64_t ns);

/* Until session_serve() is called for it. Idempotent. */
void schedule_wait(struct session *session);
/* It waits no more. */
void schedule_forget(struct session *session);

#endif
