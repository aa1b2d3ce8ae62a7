#include "daemon/local/pace.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/local/user.h"

struct debtor {
    struct user_key key;
    uint64_t owes_until;
    TAILQ_ENTRY(debtor) link;
    UT_hash_handle hh;
};

static uint64_t now_ms(const struct user *user)
{
    return uv_now(user->service->loop);
}

/* --- those that have gone ----------------------------------------------------------------------------------------- */

void debtors_init(struct debtors *debtors)
{
    *debtors = (struct debtors){0};
    TAILQ_INIT(&debtors->in_order);
}

static void forget(struct debtors *debtors, struct debtor *debtor)
{
    HASH_DEL(debtors->by_key, debtor);
    TAILQ_REMOVE(&debtors->in_order, debtor, link);
    debtors->count--;
    free(debtor);
}

void debtors_free(struct debtors *debtors)
{
    struct debtor *debtor;

    while ((debtor = TAILQ_FIRST(&debtors->in_order)) != NULL) {
        forget(debtors, debtor);
    }
}

/* Needs no timer: who owes nothing any more goes when the next one comes. */
static void make_room(struct debtors *debtors, uint64_t now)
{
    struct debtor *debtor;

    while ((debtor = TAILQ_FIRST(&debtors->in_order)) != NULL &&
           (debtor->owes_until <= now || debtors->count >= PACE_DEBTORS)) {
        forget(debtors, debtor);
    }
}

static struct debtor *find(const struct debtors *debtors, const struct user_key *key)
{
    struct debtor *debtor = NULL;

    HASH_FIND(hh, debtors->by_key, key, sizeof(*key), debtor);
    return debtor;
}

void pace_recall(struct user *user)
{
    struct debtors *debtors = &user->service->debtors;
    struct debtor *debtor = find(debtors, &user->key);

    if (debtor != NULL) {
        user->owes_until = debtor->owes_until;
        forget(debtors, debtor);
    }
}

void pace_remember(const struct user *user)
{
    struct debtors *debtors = &user->service->debtors;
    struct debtor *debtor;

    make_room(debtors, now_ms(user));
    if (user->owes_until <= now_ms(user) || (debtor = calloc(1, sizeof(*debtor))) == NULL) {
        return;
    }
    memcpy(&debtor->key, &user->key, sizeof(debtor->key)); /* its padding is hashed too */
    debtor->owes_until = user->owes_until;
    HASH_ADD(hh, debtors->by_key, key, sizeof(debtor->key), debtor);
    TAILQ_INSERT_TAIL(&debtors->in_order, debtor, link);
    debtors->count++;
}

/* --- those that are there ----------------------------------------------------------------------------------------- */

static void tell(const struct user *user)
{
    const struct log_fields fields = {.has_uid = true, .uid = user->key.uid};

    log_limited_about(&user->service->log_limits.slow, now_ms(user), &fields, LOG_LEVEL_WARN,
                      "uid %u on [%s] has had more than %d requests refused and connections made at more than %d a "
                      "second: until there are fewer it is served every %d ms",
                      user->key.uid, user->key.socket->name, PACE_FREE_MS / PACE_COST_MS, 1000 / PACE_COST_MS,
                      PACE_WAIT_MS);
}

void pace_charge(struct user *user)
{
    uint64_t now = now_ms(user);
    uint64_t owed = user->owes_until > now ? user->owes_until - now : 0;
    uint64_t owes = owed + PACE_COST_MS;

    user->owes_until = now + (owes < PACE_MOST_MS ? owes : PACE_MOST_MS);
    if (owed <= PACE_FREE_MS && owes > PACE_FREE_MS) {
        tell(user);
    }
}

bool pace_slow(const struct user *user)
{
    return user->owes_until > now_ms(user) + PACE_FREE_MS;
}
