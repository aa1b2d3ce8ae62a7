/* Numbers of the command line: digits, units, bounds and lists. */
#include "client/ctl/number.h"
#include "tests/unit/unit_main.h"

START_TEST(digits)
{
    ck_assert_uint_eq(number_parse("1", 10), 1);
    ck_assert_uint_eq(number_parse("10", 10), 10);
    ck_assert_uint_eq(number_parse("007", 10), 7);
    ck_assert_uint_eq(number_parse("18446744073709551615", UINT64_MAX), UINT64_MAX);
    ck_assert_uint_eq(number_parse("18446744073709551616", UINT64_MAX), 0);
    ck_assert_uint_eq(number_parse("11", 10), 0);
    ck_assert_uint_eq(number_parse("", 10), 0);
    ck_assert_uint_eq(number_parse("-1", 10), 0);
    ck_assert_uint_eq(number_parse("+1", 10), 0);
    ck_assert_uint_eq(number_parse(" 1", 10), 0);
    ck_assert_uint_eq(number_parse("1x", 10), 0);
}
END_TEST

START_TEST(units)
{
    ck_assert_uint_eq(number_parse_bytes("5", 10), 5);
    ck_assert_uint_eq(number_parse_bytes("4K", 1 << 20), 4096);
    ck_assert_uint_eq(number_parse_bytes("3M", 1 << 22), 3 << 20);
    ck_assert_uint_eq(number_parse_bytes("2G", UINT64_MAX), UINT64_C(2) << 30);
    ck_assert_uint_eq(number_parse_bytes("2K", 2048), 2048);
    ck_assert_uint_eq(number_parse_bytes("2K", 2047), 0);
    ck_assert_uint_eq(number_parse_bytes("18014398509481984K", UINT64_MAX), 0);
    ck_assert_uint_eq(number_parse_bytes("K", 4096), 0);
    ck_assert_uint_eq(number_parse_bytes("1k", 4096), 0);
    ck_assert_uint_eq(number_parse_bytes("1KK", 4096), 0);
    ck_assert_uint_eq(number_parse_bytes("", 4096), 0);
    ck_assert_uint_eq(number_parse_bytes("00000000000000000000000000000000000001", 4096), 0);
}
END_TEST

START_TEST(lists)
{
    struct number_list list;

    ck_assert(number_list_parse("4K,1", 1 << 20, &list));
    ck_assert_uint_eq(list.count, 2);
    ck_assert_uint_eq(list.values[0], 4096);
    ck_assert_uint_eq(list.values[1], 1);
    ck_assert(number_list_parse("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", 100, &list));
    ck_assert_uint_eq(list.count, NUMBER_LIST);
    ck_assert(!number_list_parse("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", 100, &list));
    ck_assert(!number_list_parse("", 100, &list));
    ck_assert(!number_list_parse("1,", 100, &list));
    ck_assert(!number_list_parse(",1", 100, &list));
    ck_assert(!number_list_parse("1,,2", 100, &list));
    ck_assert(!number_list_parse("1,101", 100, &list));
}
END_TEST

UNIT_MAIN("ctl_number", digits, units, lists)
