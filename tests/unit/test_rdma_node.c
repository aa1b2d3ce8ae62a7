/*
 * A node that is to be reached over RDMA: what becomes of its connections when that cannot be set up, with and without
 * rdma_fallback; that RDMA is tried again without anybody waiting for it; and what its status says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/valkey/node_private.h"
#include "daemon/valkey/reach.h"
#include "tests/unit/rdma_stand_in.h"
#include "tests/unit/node_rig.h"
#include "tests/unit/unit_main.h"

static void prepare(bool fallback)
{
    char why[TRANSPORT_WHY_BYTES];

    rig_prepare(NULL);
    rig.config.rdma_fallback = fallback;
    ck_assert_int_eq(reach_create(true, 7100, NULL, &rig.config.reach, why), 0);
    rdma_stand_in.leads_to = rig.stub.address;
}

static void end(void)
{
    rig_end();
    free(rig.config.reach);
}

static bool is(const char *state)
{
    return strcmp(rig_health().state, state) == 0;
}

static void expect_transport(const char *transport, const char *why)
{
    ck_assert_str_eq(rig_health().transport, transport);
    ck_assert_str_eq(rig_health().transport_why, why);
}

START_TEST(over_rdma)
{
    char expected[64];
    const char *host = "127.0.0.1";

    prepare(false);
    rdma_stand_in.does = RDMA_WORKS;
    rig_node();
    WAIT(&rig.bench, is("up"));
    snprintf(expected, sizeof(expected), "rdma://%s:7100", host);
    ck_assert_str_eq(rdma_stand_in.address, expected);
    ck_assert_str_eq(rig_health().rdma_address, expected);
    ck_assert_str_eq(rig_health().address, rig.stub.address);
    expect_transport("rdma", "");
    struct carrier *carrier = rig_carrier();
    ck_assert_uint_eq(rdma_stand_in.attempts, 2);
    carrier_release(carrier);
    end();
}
END_TEST

START_TEST(without_the_fallback_it_is_down_with_the_reason)
{
    prepare(false);
    rig_node();
    ck_assert(is("down"));
    ck_assert_str_eq(rig_health().why, "the library is not there");
    expect_transport("rdma", "");
    WAIT(&rig.bench, rdma_stand_in.attempts >= 3);
    ck_assert_uint_eq(rig.stub.connections, 0);
    rdma_stand_in.does = RDMA_WORKS;
    WAIT(&rig.bench, is("up"));
    end();
}
END_TEST

static void expect_fallback(const char *why)
{
    WAIT(&rig.bench, is("up"));
    ck_assert_str_eq(rig_health().transport, "tcp");
    ck_assert_msg(strstr(rig_health().transport_why, why) != NULL, "%s", rig_health().transport_why);
    ck_assert_uint_eq(rig.stub.connections, 1);
}

START_TEST(with_the_fallback_one_that_cannot_begin_goes_over_tcp)
{
    prepare(true);
    rig_node();
    expect_fallback("the library is not there");
    /* Further connections need not fail first. */
    ck_assert_uint_eq(rdma_stand_in.attempts, 1);
    struct carrier *carrier = rig_carrier();
    ck_assert_uint_eq(rdma_stand_in.attempts, 1);
    carrier_release(carrier);
    end();
}
END_TEST

START_TEST(with_the_fallback_one_that_is_refused_goes_over_tcp)
{
    prepare(true);
    rdma_stand_in.does = RDMA_IS_REFUSED;
    rig_node();
    expect_fallback("refused");
    end();
}
END_TEST

START_TEST(when_tcp_fails_too_both_are_told)
{
    prepare(true);
    stub_stop(&rig.stub);
    rig_node();
    WAIT(&rig.bench, is("down"));
    ck_assert_ptr_nonnull(strstr(rig_health().why, "RDMA: the library is not there; TCP: "));
    expect_transport("rdma", "");
    /* for the end of the rig */
    stub_start(&rig.stub, &rig.bench, NULL);
    end();
}
END_TEST

static char password[] = "/tmp/grd-rdma-node-XXXXXX";

static void write_password(void)
{
    int fd = mkstemp(password);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "secret\n", 7), 7);
    close(fd);
}

/* What fails once it is connected is no reason to go elsewhere: the server said no. */
START_TEST(a_server_that_refuses_the_login_is_not_asked_over_tcp)
{
    write_password();
    prepare(true);
    rdma_stand_in.does = RDMA_WORKS;
    rig.config.password_file = password;
    rig.config.rdma_auth_in_clear = true;
    rig.other = "-WRONGPASS invalid\r\n";
    rig_node();
    WAIT(&rig.bench, is("down"));
    ck_assert_ptr_nonnull(strstr(rig_health().why, "AUTH was refused"));
    expect_transport("rdma", "");
    ck_assert(rig_health().rdma_auth_in_clear);
    end();
    remove(password);
}
END_TEST

/* The configuration was reloaded: a password was added, the permission was not. */
START_TEST(no_password_leaves_without_the_permission)
{
    write_password();
    prepare(false);
    rdma_stand_in.does = RDMA_WORKS;
    rig_node();
    WAIT(&rig.bench, is("up"));
    unsigned commands = rig.stub.commands;
    rig.config.password_file = password;
    node_reloaded(rig.node);
    WAIT(&rig.bench, is("down") || rig.stub.commands > commands);
    ck_assert_uint_eq(rig.stub.commands, commands);
    ck_assert_ptr_nonnull(strstr(rig_health().why, "rdma_auth_in_clear"));
    bench_idle(&rig.bench, 100); /* nor is a connection begun */
    ck_assert_uint_eq(rdma_stand_in.attempts, 1);
    rig.other = "+OK\r\n";
    rig.config.rdma_auth_in_clear = true;
    WAIT(&rig.bench, is("up"));
    ck_assert_uint_gt(rig.stub.commands, commands);
    end();
    remove(password);
}
END_TEST

START_TEST(a_fallback_that_was_switched_off_ends)
{
    prepare(true);
    rig_node();
    expect_fallback("the library is not there");
    carrier_release(rig_carrier());
    ck_assert_uint_eq(rig_health().carriers, 1);
    rig.config.rdma_fallback = false;
    node_reloaded(rig.node);
    WAIT(&rig.bench, is("down") && rig.stub.open == 0);
    ck_assert_str_eq(rig_health().why, "the library is not there");
    expect_transport("rdma", "");
    ck_assert_uint_eq(rig_health().carriers, 0);
    end();
}
END_TEST

static void make_due(void)
{
    rig.node->dial.again_at = 0;
}

START_TEST(a_probe_that_fails_disturbs_nobody)
{
    struct command_probe probe;

    prepare(true);
    rig_node();
    expect_fallback("the library is not there");
    rdma_stand_in.does = RDMA_IS_REFUSED;
    make_due();
    bench_idle(&rig.bench, 20);
    ck_assert_uint_eq(rdma_stand_in.attempts, 1); /* nobody uses the node */
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, probe.replies == 1 && strstr(rig_health().transport_why, "refused") != NULL);
    ck_assert_uint_eq(rdma_stand_in.attempts, 2);
    ck_assert_uint_eq(rig.stub.connections, 1);
    ck_assert_uint_eq(rig_health().reconnects, 0);
    end();
}
END_TEST

START_TEST(rdma_is_used_again_when_a_probe_gets_through)
{
    struct command_probe probe;

    prepare(true);
    rig_node();
    expect_fallback("the library is not there");
    struct carrier *busy = rig_carrier();
    rdma_stand_in.does = RDMA_WORKS;
    make_due();
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    WAIT(&rig.bench, is("up") && strcmp(rig_health().transport, "rdma") == 0);
    expect_transport("rdma", "");
    ck_assert_int_eq(probe.replies + probe.losses, 1);
    ck_assert_int_eq(probe.replies, 1);
    /* The carrier at work goes with its transfer. */
    unsigned attempts = rdma_stand_in.attempts;
    carrier_release(busy);
    carrier_release(rig_carrier());
    ck_assert_uint_gt(rdma_stand_in.attempts, attempts);
    end();
}
END_TEST

/* The server was started anew, and has RDMA now. */
START_TEST(after_the_loss_of_the_connection_rdma_comes_first)
{
    prepare(true);
    rig_node();
    expect_fallback("the library is not there");
    rdma_stand_in.does = RDMA_WORKS;
    stub_hang_up(stub_first(&rig.stub));
    WAIT(&rig.bench, rig_health().reconnects == 1 && is("up"));
    expect_transport("rdma", "");
    end();
}
END_TEST

START_TEST(a_probe_under_way_ends_with_the_node)
{
    struct command_probe probe;

    prepare(true);
    rig_node();
    expect_fallback("the library is not there");
    rdma_stand_in.does = RDMA_WORKS;
    make_due();
    ck_assert_int_eq(rig_command(&probe, "PING"), 0);
    ck_assert_ptr_nonnull(rig.node->probe);
    end();
}
END_TEST

UNIT_MAIN("rdma_node", over_rdma, without_the_fallback_it_is_down_with_the_reason,
          with_the_fallback_one_that_cannot_begin_goes_over_tcp, with_the_fallback_one_that_is_refused_goes_over_tcp,
          when_tcp_fails_too_both_are_told, a_server_that_refuses_the_login_is_not_asked_over_tcp,
          no_password_leaves_without_the_permission, a_probe_that_fails_disturbs_nobody,
          rdma_is_used_again_when_a_probe_gets_through, after_the_loss_of_the_connection_rdma_comes_first,
          a_fallback_that_was_switched_off_ends, a_probe_under_way_ends_with_the_node)
