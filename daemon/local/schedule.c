#include "daemon/local/schedule.h"

#include "daemon/local/session.h"

static void serve_next(uv_idle_t *idle);
static void wait_over(uv_timer_t *timer);

/* --- the share of a turn ------------------------------------------------------------------------------------------ */

/* The first that asks in a turn of the loop opens it for the user. */
static bool open_turn(struct user *user)
{
    struct user_turn *turn = &user->turn;
    uint64_t now = uv_now(user->service->loop);

    if (turn->turn_ns != user->service->watch.turn_ns) {
        bool slow = pace_slow(user);
        turn->turn_ns = user->service->watch.turn_ns;
        turn->served_ns = 0;
        turn->open = !slow || now >= turn->next_ms;
        if (slow && turn->open) {
            turn->next_ms = now + PACE_WAIT_MS;
        }
    }
    return turn->open;
}

bool schedule_goes_on(struct user *user)
{
    return open_turn(user) && user->turn.served_ns <= USER_TURN_US * UINT64_C(1000) &&
           !loop_watch_late(&user->service->watch);
}

bool schedule_admits(struct user *user)
{
    return user->turn.line == USER_IN_NO_LINE && schedule_goes_on(user);
}

void schedule_served(struct user *user, uint64_t ns)
{
    user->turn.served_ns += ns;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void line_up_slow(struct schedule *schedule, struct user *user)
{
    const struct user *last = TAILQ_LAST(&schedule->slow, user_queue);

    /* Whoever is behind waits no shorter: the order makes one timer enough. */
    if (last != NULL && user->turn.next_ms < last->turn.next_ms) {
        user->turn.next_ms = last->turn.next_ms;
    }
    TAILQ_INSERT_TAIL(&schedule->slow, user, turn.link);
    user->turn.line = USER_SLOW;
    if (last == NULL) {
        uv_timer_start(&schedule->wait, wait_over, user->turn.next_ms - uv_now(user->service->loop), 0);
    }
}

static void line_up(struct user *user)
{
    struct schedule *schedule = &user->service->schedule;

    if (pace_slow(user) && user->turn.next_ms > uv_now(user->service->loop)) {
        line_up_slow(schedule, user);
        return;
    }
    TAILQ_INSERT_TAIL(&schedule->next, user, turn.link);
    user->turn.line = USER_NEXT;
    uv_idle_start(&schedule->turn, serve_next);
}

static void step_out(struct user *user)
{
    struct schedule *schedule = &user->service->schedule;

    if (user->turn.line == USER_NEXT) {
        TAILQ_REMOVE(&schedule->next, user, turn.link);
    } else if (user->turn.line == USER_SLOW) {
        TAILQ_REMOVE(&schedule->slow, user, turn.link);
    }
    user->turn.line = USER_IN_NO_LINE;
}

void schedule_wait(struct session *session)
{
    struct user *user = session->user;

    if (session->waits || session->ending) {
        return;
    }
    session->waits = true;
    TAILQ_INSERT_TAIL(&user->turn.waiting, session, wait_link);
    if (user->turn.line == USER_IN_NO_LINE) {
        line_up(user);
    }
    session_read_on(session); /* out of the poll */
}

void schedule_forget(struct session *session)
{
    if (session->waits) {
        session->waits = false;
        TAILQ_REMOVE(&session->user->turn.waiting, session, wait_link);
    }
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* Those that wait now, each once at most: who has more after that is behind the others. */
static void serve_user(struct user *user)
{
    const struct session *last = TAILQ_LAST(&user->turn.waiting, session_queue);
    struct session *session;
    bool more = true;

    step_out(user);
    user->turn.line = USER_SERVED;
    while (more && (session = TAILQ_FIRST(&user->turn.waiting)) != NULL && schedule_goes_on(user)) {
        more = session != last;
        schedule_forget(session);
        session_serve(session);
    }
    user->turn.line = USER_IN_NO_LINE;
    if (!TAILQ_EMPTY(&user->turn.waiting)) {
        line_up(user);
    }
}

static void serve_next(uv_idle_t *idle)
{
    struct service *service = idle->data;
    struct schedule *schedule = &service->schedule;
    const struct user *last = TAILQ_LAST(&schedule->next, user_queue);
    struct user *user;
    bool more = true;

    while (more && (user = TAILQ_FIRST(&schedule->next)) != NULL && !loop_watch_late(&service->watch)) {
        more = user != last;
        serve_user(user);
    }
    if (TAILQ_EMPTY(&schedule->next)) {
        uv_idle_stop(idle);
    }
}

static void wait_over(uv_timer_t *timer)
{
    struct service *service = timer->data;
    struct schedule *schedule = &service->schedule;
    uint64_t now = uv_now(service->loop);
    struct user *user;

    while ((user = TAILQ_FIRST(&schedule->slow)) != NULL && user->turn.next_ms <= now) {
        step_out(user);
        line_up(user);
    }
    if (user != NULL) {
        uv_timer_start(timer, wait_over, user->turn.next_ms - now, 0);
    }
}

/* --- life --------------------------------------------------------------------------------------------------------- */

void schedule_init(struct service *service)
{
    struct schedule *schedule = &service->schedule;

    TAILQ_INIT(&schedule->next);
    TAILQ_INIT(&schedule->slow);
    uv_idle_init(service->loop, &schedule->turn);
    uv_timer_init(service->loop, &schedule->wait);
    schedule->turn.data = service;
    schedule->wait.data = service;
}

void schedule_stop(struct service *service)
{
    uv_close((uv_handle_t *)&service->schedule.turn, NULL);
    uv_close((uv_handle_t *)&service->schedule.wait, NULL);
}

void schedule_user_init(struct user *user)
{
    TAILQ_INIT(&user->turn.waiting);
}

void schedule_user_end(struct user *user)
{
    step_out(user);
}
