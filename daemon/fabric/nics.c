#include "daemon/fabric/nics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/log.h"

bool fabric_nic_left_out(const struct fabric *fabric, unsigned nic)
{
    const struct fabric_nic_state *state = &fabric->nic_states[nic];

    return state->failures > 0 && fabric->loop != NULL && uv_now(fabric->loop) < state->retry_at;
}

int nics_choose_working(const struct fabric *fabric, uint32_t nics)
{
    unsigned most = fabric->config->lanes_max, fewest = most;
    int best = -ENETDOWN;

    for (unsigned i = 0; i < fabric->nic_count; i++) {
        if ((nics >> i & 1) == 0 || fabric_nic_left_out(fabric, i)) {
            continue;
        }
        if (fabric->nic_lanes[i] < fewest) {
            fewest = fabric->nic_lanes[i];
            best = (int)i;
        } else if (best == -ENETDOWN) {
            best = -ENOSPC;
        }
    }
    return best;
}

int nics_choose(const struct fabric *fabric, uint32_t nics)
{
    int best = nics_choose_working(fabric, nics);

    if (best != -ENETDOWN) {
        return best;
    }
    best = -ENOSPC;
    for (unsigned i = 0; i < fabric->nic_count; i++) {
        if ((nics >> i & 1) != 0 && fabric->nic_lanes[i] < fabric->config->lanes_max &&
            (best < 0 || fabric->nic_states[i].retry_at < fabric->nic_states[best].retry_at)) {
            best = (int)i;
        }
    }
    return best;
}

void nics_failed(struct fabric *fabric, unsigned nic, const char *why)
{
    struct fabric_nic_state *state = &fabric->nic_states[nic];
    uint64_t rest = state->failures < 6 ? (uint64_t)NIC_REST_MS << state->failures : NIC_REST_LIMIT_MS;

    if (fabric_nic_left_out(fabric, nic)) {
        return; /* several that were begun together and fail together are one failure */
    }
    rest = rest < NIC_REST_LIMIT_MS ? rest : NIC_REST_LIMIT_MS;
    log_write(state->failures == 0 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG,
              "fabric: NIC %s is left out, and tried again in %llu ms or later: %s", fabric->nics[nic].name,
              (unsigned long long)rest, why);
    state->failures++;
    state->retry_at = (fabric->loop != NULL ? uv_now(fabric->loop) : 0) + rest;
    snprintf(state->why, sizeof(state->why), "%s", why);
}

void nics_worked(struct fabric *fabric, unsigned nic)
{
    struct fabric_nic_state *state = &fabric->nic_states[nic];

    if (state->failures > 0) {
        log_notice("fabric: NIC %s works again", fabric->nics[nic].name);
    }
    *state = (struct fabric_nic_state){0};
}
