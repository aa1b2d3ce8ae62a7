/* Key prefixes and lists of methods: how they are written, what is refused, which keys and methods they allow. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/method_list.h"
#include "daemon/config/prefixes.h"
#include "tests/unit/unit_main.h"

static struct prefixes *list;
static char why[256];

static int parse(const char *text)
{
    bool any;
    int status = prefixes_parse(text, &list, &any, why);

    ck_assert(status != 0 || any == (strcmp(text, "*") == 0));
    return status;
}

static void drop(void)
{
    free(list);
    list = NULL;
}

START_TEST(prefixes_are_bytes)
{
    static const struct {
        const char *text;
        const char *bytes[4];
        size_t lengths[4];
    } rows[] = {
        {"", {NULL}, {0}},
        {"  \t", {NULL}, {0}},
        {"a", {"a"}, {1}},
        {"a , ", {"a"}, {1}},
        {"  tenant:1:\t", {"tenant:1:"}, {9}},
        {"two words , b", {"b", "two words"}, {1, 9}},
        {"b,a,c", {"a", "b", "c"}, {1, 1, 1}},
        {"\\x00\\xff,\\xFf", {"\0\xff", "\xff"}, {2, 1}},
        {"\\x20a\\x20 , x", {" a ", "x"}, {3, 1}},
        {"\\,\\\\\\*", {",\\*"}, {3}},
        {"\xc3\xbc", {"\xc3\xbc"}, {2}},
        {"ab,a,abc,b,a", {"a", "b"}, {1, 1}}, /* what begins with another allows nothing more */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t count = 0;

        ck_assert_msg(parse(rows[i].text) == 0, "\"%s\": %s", rows[i].text, why);
        for (; count < 4 && rows[i].bytes[count] != NULL; count++) {
            ck_assert_uint_eq(list->items[count].length, rows[i].lengths[count]);
            ck_assert_mem_eq(list->items[count].bytes, rows[i].bytes[count], rows[i].lengths[count]);
        }
        ck_assert_uint_eq(list->count, count);
        drop();
    }
    ck_assert_int_eq(parse("*"), 0);
    ck_assert_ptr_null(list);
}
END_TEST

START_TEST(what_is_no_prefix_is_refused)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {",", "empty prefix"},         {"a,,", "empty prefix"},        {" , ", "empty prefix"},
        {",a", "empty prefix"},        {"a,,b", "empty prefix"},       {"a*", "no pattern"},
        {"*,a", "no pattern"},         {"a,*", "no pattern"},          {"\\", "after a backslash"},
        {"\\n", "after a backslash"},  {"\\x", "two hexadecimal"},     {"\\x1", "two hexadecimal"},
        {"\\xg0", "two hexadecimal"},  {"\\x1,a", "two hexadecimal"},  {"a\\", "after a backslash"},
        {"\\X41", "after a backslash"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_msg(parse(rows[i].text) == -EINVAL, "\"%s\"", rows[i].text);
        ck_assert_msg(strstr(why, rows[i].why) != NULL, "\"%s\": %s", rows[i].text, why);
        ck_assert_ptr_null(list);
    }
}
END_TEST

START_TEST(more_lines_add_up_to_a_bound)
{
    char text[PREFIXES_BYTES + 2];

    for (int i = 0; i < PREFIXES_MAX; i++) {
        snprintf(text, sizeof(text), "%02d", i);
        ck_assert_int_eq(parse(text), 0);
    }
    ck_assert_int_eq(parse("more"), -EINVAL);
    ck_assert_msg(strstr(why, "more than 64") != NULL, "%s", why);
    ck_assert_uint_eq(list->count, PREFIXES_MAX); /* as it was */
    ck_assert(prefixes_allow(list, "63x", 3) && !prefixes_allow(list, "64", 2));
    drop();
    memset(text, 'a', sizeof(text));
    text[PREFIXES_BYTES] = '\0';
    ck_assert_int_eq(parse(text), 0);
    ck_assert_int_eq(parse("b"), -EINVAL);
    ck_assert_msg(strstr(why, "longer than 2048 bytes") != NULL, "%s", why);
    drop();
    text[PREFIXES_BYTES] = 'a';
    text[PREFIXES_BYTES + 1] = '\0';
    ck_assert_int_eq(parse(text), -EINVAL);
}
END_TEST

START_TEST(keys_begin_with_one_of_them)
{
    static const struct {
        const char *key;
        size_t length;
        bool allowed;
    } rows[] = {
        {"a", 1, false},     {"a:", 2, true},          {"a:1", 3, true},     {"a;", 2, false},
        {"b", 1, false},     {"bc", 2, true},          {"bb", 2, false},     {"bd", 2, false},
        {"\0", 1, true},     {"\0\0", 2, true},        {"\1", 1, false},     {"\xff", 1, false},
        {"\xff\xfe", 2, true}, {"\xff\xff", 2, false}, {"z", 1, false},      {"A:", 2, false},
    };

    ck_assert_int_eq(parse("a:, bc, \\x00, \\xff\\xfe"), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_msg(prefixes_allow(list, rows[i].key, rows[i].length) == rows[i].allowed, "row %zu", i);
    }
    drop();
    ck_assert_int_eq(parse(""), 0);
    ck_assert(!prefixes_allow(list, "a", 1));
    drop();
}
END_TEST

/* Against the plain loop: every list of keys over two bytes, up to three bytes long. */
START_TEST(the_search_finds_what_a_loop_finds)
{
    char words[14][4], text[64];
    size_t count = 0;

    for (int length = 1; length <= 3; length++) {
        for (int bits = 0; bits < 1 << length; bits++, count++) {
            for (int i = 0; i < length; i++) {
                words[count][i] = (bits >> i & 1) != 0 ? 'b' : 'a';
            }
            words[count][length] = '\0';
        }
    }
    for (unsigned set = 1; set < 1U << 14; set += 7) {
        text[0] = '\0';
        for (size_t i = 0; i < 14; i++) {
            if ((set >> i & 1) != 0) {
                strcat(text, text[0] != '\0' ? "," : "");
                strcat(text, words[i]);
            }
        }
        ck_assert_int_eq(parse(text), 0);
        for (size_t key = 0; key < 14; key++) {
            bool wanted = false;

            for (size_t i = 0; i < 14; i++) {
                wanted |= (set >> i & 1) != 0 && strncmp(words[key], words[i], strlen(words[i])) == 0;
            }
            ck_assert_msg(prefixes_allow(list, words[key], strlen(words[key])) == wanted, "%s: %s", text, words[key]);
        }
        drop();
    }
}
END_TEST

START_TEST(equal_lists_allow_the_same)
{
    struct prefixes *first;

    ck_assert(prefixes_equal(NULL, NULL));
    ck_assert_int_eq(parse("a, b, ab"), 0);
    first = list;
    list = NULL;
    ck_assert_int_eq(parse("b,a"), 0);
    ck_assert(prefixes_equal(first, list) && prefixes_equal(first, first));
    ck_assert(!prefixes_equal(first, NULL) && !prefixes_equal(NULL, first));
    drop();
    static const char *const others[] = {"", "a", "a,c", "a,b,c", "a,bb"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        ck_assert_int_eq(parse(others[i]), 0);
        ck_assert_msg(!prefixes_equal(first, list) && !prefixes_equal(list, first), "%s", others[i]);
        drop();
    }
    free(first);
}
END_TEST

#define HAS(name) method_list_has(methods, PROTO_METHOD_##name)

static uint64_t methods_of(const char *text)
{
    uint64_t methods = 0;

    ck_assert_msg(method_list_parse(text, &methods, why) == 0, "\"%s\": %s", text, why);
    return methods;
}

START_TEST(methods_are_names_and_groups)
{
    uint64_t methods = methods_of("");

    ck_assert(HAS(HELLO) && HAS(STATUS) && HAS(REGION_CLOSE) && HAS(TRANSFER_CANCEL));
    ck_assert(!HAS(REGION_REGISTER) && !HAS(TRANSFER_GET) && !HAS(TRANSFER_SET) && !HAS(KEYS_EXISTS));
    methods = methods_of("keys.*");
    ck_assert(HAS(KEYS_EXISTS) && HAS(KEYS_DELETE) && HAS(KEYS_INFO) && HAS(KEYS_EXPIRE));
    ck_assert(!HAS(REGION_REGISTER) && !HAS(TRANSFER_GET));
    methods = methods_of(" transfer.get ,\tkeys.info,");
    ck_assert(HAS(TRANSFER_GET) && HAS(KEYS_INFO) && HAS(REGION_REGISTER));
    ck_assert(!HAS(TRANSFER_SET) && !HAS(KEYS_EXISTS));
    methods = methods_of("transfer.*");
    ck_assert(HAS(TRANSFER_GET) && HAS(TRANSFER_SET) && HAS(REGION_REGISTER) && !HAS(KEYS_INFO));
    ck_assert(methods_of("*") == METHODS_ALL);
    ck_assert_int_eq(method_list_parse("transfer.get", &methods, why), 0); /* adds */
    ck_assert(HAS(TRANSFER_SET));
}
END_TEST

START_TEST(what_is_no_method_is_refused)
{
    static const char *const wrong[] = {
        "get", "keys",    "keys.",    "keys.e",         "key.*",     ".*",        "transfer.get,,", ",",
        "a.*", "clients", "keys.*.*", "transfer.get *", "*, keys.*", "KEYS.INFO", "keys.**"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint64_t methods = 5;

        ck_assert_msg(method_list_parse(wrong[i], &methods, why) == -EINVAL, "\"%s\"", wrong[i]);
        ck_assert_msg(strstr(why, "is no method of the client socket") != NULL, "%s", why);
        ck_assert_uint_eq(methods, 5);
    }
}
END_TEST

UNIT_MAIN("prefixes", prefixes_are_bytes, what_is_no_prefix_is_refused, more_lines_add_up_to_a_bound,
          keys_begin_with_one_of_them, the_search_finds_what_a_loop_finds, equal_lists_allow_the_same,
          methods_are_names_and_groups, what_is_no_method_is_refused)
