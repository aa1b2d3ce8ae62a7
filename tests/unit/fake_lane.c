#include "tests/unit/fake_lane.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lane {
    LIST_ENTRY(lane) link;
    struct fabric *fabric;
    unsigned nic;
    uv_timer_t timer; /* one thing at a time: opening, adding peers or being destroyed */
    lane_opened opened;
    void *opened_context;
    lane_done peers_done;
    void *peers_context;
    lane_done destroyed;
    void *destroyed_context;
};

struct fake_lanes fake_lanes;
static LIST_HEAD(, lane) lanes;

static void free_lane(uv_handle_t *handle)
{
    free(handle->data);
}

static void forget(struct lane *lane)
{
    LIST_REMOVE(lane, link);
    fake_lanes.alive--;
    fake_lanes.on_nic[lane->nic]--;
    lane->fabric->lanes--;
    uv_close((uv_handle_t *)&lane->timer, free_lane);
}

static void finish_opening(struct lane *lane)
{
    lane_opened opened = lane->opened;
    void *context = lane->opened_context;
    int status = lane->destroyed != NULL ? -ECANCELED : fake_lanes.opened_status;

    lane->opened = NULL;
    if (status != 0 && lane->destroyed == NULL) {
        forget(lane);
    }
    opened(context, status == 0 ? lane : NULL, status, status == 0 ? "" : "the fake said no");
}

static void finish_peers(struct lane *lane)
{
    lane_done done = lane->peers_done;

    lane->peers_done = NULL;
    done(lane->peers_context, lane->destroyed != NULL ? -ECANCELED : fake_lanes.peers_status);
}

static void finish_destruction(struct lane *lane)
{
    lane_done done = lane->destroyed;
    void *context = lane->destroyed_context;

    forget(lane);
    done(context, fake_lanes.destroy_status);
}

static void on_timer(uv_timer_t *timer)
{
    struct lane *lane = timer->data;

    if (lane->opened != NULL) {
        finish_opening(lane);
    } else if (lane->peers_done != NULL) {
        finish_peers(lane);
    }
    /* What was broken off comes first, then the end; the fake lane may be gone when it could not be opened. */
    LIST_FOREACH(lane, &lanes, link)
    {
        if (&lane->timer == timer && lane->destroyed != NULL && !fake_lanes.hold_destroy) {
            finish_destruction(lane);
            return;
        }
    }
}

static void soon(struct lane *lane, bool hold)
{
    if (!hold) {
        uv_timer_start(&lane->timer, on_timer, 1, 0);
    }
}

void fake_lanes_go(void)
{
    struct lane *lane;

    fake_lanes.hold_open = fake_lanes.hold_peers = fake_lanes.hold_destroy = false;
    LIST_FOREACH(lane, &lanes, link)
    {
        if (lane->opened != NULL || lane->peers_done != NULL || lane->destroyed != NULL) {
            soon(lane, false);
        }
    }
}

/* The one of `nics` with the fewest. */
static unsigned choose_nic(const struct fabric *fabric, uint32_t nics)
{
    unsigned best = FABRIC_NICS;

    for (unsigned i = 0; i < fabric->nic_count; i++) {
        if ((nics >> i & 1) != 0 && (best == FABRIC_NICS || fake_lanes.on_nic[i] < fake_lanes.on_nic[best])) {
            best = i;
        }
    }
    ck_assert_uint_lt(best, FABRIC_NICS);
    return best;
}

unsigned lane_nic(const struct lane *lane)
{
    return lane->nic;
}

int lane_open(struct fabric *fabric, uint32_t nics, const char *bind, lane_opened opened, void *context,
              struct lane **result)
{
    struct lane *lane;

    unsigned nic = choose_nic(fabric, nics);

    fake_lanes.opens++;
    fake_lanes.nics = nics;
    snprintf(fake_lanes.bind, sizeof(fake_lanes.bind), "%s", bind != NULL ? bind : "");
    if (fake_lanes.open_status != 0) {
        return fake_lanes.open_status;
    }
    if (fake_lanes.limit > 0 && fake_lanes.alive >= fake_lanes.limit) {
        return -ENOSPC;
    }
    lane = calloc(1, sizeof(*lane));
    ck_assert_ptr_nonnull(lane);
    lane->fabric = fabric;
    lane->nic = nic;
    fake_lanes.on_nic[nic]++;
    lane->opened = opened;
    lane->opened_context = context;
    uv_timer_init(fabric->loop, &lane->timer);
    lane->timer.data = lane;
    LIST_INSERT_HEAD(&lanes, lane, link);
    fake_lanes.alive++;
    fabric->lanes++;
    soon(lane, fake_lanes.hold_open);
    *result = lane;
    return 0;
}

const uint8_t *lane_address(const struct lane *lane, size_t *length)
{
    static const uint8_t address[] = {0x02, 0x00, 0x1f, 0x90, 0x7f, 0x00, 0x00, 0x01};

    ck_assert(lane->opened == NULL && lane->destroyed == NULL);
    *length = sizeof(address);
    return address;
}

void lane_add_peers(struct lane *lane, const uint8_t *addresses, size_t length, size_t count, lane_done done,
                    void *context)
{
    ck_assert(lane->opened == NULL && lane->destroyed == NULL && lane->peers_done == NULL);
    fake_lanes.peers++;
    fake_lanes.peer_count = count;
    memcpy(fake_lanes.peer, addresses, length);
    lane->peers_done = done;
    lane->peers_context = context;
    soon(lane, fake_lanes.hold_peers);
}

void lane_destroy(struct lane *lane, lane_done done, void *context)
{
    ck_assert(lane->destroyed == NULL);
    fake_lanes.destroys++;
    lane->destroyed = done;
    lane->destroyed_context = context;
    soon(lane, fake_lanes.hold_destroy);
}
