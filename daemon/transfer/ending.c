#include "daemon/transfer/transfer_private.h"

#include <stddef.h>
#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/transfer/again.h"
#include "daemon/transfer/route.h"
#include "proto/errors.h"

static void timer_closed(uv_handle_t *handle)
{
    struct transfer *transfer = handle->data;
    transfer->released(transfer);
}

static void count_ended(const struct transfer *transfer, const struct transfer_result *result)
{
    struct transfer_stats *stats = &transfer->transfers->stats;
    stats->ended[transfer->kind][transfer->ending]++;
    if (transfer->ending == OUTCOME_DONE)
        stats->bytes[transfer->kind] += transfer->kind == TRANSFER_SET ? transfer->window.length : result->length;
    transfer_stats_stage(stats, TRANSFER_STAGE_TOTAL, transfer->window.length, uv_hrtime() - transfer->accepted_ns);
}

void transfer_finish(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;
    const struct blob_reply *reply = transfer->has_reply ? &transfer->reply : NULL;
    struct transfer_result result = {
        .outcome = transfer->ending,
        .code = outcome_code(transfer->ending, reply),
        .may_have_run = transfer->kind == TRANSFER_SET && outcome_may_have_run(transfer->ending, reply),
        .attempts = transfer->attempts,
        .text = transfer->why,
        .memory_kept = transfer->memory_kept,
        .over_tcp = transfer->over_tcp,
    };
    if (reply != NULL && reply->text[0] != '\0' && reply->class != BLOB_REPLY_MEMORY)
        result.server_text = reply->text;
    if (transfer->ending == OUTCOME_UNAVAILABLE)
        result.code = transfer->unavailable_code;
    if (reply != NULL) {
        result.length = reply->length;
        result.has_crc32c = reply->has_crc32c;
        result.crc32c = reply->crc32c;
        result.os_error = reply->error;
        result.need = reply->need;
        result.ttl = transfer->request.ttl;
    }
    if (result.text[0] == '\0' && transfer->ending == OUTCOME_MEMORY)
        result.text = reply->text;
    else if (result.text[0] == '\0')
        result.text = result.server_text != NULL ? result.server_text : outcome_table[transfer->ending].meaning;
    transfer->state = TRANSFER_ENDED;
    count_ended(transfer, &result);
    LIST_REMOVE(transfer, session_link);
    TAILQ_REMOVE(&transfers->all, transfer, all_link);
    transfer->session->user->open--;
    queue_sent_ends(transfer);
    transfers->open--;
    window_release(&transfer->window);
    transfer->ended(transfer, &result);
    if (transfer->timer_used)
        uv_close((uv_handle_t *)&transfer->timer, timer_closed);
    else
        transfer->released(transfer);
    if (transfers->open == 0 && transfers->idle != NULL)
        transfers->idle(transfers);
}

void transfer_decide(struct transfer *transfer, enum transfer_outcome outcome)
{
    transfer->ending = outcome;
    transfer->ending_decided = true;
    transfer->runs_again = false;
}

void transfer_decide_attempt(struct transfer *transfer, enum transfer_outcome outcome)
{
    transfer_decide(transfer, outcome);
    struct lane *lane = transfer->carrier != NULL ? carrier_lane(transfer->carrier) : NULL;
    transfer->collateral = lane != NULL && lane_collateral(lane);
    transfer->runs_again = again_wanted(transfer);
}

void transfer_decide_waiting(struct transfer *transfer, enum transfer_outcome outcome)
{
    bool tried = transfer->attempts > 1 || transfer->state == TRANSFER_REVOKING || transfer->state == TRANSFER_WAITING;
    if (transfer->state == TRANSFER_REVOKING)
        transfer->last = transfer->ending;
    transfer_decide(transfer, outcome);
    if (tried)
        snprintf(transfer->why, sizeof transfer->why, "%s; the attempt before ended: %s%s%s",
                 outcome_table[outcome].meaning, outcome_table[transfer->last].name,
                 transfer->last == OUTCOME_REFUSED ? ": " : "",
                 transfer->last == OUTCOME_REFUSED ? transfer->reply.text : "");
}

void transfer_settle(struct transfer *transfer)
{
    if (transfer->runs_again)
        transfer_wait_for_next_attempt(transfer);
    else
        transfer_finish(transfer);
}

static void revoked(void *context, int status)
{
    struct transfer *transfer = context;
    if (status != 0)
        transfer->runs_again = false; /* the window may still be written */
    if (status != 0 && transfer->named) {
        window_quarantine(&transfer->window, transfer->nic);
        transfer->memory_kept = true;
    }
    struct transfers *transfers = transfer->transfers;
    struct member *member = route_take_member(transfer);
    transfer_settle(transfer);
    transfers_kick(transfers, member);
    route_let_go(member);
}

void transfer_take_back(struct transfer *transfer)
{
    struct carrier *carrier = transfer->carrier;
    struct log_fields fields = transfer_about(transfer);
    log_about(&fields, LOG_LEVEL_INFO, "transfer %llu: %s: revoking %s", (unsigned long long)transfer->id,
              outcome_table[transfer->ending].name, carrier_name(carrier));
    transfer->state = TRANSFER_REVOKING;
    transfer->carrier = NULL;
    if (transfer->timer_used && !transfer->runs_again) /* else it is the deadline's, which goes on */
        uv_timer_stop(&transfer->timer);
    carrier_revoke(carrier, revoked, transfer);
}

void transfer_release_and_settle(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;
    struct carrier *carrier = transfer->carrier;
    struct member *member = route_take_member(transfer);
    struct lane *lane = carrier_lane(carrier);
    transfer->carrier = NULL;
    if (lane != NULL)
        lane_end(lane);
    transfer_settle(transfer);
    carrier_release(carrier);
    transfers_kick(transfers, member);
    route_let_go(member);
}

/* The server's words decide more than the row: what was refused for now, or elsewhere, is sent again. */
static void decide_reply(struct transfer *transfer, enum transfer_outcome outcome)
{
    const struct redirect *redirect = &transfer->reply.redirect;
    bool refused = redirect->kind != REDIRECT_NONE;
    transfer->refused += refused ? 1 : 0;
    transfer_decide_attempt(transfer, outcome);
    if (refused && transfer->runs_again)
        route_redirect(transfer);
    else if (redirect_names_node(redirect) && !deployment_is_cluster(transfer->transfers->deployment))
        snprintf(transfer->why, sizeof transfer->why,
                 "%s; the server is a node of a cluster: give the cluster's nodes as [valkey] seeds",
                 transfer->reply.text);
    else if (refused && transfer->refused > 1)
        snprintf(transfer->why, sizeof transfer->why, "refused %u times without being run, the last time with: %s",
                 transfer->refused, transfer->reply.text);
}

void transfer_replied(struct carrier_request *request, const struct blob_reply *reply, bool may_have_run,
                      const char *why)
{
    struct transfer *transfer = (struct transfer *)((char *)request - offsetof(struct transfer, request));
    if (reply != NULL) {
        transfer->reply = *reply;
        transfer->has_reply = true;
        transfer_stats_stage(&transfer->transfers->stats, TRANSFER_STAGE_SERVER, transfer->window.length,
                             uv_hrtime() - transfer->sent_ns);
        enum transfer_outcome outcome = outcome_of_reply(reply);
        /* A proof that arrives within the grace of a deadline or a cancel is the answer; without one the decided row
         * stands, and the lane goes either way. */
        if (!transfer->ending_decided) {
            decide_reply(transfer, outcome);
            if (why[0] != '\0')
                snprintf(transfer->why, sizeof transfer->why, "%s", why);
        } else if (outcome != OUTCOME_LIVE && outcome != OUTCOME_MEMORY) {
            transfer_decide(transfer, outcome);
        }
    } else if (!transfer->ending_decided) {
        transfer_decide_attempt(transfer, may_have_run ? OUTCOME_LOST : OUTCOME_UNSENT);
        snprintf(transfer->why, sizeof transfer->why, "%s", why);
    }
    if (outcome_table[transfer->ending].lane_destroyed)
        transfer_take_back(transfer);
    else
        transfer_release_and_settle(transfer);
}

void transfer_end_without_memory(struct transfer *transfer)
{
    struct member *member = route_take_member(transfer);
    transfer_decide(transfer, OUTCOME_UNAVAILABLE);
    transfer->unavailable_code = PROTO_ERR_SYSTEM;
    snprintf(transfer->why, sizeof transfer->why, "the daemon is out of memory");
    transfer_finish(transfer);
    route_let_go(member);
}
