/*
 * A check of the parts that play the daemon's surroundings: a property that does not hold ends the run. Who links them
 * says how.
 */
#ifndef GRD_TESTS_RIG_CHECK_H
#define GRD_TESTS_RIG_CHECK_H

#define RIG_CHECK(condition, ...)                                                                                     \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            rig_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                                    \
        }                                                                                                             \
    } while (0)

/* Of the program that links the parts: says what does not hold, and ends it. */
_Noreturn void rig_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
