#include "daemon/transfer/again.h"

#include "daemon/base/log.h"

/* Nothing ran, and elsewhere or later it may: another bound than for attempts that failed. */
static bool was_refused(const struct transfer *transfer)
{
    /* The server says so, of the session or the map; or another may soon serve the slot; or, where a single server
     * refused before as after a failover, its address. */
    if (transfer->ending == OUTCOME_UNAVAILABLE && transfer->unavailable_later)
        return true;
    if (transfer->ending == OUTCOME_UNAVAILABLE)
        return transfer->member != NULL && transfer->unavailable_code == PROTO_ERR_SERVER_DOWN &&
               (transfer->refused > 1 || deployment_is_cluster(transfer->transfers->deployment));
    if (transfer->ending != OUTCOME_REFUSED)
        return false;
    switch (transfer->reply.redirect.kind) {
    case REDIRECT_NONE:
        return false;
    case REDIRECT_MOVED:
    case REDIRECT_ASK: /* a single server is configured, and no other is turned to */
        return deployment_is_cluster(transfer->transfers->deployment);
    case REDIRECT_LATER:
    case REDIRECT_LOST:
        break;
    }
    return true;
}

static bool is_elsewhere(const struct transfer *transfer)
{
    return transfer->ending == OUTCOME_REFUSED && redirect_names_node(&transfer->reply.redirect);
}

static unsigned attempts_that_failed(const struct transfer *transfer)
{
    return transfer->attempts - transfer->collaterals - transfer->refused;
}

bool again_wanted(const struct transfer *transfer)
{
    const struct blob_reply *reply = transfer->has_reply ? &transfer->reply : NULL;
    bool set = transfer->kind == TRANSFER_SET;
    if (was_refused(transfer))
        return transfer->refused < REDIRECT_ATTEMPTS && (!transfer->no_retry || is_elsewhere(transfer));
    if (!outcome_runs_again(transfer->ending, reply, set))
        return false;
    if (transfer->collateral)
        return transfer->collaterals < COLLATERAL_ATTEMPTS;
    return attempts_that_failed(transfer) < TRANSFER_ATTEMPTS && (set || !transfer->no_retry);
}

static unsigned wait_after_refusal(const struct transfer *transfer)
{
    static const struct redirect later = {.kind = REDIRECT_LATER};
    bool answered = transfer->ending == OUTCOME_REFUSED;
    unsigned delay = redirect_delay_ms(answered ? &transfer->reply.redirect : &later, transfer->refused);
    struct log_fields fields = transfer_about(transfer);
    log_about(&fields, delay > 0 ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "transfer %llu: %s: %s: again in %u ms (%u of %d)",
              (unsigned long long)transfer->id, outcome_table[transfer->ending].name,
              answered ? transfer->reply.text : transfer->why, delay, transfer->refused, REDIRECT_ATTEMPTS);
    return delay;
}

unsigned again_wait_ms(struct transfer *transfer)
{
    struct log_fields fields = transfer_about(transfer);
    unsigned long long id = transfer->id;
    const char *name = outcome_table[transfer->ending].name;
    if (transfer->ending == OUTCOME_UNAVAILABLE ||
        (transfer->ending == OUTCOME_REFUSED && transfer->reply.redirect.kind != REDIRECT_NONE))
        return wait_after_refusal(transfer);
    if (transfer->collateral) {
        transfer->collaterals++;
        transfer->transfers->collateral++;
        log_about(&fields, LOG_LEVEL_INFO,
                  "transfer %llu: %s: another transfer on its registration was taken back: run again", id, name);
        return 0;
    }
    if (transfer->backoff.base_ms == 0)
        backoff_init(&transfer->backoff, AGAIN_WAIT_MS, AGAIN_WAIT_LIMIT_MS);
    unsigned wait = backoff_next(&transfer->backoff);
    log_about(&fields, LOG_LEVEL_INFO, "transfer %llu: %s: attempt %u of %d in %u ms", id, name,
              attempts_that_failed(transfer) + 1, TRANSFER_ATTEMPTS, wait);
    return wait;
}
