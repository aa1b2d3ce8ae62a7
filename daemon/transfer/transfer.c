#include "daemon/transfer/transfer_private.h"

#include <string.h>

#include "daemon/transfer/again.h"
#include "daemon/transfer/queue.h"
#include "daemon/transfer/route.h"
#include "daemon/transfer/share.h"
#include "proto/text.h"

/* Of a key in a line of the log, with its escapes. */
#define KEY_SHOWN_BYTES 256

/* The row of each reason, for a transfer that waits and for one that was sent. */
static const enum transfer_outcome reason_outcomes[][2] = {
    [TRANSFER_CANCELLED] = {OUTCOME_CANCELLED_WAITING, OUTCOME_CANCELLED_RUNNING},
    [TRANSFER_CLIENT_GONE] = {OUTCOME_GONE_WAITING, OUTCOME_GONE_RUNNING},
    [TRANSFER_STOPPING] = {OUTCOME_STOPPING_WAITING, OUTCOME_STOPPING_RUNNING},
};

static const char *const state_names[] = {
    [TRANSFER_QUEUED] = "queued",     [TRANSFER_PREPARING] = "preparing", [TRANSFER_SENT] = "sent",
    [TRANSFER_REVOKING] = "revoking", [TRANSFER_WAITING] = "waiting",     [TRANSFER_ENDED] = "ended",
};

struct log_fields transfer_about(const struct transfer *transfer)
{
    return (struct log_fields){.transfer = transfer->id,
                               .session = transfer->session->id,
                               .node = transfer->member != NULL ? transfer->member->address.text : NULL};
}

const char *transfer_state_name(enum transfer_state state)
{
    return state_names[state];
}

void transfers_init(struct transfers *transfers, uv_loop_t *loop, uint64_t revoke_grace_ms, uint64_t orphan_ms)
{
    memset(transfers, 0, sizeof *transfers);
    transfers->loop = loop;
    transfers->revoke_grace_ms = revoke_grace_ms;
    transfers->orphan_ms = orphan_ms;
    transfers->next_id = 1;
    TAILQ_INIT(&transfers->ready);
    queue_init(&transfers->unmapped, &transfers->ready, NULL);
    TAILQ_INIT(&transfers->all);
    share_init(transfers);
}

void transfers_set_times(struct transfers *transfers, uint64_t revoke_grace_ms, uint64_t orphan_ms)
{
    transfers->revoke_grace_ms = revoke_grace_ms;
    transfers->orphan_ms = orphan_ms;
}

void transfer_user_init(struct transfer_user *user)
{
    memset(user, 0, sizeof *user);
    LIST_INIT(&user->places);
}

void transfer_session_init(struct transfer_session *session, struct transfer_user *user)
{
    memset(session, 0, sizeof *session);
    session->user = user;
    session->in_flight = UINT64_MAX;
    LIST_INIT(&session->places);
    LIST_INIT(&session->all);
}

void transfer_session_end(struct transfer_session *session)
{
    queue_forget_session(session);
}

void transfer_user_end(struct transfers *transfers, struct transfer_user *user)
{
    share_leave(transfers, user);
    queue_forget_user(user);
}

static void end_with(struct transfer *transfer, enum transfer_outcome waiting, enum transfer_outcome running,
                     uint64_t patience_ms);
static void next_attempt(struct transfer *transfer);

static bool deadline_passed(const struct transfer *transfer)
{
    return transfer->deadline_ms > 0 && uv_now(transfer->transfers->loop) >= transfer->deadline_at;
}

static void timer_fired(uv_timer_t *timer)
{
    struct transfer *transfer = timer->data;
    bool grace = transfer->state == TRANSFER_SENT || transfer->state == TRANSFER_PREPARING;
    if (grace && transfer->ending_decided) /* it is over */
        transfer_take_back(transfer);
    else if (transfer->state == TRANSFER_WAITING && !deadline_passed(transfer))
        next_attempt(transfer);
    else
        end_with(transfer, OUTCOME_DEADLINE_WAITING, OUTCOME_DEADLINE_RUNNING,
                 transfer->transfers->revoke_grace_ms);
}

static void start_timer(struct transfer *transfer, uint64_t ms)
{
    if (!transfer->timer_used) {
        uv_timer_init(transfer->transfers->loop, &transfer->timer);
        transfer->timer.data = transfer;
        transfer->timer_used = true;
    }
    uv_timer_start(&transfer->timer, timer_fired, ms, 0);
}

static void next_attempt(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;
    transfer->attempts++;
    transfers->run_again++;
    if (transfer->deadline_ms > 0)
        start_timer(transfer, transfer->deadline_at - uv_now(transfers->loop));
    transfer_enter(transfer, true);
    transfers_send_ready(transfers);
}

void transfer_enter(struct transfer *transfer, bool first)
{
    if (route_enter(transfer, first) != 0)
        transfer_end_without_memory(transfer);
    else if (transfer->member != NULL)
        queue_mark_ready(route_queue(transfer->transfers, transfer->member));
}

void transfer_wait_for_next_attempt(struct transfer *transfer)
{
    uv_loop_t *loop = transfer->transfers->loop;
    uint64_t wait_ms = again_wait_ms(transfer);
    queue_sent_ends(transfer);
    transfer->last = transfer->ending;
    transfer->ending_decided = transfer->runs_again = transfer->has_reply = false;
    transfer->why[0] = '\0';
    transfer->state = TRANSFER_WAITING;
    uv_update_time(loop);
    if (transfer->deadline_ms > 0) {
        uint64_t left_ms = deadline_passed(transfer) ? 0 : transfer->deadline_at - uv_now(loop);
        wait_ms = left_ms < wait_ms ? left_ms : wait_ms;
    }
    start_timer(transfer, wait_ms);
}

void transfers_limit_session(struct transfers *transfers, struct transfer_session *session, uint64_t in_flight)
{
    queue_limit(session, in_flight);
    transfers_send_ready(transfers);
}

/* The one place that shows a key, and only to those who ask for this level. */
static void log_submitted(const struct transfer *transfer)
{
    struct log_fields fields = transfer_about(transfer);
    char key[KEY_SHOWN_BYTES];
    if (log_get_level() < LOG_LEVEL_DEBUG)
        return;
    log_about(&fields, LOG_LEVEL_DEBUG, "transfer %llu: %s of key \"%s\"", (unsigned long long)transfer->id,
              transfer_kind_name(transfer->kind),
              proto_text_escape(key, sizeof(key), (const char *)transfer->key, transfer->key_length));
}

void transfers_submit(struct transfers *transfers, struct transfer_session *session, struct transfer *transfer)
{
    transfer->transfers = transfers;
    transfer->session = session;
    transfer->id = transfers->next_id++;
    transfer->accepted_ns = uv_hrtime();
    transfer->attempts = 1;
    transfers->open++;
    session->user->open++;
    LIST_INSERT_HEAD(&session->all, transfer, session_link);
    TAILQ_INSERT_TAIL(&transfers->all, transfer, all_link);
    log_submitted(transfer);
    transfer->slot = deployment_slot(transfers->deployment, transfer->key, transfer->key_length);
    bool entered = route_enter(transfer, false) == 0;
    if (transfer->deadline_ms > 0) {
        uv_update_time(transfers->loop); /* the loop's clock may be as old as the packets read before this one */
        transfer->deadline_at = uv_now(transfers->loop) + transfer->deadline_ms;
        start_timer(transfer, transfer->deadline_ms);
    }
    if (entered) {
        transfers_kick(transfers, transfer->member);
    } else { /* out of memory: once more, and the end, from outside */
        transfer->last = OUTCOME_UNAVAILABLE;
        transfer->state = TRANSFER_WAITING;
        start_timer(transfer, 0);
    }
}

/* One that was sent gets `patience_ms` for its answer, whichever end came first; without any its lane goes at once. */
static void end_sent(struct transfer *transfer, enum transfer_outcome running, uint64_t patience_ms)
{
    if (patience_ms > 0 && transfer->ending_decided)
        return;
    if (!transfer->ending_decided)
        transfer_decide(transfer, running);
    if (patience_ms > 0)
        start_timer(transfer, patience_ms);
    else
        transfer_take_back(transfer);
}

/* As a rule `prepared` goes on, in no time. Where a device takes long, its lane is given up: the transfer's time is
 * over, and the connection is wanted by others. */
static void end_preparing(struct transfer *transfer, enum transfer_outcome waiting)
{
    if (transfer->ending_decided)
        return;
    transfer_decide_waiting(transfer, waiting);
    start_timer(transfer, transfer->transfers->revoke_grace_ms);
}

static void end_with(struct transfer *transfer, enum transfer_outcome waiting, enum transfer_outcome running,
                     uint64_t patience_ms)
{
    struct member *member;
    switch (transfer->state) {
    case TRANSFER_QUEUED:
        route_leave(transfer);
        transfer_decide_waiting(transfer, waiting);
        member = route_take_member(transfer);
        transfer_finish(transfer);
        route_let_go(member);
        break;
    case TRANSFER_WAITING:
        transfer_decide_waiting(transfer, waiting);
        member = transfer->target;
        transfer->target = NULL;
        transfer_finish(transfer);
        route_let_go(member);
        break;
    case TRANSFER_PREPARING:
        end_preparing(transfer, waiting);
        break;
    case TRANSFER_SENT:
        end_sent(transfer, running, patience_ms);
        break;
    case TRANSFER_REVOKING: /* `revoked` goes on */
        if (transfer->runs_again)
            transfer_decide_waiting(transfer, waiting);
        break;
    case TRANSFER_ENDED:
        break;
    }
}

bool transfer_can_end(const struct transfer *transfer)
{
    return transfer->state != TRANSFER_ENDED && (!transfer->ending_decided || transfer->runs_again);
}

/*
 * A get for nobody only keeps memory: its lane goes at once. A set may be all but done, and its value is wanted: it
 * gets orphan_ms, or what is left of its deadline. The daemon's end has waited already.
 */
static uint64_t patience_of(const struct transfer *transfer, enum transfer_reason reason)
{
    const struct transfers *transfers = transfer->transfers;
    if (reason == TRANSFER_CANCELLED)
        return transfers->revoke_grace_ms;
    if (reason == TRANSFER_STOPPING || transfer->kind == TRANSFER_GET)
        return 0;
    if (transfer->deadline_ms == 0)
        return transfers->orphan_ms;
    uint64_t now = uv_now(transfers->loop);
    uint64_t left = transfer->deadline_at > now ? transfer->deadline_at - now : 0;
    return left < transfers->orphan_ms ? left : transfers->orphan_ms;
}

void transfer_end(struct transfer *transfer, enum transfer_reason reason)
{
    end_with(transfer, reason_outcomes[reason][0], reason_outcomes[reason][1], patience_of(transfer, reason));
}

void transfers_end_session(struct transfer_session *session, enum transfer_reason reason)
{
    /* An end takes its transfer, and nothing else, out of the list. */
    struct transfer *next;
    for (struct transfer *transfer = LIST_FIRST(&session->all); transfer != NULL; transfer = next) {
        next = LIST_NEXT(transfer, session_link);
        transfer_end(transfer, reason);
    }
}

void transfers_end_all(struct transfers *transfers, enum transfer_reason reason)
{
    struct transfer *next;
    for (struct transfer *transfer = TAILQ_FIRST(&transfers->all); transfer != NULL; transfer = next) {
        next = TAILQ_NEXT(transfer, all_link);
        transfer_end(transfer, reason);
    }
}
