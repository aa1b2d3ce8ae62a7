/* Which transport the next connection of a node takes, and when RDMA is tried again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/reach.h"
#include "daemon/valkey/resp.h"
#include "tests/unit/unit_main.h"

static struct valkey_config config;
static struct transport_address address;
static struct dial dial;
static struct dial_attempt attempt;
static char why[TRANSPORT_WHY_BYTES];

static void start(const char *text, const char *nodes)
{
    log_set_level(LOG_LEVEL_ERROR);
    ck_assert_int_eq(reach_create(true, 0, nodes, &config.reach, why), 0);
    ck_assert_int_eq(transport_address_parse(text, &address, why), 0);
    ck_assert_int_eq(dial_init(&dial, &config, &address), 0);
}

static void end(void)
{
    dial_end(&dial);
    transport_address_free(&address);
    free(config.reach);
}

static void expect(const char *class, const char *host, const char *port)
{
    ck_assert_str_eq(attempt.class->name, class);
    ck_assert_str_eq(attempt.address->host, host);
    ck_assert_str_eq(attempt.address->port, port);
}

/* A connection whose RDMA fails, and which is made over TCP. */
static void fall_back(const char *reason, uint64_t now)
{
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    ck_assert(attempt.rdma);
    strcpy(why, reason);
    ck_assert(dial_next(&dial, &attempt, why));
    dial_connected(&dial, &attempt, now);
    ck_assert(dial.on_tcp);
}

START_TEST(without_the_fallback_nothing_follows_rdma)
{
    start("a:1", "a=b:2");
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    expect("rdma", "b", "2");
    strcpy(why, "no device");
    ck_assert(!dial_next(&dial, &attempt, why));
    ck_assert_str_eq(why, "no device");
    ck_assert_str_eq(dial_transport(&dial), "rdma");
    end();
}
END_TEST

START_TEST(with_the_fallback_tcp_follows_at_the_tcp_address)
{
    config.rdma_fallback = true;
    start("a:1", "a=b:2");
    fall_back("no device", 1000);
    expect("tcp", "a", "1");
    ck_assert_str_eq(dial.why, "no device");
    ck_assert_str_eq(dial_transport(&dial), "tcp");
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    expect("tcp", "a", "1");
    end();
}
END_TEST

START_TEST(an_rdma_address_falls_back_to_the_same_over_tcp)
{
    config.rdma_fallback = true;
    start("rdma://[::1]:7", NULL);
    fall_back("no device", 1000);
    expect("tcp", "::1", "7");
    end();
}
END_TEST

START_TEST(when_both_fail_both_are_told_and_rdma_is_tried_first_again)
{
    config.rdma_fallback = true;
    start("a:1", NULL);
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    strcpy(why, "no device");
    ck_assert(dial_next(&dial, &attempt, why));
    strcpy(why, "refused");
    ck_assert(!dial_next(&dial, &attempt, why));
    ck_assert_str_eq(why, "RDMA: no device; TCP: refused");
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    ck_assert(attempt.rdma);
    end();
}
END_TEST

START_TEST(a_probe_has_no_fallback)
{
    config.rdma_fallback = true;
    start("a:1", NULL);
    dial.only_rdma = true;
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    strcpy(why, "no device");
    ck_assert(!dial_next(&dial, &attempt, why));
    end();
}
END_TEST

START_TEST(rdma_is_due_again_after_a_pause)
{
    config.rdma_fallback = true;
    start("a:1", NULL);
    ck_assert(!dial_is_due(&dial, 0));
    fall_back("no device", 1000);
    ck_assert(!dial_is_due(&dial, 1000 + DIAL_AGAIN_MS - 1));
    ck_assert(dial_is_due(&dial, 1000 + DIAL_AGAIN_MS));
    dial_probe_failed(&dial, "no route", 50000);
    ck_assert_str_eq(dial.why, "no route");
    ck_assert(!dial_is_due(&dial, 50000 + DIAL_AGAIN_MS - 1));
    ck_assert(dial_is_due(&dial, 50000 + DIAL_AGAIN_MS));
    end();
}
END_TEST

START_TEST(the_pause_grows_while_rdma_does_not_last)
{
    uint64_t now = 1000, pause = DIAL_AGAIN_MS;

    config.rdma_fallback = true;
    start("a:1", NULL);
    fall_back("no device", now);
    for (int i = 0; i < 10; i++) {
        ck_assert_uint_eq(dial.again_at, now + pause);
        now = dial.again_at;
        dial_back_on_rdma(&dial, now);
        fall_back("no device", ++now);
        pause = pause * 2 < DIAL_AGAIN_LIMIT_MS ? pause * 2 : DIAL_AGAIN_LIMIT_MS;
    }
    ck_assert_uint_eq(pause, DIAL_AGAIN_LIMIT_MS);
    now = dial.again_at;
    dial_back_on_rdma(&dial, now);
    fall_back("no device", now + DIAL_AGAIN_LIMIT_MS);
    ck_assert_uint_eq(dial.again_at, now + DIAL_AGAIN_LIMIT_MS + DIAL_AGAIN_MS);
    end();
}
END_TEST

/* The server may be another one: RDMA first, and when that works the node is back on it. */
START_TEST(after_a_loss_rdma_is_tried_at_once)
{
    config.rdma_fallback = true;
    start("a:1", NULL);
    fall_back("no device", 1000);
    dial_ask_again(&dial);
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    ck_assert(attempt.rdma);
    dial_connected(&dial, &attempt, 2000);
    ck_assert(!dial.on_tcp);
    ck_assert_str_eq(dial.why, "");
    ck_assert_uint_eq(dial.back_at, 2000);
    end();
}
END_TEST

/* Of a configuration that was reloaded; the same words refuse it at the start (test_config_rdma.c). */
START_TEST(what_the_configuration_forbids_is_not_tried)
{
    char file[] = "/password";

    start("a:1", NULL);
    config.password_file = file;
    ck_assert_int_eq(dial_first(&dial, &attempt, why), -EPERM);
    ck_assert_ptr_nonnull(strstr(why, "rdma_auth_in_clear"));
    config.rdma_auth_in_clear = true;
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    config.tls_settings.enabled = true;
    ck_assert_int_eq(dial_first(&dial, &attempt, why), -EPERM);
    ck_assert_ptr_nonnull(strstr(why, "no TLS over RDMA"));
    end();
}
END_TEST

START_TEST(other_transports_are_as_ever)
{
    char file[] = "/password";

    config.rdma_fallback = true;
    config.password_file = file;
    start("unix:/run/valkey.sock", NULL);
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    ck_assert_str_eq(attempt.class->name, "unix");
    strcpy(why, "gone");
    ck_assert(!dial_next(&dial, &attempt, why));
    end();
    start("tcp://a:1", NULL);
    ck_assert_int_eq(dial_first(&dial, &attempt, why), 0);
    expect("tcp", "a", "1");
    ck_assert(!dial_next(&dial, &attempt, why));
    ck_assert_str_eq(why, "gone");
    end();
}
END_TEST

UNIT_MAIN("dial", without_the_fallback_nothing_follows_rdma, with_the_fallback_tcp_follows_at_the_tcp_address,
          an_rdma_address_falls_back_to_the_same_over_tcp, when_both_fail_both_are_told_and_rdma_is_tried_first_again,
          a_probe_has_no_fallback, rdma_is_due_again_after_a_pause, the_pause_grows_while_rdma_does_not_last,
          after_a_loss_rdma_is_tried_at_once, what_the_configuration_forbids_is_not_tried, other_transports_are_as_ever)
