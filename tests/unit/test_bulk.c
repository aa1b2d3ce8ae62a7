/* The reply that may be a value of any size: the reader sees its head and end, however it is cut. */
#include <string.h>

#include "daemon/valkey/bulk.h"
#include "proto/limits.h"
#include "tests/unit/unit_main.h"

/* Feeds `bytes` in pieces of `piece`, as a connection does. Returns what was left over. */
static size_t feed(struct bulk *bulk, const char *bytes, size_t length, size_t piece, char *value)
{
    size_t at = 0, got = 0;

    bulk_init(bulk);
    while (at < length && bulk->state != BULK_DONE && bulk->state != BULK_BROKEN) {
        size_t here = length - at < piece ? length - at : piece;
        if (bulk->state == BULK_PAYLOAD) {
            here = here < bulk->left ? here : (size_t)bulk->left;
            memcpy(value + got, bytes + at, here);
            got += here;
            bulk_took(bulk, here);
            at += here;
        } else {
            size_t taken = bulk_feed(bulk, bytes + at, here);
            ck_assert_uint_ge(taken, 1);
            at += taken;
        }
    }
    return length - at;
}

START_TEST(a_string_in_any_pieces)
{
    static const char reply[] = "$13\r\nhello\r\n$1\r\n\r\n\r\n+OK\r\n";

    for (size_t piece = 1; piece <= sizeof(reply); piece++) {
        struct bulk bulk;
        char value[64] = "";
        ck_assert_uint_eq(feed(&bulk, reply, sizeof(reply) - 1, piece, value), strlen("+OK\r\n"));
        ck_assert_int_eq(bulk.state, BULK_DONE);
        ck_assert_int_eq(bulk.kind, BULK_STRING);
        ck_assert_uint_eq(bulk.length, 13);
        ck_assert_mem_eq(value, "hello\r\n$1\r\n\r\n", 13);
    }
}
END_TEST

START_TEST(null_error_and_nothing)
{
    static const struct {
        const char *reply;
        enum bulk_kind kind;
        const char *words;
    } cases[] = {
        {"$-1\r\n", BULK_NULL, ""},
        {"-ERR no\r\n", BULK_ERROR, "ERR no"},
        {"-\r\n", BULK_ERROR, ""},
        {"$0\r\n\r\n", BULK_STRING, ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t piece = 1; piece < 10; piece++) {
            struct bulk bulk;
            char value[1];
            ck_assert_uint_eq(feed(&bulk, cases[i].reply, strlen(cases[i].reply), piece, value), 0);
            ck_assert_int_eq(bulk.state, BULK_DONE);
            ck_assert_int_eq(bulk.kind, cases[i].kind);
            if (bulk.kind == BULK_ERROR) {
                ck_assert_str_eq(bulk.line, cases[i].words);
                ck_assert_uint_eq(bulk.line_length, strlen(cases[i].words));
            }
        }
    }
}
END_TEST

START_TEST(lengths)
{
    struct bulk bulk;
    char value[1];

    (void)feed(&bulk, "$9007199254740991\r\n", 19, 19, value);
    ck_assert_int_eq(bulk.state, BULK_PAYLOAD);
    ck_assert_uint_eq(bulk.left, PROTO_SIZE_MAX);
}
END_TEST

START_TEST(what_is_neither_breaks_it)
{
    static const char *const wrong[] = {
        ":5\r\n", "+OK\r\n", "*1\r\n", "_\r\n", "\r\n", "$\r\n", "$-2\r\n", "$-1 \r\n", "$+5\r\n", "$05\r\n", "$ 5\r\n",
        "$5 \r\n", "$0x5\r\n", "$9007199254740992\r\n", "$99999999999999999999\r\n",
        "$5\n", "$5\rx\n", "$5\r\r\n", "$1\r\nxy\r\n",
        "$1\r\nx\n\r", "$1\r\nx\r\r", "-ERR\n", "-ERR\rx\r\n", "$$5\r\n",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        for (size_t piece = 1; piece < 24; piece++) {
            struct bulk bulk;
            char value[64];
            (void)feed(&bulk, wrong[i], strlen(wrong[i]), piece, value);
            ck_assert_msg(bulk.state == BULK_BROKEN, "%s is taken", wrong[i]);
            ck_assert_str_ne(bulk.why, "");
        }
    }
}
END_TEST

START_TEST(a_line_has_a_bound)
{
    char line[BULK_LINE_BYTES + 3];
    struct bulk bulk;
    char value[1];

    memset(line, 'x', sizeof(line));
    line[0] = '-';
    memcpy(line + BULK_LINE_BYTES - 1, "\r\n", 2);
    ck_assert_uint_eq(feed(&bulk, line, BULK_LINE_BYTES + 1, 100, value), 0);
    ck_assert_int_eq(bulk.state, BULK_DONE);
    ck_assert_uint_eq(bulk.line_length, BULK_LINE_BYTES - 2);
    memset(line + 1, 'x', sizeof(line) - 1);
    ck_assert_uint_eq(feed(&bulk, line, sizeof(line), sizeof(line), value), 2);
    ck_assert_int_eq(bulk.state, BULK_BROKEN);
}
END_TEST

UNIT_MAIN("bulk", a_string_in_any_pieces, null_error_and_nothing, lengths, what_is_neither_breaks_it,
          a_line_has_a_bound)
