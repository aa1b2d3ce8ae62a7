/* The node when something is missing: no server, no module, no fabric, no lane; and its control connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/backoff.h"
#include "proto/limits.h"
#include "tests/unit/fake_lane.h"
#include "tests/unit/node_rig.h"
#include "tests/unit/unit_main.h"

/* Asks for a carrier and waits for the refusal. */
static void expect_unavailable(int code, const char *words)
{
    int before = rig.unavailable;

    ck_assert_ptr_null(rig_acquire(1));
    WAIT(&rig.bench, rig.unavailable == before + 1);
    ck_assert_msg(rig.code == code && strstr(rig.why, words) != NULL, "%d: %s", rig.code, rig.why);
}

START_TEST(no_server)
{
    rig_prepare(NULL);
    stub_stop(&rig.stub);
    rig_node();
    expect_unavailable(PROTO_ERR_SERVER_DOWN, "Connection refused");
    WAIT(&rig.bench, strcmp(rig_health().state, "down") == 0);
    ck_assert_ptr_nonnull(strstr(rig_health().why, "Connection refused"));
    ck_assert_str_eq(rig_health().session_why, "");
    struct command_probe probe;
    ck_assert_int_eq(rig_command(&probe, "PING"), -ENOTCONN);
    rig_stop_node();
    char address[128];
    snprintf(address, sizeof(address), "%s", rig.stub.address);
    stub_start(&rig.stub, &rig.bench, NULL);
    rig_end();
}
END_TEST

START_TEST(no_fabric)
{
    struct command_probe probe;

    rig_prepare(NULL);
    rig.config.warm = true;
    rig.fabric.usable = false;
    snprintf(rig.fabric.why, sizeof(rig.fabric.why), "libfabric is missing");
    rig_node();
    expect_unavailable(PROTO_ERR_NOT_USABLE, "libfabric is missing");
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, probe.replies == 1);
    ck_assert_uint_eq(rig.stub.connections, 1);
    ck_assert_uint_eq(rig.stub.hellos, 0);
    rig_end();
}
END_TEST

START_TEST(no_module)
{
    struct command_probe probe;

    rig_prepare(NULL);
    rig.hello = "-ERR unknown command 'BLOB.RDMA_HELLO', with args beginning with: '02' \r\n";
    rig_node();
    expect_unavailable(PROTO_ERR_NOT_USABLE, "has no large-object module loaded (BLOB.RDMA_HELLO is unknown); load");
    ck_assert_ptr_nonnull(strstr(rig.why, rig.stub.address));
    ck_assert_str_eq(rig_health().session_why, rig.why);
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, probe.replies == 1);
    WAIT(&rig.bench, fake_lanes.alive == 0 && rig.stub.open == 1);
    /* Not remembered: the module is loaded, and the next transfer finds it. */
    rig.hello = "*1\r\n$16\r\n02001F907f000001\r\n";
    carrier_release(rig_carrier());
    ck_assert_str_eq(rig_health().session_why, "");
    rig_end();
}
END_TEST

START_TEST(hello_refused)
{
    static const struct {
        const char *reply;
        int code;
        const char *words;
        bool later;
    } cases[] = {
        {"-ERR RDMA provider unavailable on this instance\r\n", PROTO_ERR_NOT_USABLE, "the server has no fabric"},
        {"-ERR rdma address must be 32 bytes\r\n", PROTO_ERR_NOT_USABLE, "another fabric provider"},
        {"-ERR session create: service 0: Invalid argument\r\n", PROTO_ERR_NOT_USABLE, "service 0: Invalid argument"},
        {"-READONLY You can't write against a read only replica.\r\n", PROTO_ERR_SERVER_DOWN, "READONLY", true},
        {"-NOPERM User x has no permissions\r\n", PROTO_ERR_NOT_USABLE, "+@largeobj"},
        {"-LOADING Valkey is loading the dataset in memory\r\n", PROTO_ERR_SERVER_DOWN, "LOADING", true},
        {"-MASTERDOWN\r\n", PROTO_ERR_SERVER_DOWN, "replica-serve-stale-data", true},
        {"-MASTERDOWNS\r\n", PROTO_ERR_NOT_USABLE, "MASTERDOWNS"},
        {"*0\r\n", PROTO_ERR_NOT_USABLE, "malformed"},
        {":1\r\n", PROTO_ERR_NOT_USABLE, "malformed"},
        {"*1\r\n$2\r\nzz\r\n", PROTO_ERR_NOT_USABLE, "not hexadecimal"},
        {"nonsense\r\n", PROTO_ERR_SERVER_DOWN, "rotocol error"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(&fake_lanes, 0, sizeof(fake_lanes));
        rig_prepare(NULL);
        rig.hello = cases[i].reply;
        rig_node();
        expect_unavailable(cases[i].code, cases[i].words);
        ck_assert_int_eq(rig.later, cases[i].later);
        WAIT(&rig.bench, fake_lanes.alive == 0);
        ck_assert_uint_eq(fake_lanes.destroys, 1);
        rig_end();
    }
}
END_TEST

/* A server that takes the connection and hangs: those who wait are told, and the lane is gone. */
START_TEST(hello_has_a_limit)
{
    memset(&fake_lanes, 0, sizeof(fake_lanes));
    rig_prepare(NULL);
    rig.hello = NULL;
    rig.config.connect_timeout_ms = 500;
    rig_node();
    expect_unavailable(PROTO_ERR_SERVER_DOWN,
                       "did not answer BLOB.RDMA_HELLO within [valkey] connect_timeout_ms = 500 ms");
    WAIT(&rig.bench, fake_lanes.alive == 0);
    ck_assert_str_eq(rig_health().session_why, rig.why);
    rig.hello = "*1\r\n$16\r\n02001F907f000001\r\n";
    struct carrier *carrier = rig_carrier();
    carrier_release(carrier);
    bench_idle(&rig.bench, 700);
    ck_assert_uint_eq(rig_health().carriers, 1); /* the limit ended with the answer */
    rig_end();
}
END_TEST

static void hang_up_on_hello(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        stub_hang_up(peer);
    }
}

START_TEST(lanes_that_fail)
{
    rig_prepare(NULL);
    rig_node();
    fake_lanes.open_status = -ENETDOWN;
    snprintf(rig.fabric.why, sizeof(rig.fabric.why), "the NIC went away");
    expect_unavailable(PROTO_ERR_NOT_USABLE, "the NIC went away");
    fake_lanes.open_status = -ENOMEM;
    bench_idle(&rig.bench, 150);
    expect_unavailable(PROTO_ERR_NOT_USABLE, "Cannot allocate memory");
    fake_lanes.open_status = -ENOSPC;
    bench_idle(&rig.bench, 150);
    expect_unavailable(PROTO_ERR_NOT_USABLE, "lanes_max = 16");
    fake_lanes.open_status = 0;
    fake_lanes.opened_status = -EINVAL;
    bench_idle(&rig.bench, 300);
    expect_unavailable(PROTO_ERR_NOT_USABLE, "the fake said no");
    fake_lanes.opened_status = 0;
    fake_lanes.peers_status = -EINVAL;
    bench_idle(&rig.bench, 600);
    expect_unavailable(PROTO_ERR_NOT_USABLE, "cannot use");
    WAIT(&rig.bench, fake_lanes.alive == 0 && rig.stub.open == 1);
    fake_lanes.peers_status = 0;
    rig.stub.command = hang_up_on_hello;
    bench_idle(&rig.bench, 1100);
    expect_unavailable(PROTO_ERR_SERVER_DOWN, "closed the connection");
    WAIT(&rig.bench, fake_lanes.alive == 0);
    rig_end();
}
END_TEST

/* At lanes_max others wait for those that are at work. */
START_TEST(lanes_are_few)
{
    rig_prepare(NULL);
    rig_node();
    rig.fabric_config.lanes_max = 1;
    struct carrier *carrier = rig_carrier();
    for (int i = 0; i < 20; i++) {
        ck_assert_ptr_null(rig_acquire(3));
        bench_idle(&rig.bench, 10);
    }
    ck_assert_int_eq(rig.unavailable, 0);
    rig.idle = 0;
    carrier_release(carrier);
    ck_assert_int_eq(rig.idle, 1);
    ck_assert_ptr_eq(rig_acquire(3), carrier);

    /* The only lane is dying: the place is waited for, and taken. */
    bench_idle(&rig.bench, 2500);
    fake_lanes.hold_destroy = true;
    ck_assert_ptr_null(rig_acquire(2));
    rig.idle = 0;
    carrier_revoke(carrier, NULL, NULL);
    bench_idle(&rig.bench, 100);
    ck_assert_int_eq(rig.unavailable, 0);
    unsigned connections = rig.stub.connections;
    bench_idle(&rig.bench, 100);
    ck_assert_uint_eq(rig.stub.connections, connections);
    fake_lanes_go();
    WAIT(&rig.bench, rig.idle == 1);
    carrier_release(rig_acquire(1));
    ck_assert_int_eq(rig.unavailable, 0);
    rig_end();
}
END_TEST

/* The pauses, longer in some tests, so that what happens between two of them surely does: ld --wrap. */
static unsigned stretch = 1;
unsigned __real_backoff_next(struct backoff *backoff);
unsigned __wrap_backoff_next(struct backoff *backoff);

unsigned __wrap_backoff_next(struct backoff *backoff)
{
    return stretch * __real_backoff_next(backoff);
}

START_TEST(backoff)
{
    stretch = 10;
    rig_prepare(NULL);
    rig.hello = "-ERR RDMA provider unavailable on this instance\r\n";
    rig_node();
    /* Three that fail together are one failure. */
    ck_assert_ptr_null(rig_acquire(3));
    WAIT(&rig.bench, rig.unavailable == 1);
    ck_assert_uint_eq(rig.stub.hellos, 3);
    /* Meanwhile whoever asks is told the same at once, and nothing is tried. */
    for (int i = 0; i < 5; i++) {
        expect_unavailable(PROTO_ERR_NOT_USABLE, "provider unavailable");
    }
    ck_assert_uint_eq(rig.stub.hellos, 3);
    bench_idle(&rig.bench, 800); /* 375 to 625 ms */
    expect_unavailable(PROTO_ERR_NOT_USABLE, "provider unavailable");
    ck_assert_uint_eq(rig.stub.hellos, 4);
    bench_idle(&rig.bench, 600); /* now 750 to 1250 ms */
    expect_unavailable(PROTO_ERR_NOT_USABLE, "provider unavailable");
    ck_assert_uint_eq(rig.stub.hellos, 4);
    bench_idle(&rig.bench, 800);
    expect_unavailable(PROTO_ERR_NOT_USABLE, "provider unavailable");
    ck_assert_uint_eq(rig.stub.hellos, 5);
    WAIT(&rig.bench, fake_lanes.alive == 0);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    rig_end();
}
END_TEST

/* Growth fails, but a carrier is at work: who waits is not told anything. */
START_TEST(waits_for_those_at_work)
{
    struct transfer_probe probe = {0};

    rig_prepare(NULL);
    rig.transfer = NULL;
    rig_node();
    struct carrier *carrier = rig_carrier();
    rig_get(&probe, carrier);
    rig.hello = "-ERR RDMA provider unavailable on this instance\r\n";
    ck_assert_ptr_null(rig_acquire(2));
    WAIT(&rig.bench, rig.stub.hellos == 3);
    bench_idle(&rig.bench, 30);
    ck_assert_int_eq(rig.unavailable, 0);
    /* The last one at work goes: now they are told. */
    carrier_revoke(carrier, NULL, NULL);
    WAIT(&rig.bench, rig.unavailable == 1);
    bench_idle(&rig.bench, 30);
    ck_assert_int_eq(rig.unavailable, 1);
    rig_end();
}
END_TEST

/* --- control connection --- */

START_TEST(control_reconnects)
{
    struct command_probe probe;

    rig_prepare(NULL);
    rig_node();
    ck_assert_str_eq(rig_health().state, "connecting");
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, probe.replies == 1);
    ck_assert_str_eq(rig_health().state, "up");
    ck_assert_str_eq(rig_health().why, "");
    rig.other = NULL;
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    bench_idle(&rig.bench, 10);
    stub_hang_up(stub_first(&rig.stub));
    WAIT(&rig.bench, probe.losses == 1);
    ck_assert(probe.may_have_run);
    ck_assert_str_eq(rig_health().state, "down");
    ck_assert_int_eq(rig_command(&probe, "PING"), -ENOTCONN);
    rig.other = ":1\r\n";
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    ck_assert_uint_eq(rig_health().reconnects, 1);
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, probe.replies == 1);
    rig_end();
}
END_TEST

/* A server that takes commands and hangs: what was sent is lost, and the next connection works. */
START_TEST(commands_have_a_limit)
{
    struct command_probe probes[3];

    rig_prepare(NULL);
    rig.config.command_timeout_ms = 60000;
    rig_node();
    ck_assert_int_eq(rig_command(&probes[0], "PING"), 0);
    WAIT(&rig.bench, probes[0].replies == 1);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0); /* nothing is waited for */
    rig.config.command_timeout_ms = 100;
    rig.other = NULL;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(rig_command(&probes[i], "DEL"), 0);
    }
    WAIT(&rig.bench, probes[2].losses == 1);
    for (int i = 0; i < 3; i++) {
        ck_assert(probes[i].losses == 1 && probes[i].replies == 0 && probes[i].may_have_run);
        ck_assert_msg(strstr(probes[i].text, "command_timeout_ms = 100 ms") != NULL, "%s", probes[i].text);
    }
    rig.config.command_timeout_ms = 60000;
    rig.other = ":1\r\n";
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    ck_assert_uint_eq(rig_health().reconnects, 1);
    ck_assert_int_eq(rig_command(&probes[0], "PING"), 0);
    WAIT(&rig.bench, probes[0].replies == 1);
    rig_end();
}
END_TEST

/* The limit is for a server that hangs, not for one with much to do: each answer begins it anew. */
START_TEST(slow_answers_are_awaited)
{
    struct command_probe probes[4];

    rig_prepare(NULL);
    rig.config.command_timeout_ms = 3000;
    rig_node();
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    rig.other = NULL;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(rig_command(&probes[i], "DEL"), 0);
    }
    for (int i = 0; i < 4; i++) {
        bench_idle(&rig.bench, 1000);
        stub_say(stub_first(&rig.stub), ":1\r\n");
        WAIT(&rig.bench, probes[i].replies + probes[i].losses == 1);
        ck_assert_int_eq(probes[i].replies, 1);
    }
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    rig_end();
}
END_TEST

/* A server that hangs up on everybody is not called at full speed; a command after a while gets a try of its own. */
START_TEST(control_backs_off)
{
    struct command_probe probe;

    rig_prepare(NULL);
    rig.stub.accepted = stub_hang_up;
    rig_node();
    bench_idle(&rig.bench, 1500);
    ck_assert_uint_ge(rig.stub.connections, 3);
    ck_assert_uint_le(rig.stub.connections, 8);
    unsigned connections = rig.stub.connections;
    WAIT(&rig.bench, rig.stub.connections > connections && strcmp(rig_health().state, "down") == 0);
    rig.stub.accepted = NULL;
    ck_assert_int_eq(rig_command(&probe, "PING"), -ENOTCONN);
    bench_idle(&rig.bench, 300);
    ck_assert_str_eq(rig_health().state, "down");
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, probe.replies == 1);
    ck_assert_uint_eq(bench_active_timers(&rig.bench), 0);
    rig_end();
}
END_TEST

START_TEST(commands_are_bounded)
{
    struct command_probe *probes = calloc(NODE_COMMANDS + 1, sizeof(*probes));

    rig_prepare(NULL);
    rig.other = NULL;
    rig_node();
    for (int i = 0; i < NODE_COMMANDS; i++) {
        ck_assert_int_eq(rig_command(&probes[i], "PING"), 0);
    }
    ck_assert_int_eq(rig_command(&probes[NODE_COMMANDS], "PING"), -ENOBUFS);
    WAIT(&rig.bench, rig.stub.commands == NODE_COMMANDS);
    rig_stop_node();
    for (int i = 0; i < NODE_COMMANDS; i++) {
        ck_assert(probes[i].losses == 1 && probes[i].may_have_run);
    }
    free(probes);
    rig_end();
}
END_TEST

START_TEST(credentials_refused)
{
    rig_prepare(NULL);
    rig.config.password_file = (char *)(uintptr_t) "/etc/hostname";
    rig.other = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    rig_node();
    expect_unavailable(PROTO_ERR_NOT_USABLE, "WRONGPASS");
    WAIT(&rig.bench, strcmp(rig_health().state, "down") == 0);
    ck_assert_ptr_nonnull(strstr(rig_health().why, "WRONGPASS"));
    ck_assert_uint_eq(fake_lanes.opens, 0);
    rig_end();
}
END_TEST

START_TEST(largest_value)
{
    static const struct {
        const char *reply;
        uint64_t bytes;
    } cases[] = {
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$5\r\n65536\r\n", 65536},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$16\r\n9007199254740992\r\n", PROTO_SIZE_MAX},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$20\r\n18446744073709551615\r\n", PROTO_SIZE_MAX},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$23\r\n99999999999999999999999\r\n", PROTO_SIZE_MAX},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$2\r\n-1\r\n", 0},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$2\r\n 1\r\n", 0},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$3\r\n1gb\r\n", 0},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n$0\r\n\r\n", 0},
        {"*2\r\n$24\r\nlargeobj.max-object-size\r\n:1\r\n", 0},
        {"*0\r\n", 0},
        {"-NOPERM User x has no permissions\r\n", 0},
        {"$-1\r\n", 0},
    };
    struct command_probe probe;

    rig_prepare(NULL);
    rig_node();
    WAIT(&rig.bench, strcmp(rig_health().state, "up") == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig.other = cases[i].reply;
        node_ask_limits(rig.node);
        ck_assert_int_eq(rig_command(&probe, "PING"), 0); /* is answered after it */
        WAIT(&rig.bench, probe.replies == 1);
        ck_assert_msg(rig_health().value_bytes == cases[i].bytes, "case %zu", i);
    }
    rig_end();
}
END_TEST

UNIT_MAIN("node_faults", no_server, no_fabric, no_module, hello_has_a_limit, hello_refused, lanes_that_fail,
          lanes_are_few, backoff, waits_for_those_at_work, control_reconnects, commands_have_a_limit,
          slow_answers_are_awaited, control_backs_off, commands_are_bounded, credentials_refused, largest_value)
