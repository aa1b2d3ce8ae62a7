/*
 * Which registrations the command of a lane has named, where destroying a lane closes them too (lane_destroy.c).
 *
 * A registration belongs to its NIC and is named by the commands of several lanes at once. Only one that the lane's own
 * command named, and that nobody is closing yet, is closed with it: what was registered anew since is not touched, or
 * transfers on one slice would take each other's registration away for ever. The other lanes that named it are told
 * (lane_collateral). One that is destroyed as well meanwhile waits for the closing too: until then its own bytes may
 * still have a way.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/fabric/lane_private.h"

static void unlink_use(struct mr_use *use)
{
    LIST_REMOVE(use, link);
    use->mr = NULL;
    use->lane->uses_left--;
}

int lane_begin(struct lane *lane, struct slice *const *slices, size_t count)
{
    if (!lane->fabric->revoke_slices) {
        return 0;
    }
    assert(lane->uses_left == 0 && !lane->destroying);
    if (count > lane->use_capacity) {
        struct mr_use *uses = reallocarray(lane->uses, count, sizeof(struct mr_use));
        if (uses == NULL) {
            return -ENOMEM;
        }
        lane->uses = uses;
        lane->use_capacity = count;
    }
    lane->collateral = false;
    lane->use_count = lane->uses_left = count;
    for (size_t i = 0; i < count; i++) {
        struct slice_mr *mr = mr_find(slices[i], lane->domain);
        assert(mr != NULL && mr->state == MR_OPEN);
        lane->uses[i] = (struct mr_use){.lane = lane, .mr = mr};
        LIST_INSERT_HEAD(&mr->uses, &lane->uses[i], link);
    }
    return 0;
}

void lane_end(struct lane *lane)
{
    for (size_t i = 0; i < lane->use_count; i++) {
        if (lane->uses[i].mr != NULL) {
            unlink_use(&lane->uses[i]);
        }
    }
    lane->use_count = 0;
    lane->use_status = 0;
    lane->collateral = false;
}

bool lane_collateral(const struct lane *lane)
{
    return lane->collateral;
}

struct slice_mr *lane_claim_used(struct lane *lane)
{
    struct slice_mr *claimed = NULL;

    for (size_t i = 0; i < lane->use_count; i++) {
        struct slice_mr *mr = lane->uses[i].mr;
        struct mr_use *other;
        if (mr == NULL || mr->state != MR_OPEN) {
            continue; /* gone, or waited for */
        }
        mr->state = MR_CLOSING;
        mr->revoked = true;
        mr->next = claimed;
        claimed = mr;
        unlink_use(&lane->uses[i]);
        LIST_FOREACH(other, &mr->uses, link)
        {
            other->lane->collateral = true;
        }
    }
    return claimed;
}

void lane_mr_gone(struct mr_uses *uses, int status)
{
    struct mr_use *use;

    while ((use = LIST_FIRST(uses)) != NULL) {
        struct lane *lane = use->lane;
        unlink_use(use);
        if (status < 0) {
            lane->use_status = status;
        }
        if (lane->uses_left == 0) {
            lane_uses_gone(lane);
        }
    }
}
