/*
 * Runs rounds, in a child process. When one fails, the parent looks for a shorter script that fails in the same way and
 * prints it. README.md.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/property/model.h"
#include "tests/rig/daemon.h"

#define TRACE_BYTES 1000
#define MESSAGE_BYTES 600
/* Rounds after which descriptors and mappings are counted: what is allocated once is there by then. */
#define WARM_ROUNDS 20
/* Mappings that the allocator of the process may come to hold. */
#define MAPPINGS_SLACK 24
/* So many rounds meet each of the sights. */
#define ROUNDS_THAT_SEE_ALL 2000
/* A round that takes longer hangs, s. */
#define ROUND_SECONDS 60
#define SHRINK_SECONDS 20

/* What the child tells, in shared memory: it is there also when the child crashes. */
static struct report {
    uint64_t seed;
    uint64_t rounds; /* that ended well */
    unsigned step;
    int line; /* of the check that failed; 0: none */
    uint64_t sights[SIGHT_COUNT];
    char message[MESSAGE_BYTES];
    char trace[STEPS + 2][TRACE_BYTES];
} *report;

static bool verbose;

/* --- random numbers: splitmix64 ----------------------------------------------------------------------------------- */

static uint64_t random_state;

void random_seed(uint64_t seed)
{
    random_state = seed;
}

uint32_t random_next(void)
{
    uint64_t mixed = random_state += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(mixed >> 32);
}

uint32_t random_below(uint32_t limit)
{
    return random_next() % limit;
}

bool random_percent(unsigned percent)
{
    return random_below(100) < percent;
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

void step_begins(unsigned number)
{
    if (number == 0) {
        memset(report->trace, 0, sizeof(report->trace));
    }
    report->step = number;
}

void trace(const char *format, ...)
{
    char *text = report->trace[report->step];
    size_t used = strlen(text);
    va_list arguments;

    if (used > 0 && used + 2 < TRACE_BYTES) {
        memcpy(text + used, "; ", 3);
        used += 2;
    }
    va_start(arguments, format);
    vsnprintf(text + used, TRACE_BYTES - used, format, arguments);
    va_end(arguments);
    if (verbose) {
        fprintf(stderr, "step %u: %s\n", report->step, text + used);
    }
}

void rig_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(report->message, sizeof(report->message), format, arguments);
    va_end(arguments);
    report->line = line;
    _exit(1);
}

static void print_report(const bool skip[STEPS])
{
    printf("# round of seed %" PRIu64 ", step by step (it fails in the last one):\n", report->seed);
    for (unsigned i = 0; i < STEPS + 2 && i <= report->step; i++) {
        if (report->trace[i][0] != '\0') {
            printf("#   %3u  %s\n", i, report->trace[i]);
        }
    }
    printf("# replay: property --seed %" PRIu64 " --rounds 1", report->seed);
    if (skip != NULL) {
        const char *separator = " --only ";
        for (unsigned i = 0; i <= STEPS; i++) {
            if (i == STEPS ? separator[1] == '-' : !skip[i]) {
                printf("%s%u", separator, i == STEPS ? 0 : i + 1);
                separator = ",";
            }
        }
    }
    printf(" --verbose\n");
}

void saw(enum sight sight)
{
    report->sights[sight]++;
}

static const char *const sight_words[] = {
#define SIGHT_WORDS(symbol, words) words,
    SIGHTS(SIGHT_WORDS)
#undef SIGHT_WORDS
};

/* --- leaks of the process ----------------------------------------------------------------------------------------- */

static unsigned count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static unsigned count_mappings(bool files)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned count = 0;

    while (fgets(line, sizeof(line), maps) != NULL) {
        count += !files || strstr(line, "memfd:property") != NULL;
    }
    fclose(maps);
    return count;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static void run_rounds(uint64_t seed, uint64_t rounds, const bool skip[STEPS])
{
    unsigned descriptors = 0, mappings = 0;

    rig_init();
    files_init();
    clients_init();
    for (uint64_t i = 0; i < rounds; i++) {
        report->seed = seed + i;
        alarm(ROUND_SECONDS);
        round_run(seed + i, skip);
        report->rounds++;
        if (i + 1 == WARM_ROUNDS) {
            descriptors = count_descriptors();
            mappings = count_mappings(false);
        }
        if (i >= WARM_ROUNDS && i % 100 == 0) {
            RIG_CHECK(count_descriptors() == descriptors, "%u descriptors became %u in %" PRIu64 " rounds", descriptors,
                      count_descriptors(), i);
        }
    }
    for (int i = 0; i < SIGHT_COUNT; i++) {
        RIG_CHECK(rounds < ROUNDS_THAT_SEE_ALL || report->sights[i] > 0, "%" PRIu64 " rounds met no %s", rounds,
                  sight_words[i]);
    }
    RIG_CHECK(count_mappings(true) == FILES, "%u mappings of memory files are left", count_mappings(true) - FILES);
    RIG_CHECK(rounds < 1000 || count_mappings(false) <= mappings + MAPPINGS_SLACK,
              "%u mappings became %u in %" PRIu64 " rounds", mappings, count_mappings(false), rounds);
}

/* 0: all went well. */
static int run_child(uint64_t seed, uint64_t rounds, const bool skip[STEPS], bool quiet)
{
    int status = 0;
    pid_t child;

    report->line = 0;
    report->rounds = 0;
    report->message[0] = '\0';
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (quiet) {
            int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
            dup2(nowhere, STDERR_FILENO);
        }
        run_rounds(seed, rounds, skip);
        exit(0); /* not _exit: leaks are looked for */
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        printf("Bail out! errno %d\n", errno);
        exit(1);
    }
    if (status != 0 && report->message[0] == '\0') {
        report->line = -status;
        snprintf(report->message, sizeof(report->message), "the daemon %s (%s)",
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "hangs" : "crashes",
                 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see its words above");
    }
    return status;
}

/* Leaves out steps, many at a time and then single ones, as long as the same check fails. */
static void shrink(bool skip[STEPS])
{
    struct report first = *report;
    time_t end = time(NULL) + SHRINK_SECONDS;

    for (unsigned i = 0; i < STEPS; i++) {
        skip[i] = i + 1 > first.step;
    }
    for (unsigned size = STEPS / 4; size > 0; size /= 2) {
        for (unsigned at = 0; at < STEPS && time(NULL) < end; at += size) {
            bool shorter[STEPS], changed = false;
            memcpy(shorter, skip, sizeof(shorter));
            for (unsigned i = at; i < at + size && i < STEPS; i++) {
                changed |= !shorter[i];
                shorter[i] = true;
            }
            if (changed && run_child(first.seed, 1, shorter, true) != 0 && report->line == first.line) {
                memcpy(skip, shorter, sizeof(shorter));
            }
        }
    }
    if (run_child(first.seed, 1, skip, true) == 0 || report->line != first.line) {
        *report = first; /* it takes more than this round */
    }
}

static int usage(void)
{
    printf("usage: property [--seed N] [--rounds N] [--only STEP,STEP...] [--provider NAME]\n"
           "                [--no-shrink] [--verbose]\n");
    return 2;
}

struct arguments {
    uint64_t seed, rounds;
    bool skips, shrinks;
    bool skip[STEPS];
};

/* "0" is none. */
static void read_only(struct arguments *arguments, char *list)
{
    char *rest = NULL;

    memset(arguments->skip, true, sizeof(arguments->skip));
    arguments->skips = true;
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        unsigned long number = strtoul(word, NULL, 10);
        if (number >= 1 && number <= STEPS) {
            arguments->skip[number - 1] = false;
        }
    }
}

static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    *arguments = (struct arguments){.seed = 1, .rounds = 1000, .shrinks = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if (strcmp(argv[i], "--no-shrink") == 0) {
            arguments->shrinks = false;
        } else if (i + 1 == argc) {
            return false;
        } else if (strcmp(argv[i], "--seed") == 0) {
            arguments->seed = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            arguments->rounds = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--provider") == 0) {
            if (!round_choose_provider(argv[++i])) {
                return false;
            }
        } else if (strcmp(argv[i], "--only") == 0) {
            read_only(arguments, argv[++i]);
        } else {
            return false;
        }
    }
    return true;
}

/* What the daemon keeps to its end of memory that a failed close left is no leak. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:arena_create\nleak:cut_slices\n";
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    int status;

    if (!read_arguments(argc, argv, &arguments)) {
        return usage();
    }
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) {
        return 1;
    }
    printf("1..1\n# seeds %" PRIu64 " to %" PRIu64 "\n", arguments.seed, arguments.seed + arguments.rounds - 1);
    status = run_child(arguments.seed, arguments.rounds, arguments.skips ? arguments.skip : NULL, false);
    if (status == 0) {
        for (int i = 0; i < SIGHT_COUNT; i++) {
            printf("# %8" PRIu64 " %s\n", report->sights[i], sight_words[i]);
        }
        printf("ok 1 - %" PRIu64 " rounds\n", report->rounds);
        return 0;
    }
    printf("not ok 1 - %s (seed %" PRIu64 ", step %u)\n", report->message, report->seed, report->step);
    if (arguments.shrinks && !arguments.skips) {
        shrink(arguments.skip);
        arguments.skips = true;
    }
    print_report(arguments.skips ? arguments.skip : NULL);
    return 1;
}
