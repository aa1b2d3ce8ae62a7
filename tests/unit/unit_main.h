/*
 * Runs one suite of check and reports as TAP on standard output, for `meson test` with protocol 'tap'. Each test
 * function runs in a process of its own unless CK_FORK=no is in the environment (for a debugger).
 */
#ifndef GRD_TESTS_UNIT_MAIN_H
#define GRD_TESTS_UNIT_MAIN_H

#include <check.h>
#include <stdlib.h>

/* What a test function that hangs is given. The longest take a quarter of it with a sanitizer on a busy machine. */
#define UNIT_SECONDS 120

/* An assertion for long loops: check writes each of its own to a file, although all is well. */
#define UNIT_EXPECT(condition, ...)                                                                                   \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            ck_abort_msg(__VA_ARGS__);                                                                                \
        }                                                                                                             \
    } while (0)

/* Takes the suite over; returns the exit code of the program. */
static inline int unit_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A suite with one test case, which most programs are. */
#define UNIT_MAIN(name, ...)                                                                                          \
    int main(void)                                                                                                    \
    {                                                                                                                 \
        const TTest *const unit_tests[] = {__VA_ARGS__};                                                              \
        Suite *unit_suite = suite_create(name);                                                                       \
        TCase *unit_case = tcase_create(name);                                                                        \
        tcase_set_timeout(unit_case, UNIT_SECONDS);                                                                   \
        for (size_t i = 0; i < sizeof(unit_tests) / sizeof(unit_tests[0]); i++) {                                     \
            tcase_add_test(unit_case, unit_tests[i]);                                                                 \
        }                                                                                                             \
        suite_add_tcase(unit_suite, unit_case);                                                                       \
        return unit_run(unit_suite);                                                                                  \
    }

#endif
