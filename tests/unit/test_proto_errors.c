/* The lists of errors and methods: consistent, unique, and documented in PROTOCOL.md. */
#include <stdio.h>
#include <string.h>

#include "proto/errors.h"
#include "proto/methods.h"
#include "unit_main.h"

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
#define ERROR_ROW(symbol, code, name, text) {(code), (name), (text)},
    PROTO_ERRORS(ERROR_ROW)
#undef ERROR_ROW
};

#define ERRORS (sizeof(errors) / sizeof(errors[0]))

START_TEST(every_error_is_found_both_ways)
{
    for (size_t i = 0; i < ERRORS; i++) {
        ck_assert_str_eq(proto_error_name(errors[i].code), errors[i].name);
        ck_assert_str_eq(proto_error_text(errors[i].code), errors[i].text);
        ck_assert_int_eq(proto_error_by_name(errors[i].name), errors[i].code);
    }
    ck_assert_str_eq(proto_error_name(0), "unknown");
    ck_assert_str_eq(proto_error_text(12345), "unknown");
    ck_assert_int_eq(proto_error_by_name("no such"), 0);
    ck_assert_int_eq(proto_error_by_name(NULL), 0);
}
END_TEST

START_TEST(codes_and_names_are_unique_and_in_range)
{
    for (size_t i = 0; i < ERRORS; i++) {
        int code = errors[i].code;
        ck_assert((code <= -1 && code >= -99) || (code <= -32600 && code >= -32768));
        ck_assert_uint_gt(strlen(errors[i].text), 0);
        ck_assert_uint_eq(strspn(errors[i].name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(errors[i].name));
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(code, errors[j].code);
            ck_assert_str_ne(errors[i].name, errors[j].name);
        }
    }
}
END_TEST

START_TEST(methods_are_found_by_name)
{
    for (int i = 0; i < PROTO_METHOD_COUNT; i++) {
        ck_assert_int_eq(proto_method_find(proto_methods[i].name), i);
        ck_assert_ptr_nonnull(proto_methods[i].params);
        ck_assert_ptr_nonnull(proto_methods[i].result);
        ck_assert_uint_ne(proto_methods[i].sockets & PROTO_ON_BOTH, 0);
    }
    ck_assert_int_eq(proto_method_find("transfer"), -1);
    ck_assert_int_eq(proto_method_find(""), -1);
}
END_TEST

static char document[256 * 1024];

static void read_document(void)
{
    FILE *file = fopen(SOURCE_ROOT "/proto/PROTOCOL.md", "r");
    ck_assert_msg(file != NULL, "proto/PROTOCOL.md cannot be read");
    size_t length = fread(document, 1, sizeof(document) - 1, file);
    ck_assert_uint_gt(length, 1000);
    ck_assert_msg(feof(file) != 0, "proto/PROTOCOL.md is larger than this test reads");
    document[length] = '\0';
    fclose(file);
}

static void must_hold(const char *text)
{
    ck_assert_msg(strstr(document, text) != NULL, "PROTOCOL.md lacks: %s", text);
}

START_TEST(the_document_lists_every_error)
{
    read_document();
    for (size_t i = 0; i < ERRORS; i++) {
        char row[64];
        snprintf(row, sizeof(row), "| %d | `%s` |", errors[i].code, errors[i].name);
        must_hold(row);
    }
}
END_TEST

START_TEST(the_document_describes_every_method)
{
    read_document();
    for (int i = 0; i < PROTO_METHOD_COUNT; i++) {
        char heading[64];
        snprintf(heading, sizeof(heading), "\n### `%s`\n", proto_methods[i].name);
        must_hold(heading);
    }
    must_hold("\n### `" PROTO_NOTIFY_REGION_CLOSED "`\n");
    must_hold("\n### `" PROTO_NOTIFY_SESSION_CLOSED "`\n");
    must_hold("\n### `" PROTO_NOTIFY_DAEMON_DRAINING "`\n");
    must_hold("\n### `" PROTO_NOTIFY_DAEMON_RESUMED "`\n");
    must_hold("\n## How a transfer can end\n");
}
END_TEST

START_TEST(the_document_describes_no_method_that_is_not_there)
{
    read_document();
    for (char *at = document; (at = strstr(at, "\n### `")) != NULL; at++) {
        char name[64];
        size_t length = strcspn(at + 6, "`");
        ck_assert_uint_lt(length, sizeof(name));
        memcpy(name, at + 6, length);
        name[length] = '\0';
        bool notification = strcmp(name, PROTO_NOTIFY_REGION_CLOSED) == 0 ||
                            strcmp(name, PROTO_NOTIFY_SESSION_CLOSED) == 0 ||
                            strcmp(name, PROTO_NOTIFY_DAEMON_DRAINING) == 0 ||
                            strcmp(name, PROTO_NOTIFY_DAEMON_RESUMED) == 0;
        ck_assert_msg(notification || proto_method_find(name) >= 0, "PROTOCOL.md describes `%s`", name);
    }
}
END_TEST

START_TEST(the_document_quotes_the_limits)
{
    char row[64];
    static const struct {
        const char *name;
        unsigned long long value;
    } limits[] = {
        {"version", PROTO_VERSION},         {"message bytes", PROTO_MESSAGE_BYTES},
        {"key bytes", PROTO_KEY_BYTES},     {"keys in a request", PROTO_KEYS},
        {"`id`", (unsigned long long)PROTO_ID_MAX}, {"sizes and offsets", PROTO_SIZE_MAX},
        {"text bytes", PROTO_TEXT_BYTES},   {"times in ms", PROTO_TIME_MS_MAX},
        {"`ttl_ms`", PROTO_TTL_MS_MAX},
        {"page entries", PROTO_PAGE_ENTRIES}, {"slices of a window", PROTO_WINDOW_SLICES},
    };
    read_document();
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        snprintf(row, sizeof(row), "| %s | %llu |", limits[i].name, limits[i].value);
        must_hold(row);
    }
    must_hold(PROTO_CLIENT_SOCKET);
    must_hold(PROTO_ADMIN_SOCKET);
}
END_TEST

UNIT_MAIN("proto_errors", every_error_is_found_both_ways, codes_and_names_are_unique_and_in_range,
          methods_are_found_by_name, the_document_lists_every_error, the_document_describes_every_method,
          the_document_describes_no_method_that_is_not_there, the_document_quotes_the_limits)
