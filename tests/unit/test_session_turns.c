/*
 * Whose packets are served when: users and their sessions take turns, whoever must wait is out of the poll, and a user
 * that owes too much waits for longer.
 */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/rig/fake_host.h"
#include "tests/unit/sessions_rig.h"
#include "tests/unit/unit_main.h"

#define OTHER_UID (SESSIONS_UID + 1)
#define STATUS "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}"
#define SERVED 64

/* What a packet, and the end of a session, takes on the clock that otherwise stands still. A millisecond is more than a
 * share. */
static unsigned packet_ms, end_ms;
static uint64_t served[SERVED]; /* sessions, in the order in which their packets were served */
static unsigned served_count;

void __real_dispatch_packet(struct session *, const char *, struct channel_packet *);
void __wrap_dispatch_packet(struct session *, const char *, struct channel_packet *);
void __real_transfers_end_session(struct transfer_session *, enum transfer_reason);
void __wrap_transfers_end_session(struct transfer_session *, enum transfer_reason);

void __wrap_dispatch_packet(struct session *session, const char *text, struct channel_packet *packet)
{
    served[served_count++ % SERVED] = session->id;
    __real_dispatch_packet(session, text, packet);
    fake_clock_advance(packet_ms);
}

void __wrap_transfers_end_session(struct transfer_session *session, enum transfer_reason reason)
{
    __real_transfers_end_session(session, reason);
    fake_clock_advance(end_ms);
}

static void start(void)
{
    sessions_prepare();
    rig_config.limits.requests = 1000;
    sessions_begin();
}

/* In one turn of the loop. */
static unsigned serve_turn(void)
{
    served_count = 0;
    rig_loop();
    return served_count;
}

static const struct session *session_of(uint64_t id)
{
    const struct session *session;

    TAILQ_FOREACH (session, &rig_service.sessions, link) {
        if (session->id == id) {
            return session;
        }
    }
    ck_abort_msg("no session %llu", (unsigned long long)id);
    return NULL;
}

/* --- shares ------------------------------------------------------------------------------------------------------- */

/* What is left after a user's share of a turn waits for the next one, out of the poll; another user has its own. */
START_TEST(share_of_a_turn)
{
    int flooding[2], other;

    start();
    flooding[0] = sessions_greet(SESSIONS_UID); /* session 1 */
    flooding[1] = sessions_greet(SESSIONS_UID);
    other = sessions_greet(OTHER_UID);
    packet_ms = 1;
    sessions_send_all(flooding[0], STATUS, 3);
    sessions_send_all(flooding[1], STATUS, 3);
    sessions_send_all(other, STATUS, 1);
    ck_assert_uint_eq(serve_turn(), 2);
    ck_assert_uint_eq(served[0], 1);
    ck_assert_uint_eq(served[1], 3);
    for (uint64_t id = 1; id <= 2; id++) {
        ck_assert(session_of(id)->waits);
        ck_assert_int_eq(session_of(id)->events, 0);
    }
    packet_ms = 0;
    sessions_finish();
}
END_TEST

/* In the order in which they came to have something. */
START_TEST(sessions_alternate)
{
    static const uint64_t order[] = {1, 1, 2, 1, 2, 2};
    int clients[2];

    start();
    clients[0] = sessions_greet(SESSIONS_UID);
    clients[1] = sessions_greet(SESSIONS_UID);
    packet_ms = 1;
    sessions_send_all(clients[0], STATUS, 3);
    sessions_send_all(clients[1], STATUS, 3);
    for (int i = 0; i < 6; i++) {
        ck_assert_uint_eq(serve_turn(), 1);
        ck_assert_uint_eq(served[0], order[i]);
    }
    ck_assert_uint_eq(serve_turn(), 0);
    ck_assert(!session_of(1)->waits && !session_of(2)->waits);
    ck_assert_uint_eq(sessions_forget(clients[0]), 3);
    ck_assert_uint_eq(sessions_forget(clients[1]), 3);
    packet_ms = 0;
    sessions_finish();
}
END_TEST

/* A client that leaves while it waits is noticed in its turn, and what it left behind is not served. */
START_TEST(waiting_client_leaves)
{
    int clients[2];

    start();
    clients[0] = sessions_greet(SESSIONS_UID);
    clients[1] = sessions_greet(SESSIONS_UID);
    packet_ms = 1;
    sessions_send_all(clients[0], STATUS, 1);
    sessions_send_all(clients[1], STATUS, 3);
    ck_assert_uint_eq(serve_turn(), 1);
    ck_assert(session_of(2)->waits);
    ck_assert_int_eq(shutdown(clients[1], SHUT_RDWR), 0);
    ck_assert_uint_eq(serve_turn(), 0);
    rig_settle();
    ck_assert_uint_eq(rig_service.session_count, 1);
    packet_ms = 0;
    sessions_finish();
}
END_TEST

/* A client that sends no more while its answers wait is noticed, too. */
START_TEST(half_closed_client_that_is_not_read)
{
    int client;

    start();
    client = sessions_greet(SESSIONS_UID);
    rig_config.limits.requests = 1;
    for (unsigned i = 0; session_of(1)->outbound_count == 0; i++) {
        ck_assert_uint_lt(i, 10000);
        (void)sessions_send(client, STATUS, -1); /* nobody reads the answers */
        rig_settle();
    }
    ck_assert_uint_gt(session_of(1)->outbound_count, 0);
    ck_assert_int_eq(shutdown(client, SHUT_WR), 0);
    rig_settle();
    ck_assert(session_of(1)->ending);
    sessions_finish();
}
END_TEST

/* A process with many sessions dies: each turn ends as many of them as its user's share allows. */
START_TEST(process_with_many_sessions_dies)
{
    const struct session *session;

    start();
    sessions_life = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; i < 4; i++) {
        (void)sessions_greet(SESSIONS_UID);
    }
    end_ms = 1;
    ck_assert_int_eq(eventfd_write(sessions_life, 1), 0);
    for (unsigned left = 4; left > 0; left--) {
        ck_assert_uint_eq(rig_service.session_count, left);
        rig_loop();
        TAILQ_FOREACH (session, &rig_service.sessions, link) {
            ck_assert(session->waits && session->events == 0);
        }
    }
    ck_assert_uint_eq(rig_service.session_count, 0);
    close(sessions_life);
    sessions_finish();
}
END_TEST

UNIT_MAIN("session_turns", share_of_a_turn, sessions_alternate, waiting_client_leaves,
          half_closed_client_that_is_not_read, process_with_many_sessions_dies)
