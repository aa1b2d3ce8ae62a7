/* The public list of errors is the protocol's list; texts and names; what an answer's data becomes. */
#include <string.h>

#include "client/private.h"
#include "proto/errors.h"
#include "unit_main.h"

START_TEST(lists_agree)
{
#define AGREE(symbol, number, wire_name, text)                                                                        \
    ck_assert_int_eq((int)GRD_ERR_##symbol, (int)PROTO_ERR_##symbol);                                                 \
    ck_assert_int_eq((int)GRD_ERR_##symbol, number);                                                                  \
    ck_assert_str_eq(grd_strerror(number), text);
    PROTO_ERRORS(AGREE)
#undef AGREE
    ck_assert_int_eq(GRD_OK, 0);
    ck_assert_int_eq(GRD_KEY_BYTES_MAX, PROTO_KEY_BYTES);
    ck_assert_str_eq(GRD_DEFAULT_SOCKET, PROTO_CLIENT_SOCKET);
}
END_TEST

START_TEST(every_code_has_a_text)
{
    ck_assert_str_eq(grd_strerror(0), "success");
    ck_assert_uint_gt(strlen(grd_strerror(-59)), 0);
    ck_assert_uint_gt(strlen(grd_strerror(12345)), 0);
    ck_assert_str_eq(grd_version(), GRD_VERSION_STRING);
}
END_TEST

START_TEST(data_of_an_answer)
{
    json_t *data = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:b}", "name", "over_budget", "budget", "memlock",
                             "used", 1, "limit", 2, "asked", 3, "need", 4, "may_have_run", 1, "memory_released", 0);
    struct proto_answer answer = {.code = GRD_ERR_OVER_BUDGET, .message = "too much", .data = data};
    struct grd_error error;

    ck_assert_int_eq(error_from_answer(&answer, &error), GRD_ERR_OVER_BUDGET);
    ck_assert_int_eq(error.code, GRD_ERR_OVER_BUDGET);
    ck_assert_str_eq(error.name, "over_budget");
    ck_assert_str_eq(error.message, "too much");
    ck_assert_str_eq(error.budget, "memlock");
    ck_assert_uint_eq(error.used, 1);
    ck_assert_uint_eq(error.limit, 2);
    ck_assert_uint_eq(error.asked, 3);
    ck_assert_uint_eq(error.need, 4);
    ck_assert(error.may_have_run);
    ck_assert(error.memory_kept);
    json_decref(data);
}
END_TEST

START_TEST(answers_that_lie_or_say_little)
{
    json_t *data = json_pack("{s:i, s:s, s:i}", "name", 7, "used", "many", "need", -4);
    struct proto_answer answer = {.code = -7, .data = data};
    struct grd_error error;

    ck_assert_int_eq(error_from_answer(&answer, &error), -7);
    ck_assert_str_eq(error.message, grd_strerror(-7));
    ck_assert_str_eq(error.name, "over_budget");
    ck_assert_uint_eq(error.need, 0);
    ck_assert_uint_eq(error.used, 0);
    answer.code = 5;
    ck_assert_int_eq(error_from_answer(&answer, &error), GRD_ERR_PROTOCOL);
    json_decref(data);
}
END_TEST

/* Texts longer than their field are cut, and stay UTF-8. */
START_TEST(long_texts_are_cut)
{
    char text[2048];
    struct proto_answer answer = {.code = -1, .message = text};
    struct grd_error error;
    json_t *checked;

    for (size_t i = 0; i + 3 < sizeof(text); i += 2) {
        memcpy(text + i, "\xc3\xa9", 3);
    }
    error_from_answer(&answer, &error);
    checked = json_string(error.message);
    ck_assert_ptr_nonnull(checked);
    json_decref(checked);
    ck_assert_uint_ge(strlen(error.message), sizeof(error.message) - 4);
    ck_assert_int_eq(error_set(&error, -2, "%s", text), -2);
    ck_assert_uint_lt(strlen(error.message), sizeof(error.message));
    ck_assert_int_eq(error_set(NULL, -2, "%s", text), -2);
}
END_TEST

UNIT_MAIN("client_errors", lists_agree, every_code_has_a_text, data_of_an_answer, answers_that_lie_or_say_little,
          long_texts_are_cut)
