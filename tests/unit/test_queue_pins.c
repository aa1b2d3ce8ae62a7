/* What connections register for themselves, in the budget of registered memory. */
#include <errno.h>
#include <string.h>

#include "daemon/memory/memory.h"
#include "tests/unit/unit_main.h"

static struct fabric fabric;
static struct budget budget;
static struct pin_account account;
static char why[PIN_ACCOUNT_WHY_BYTES];

static void start(uint64_t limit)
{
    struct budget_settings settings = {.limit = {.bytes = limit, .source = "pinned_limit", .rlimit = UINT64_MAX}};

    budget_init(&budget, &settings, &fabric);
    account = budget_queue_account(&budget);
}

START_TEST(charged_and_given_back)
{
    start(1000);
    ck_assert_int_eq(account.charge(account.context, 400, why), 0);
    ck_assert_int_eq(account.charge(account.context, 600, why), 0);
    ck_assert_uint_eq(budget.memlock.used, 1000);
    ck_assert_uint_eq(budget.queues, 1000);
    account.release(account.context, 400);
    ck_assert_uint_eq(budget.memlock.used, 600);
    ck_assert_uint_eq(budget.queues, 600);
    account.release(account.context, 600);
    ck_assert_uint_eq(budget.memlock.used, 0);
    ck_assert_uint_eq(budget.queues, 0);
}
END_TEST

/* One account for both: what clients registered leaves less for connections, and the other way round. */
START_TEST(shared_with_what_clients_register)
{
    struct charge memory = {.bytes = 700, .registrations = 1};
    struct memory_error error;

    start(1000);
    ck_assert_int_eq(budget_charge(&budget, 0, memory, &error), 0);
    ck_assert_int_eq(account.charge(account.context, 301, why), -ENOSPC);
    ck_assert_int_eq(account.charge(account.context, 300, why), 0);
    ck_assert_uint_eq(budget.devices[0].bytes.used, 700);
    budget_release(&budget, 0, memory);
    ck_assert_int_eq(account.charge(account.context, 600, why), 0);
    ck_assert_int_ne(budget_charge(&budget, 0, memory, &error), 0);
    ck_assert_uint_eq(error.used, 900);
}
END_TEST

START_TEST(a_refusal_names_every_number)
{
    static const char *const words[] = {"163841 bytes", "800000 of 900000 bytes", "300000 of them by connections",
                                        "pinned_limit"};
    struct charge memory = {.bytes = 500000, .registrations = 1};
    struct memory_error error;

    start(900000);
    ck_assert_int_eq(budget_charge(&budget, 0, memory, &error), 0);
    ck_assert_int_eq(account.charge(account.context, 300000, why), 0);
    ck_assert_int_eq(account.charge(account.context, 163841, why), -ENOSPC);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        ck_assert_msg(strstr(why, words[i]) != NULL, "%s: %s", words[i], why);
    }
    ck_assert_uint_eq(budget.memlock.used, 800000);
    ck_assert_uint_eq(budget.queues, 300000);
}
END_TEST

/* pinned_limit was lowered by a reload. */
START_TEST(nothing_more_above_a_limit_that_was_lowered)
{
    struct budget_settings lower = {.limit = {.bytes = 100, .source = "pinned_limit", .rlimit = UINT64_MAX}};

    start(1000);
    ck_assert_int_eq(account.charge(account.context, 400, why), 0);
    budget_set_limits(&budget, &lower);
    ck_assert_int_eq(account.charge(account.context, 1, why), -ENOSPC);
    account.release(account.context, 400);
    ck_assert_int_eq(account.charge(account.context, 100, why), 0);
}
END_TEST

UNIT_MAIN("queue_pins", charged_and_given_back, shared_with_what_clients_register, a_refusal_names_every_number,
          nothing_more_above_a_limit_that_was_lowered)
