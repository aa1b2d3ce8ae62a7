/*
 * The command line.
 */
#ifndef GRD_CTL_OPTIONS_H
#define GRD_CTL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/exit.h"
#include "client/ctl/number.h"

#define OPTIONS_KEY_PREFIX_BYTES 1024
#define OPTIONS_IN_FLIGHT_MAX 4096

/* Options that not every command takes. */
enum option_bits {
    OPTION_SOCKET = 1,
    OPTION_ADMIN_SOCKET = 2,
    OPTION_KEY_B64 = 4,
    OPTION_QUIET = 8,
    OPTION_DEADLINE = 16,
    OPTION_TTL = 32,
    OPTION_CHECKSUM = 64,
    OPTION_UNDO = 128,
    OPTION_JSON = 256,
    OPTION_KEY_PREFIX = 1 << 16,
    OPTION_CONFIG = 1 << 17,
    OPTION_DAEMON_PROGRAM = 1 << 18,
    OPTION_QUICK = 1 << 19,
    OPTION_REVOCATION_BYTES = 1 << 20,
    OPTION_SIZE = 1 << 21,
    OPTION_IN_FLIGHT = 1 << 22,
    OPTION_MIX = 1 << 23,
    OPTION_SECONDS = 1 << 24,
    OPTION_COUNT = 1 << 25,
    OPTION_VERIFY = 1 << 26,
    OPTION_BOTH_SOCKETS = 1 << 27, /* no option: --socket and --admin-socket may be given together */
};

struct options;

struct command {
    const char *name;
    const char *arguments; /* for the usage text */
    const char *does;
    int words_min, words_max; /* arguments; words_max -1: any number */
    unsigned takes;           /* OPTION_* */
    enum ctl_exit (*run)(const struct options *options);
};

struct options {
    const struct command *command;
    char **words; /* the command's arguments */
    int word_count;
    const char *socket_path;       /* never NULL: the option, the environment, the default */
    const char *admin_socket_path; /* never NULL */
    bool admin;                    /* --admin-socket was given */
    bool json, quiet, key_b64, checksum, undo;
    uint64_t ttl_ms;      /* 0: none */
    uint64_t deadline_ms; /* 0: none */
    /* doctor, bench */
    const char *key_prefix;       /* never NULL */
    const char *config_path;      /* NULL: the daemon's own default */
    const char *daemon_program;   /* NULL: where it is installed, else PATH */
    bool quick;                   /* no revocation check */
    uint64_t revocation_bytes;    /* largest value of the revocation check */
    struct number_list sizes;     /* bytes of a value */
    struct number_list in_flight; /* transfers at once */
    uint64_t mix;                 /* percent of gets */
    uint64_t seconds;             /* of each measurement; 0 where `count` is given */
    uint64_t count;               /* transfers of each measurement; 0: as many as fit into `seconds` */
    bool verify;
};

/*
 * Reads the command line against the commands, which end with an entry without name. *ended: nothing is left to do,
 * and the status is that of the program.
 */
enum ctl_exit options_parse(int argc, char **argv, const struct command *commands, struct options *options,
                            bool *ended);

/* A whole number of seconds as milliseconds, or 0 where the text is none or the time to live would be out of range. */
uint64_t options_seconds(const char *text);

/* Says what is wrong with the command's arguments. */
enum ctl_exit options_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
