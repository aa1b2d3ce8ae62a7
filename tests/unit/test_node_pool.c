/* The pool: how carriers are made, handed out, taken back and ended. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "tests/unit/fake_lane.h"
#include "tests/unit/node_rig.h"
#include "tests/unit/unit_main.h"

START_TEST(first_transfer_makes_the_session)
{
    struct transfer_probe probe = {0};

    rig_prepare(NULL);
    rig_node();
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    bench_idle(&rig.bench, 30);
    ck_assert_uint_eq(rig.stub.connections, 1);
    ck_assert_uint_eq(fake_lanes.opens, 0);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);

    ck_assert_ptr_null(rig_acquire(1));
    WAIT(&rig.bench, rig.idle == 1);
    ck_assert_uint_eq(fake_lanes.peer_count, 2);
    ck_assert_int_eq(memcmp(fake_lanes.peer, "\x02\x00\x1f\x90\x7f\x00\x00\x01", 8), 0);
    ck_assert_str_eq(fake_lanes.bind, "127.0.0.1");
    struct carrier *carrier = rig_acquire(1);
    ck_assert_ptr_nonnull(carrier);
    ck_assert_ptr_nonnull(carrier_lane(carrier));
    ck_assert_str_eq(carrier_name(carrier), "data 0");
    rig_get(&probe, carrier);
    WAIT(&rig.bench, probe.calls == 1);
    ck_assert(probe.reply.class == BLOB_REPLY_DONE && probe.reply.length == 5 && probe.reply.crc32c == 77);
    ck_assert_uint_eq(rig_health().carriers_busy, 1);
    carrier_release(carrier);
    ck_assert_int_eq(rig.idle, 2);
    ck_assert_uint_eq(rig_health().carriers, 1);
    ck_assert_uint_eq(rig_health().carriers_busy, 0);
    ck_assert_uint_eq(rig.stub.hellos, 1);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    rig_end();
    ck_assert_uint_eq(fake_lanes.destroys, 1);
}
END_TEST

START_TEST(grows_to_what_waits)
{
    struct carrier *carriers[4];

    rig_prepare(NULL);
    rig_node();
    /* Twenty that wait: no more than the pool has, one HELLO a connection, however often they ask. */
    for (int i = 0; i < 20; i++) {
        ck_assert_ptr_null(rig_acquire(20));
    }
    WAIT(&rig.bench, rig.idle == 4);
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(rig.stub.connections, 5);
    ck_assert_uint_eq(rig.stub.hellos, 4);
    ck_assert_uint_eq(rig.hello_twice, 0);
    for (int i = 0; i < 4; i++) {
        carriers[i] = rig_acquire(20 - i);
        ck_assert_ptr_nonnull(carriers[i]);
    }
    ck_assert_ptr_null(rig_acquire(16));
    /* The one released last is handed out first. */
    carrier_release(carriers[2]);
    carrier_release(carriers[0]);
    ck_assert_ptr_eq(rig_acquire(1), carriers[0]);
    ck_assert_ptr_eq(rig_acquire(1), carriers[2]);
    for (int i = 0; i < 4; i++) {
        carrier_release(carriers[i]);
    }
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(rig.stub.connections, 5);
    rig_end();
}
END_TEST

START_TEST(grows_by_need)
{
    rig_prepare(NULL);
    rig_node();
    struct carrier *first = rig_carrier();
    ck_assert_uint_eq(rig.stub.hellos, 1);
    struct carrier *second = rig_carrier();
    ck_assert_ptr_ne(first, second);
    ck_assert_str_eq(carrier_name(second), "data 1");
    ck_assert_uint_eq(rig.stub.hellos, 2);
    carrier_release(first);
    ck_assert_ptr_eq(rig_acquire(1), first);
    carrier_release(first);
    carrier_release(second);
    rig_end();
}
END_TEST

START_TEST(warm)
{
    rig_prepare(NULL);
    rig.config.warm = true;
    rig_node();
    WAIT(&rig.bench, rig.idle == 4);
    ck_assert_uint_eq(rig.stub.hellos, 4);
    ck_assert_uint_eq(rig_health().carriers, 4);
    rig_end();
}
END_TEST

START_TEST(unix_socket)
{
    char path[64];

    snprintf(path, sizeof(path), "/tmp/test_node.%d", (int)getpid());
    rig_prepare(path);
    rig_node();
    carrier_release(rig_carrier());
    ck_assert_str_eq(fake_lanes.bind, "127.0.0.1");
    ck_assert_str_eq(rig_health().transport, "unix");
    rig_end();
    unlink(path);
}
END_TEST

/* --- revocation --- */

START_TEST(revoke_drops_the_connection_first)
{
    struct transfer_probe probe = {0};
    int gone = 0;

    rig_prepare(NULL);
    rig.transfer = NULL;
    rig_node();
    struct carrier *carrier = rig_carrier();
    rig_get(&probe, carrier);
    WAIT(&rig.bench, rig.stub.commands == 2);
    fake_lanes.hold_destroy = true;
    rig.inside = true;
    carrier_revoke(carrier, rig_on_gone, &gone);
    rig.inside = false;
    ck_assert_uint_eq(fake_lanes.destroys, 1);
    WAIT(&rig.bench, rig.stub.open == 1);
    bench_idle(&rig.bench, 20);
    ck_assert_int_eq(probe.calls, 0);
    ck_assert_int_eq(gone, 0);
    ck_assert_uint_eq(rig_health().carriers, 0);
    ck_assert_uint_eq(rig_health().revocations, 1);
    fake_lanes_go();
    WAIT(&rig.bench, gone == 1);
    ck_assert_int_eq(probe.calls, 0);
    rig_end();
}
END_TEST

START_TEST(several_revocations)
{
    struct transfer_probe probes[4] = {0};
    struct carrier *carriers[4];
    int gone = 0;

    rig_prepare(NULL);
    rig.transfer = NULL;
    rig_node();
    for (int i = 0; i < 4; i++) {
        carriers[i] = rig_carrier();
        rig_get(&probes[i], carriers[i]);
    }
    /* Others wait: the pool makes new ones while the old lanes are still dying. */
    ck_assert_ptr_null(rig_acquire(2));
    fake_lanes.hold_destroy = true;
    rig.idle = 0;
    for (int i = 0; i < 4; i++) {
        carrier_revoke(carriers[i], rig_on_gone, &gone);
    }
    WAIT(&rig.bench, rig.idle == 2);
    ck_assert_int_eq(gone, 0);
    fake_lanes_go();
    WAIT(&rig.bench, gone == 4);
    ck_assert_int_eq(rig.unavailable, 0);
    rig_end();
}
END_TEST

START_TEST(failed_destruction_is_told)
{
    int gone = 0;

    rig_prepare(NULL);
    rig_node();
    struct carrier *carrier = rig_carrier();
    fake_lanes.destroy_status = -EBUSY;
    log_set_level(LOG_LEVEL_ERROR);
    carrier_revoke(carrier, rig_on_gone, &gone);
    WAIT(&rig.bench, gone == 100);
    carrier_release(rig_carrier());
    rig_end();
    ck_assert_int_eq(rig.stop_status, -EBUSY);
}
END_TEST

START_TEST(lost_reply)
{
    struct transfer_probe probe = {0};
    int gone = 0;

    rig_prepare(NULL);
    rig.transfer = NULL;
    rig_node();
    struct carrier *carrier = rig_carrier();
    rig_get(&probe, carrier);
    WAIT(&rig.bench, rig.stub.commands == 2);
    stub_hang_up(LIST_FIRST(&rig.stub.peers));
    WAIT(&rig.bench, probe.calls == 1);
    ck_assert(!probe.has_reply && probe.may_have_run);
    ck_assert_ptr_nonnull(strstr(probe.why, "closed the connection"));
    ck_assert_uint_eq(fake_lanes.destroys, 0); /* the caller's to decide */
    carrier_revoke(carrier, rig_on_gone, &gone);
    WAIT(&rig.bench, gone == 1);

    probe = (struct transfer_probe){.revoke_inside = true};
    rig_get(&probe, rig_carrier());
    WAIT(&rig.bench, rig.stub.commands == 4);
    stub_hang_up(LIST_FIRST(&rig.stub.peers));
    WAIT(&rig.bench, probe.calls == 1 && fake_lanes.alive == 0);
    rig_end();
}
END_TEST

START_TEST(live_reply)
{
    struct transfer_probe probe = {.revoke_inside = true};

    rig_prepare(NULL);
    rig.transfer = "-ERR RDMA write failed\r\n";
    rig_node();
    rig_get(&probe, rig_carrier());
    WAIT(&rig.bench, probe.calls == 1 && fake_lanes.alive == 0);
    ck_assert(probe.has_reply && probe.reply.class == BLOB_REPLY_LIVE);

    /* Released by mistake: destroyed all the same, never handed out again. */
    log_set_level(LOG_LEVEL_ERROR);
    probe = (struct transfer_probe){.release_inside = true};
    rig_get(&probe, rig_carrier());
    WAIT(&rig.bench, probe.calls == 1 && fake_lanes.alive == 0);
    ck_assert_uint_eq(rig_health().carriers, 0);
    rig_end();
}
END_TEST

START_TEST(proof_keeps_the_carrier)
{
    static const char *const replies[] = {"$-1\r\n", "-WRONGTYPE x\r\n", "-OOM x\r\n", "*2\r\n:9999\r\n:1\r\n"};

    rig_prepare(NULL);
    rig_node();
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        struct transfer_probe probe = {.release_inside = true};
        rig.transfer = replies[i];
        rig_get(&probe, rig_carrier());
        WAIT(&rig.bench, probe.calls == 1);
        ck_assert_int_ne(probe.reply.class, BLOB_REPLY_LIVE);
    }
    ck_assert_uint_eq(rig.stub.hellos, 1);
    ck_assert_uint_eq(fake_lanes.destroys, 0);
    rig_end();
}
END_TEST

START_TEST(session_that_is_gone_is_made_anew)
{
    struct transfer_probe probe = {.release_inside = true};

    rig_prepare(NULL);
    rig.transfer = "-ERR no RDMA session (call BLOB.RDMA_HELLO first)\r\n";
    rig_node();
    rig_get(&probe, rig_carrier());
    WAIT(&rig.bench, probe.calls == 1 && fake_lanes.alive == 0);
    ck_assert_int_eq(probe.reply.class, BLOB_REPLY_REFUSED);
    carrier_release(rig_carrier());
    ck_assert_uint_eq(rig.stub.hellos, 2);
    rig_end();
}
END_TEST

/* --- ends --- */

START_TEST(idle_connection_ends)
{
    rig_prepare(NULL);
    rig_node();
    carrier_release(rig_carrier());
    stub_hang_up(LIST_FIRST(&rig.stub.peers));
    WAIT(&rig.bench, fake_lanes.alive == 0);
    ck_assert_uint_eq(rig_health().carriers, 0);
    ck_assert_int_eq(rig.unavailable, 0);
    carrier_release(rig_carrier());
    rig_end();
}
END_TEST

START_TEST(late_reply_ends_an_idle_carrier)
{
    rig_prepare(NULL);
    rig_node();
    carrier_release(rig_carrier());
    stub_say(LIST_FIRST(&rig.stub.peers), "*2\r\n:5\r\n:77\r\n");
    WAIT(&rig.bench, fake_lanes.alive == 0);
    rig_end();
}
END_TEST

/* Acquired, nothing sent yet, and the connection goes: seen at the send, and released. */
START_TEST(acquired_connection_ends)
{
    const struct slice_triple triple = {1, 2, 4096};
    struct transfer_probe probe = {0};

    rig_prepare(NULL);
    rig_node();
    struct carrier *carrier = rig_carrier();
    ck_assert_ptr_null(rig_acquire(0));
    stub_hang_up(LIST_FIRST(&rig.stub.peers));
    WAIT(&rig.bench, carrier_get(carrier, &probe.request, "k", 1, 1, &triple, 0) == -ENOTCONN);
    ck_assert_ptr_null(rig_acquire(1));
    rig.idle = 0;
    carrier_release(carrier);
    WAIT(&rig.bench, rig.idle == 1);
    carrier_release(rig_acquire(1));
    rig_end();
}
END_TEST

static void hang_up_on_expiry(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "PEXPIRE")) {
        stub_hang_up(peer);
    } else {
        stub_say(peer, stub_is(words, "BLOB.RDMA_HELLO") ? rig.hello : "+OK\r\n");
    }
}

/* The answer that is kept for PEXPIRE's is delivered while the connection fails: the carrier is no good for others. */
START_TEST(expiry_is_lost_with_the_connection)
{
    struct transfer_probe probe = {.release_inside = true};

    rig_prepare(NULL);
    rig.stub.command = hang_up_on_expiry;
    rig_node();
    rig_set(&probe, rig_carrier(), 1000);
    int idle = rig.idle;
    WAIT(&rig.bench, probe.calls == 1);
    ck_assert(probe.has_reply);
    ck_assert_int_eq(probe.reply.class, BLOB_REPLY_DONE);
    ck_assert_int_eq(probe.request.ttl, CARRIER_TTL_UNKNOWN);
    ck_assert_int_eq(rig.idle, idle);
    WAIT(&rig.bench, fake_lanes.destroys == 1);
    carrier_release(rig_carrier());
    ck_assert_int_eq(probe.calls, 1);
    rig_end();
}
END_TEST

START_TEST(misuse)
{
    const struct slice_triple triple = {1, 2, 4096};
    struct transfer_probe probe = {0}, second = {0};

    rig_prepare(NULL);
    rig.transfer = NULL;
    rig_node();
    struct carrier *carrier = rig_carrier();
    ck_assert_int_eq(carrier_get(carrier, &second.request, "k", 1, 1, &triple, 0), -EINVAL);
    rig_get(&probe, carrier);
    ck_assert_int_eq(carrier_set(carrier, &second.request, "k", 1, 1, false, 0, &triple, 1), -EBUSY);
    carrier_revoke(carrier, NULL, NULL);
    rig_end();
}
END_TEST

/* What node_stop meets: every state of a carrier. */
START_TEST(stop_in_each_state)
{
    static const char hello[] = "*1\r\n$16\r\n02001F907f000001\r\n";

    for (int state = 0; state < 6; state++) {
        rig_prepare(NULL);
        memset(&fake_lanes, 0, sizeof(fake_lanes));
        rig.hello = state == 2 ? NULL : hello;
        rig_node();
        WAIT(&rig.bench, rig.stub.open == 1);
        fake_lanes.hold_open = state == 1;
        fake_lanes.hold_peers = state == 3;
        ck_assert_ptr_null(rig_acquire(3));
        switch (state) {
        case 0: /* connecting */
            break;
        case 1:
            WAIT(&rig.bench, fake_lanes.opens == 3);
            break;
        case 2:
            WAIT(&rig.bench, rig.stub.hellos == 3);
            break;
        case 3:
            WAIT(&rig.bench, fake_lanes.peers == 3);
            break;
        case 4:
            WAIT(&rig.bench, rig.idle == 3);
            break;
        default: /* dying, with one of them acquired and lost before */
            WAIT(&rig.bench, rig.idle == 3);
            fake_lanes.hold_destroy = true;
            carrier_revoke(rig_acquire(0), NULL, NULL);
        }
        rig_stop_node();
        if (state == 5) {
            bench_idle(&rig.bench, 20);
            ck_assert_int_eq(rig.stopped, 0);
            fake_lanes_go();
        }
        rig_end();
        ck_assert_uint_eq(fake_lanes.alive, 0);
        ck_assert_int_eq(rig.unavailable, 0);
    }
}
END_TEST

UNIT_MAIN("node_pool", first_transfer_makes_the_session, grows_to_what_waits, grows_by_need, warm, unix_socket,
          revoke_drops_the_connection_first, several_revocations, failed_destruction_is_told, lost_reply, live_reply,
          proof_keeps_the_carrier, session_that_is_gone_is_made_anew, idle_connection_ends,
          late_reply_ends_an_idle_carrier, acquired_connection_ends, expiry_is_lost_with_the_connection, misuse,
          stop_in_each_state)
