/* A configuration that was read again: what is taken over, what needs a restart, and that nothing else changes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/changes.h"
#include "daemon/config/options.h"
#include "tests/unit/unit_main.h"

static char folder[64];
static struct config config, next;
static struct config_changes changes;

static void load(struct config *target, const char *text)
{
    char path[96], why[CONFIG_WHY_BYTES] = "";
    snprintf(path, sizeof(path), "%s/a.conf", folder);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    ck_assert_msg(config_load(target, path, why) == 0, "%s", why);
}

static void start(const char *before, const char *after)
{
    strcpy(folder, "/tmp/grd-changes-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    load(&config, before);
    load(&next, after);
    config_take(&config, &next, &changes);
}

static void end(void)
{
    char command[128];
    config_free(&config);
    config_free(&next);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void expect(size_t at, const char *name, bool needs_restart)
{
    ck_assert_uint_lt(at, changes.count);
    ck_assert_str_eq(changes.items[at].name, name);
    ck_assert_int_eq(changes.items[at].needs_restart, needs_restart);
}

START_TEST(nothing_changed)
{
    const char *text = "[valkey]\nuser = u\npassword_file = /p\n[policy uid 1]\nregions = 3\n[socket a]\npath = /s\n";
    start(text, text);
    ck_assert_uint_eq(changes.count, 0);
    end();
}
END_TEST

START_TEST(what_reloads_is_taken_over)
{
    start("[daemon]\nlog_level = warn\n[limits]\nqueue = 5\n[valkey]\nuser = old\npassword_file = /old\n",
          "[daemon]\nlog_level = debug\n[limits]\nqueue = 6\n[valkey]\npassword_file = /new\n");
    ck_assert_uint_eq(changes.count, 4);
    expect(0, "[daemon] log_level", false);
    expect(1, "[valkey] user", false);
    expect(2, "[valkey] password_file", false);
    expect(3, "[limits] queue", false);
    ck_assert_int_eq(config.log_level, LOG_LEVEL_DEBUG);
    ck_assert_uint_eq(config.limits.queue, 6);
    ck_assert_ptr_null(config.valkey.user);
    ck_assert_str_eq(config.valkey.password_file, "/new");
    end();
}
END_TEST

START_TEST(what_needs_a_restart_stays)
{
    start("[fabric]\nprovider = tcp\n[valkey]\nconnections = 3\n", "[fabric]\nprovider = verbs\n[valkey]\ntls = yes\n");
    ck_assert_uint_eq(changes.count, 3);
    expect(0, "[valkey] connections", true);
    expect(1, "[valkey] tls", true);
    expect(2, "[fabric] provider", true);
    ck_assert_str_eq(config.fabric.provider, "tcp");
    ck_assert_uint_eq(config.valkey.connections, 3);
    ck_assert(!config.valkey.tls_settings.enabled && config.valkey.tls == NULL);
    end();
}
END_TEST

START_TEST(keys_of_rdma)
{
    start("[valkey]\ntransport = rdma\nrdma_port = 1\n",
          "[valkey]\ntransport = rdma\nrdma_port = 2\nrdma_nodes = a=b\nrdma_fallback = tcp\n"
          "rdma_auth_in_clear = yes\naddress = a:1\n");
    ck_assert_uint_eq(changes.count, 5);
    expect(0, "[valkey] address", true);
    expect(1, "[valkey] rdma_port", true);
    expect(2, "[valkey] rdma_nodes", true);
    expect(3, "[valkey] rdma_fallback", false);
    expect(4, "[valkey] rdma_auth_in_clear", false);
    ck_assert(config.valkey.rdma_fallback && config.valkey.rdma_auth_in_clear);
    ck_assert_uint_eq(config.valkey.rdma_port, 1);
    end();
}
END_TEST

/* Seeds are taken over, but not what they say of all nodes: that is a restart. */
START_TEST(seeds_from_tcp_to_rdma)
{
    start("[valkey]\nseeds = a:1\n", "[valkey]\nseeds = rdma://a:1\n");
    ck_assert_uint_eq(changes.count, 1);
    expect(0, "[valkey] seeds", true);
    ck_assert_str_eq(config.valkey.seeds, "a:1");
    end();
    start("[valkey]\nseeds = rdma://a:1\n", "[valkey]\nseeds = rdma://a:1, rdma://b:1\n");
    expect(0, "[valkey] seeds", false);
    ck_assert_str_eq(config.valkey.seeds, "rdma://a:1, rdma://b:1");
    end();
}
END_TEST

START_TEST(sockets_stay_where_they_are)
{
    start("[socket a]\npath = /a\n[socket b]\npath = /b\n", "[socket c]\npath = /c\n[socket b]\npath = /b\nmode = 0600\n");
    ck_assert_uint_eq(changes.count, 3);
    expect(0, "[socket a]", true);
    expect(1, "[socket b] mode", true);
    expect(2, "[socket c]", true);
    ck_assert_uint_eq(config.socket_count, 2);
    ck_assert_str_eq(config.sockets[0].name, "a");
    ck_assert_uint_eq(config.sockets[1].mode, 0660);
    end();
}
END_TEST

START_TEST(policies_are_replaced_as_a_whole)
{
    struct policy policy;
    const gid_t gids[] = {1};
    struct policy_subject subject = {.socket = "default", .uid = 7, .gids = gids, .gid_count = 1};
    start("[policy uid 7]\nregions = 3\nqueue = 9\n", "[policy]\nqueue = 2\n[policy uid 7]\nregions = 4\n");
    ck_assert_uint_eq(changes.count, 1);
    expect(0, "[policy]", false);
    policy_resolve(&config, &subject, &policy);
    ck_assert_uint_eq(policy.values.regions, 4);
    ck_assert_uint_eq(policy.values.queue, 2);
    ck_assert_str_eq(policy.title[POLICY_REGIONS], "[policy uid 7]");
    end();
}
END_TEST

/* A socket that is served until a restart keeps what was said of it, however often the files are read. */
START_TEST(policies_of_a_socket_that_is_served_hold_on)
{
    struct policy policy;
    struct policy_subject subject = {.socket = "red", .uid = 7};
    const char *without = "[socket blue]\npath = /b\n[policy]\nqueue = 2\n";
    start("[socket red]\npath = /r\n[policy]\nqueue = 1\n[policy socket red]\nkey_prefixes = red:\n"
          "[policy socket red uid 7]\nread_only = yes\n[socket blue]\npath = /b\n[policy socket blue]\nadmit = no\n",
          without);
    expect(0, "[socket red]", true);
    expect(1, "[policy]", false);
    for (int i = 0; i < 3; i++) {
        policy_resolve(&config, &subject, &policy);
        ck_assert(policy.values.read_only == 1 && policy.values.key_prefixes != NULL);
        ck_assert_uint_eq(policy.values.queue, 2);
        ck_assert_str_eq(policy.title[POLICY_READ_ONLY], "[policy socket red uid 7]");
        subject.socket = "blue";
        policy_resolve(&config, &subject, &policy);
        ck_assert_uint_eq(policy.values.admit, 1);
        subject.socket = "red";
        config_free(&next);
        load(&next, without);
        config_take(&config, &next, &changes);
        ck_assert_uint_eq(changes.count, 1);
        expect(0, "[socket red]", true);
    }
    config_free(&next);
    load(&next, "[socket red]\npath = /r\n[socket blue]\npath = /b\n");
    config_take(&config, &next, &changes);
    ck_assert_uint_eq(config.policy_count, 0);
    end();
}
END_TEST

START_TEST(more_policies_than_there_is_room_for)
{
    char text[POLICY_SECTIONS * 48] = "[socket red]\npath = /r\n", why[CONFIG_WHY_BYTES];
    size_t length = strlen(text);
    for (int i = 0; i < POLICY_SECTIONS; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "[policy uid %d]\nregions = 1\n", i);
    start("[socket red]\npath = /r\n[socket blue]\npath = /b\n[policy socket blue]\nregions = 1\n",
          "[socket red]\npath = /r\n[socket blue]\npath = /b\n[policy socket blue]\nregions = 2\n");
    config_free(&next);
    load(&next, text);
    ck_assert_int_eq(config_can_take(&config, &next, why), -E2BIG);
    ck_assert_ptr_nonnull(strstr(why, "1 [policy socket ...] sections"));
    next.policy_count--;
    ck_assert_int_eq(config_can_take(&config, &next, why), 0);
    next.policy_count++;
    end();
}
END_TEST

START_TEST(from_a_server_to_a_cluster_is_no_reload)
{
    start("[valkey]\naddress = a:1\n", "[valkey]\nseeds = b:1\n");
    expect(0, "[valkey] address", true);
    expect(1, "[valkey] seeds", true);
    ck_assert_ptr_null(config.valkey.seeds);
    end();
    start("[valkey]\nseeds = a:1\n", "[valkey]\nseeds = b:1\n");
    expect(0, "[valkey] seeds", false);
    ck_assert_str_eq(config.valkey.seeds, "b:1");
    end();
}
END_TEST

/* As many names as there can be: one for each key, and for each key of each socket. */
START_TEST(every_change_has_room)
{
    size_t keys = 0, of_sockets = 0;
    for (size_t i = 0; i < option_count; i++) {
        bool of_socket = strcmp(options[i].section, "socket") == 0;
        of_sockets += of_socket;
        keys += !of_socket && strcmp(options[i].section, "policy") != 0;
    }
    ck_assert_uint_le(keys + of_sockets * CONFIG_SOCKETS + CONFIG_SOCKETS + 1, CHANGES_MAX);
}
END_TEST

UNIT_MAIN("changes", nothing_changed, what_reloads_is_taken_over, what_needs_a_restart_stays, keys_of_rdma,
          seeds_from_tcp_to_rdma, sockets_stay_where_they_are, policies_are_replaced_as_a_whole,
          policies_of_a_socket_that_is_served_hold_on, more_policies_than_there_is_room_for,
          from_a_server_to_a_cluster_is_no_reload, every_change_has_room)
