/* Configuration files: defaults, overlays, and a clear word with file and line about everything that is wrong. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/options.h"
#include "daemon/valkey/seeds.h"
#include "proto/limits.h"
#include "tests/unit/unit_main.h"

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/test_config.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static const char *write_file(const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(an_empty_file_gives_the_defaults)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "";
    make_folder();
    ck_assert_int_eq(config_load(&config, write_file("c.conf", ""), why), 0);
    ck_assert_str_eq(config.valkey.address, "127.0.0.1:6379");
    ck_assert_uint_eq(config.valkey.connections, 8);
    ck_assert_str_eq(config.fabric.provider, "efa-direct");
    ck_assert_uint_eq(config.fabric.mr_max_bytes, UINT64_C(1) << 30);
    ck_assert_uint_eq(config.revoke_grace_ms, 50);
    ck_assert_uint_eq(config.socket_count, 1);
    ck_assert_str_eq(config.sockets[0].path, PROTO_CLIENT_SOCKET);
    ck_assert_uint_eq(config.sockets[0].mode, 0660);
    ck_assert_uint_eq(config.admin.mode, 0600);
    ck_assert_ptr_null(config.valkey.password_file);
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(overlays_override_in_the_order_of_their_names)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "", path[256];
    make_folder();
    snprintf(path, sizeof path, "%s/conf.d", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    write_file("conf.d/20.conf", "[valkey]\nconnections = 3\n");
    write_file("conf.d/10.conf", "[valkey]\nconnections = 2\naddress = [::1]:7000\n[socket b]\npath = /b\nmode = 0600\n");
    write_file("conf.d/30.txt", "[nonsense]\n");
    int status = config_load(&config, write_file("c.conf", "[valkey]\nconnections = 1\n[socket a]\npath = /a\n"), why);
    ck_assert_msg(status == 0, "%s", why);
    ck_assert_uint_eq(config.valkey.connections, 3);
    ck_assert_str_eq(config.valkey.address, "[::1]:7000");
    ck_assert_uint_eq(config.socket_count, 2);
    ck_assert_str_eq(config.sockets[1].path, "/b");
    ck_assert_uint_eq(config.sockets[1].mode, 0600);
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(sizes_take_suffixes)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "";
    make_folder();
    const char *path = write_file("c.conf", "[memory]\npinned_limit = 3g\n[fabric]\nmr_max_bytes = 64K\n");
    ck_assert_int_eq(config_load(&config, path, why), 0);
    ck_assert_uint_eq(config.pinned_limit, UINT64_C(3) << 30);
    ck_assert_uint_eq(config.fabric.mr_max_bytes, 65536);
    config_free(&config);
    remove_folder();
}
END_TEST

/* What values over TCP need of the fabric. */
START_TEST(fallback_keeps_mappings)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "";
    make_folder();
    for (int tcp = 0; tcp < 2; tcp++) {
        const char *path = write_file("c.conf", tcp ? "[valkey]\nfallback = tcp\n" : "");
        ck_assert_int_eq(config_load(&config, path, why), 0);
        ck_assert_int_eq(config.fabric.keep_mappings, tcp);
        config_free(&config);
    }
    remove_folder();
}
END_TEST

#define NAME_50 "a2345678901234567890123456789012345678901234567890"

START_TEST(what_is_wrong_is_said_with_file_and_line)
{
    static const struct {
        const char *text, *where, *why;
    } wrong[] = {
        {"[valkey]\nadress = x:1\n", "c.conf:2:", "no such key: \"adress\" in section [valkey]"},
        {"[nowhere]\nx = 1\n", "c.conf:2:", "no such key: \"x\" in section [nowhere]"},
        {"[valkey]\n\nconnections = 0\n", "c.conf:3:", "connections = 0 is outside 1..1024"},
        {"[valkey]\nconnections = 8x\n", "c.conf:2:", "\"8x\" is no whole number"},
        {"[valkey]\nconnections = -1\n", "c.conf:2:", "\"-1\" is no whole number"},
        {"[valkey]\nwarm = true\n", "c.conf:2:", "\"true\" is neither yes nor no"},
        {"[memory]\npinned_limit = 1Q\n", "c.conf:2:", "\"1Q\" is no size"},
        {"[memory]\npinned_limit = 99999999999T\n", "c.conf:2:", "is no size"},
        {"[socket a]\nmode = 0999\n", "c.conf:2:", "is no octal mode"},
        {"[socket]\nmode = 0600\n", "c.conf:2:", "a client socket needs a name"},
        {"hello\n", "c.conf:1:", "neither [section], key = value nor a comment"},
        {"[valkey]\npassword_file = /a\n  warm = yes\n", "c.conf:3:", "an indented line counts as another value"},
        {"[policy uid 1]\n  key_prefixes = a:\n  read_only = yes\n", "c.conf:3:", "this one looks like a key"},
        {"[policy uid 1]\nkey_prefixes = a:\n\tb:,\n\tread_only=yes\n", "c.conf:4:", "this one looks like a key"},
        {"[policy uid 1]\nmethods = keys.info\n  *\n", "c.conf:3:", "* stands for every method, alone"},
        {"[policy uid 1]\nmethods = *\n  keys.info\n", "c.conf:3:", "* stands for every method, alone"},
        {"[valkey]\nconnections = 1\nconnections = 2\n", "c.conf:3:", "[valkey] connections is given twice in a row"},
        {"[socket " NAME_50 "]\nmode = 0600\n", "c.conf:2:", "more than 48 bytes"},
        {"[valkey]\n" NAME_50 " = 1\n", "c.conf:2:", "more than 48 bytes"},
        {"[valkey]\naddress = " NAME_50 NAME_50 NAME_50 NAME_50 ":1\n", "c.conf:2:", "or longer than 198 bytes"},
        {"[valkey]\naddress = nocolon\n", "", "nocolon"},
        {"[fabric]\nprovider = sockets\n", "", "none of efa-direct, tcp, verbs"},
        {"[fabric]\nrevoke = all\n", "", "none of full, endpoint"},
        {"[fabric]\nrevoke =\n", "", "[fabric] revoke must not be empty"},
        {"[fabric]\nbind = 192.0.2.1\n", "", "an endpoint of provider efa-direct has an address of its own"},
        {"[fabric]\nmr_max_bytes = 65537\n", "", "no multiple of 64K"},
        {"[daemon]\nlog_level = loud\n", "", "none of error, warn"},
        {"[valkey]\nauth_max_age_ms = 39600000\n", "", "without password_file"},
        {"[valkey]\npassword_file = /a\nauth_max_age_ms = 99\n", "", "99 is less than 100"},
        {"[valkey]\ntls_ca = /a\n", "", "tls_ca is set, but tls = no"},
        {"[valkey]\ntls = no\ntls_server_name = a\n", "", "tls_server_name is set, but tls = no"},
        {"[valkey]\ntls = yes\ntls_key = /a\n", "", "tls_key is set without tls_certificate"},
        {"[valkey]\ntls = yes\ntls_certificate = /a\n", "", "tls_certificate is set without tls_key"},
        {"[valkey]\ntls = yes\naddress = unix:/a\n", "", "a Unix socket, where there is no TLS"},
        {"[socket a]\npath =\n", "", "[socket a] path must not be empty"},
        {"[socket admin]\npath = /a\n", "", "[socket admin]: this name is the admin socket's"},
        {"[valkey]\nuser = a\n", "", "user is set without password_file"},
        {"[valkey]\naddress = a:1\nseeds = b:2\n", "", "not both"},
        {"[valkey]\nseeds = a:1, b\n", "", "'b' is no address"},
        {"[valkey]\nseeds = a:1, unix:/b\n", "", "nodes of a cluster are reached as host:port"},
        {"[valkey]\nseeds = ,\n", "", "no seed is given"},
        {"[valkey]\nseeds = a:1\ntls_ca = /a\n", "", "tls_ca is set, but tls = no"},
    };
    struct config config;
    make_folder();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char why[CONFIG_WHY_BYTES] = "";
        int status = config_load(&config, write_file("c.conf", wrong[i].text), why);
        ck_assert_msg(status == -EINVAL, "%s gave %d", wrong[i].text, status);
        ck_assert_msg(strstr(why, wrong[i].where) != NULL && strstr(why, wrong[i].why) != NULL, "%s gave: %s",
                      wrong[i].text, why);
        config_free(&config);
    }
    remove_folder();
}
END_TEST

START_TEST(seeds)
{
    static const char *const good[] = {"a:1", "a:1, b.example:2", " [::1]:7000 ,127.0.0.1:7001\t", "a:1 b:2"};
    struct config config;
    make_folder();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char why[CONFIG_WHY_BYTES] = "", text[256];
        snprintf(text, sizeof text, "[valkey]\nseeds = %s\n", good[i]);
        int status = config_load(&config, write_file("c.conf", text), why);
        ck_assert_msg(status == 0, "%s: %s", good[i], why);
        ck_assert_ptr_nonnull(config.valkey.seeds);
        config_free(&config);
    }
    remove_folder();
}
END_TEST

/* A line holds 198 bytes, which is little for names of cloud providers. */
START_TEST(lists_go_on_in_further_lines)
{
    static const char *const given[] = {"seeds =\n  a:1\n  b:2,\n  c:3\n", "seeds = a:1,\n\tb:2\n  c:3\n"};
    struct seed *found;
    struct config config;
    size_t count;
    make_folder();
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        char why[CONFIG_WHY_BYTES] = "", text[256];
        snprintf(text, sizeof text, "[valkey]\n%s[fabric]\ninterfaces = rdmap0\n  rdmap1\n", given[i]);
        int status = config_load(&config, write_file("c.conf", text), why);
        ck_assert_msg(status == 0, "%s: %s", given[i], why);
        ck_assert_int_eq(seeds_parse(config.valkey.seeds, &found, &count, why), 0);
        ck_assert_uint_eq(count, 3);
        ck_assert_str_eq(found[2].endpoint.host, "c");
        ck_assert_str_eq(config.fabric.interfaces, "rdmap0, rdmap1");
        free(found);
        config_free(&config);
    }
    remove_folder();
}
END_TEST

START_TEST(a_missing_file_is_named)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "";
    ck_assert_int_eq(config_load(&config, "/nonexistent/x.conf", why), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "/nonexistent/x.conf"));
    config_free(&config);
}
END_TEST

START_TEST(what_cannot_be_read_is_no_empty_configuration)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "", path[256];
    make_folder();
    ck_assert_int_eq(config_load(&config, folder, why), -EISDIR);
    ck_assert_ptr_nonnull(strstr(why, folder));
    config_free(&config);

    snprintf(path, sizeof path, "%s/conf.d", folder);
    write_file("conf.d", "no folder");
    ck_assert_int_eq(config_load(&config, write_file("c.conf", ""), why), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(why, path));
    config_free(&config);

    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/conf.d/a.conf", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(config_load(&config, write_file("c.conf", ""), why), -EISDIR);
    ck_assert_ptr_nonnull(strstr(why, path));
    config_free(&config);

    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody would ever write */
    ck_assert_int_eq(config_load(&config, write_file("c.conf", ""), why), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(why, path));
    ck_assert_ptr_nonnull(strstr(why, "no regular file"));
    config_free(&config);
    remove_folder();
}
END_TEST

/* Is the value of an option the same in two structs of its section? */
static bool same_value(const struct option *option, const void *one, const void *two)
{
    const void *a = (const char *)one + option->offset, *b = (const char *)two + option->offset;
    if (option_is_text(option)) {
        const char *text = *(char *const *)a, *other = *(char *const *)b;
        return text == other || (text != NULL && other != NULL && strcmp(text, other) == 0);
    }
    size_t size = option->kind == OPTION_BOOL    ? sizeof(bool)
                  : option->kind == OPTION_COUNT ? sizeof(unsigned)
                                                 : sizeof(uint64_t);
    return memcmp(a, b, size) == 0;
}

/* A section of nothing but defaults changes nothing. */
static void expect_same_policy(const struct config *config, const struct config *defaults)
{
    struct policy_subject subject = {.socket = "default", .uid = 7};
    struct policy with, without;
    policy_resolve(config, &subject, &with);
    policy_resolve(defaults, &subject, &without);
    for (size_t i = 0; i < option_count; i++) {
        size_t offset = options[i].offset;
        if (strcmp(options[i].section, "policy") == 0)
            ck_assert_msg(memcmp((char *)&with.values + offset, (char *)&without.values + offset, 8) == 0, "[policy] %s",
                          options[i].key);
    }
}

static void expect_defaults(const struct config *config)
{
    struct config defaults;
    char why[CONFIG_WHY_BYTES] = "";
    ck_assert_int_eq(config_load(&defaults, write_file("empty.conf", ""), why), 0);
    ck_assert_uint_eq(config->socket_count, 1);
    ck_assert_str_eq(config->sockets[0].name, "default");
    ck_assert_uint_eq(config->policy_count, 1);
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        bool socket = strcmp(option->section, "socket") == 0;
        bool policy = strcmp(option->section, "policy") == 0; /* there is no such section without the example: */
        if (!policy) {
            ck_assert_msg(same_value(option, socket ? (const void *)&config->sockets[0] : config,
                                     socket ? (const void *)&defaults.sockets[0] : &defaults),
                          "[%s] %s is not its default", option->section, option->key);
        }
    }
    expect_same_policy(config, &defaults);
    config_free(&defaults);
}

/* The example has every key commented out: with the # removed it must load and give the defaults. */
START_TEST(the_example_is_what_the_parser_takes)
{
    struct config config;
    char why[CONFIG_WHY_BYTES] = "", line[512], path[256];
    unsigned keys = 0;
    make_folder();
    FILE *example = tmpfile();
    config_print_example(example);
    rewind(example);
    snprintf(path, sizeof path, "%s/c.conf", folder);
    FILE *file = fopen(path, "w");
    while (fgets(line, sizeof line, example) != NULL) {
        bool key = line[0] == '#' && line[1] != ' ';
        keys += key;
        fputs(key ? line + 1 : line, file);
    }
    fclose(example);
    fclose(file);
    ck_assert_uint_eq(keys, option_count);
    ck_assert_msg(config_load(&config, path, why) == 0, "%s", why);
    expect_defaults(&config);
    config_free(&config);
    remove_folder();
}
END_TEST

UNIT_MAIN("config", an_empty_file_gives_the_defaults, overlays_override_in_the_order_of_their_names,
          sizes_take_suffixes, fallback_keeps_mappings, what_is_wrong_is_said_with_file_and_line,
          a_missing_file_is_named, seeds, lists_go_on_in_further_lines, what_cannot_be_read_is_no_empty_configuration,
          the_example_is_what_the_parser_takes)
