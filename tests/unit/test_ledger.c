/* Budgets. */
#include <errno.h>
#include <stdint.h>

#include "daemon/base/ledger.h"
#include "tests/unit/unit_main.h"

START_TEST(charges)
{
    struct ledger ledger = {.limit = 100};

    ck_assert_int_eq(ledger_charge(&ledger, 60), 0);
    ck_assert_int_eq(ledger_charge(&ledger, 41), -ENOSPC);
    ck_assert_uint_eq(ledger.used, 60);
    ck_assert_int_eq(ledger_charge(&ledger, 40), 0);
    ck_assert_int_eq(ledger_charge(&ledger, 0), 0);
    ck_assert_int_eq(ledger_charge(&ledger, 1), -ENOSPC);
    ledger_release(&ledger, 30);
    ck_assert_uint_eq(ledger.used, 70);
}
END_TEST

START_TEST(no_overflow)
{
    struct ledger ledger = {.limit = UINT64_MAX};

    ck_assert_int_eq(ledger_charge(&ledger, UINT64_MAX - 1), 0);
    ck_assert_int_eq(ledger_charge(&ledger, 2), -ENOSPC);
    ck_assert_int_eq(ledger_charge(&ledger, 1), 0);
}
END_TEST

/* A limit lowered below what is in use refuses, and releases go on working. */
START_TEST(lowered_limit)
{
    struct ledger ledger = {.limit = 100};

    ck_assert_int_eq(ledger_charge(&ledger, 80), 0);
    ledger.limit = 50;
    ck_assert_int_eq(ledger_charge(&ledger, 1), -ENOSPC);
    ledger_release(&ledger, 40);
    ck_assert_int_eq(ledger_charge(&ledger, 10), 0);
}
END_TEST

START_TEST(quarantine)
{
    struct ledger ledger = {.limit = 100};

    ck_assert_int_eq(ledger_charge(&ledger, 100), 0);
    ledger_quarantine(&ledger, 70);
    ledger_release(&ledger, 30);
    ck_assert_uint_eq(ledger.used, 70);
    ck_assert_uint_eq(ledger.quarantined, 70);
    ck_assert_int_eq(ledger_charge(&ledger, 31), -ENOSPC);
}
END_TEST

UNIT_MAIN("ledger", charges, no_overflow, lowered_limit, quarantine)
