/* Running another program for what it says. */
#include <errno.h>
#include <string.h>

#include "client/ctl/doctor/program.h"
#include "tests/unit/unit_main.h"

static int shell(char *script, uint64_t timeout_ms, char *output, size_t size)
{
    char name[] = "sh", option[] = "-c";
    char *argv[] = {name, option, script, NULL};

    return program_run(argv, timeout_ms, output, size);
}

START_TEST(says_and_ends)
{
    char output[64], script[] = "echo out; echo err >&2; exit 78";

    ck_assert_int_eq(shell(script, 10000, output, sizeof(output)), 78);
    ck_assert_str_eq(output, "out\nerr\n");
}
END_TEST

START_TEST(says_more_than_fits)
{
    char output[8], script[] = "i=0; while [ $i -lt 50000 ]; do echo 0123456789; i=$((i + 1)); done";

    ck_assert_int_eq(shell(script, 20000, output, sizeof(output)), 0);
    ck_assert_str_eq(output, "0123456");
}
END_TEST

START_TEST(does_not_end)
{
    char output[8], script[] = "echo a; exec sleep 1000";

    ck_assert_int_eq(shell(script, 3000, output, sizeof(output)), -ETIMEDOUT);
    ck_assert_str_eq(output, "a\n");
}
END_TEST

START_TEST(is_killed)
{
    char output[8], script[] = "kill -9 $$";

    ck_assert_int_eq(shell(script, 10000, output, sizeof(output)), -EINTR);
}
END_TEST

START_TEST(is_missing)
{
    char output[8], name[] = "/nonexistent/program", folder[] = "/tmp";
    char *argv[] = {name, NULL}, *no_program[] = {folder, NULL};

    ck_assert_int_eq(program_run(argv, 10000, output, sizeof(output)), -ENOENT);
    ck_assert_int_eq(program_run(no_program, 10000, output, sizeof(output)), -EACCES);
}
END_TEST

UNIT_MAIN("ctl_program", says_and_ends, says_more_than_fits, does_not_end, is_killed, is_missing)
