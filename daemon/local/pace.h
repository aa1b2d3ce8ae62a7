/*
 * What a user owes for requests that were refused and for new sessions. Each costs so many milliseconds, which pass by
 * themselves. Who owes more than PACE_FREE_MS is *slow*: it is served in one turn every PACE_WAIT_MS only (schedule.h),
 * so that a flood of rubbish leaves the daemon idle for most of the time. Nobody owes more than PACE_MOST_MS, so a user
 * that has stopped flooding is not slow any more after the difference; and an error now and then has no effect at all.
 * Private to local/. Loop thread only; times are uv_now() of the loop.
 */
#ifndef GRD_LOCAL_PACE_H
#define GRD_LOCAL_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct service;
struct user;
struct debtor;

#define PACE_COST_MS 1
#define PACE_FREE_MS 250
#define PACE_MOST_MS 280
#define PACE_WAIT_MS 2
/* Users that have gone and still owe, at most; beyond it the debt of who left first is forgotten. */
#define PACE_DEBTORS 1024

/* Debts of users that are not there at the moment: a user that comes and goes keeps its own. */
struct debtors {
    struct debtor *by_key; /* hash by user_key */
    TAILQ_HEAD(, debtor) in_order; /* in which they left */
    unsigned count;
};

void debtors_init(struct debtors *debtors);
void debtors_free(struct debtors *debtors);

/* A user is made: it owes what it owed when it left. A user ends. */
void pace_recall(struct user *user);
void pace_remember(const struct user *user);

/* The user had a request refused, or has made a connection. */
void pace_charge(struct user *user);

bool pace_slow(const struct user *user);

#endif
