/* Policy sections: their grammar, what is refused with file and line, and which of them decides a key. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/method_list.h"
#include "daemon/config/options.h"
#include "daemon/config/prefixes.h"
#include "tests/unit/unit_main.h"

static char folder[64];
static struct config config;
static char why[CONFIG_WHY_BYTES];

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test_policy.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *write_file(const char *name, const char *text)
{
    static char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void load(const char *text)
{
    int status = config_load(&config, write_file("c.conf", text), why);

    ck_assert_msg(status == 0, "%s", why);
}

static struct policy resolve(const char *socket, uid_t uid, const gid_t *gids, size_t count)
{
    struct policy_subject subject = {.socket = socket, .uid = uid, .gids = gids, .gid_count = count};
    struct policy policy;

    policy_resolve(&config, &subject, &policy);
    return policy;
}

START_TEST(keys_stand_in_the_order_of_the_table)
{
    static const struct {
        enum policy_key key;
        const char *name;
        size_t offset;
    } keys[] = {
        {POLICY_PINNED_BYTES, "pinned_bytes", offsetof(struct policy_values, pinned_bytes)},
        {POLICY_REGIONS, "regions", offsetof(struct policy_values, regions)},
        {POLICY_SESSIONS, "sessions", offsetof(struct policy_values, sessions)},
        {POLICY_IN_FLIGHT, "in_flight", offsetof(struct policy_values, in_flight)},
        {POLICY_QUEUE, "queue", offsetof(struct policy_values, queue)},
        {POLICY_METHODS, "methods", offsetof(struct policy_values, methods)},
        {POLICY_KEY_PREFIXES, "key_prefixes", offsetof(struct policy_values, key_prefixes)},
        {POLICY_READ_ONLY, "read_only", offsetof(struct policy_values, read_only)},
        {POLICY_DEFAULT_TTL, "default_ttl_ms", offsetof(struct policy_values, default_ttl_ms)},
        {POLICY_MAX_TTL, "max_ttl_ms", offsetof(struct policy_values, max_ttl_ms)},
        {POLICY_MAX_VALUE, "max_value_bytes", offsetof(struct policy_values, max_value_bytes)},
        {POLICY_ADMIT, "admit", offsetof(struct policy_values, admit)},
    };
    size_t rows = 0;

    ck_assert_uint_eq(sizeof(keys) / sizeof(keys[0]), POLICY_KEYS);
    for (size_t i = 0; i < option_count; i++) {
        rows += strcmp(options[i].section, "policy") == 0;
    }
    ck_assert_uint_eq(rows, POLICY_KEYS);
    for (size_t i = 0; i < POLICY_KEYS; i++) {
        ck_assert_str_eq(policy_key_name(keys[i].key), keys[i].name);
        ck_assert_uint_eq(option_find("policy", keys[i].name)->offset, keys[i].offset);
    }
}
END_TEST

/* Sections in all ranks, the weakest first; row by row the strongest that matches decides. */
#define ALL                                                                                                           \
    "[socket a]\npath = /a\n[socket b]\npath = /b\n"                                                                  \
    "[policy]\nregions = 1\n[policy socket a]\nregions = 2\n[policy gid 50]\nregions = 3\n"                           \
    "[policy gid 51]\nregions = 4\n[policy socket a gid 50]\nregions = 5\n[policy uid 7]\nregions = 6\n"              \
    "[policy socket a uid 7]\nregions = 7\n"

START_TEST(the_most_specific_section_decides)
{
    static const struct {
        const char *socket;
        uid_t uid;
        gid_t gids[2];
        uint64_t regions;
        const char *origin;
    } rows[] = {
        {"a", 7, {50, 51}, 7, "[policy socket a uid 7] regions"},
        {"b", 7, {50, 51}, 6, "[policy uid 7] regions"},
        {"a", 8, {1, 50}, 5, "[policy socket a gid 50] regions"},
        {"a", 8, {51, 50}, 5, "[policy socket a gid 50] regions"},
        {"b", 8, {51, 50}, 3, "[policy gid 50] regions"}, /* the first of the file, not of the groups */
        {"a", 8, {51, 9}, 4, "[policy gid 51] regions"},
        {"a", 8, {1, 2}, 2, "[policy socket a] regions"},
        {"b", 8, {1, 2}, 1, "[policy] regions"},
        {"b", 50, {7, 7}, 1, "[policy] regions"}, /* a uid is no gid */
    };
    char origin[POLICY_NAME_BYTES];

    make_folder();
    load(ALL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct policy policy = resolve(rows[i].socket, rows[i].uid, rows[i].gids, 2);

        ck_assert_msg(policy.values.regions == rows[i].regions, "row %zu gave %llu", i,
                      (unsigned long long)policy.values.regions);
        ck_assert_uint_eq(policy_limit(&policy, POLICY_REGIONS), rows[i].regions);
        policy_origin(&policy, POLICY_REGIONS, origin);
        ck_assert_str_eq(origin, rows[i].origin);
    }
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(each_key_falls_through_by_itself)
{
    gid_t gid = 50;
    struct policy policy;
    char origin[POLICY_NAME_BYTES];

    make_folder();
    load("[limits]\nqueue = 11\nsessions_per_user = 12\n"
         "[policy]\npinned_bytes = 1G\nregions = 1\nqueue = 21\n[policy gid 50]\nregions = 2\nin_flight = 3\n"
         "[policy uid 7]\npinned_bytes = none\nqueue = none\n");
    policy = resolve("default", 7, &gid, 1);
    ck_assert_uint_eq(policy.values.pinned_bytes, POLICY_NONE); /* of the uid's section, and not [policy]'s */
    ck_assert_uint_eq(policy.values.regions, 2);
    ck_assert_uint_eq(policy.values.in_flight, 3);
    ck_assert_uint_eq(policy.values.sessions, 12);
    policy_origin(&policy, POLICY_SESSIONS, origin);
    ck_assert_str_eq(origin, "[limits] sessions_per_user");
    ck_assert_uint_eq(policy.values.queue, 11); /* "none" of a quota is the limit for everybody */
    ck_assert_ptr_null(policy.title[POLICY_QUEUE]);
    policy = resolve("default", 8, NULL, 0);
    ck_assert_uint_eq(policy.values.pinned_bytes, UINT64_C(1) << 30);
    ck_assert_uint_eq(policy.values.queue, 21);
    ck_assert_uint_eq(policy.values.in_flight, POLICY_NONE);
    policy_without_sections(&config, &policy);
    ck_assert_uint_eq(policy.values.queue, 11);
    ck_assert_uint_eq(policy.values.regions, 4096);
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(permissions_fall_through_like_quotas)
{
    gid_t gid = 50;
    struct policy policy;
    char origin[POLICY_NAME_BYTES];

    make_folder();
    load("[policy]\nkey_prefixes = a,\n  b\\x00\n\tc\nread_only = yes\ndefault_ttl_ms = 7\nmethods = keys.info\n"
         "  keys.exists\n[policy gid 50]\nkey_prefixes =\nmax_value_bytes = 1K\n"
         "[policy uid 7]\nkey_prefixes = *\nread_only = no\ndefault_ttl_ms = none\nmethods = *\n");
    policy = resolve("default", 8, NULL, 0);
    ck_assert_uint_eq(policy.values.key_prefixes->count, 3);
    ck_assert(prefixes_allow(policy.values.key_prefixes, "b\0x", 3));
    ck_assert(!prefixes_allow(policy.values.key_prefixes, "b", 1));
    ck_assert(policy.values.read_only && policy.values.default_ttl_ms == 7);
    ck_assert(policy.values.max_value_bytes == POLICY_NONE && policy.values.max_ttl_ms == POLICY_NONE);
    ck_assert(method_list_has(policy.values.methods, PROTO_METHOD_KEYS_EXISTS));
    ck_assert(!method_list_has(policy.values.methods, PROTO_METHOD_KEYS_DELETE));
    policy = resolve("default", 8, &gid, 1);
    ck_assert_uint_eq(policy.values.key_prefixes->count, 0); /* set to nothing: no key */
    policy_origin(&policy, POLICY_KEY_PREFIXES, origin);
    ck_assert_str_eq(origin, "[policy gid 50] key_prefixes");
    ck_assert(policy.values.read_only && policy.values.max_value_bytes == 1024);
    policy = resolve("default", 7, &gid, 1);
    ck_assert_ptr_null(policy.values.key_prefixes);
    ck_assert(!policy.values.read_only && policy.values.methods == METHODS_ALL);
    ck_assert(policy.values.default_ttl_ms == POLICY_NONE && policy.values.max_value_bytes == 1024);
    policy_without_sections(&config, &policy);
    ck_assert(policy.values.methods == METHODS_ALL && policy.values.key_prefixes == NULL && policy.values.admit);
    ck_assert(!policy.values.read_only && policy.values.max_value_bytes == POLICY_NONE);
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(later_files_override_keys)
{
    char path[128];
    struct policy policy;

    make_folder();
    snprintf(path, sizeof(path), "%s/conf.d", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    write_file("conf.d/10.conf", "[policy uid 7]\nregions = 9\n[policy socket late]\nqueue = 5\n");
    write_file("conf.d/20.conf", "[socket late]\npath = /late\n");
    load("[policy uid 7]\nregions = 1\nsessions = 2\n");
    policy = resolve("late", 7, NULL, 0);
    ck_assert_uint_eq(policy.values.regions, 9);
    ck_assert_uint_eq(policy.values.sessions, 2);
    ck_assert_uint_eq(policy.values.queue, 5);
    ck_assert_uint_eq(config.policy_count, 2);
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(a_uid_is_admitted_by_its_own_sections)
{
    struct policy policy;
    gid_t gid = 7;

    make_folder();
    load("[socket a]\npath = /a\n[socket b]\npath = /b\n[policy]\nadmit = yes\n[policy uid 7]\nadmit = yes\n"
         "[policy socket a uid 8]\nadmit = yes\n[policy uid 9]\nregions = 1\n[policy uid 10]\nadmit = no\n");
    ck_assert(!policy_asks_groups(&config));
    static const struct {
        const char *socket;
        uid_t uid;
        bool admits, by_uid;
    } rows[] = {
        {"a", 7, true, true},  {"b", 7, true, true},  {"a", 8, true, true},    {"b", 8, true, false},
        {"a", 9, true, false}, {"a", 6, true, false}, {"a", 10, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        policy = resolve(rows[i].socket, rows[i].uid, NULL, 0);
        ck_assert_msg(policy.values.admit == rows[i].admits, "row %zu", i);
        ck_assert_msg(policy_admits_uid(&policy) == rows[i].by_uid, "row %zu", i);
    }
    config_free(&config);
    load("[policy]\nadmit = no\n[policy gid 7]\nadmit = yes\n");
    policy = resolve("default", 1, &gid, 1);
    ck_assert(policy.values.admit && !policy_admits_uid(&policy));
    ck_assert(!resolve("default", 7, NULL, 0).values.admit);
    ck_assert(policy_asks_groups(&config));
    policy_without_sections(&config, &policy);
    ck_assert(policy.values.admit && !policy_admits_uid(&policy));
    config_free(&config);
    remove_folder();
}
END_TEST

START_TEST(what_is_wrong_is_said_with_file_and_line)
{
    static const struct {
        const char *text, *where, *why;
    } wrong[] = {
        {"[policy user 7]\nregions = 1\n", "c.conf:2:", "[policy user 7] is none of [policy], [policy uid N]"},
        {"[policy uid root]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid ]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid -1]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid 0x7]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid 007]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid 4294967295]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid 99999999999999999999999]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid 7 gid 8]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy gid 7 socket default]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy  uid 7]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy uid 7 ]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy socket]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policy socket default uid]\nregions = 1\n", "c.conf:2:", "is none of"},
        {"[policys]\nregions = 1\n", "c.conf:2:", "no such key: \"regions\" in section [policys]"},
        {"\n[policy socket other]\n\nregions = 1\n", "c.conf:4:", "there is no [socket other]"},
        {"[policy socket admin]\nregions = 1\n", "c.conf:2:", "there is no [socket admin]"},
        {"[policy uid 7]\nregion = 1\n", "c.conf:2:", "no such key: \"region\" in section [policy uid 7]"},
        {"[policy uid 7]\nin_flight = 0\n", "c.conf:2:", "in_flight = 0 is outside 1..1000000"},
        {"[policy uid 7]\nregions = None\n", "c.conf:2:", "\"None\" is no whole number"},
        {"[policy uid 7]\npinned_bytes = 1X\n", "c.conf:2:", "is no size"},
        {"[policy uid 7]\nregions = 1\n[policy]\nregions = 2\n[policy uid 7]\nsessions = 1\n", "c.conf:6:",
         "[policy uid 7] is there twice, first at "},
        {"[policy uid 7]\nregions = 1\n[policy uid 7]\nsessions = 1\n", "c.conf:4:", "is there twice"},
        {"[policy]\nmethods = get\n", "c.conf:2:", "\"get\" is no method"},
        {"[policy]\nread_only = 1\n", "c.conf:2:", "\"1\" is neither yes nor no"},
        {"[policy]\nmax_value_bytes = 0\n", "c.conf:2:", "is outside 1.."},
        {"[policy]\nkey_prefixes = a:*\n", "c.conf:2:", "a prefix is no pattern"},
        {"[policy]\nkey_prefixes = a\n  b*\n", "c.conf:3:", "a prefix is no pattern"},
        {"[policy]\nkey_prefixes = *\n  b\n", "c.conf:3:", "* stands for every key, alone"},
        {"[policy]\nkey_prefixes = a\n  *\n", "c.conf:3:", "* stands for every key, alone"},
        {"[policy]\nkey_prefixes = a\nkey_prefixes = b\n", "c.conf:3:", "is given twice in a row"},
        {"[policy]\nread_only = yes\n  no\n", "c.conf:3:", "is given twice in a row"},
        {"[socket a b]\npath = /a\n", "c.conf:2:", "the name of a socket is one word"},
        {"[socket ]\npath = /a\n", "c.conf:2:", "the name of a socket is one word"},
    };

    make_folder();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int status = config_load(&config, write_file("c.conf", wrong[i].text), why);

        ck_assert_msg(status == -EINVAL, "%s gave %d", wrong[i].text, status);
        ck_assert_msg(strstr(why, wrong[i].where) != NULL && strstr(why, wrong[i].why) != NULL, "%s gave: %s",
                      wrong[i].text, why);
        config_free(&config);
    }
    remove_folder();
}
END_TEST

START_TEST(there_are_so_many_sections_and_no_more)
{
    char text[POLICY_SECTIONS * 64] = "", *at = text;

    make_folder();
    for (unsigned i = 0; i < POLICY_SECTIONS; i++) {
        at += sprintf(at, "[policy uid %u]\nregions = 1\n", i);
    }
    load(text);
    ck_assert_uint_eq(config.policy_count, POLICY_SECTIONS);
    config_free(&config);
    sprintf(at, "[policy]\nregions = 1\n");
    ck_assert_int_eq(config_load(&config, write_file("c.conf", text), why), -EINVAL);
    ck_assert_msg(strstr(why, "c.conf:258: more than 128 [policy ...] sections") != NULL, "%s", why);
    config_free(&config);
    remove_folder();
}
END_TEST

UNIT_MAIN("policy", keys_stand_in_the_order_of_the_table, the_most_specific_section_decides,
          each_key_falls_through_by_itself, permissions_fall_through_like_quotas, later_files_override_keys,
          a_uid_is_admitted_by_its_own_sections,
          what_is_wrong_is_said_with_file_and_line, there_are_so_many_sections_and_no_more)
