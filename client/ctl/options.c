#include "client/ctl/options.h"

#include <getopt.h>
#include <glide-rdmad.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"
#include "proto/limits.h"

enum option_letter {
    LETTER_SOCKET = 256,
    LETTER_ADMIN_SOCKET,
    LETTER_JSON,
    LETTER_KEY_B64,
    LETTER_DEADLINE,
    LETTER_TTL,
    LETTER_CHECKSUM,
    LETTER_KEY_PREFIX,
    LETTER_CONFIG,
    LETTER_DAEMON_PROGRAM,
    LETTER_QUICK,
    LETTER_REVOCATION_BYTES,
    LETTER_SIZE,
    LETTER_IN_FLIGHT,
    LETTER_MIX,
    LETTER_SECONDS,
    LETTER_COUNT,
    LETTER_VERIFY,
    LETTER_UNDO,
};

#define KEY_PREFIX "glide-rdmactl:"
#define REVOCATION_BYTES_MIN (UINT64_C(1) << 20)
#define SECONDS_MAX 86400

static const struct option long_options[] = {
    {"socket", required_argument, NULL, LETTER_SOCKET},
    {"admin-socket", required_argument, NULL, LETTER_ADMIN_SOCKET},
    {"json", no_argument, NULL, LETTER_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"key-b64", no_argument, NULL, LETTER_KEY_B64},
    {"deadline", required_argument, NULL, LETTER_DEADLINE},
    {"ttl", required_argument, NULL, LETTER_TTL},
    {"checksum", no_argument, NULL, LETTER_CHECKSUM},
    {"key-prefix", required_argument, NULL, LETTER_KEY_PREFIX},
    {"config", required_argument, NULL, LETTER_CONFIG},
    {"daemon-program", required_argument, NULL, LETTER_DAEMON_PROGRAM},
    {"quick", no_argument, NULL, LETTER_QUICK},
    {"revocation-bytes", required_argument, NULL, LETTER_REVOCATION_BYTES},
    {"size", required_argument, NULL, LETTER_SIZE},
    {"in-flight", required_argument, NULL, LETTER_IN_FLIGHT},
    {"mix", required_argument, NULL, LETTER_MIX},
    {"seconds", required_argument, NULL, LETTER_SECONDS},
    {"count", required_argument, NULL, LETTER_COUNT},
    {"verify", no_argument, NULL, LETTER_VERIFY},
    {"undo", no_argument, NULL, LETTER_UNDO},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* Which commands take it. */
static const struct {
    unsigned bit;
    const char *name;
} limited[] = {
    {OPTION_SOCKET, "--socket"},     {OPTION_ADMIN_SOCKET, "--admin-socket"},
    {OPTION_KEY_B64, "--key-b64"},   {OPTION_QUIET, "--quiet"},
    {OPTION_DEADLINE, "--deadline"}, {OPTION_TTL, "--ttl"},
    {OPTION_CHECKSUM, "--checksum"}, {OPTION_KEY_PREFIX, "--key-prefix"},
    {OPTION_CONFIG, "--config"},     {OPTION_DAEMON_PROGRAM, "--daemon-program"},
    {OPTION_QUICK, "--quick"},       {OPTION_REVOCATION_BYTES, "--revocation-bytes"},
    {OPTION_SIZE, "--size"},         {OPTION_IN_FLIGHT, "--in-flight"},
    {OPTION_MIX, "--mix"},           {OPTION_SECONDS, "--seconds"},
    {OPTION_COUNT, "--count"},       {OPTION_VERIFY, "--verify"},
    {OPTION_UNDO, "--undo"},         {OPTION_JSON, "--json"},
};

static void usage(const struct command *commands)
{
    printf("usage: glide-rdmactl [OPTION]... COMMAND [ARGUMENT]...\n\n"
           "Stores and fetches values through glide-rdmad, and shows what the daemon does.\n\n");
    for (const struct command *command = commands; command->name != NULL; command++) {
        char words[64];

        snprintf(words, sizeof(words), "%s %s", command->name, command->arguments);
        printf("  %-22s %s\n", words, command->does);
    }
    printf("\n  --socket PATH        socket of the daemon (default: $GLIDE_RDMAD_SOCKET, or\n"
           "                       " GRD_DEFAULT_SOCKET ")\n"
           "  --admin-socket PATH  admin socket (default: " PROTO_ADMIN_SOCKET ")\n"
           "  --json               print JSON\n"
           "  -q, --quiet          print nothing but values and errors\n"
           "  --key-b64            keys are given in base64\n"
           "  --deadline MS        give up after so many milliseconds\n"
           "  --ttl SECONDS        put: the key's time to live\n"
           "  --checksum           put: have the server compare a checksum\n"
           "  --key-prefix TEXT    doctor, bench: how their keys begin (default: " KEY_PREFIX ")\n"
           "  --config FILE        doctor: configuration of the daemon (default: the daemon's own)\n"
           "  --daemon-program FILE  doctor: the program glide-rdmad\n"
           "  --quick              doctor: leave the revocation check out\n"
           "  --revocation-bytes BYTES  doctor: largest value of the revocation check (default: 256M)\n"
           "  --size LIST          bench: bytes of a value (default: 4K,64K,1M,16M)\n"
           "  --in-flight LIST     bench: transfers at once (default: 16)\n"
           "  --mix PERCENT        bench: share of gets (default: 50)\n"
           "  --seconds N          bench: time of each measurement (default: 2)\n"
           "  --count N            bench: transfers of each measurement, instead of --seconds\n"
           "  --verify             bench: compare checksums of what is stored and fetched\n"
           "  --undo               drain: take new transfers again\n"
           "  -h, --help           print this and end\n"
           "  -V, --version        print the versions of program and library and end\n");
}

enum ctl_exit options_misuse(const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    report("%s (see glide-rdmactl --help)", text);
    return CTL_USAGE;
}

uint64_t options_seconds(const char *text)
{
    return number_parse(text, PROTO_TTL_MS_MAX / 1000) * 1000;
}

static enum ctl_exit set_ttl(struct options *options, const char *text)
{
    options->ttl_ms = options_seconds(text);
    return options->ttl_ms > 0 ? CTL_OK
                               : options_misuse("--ttl takes 1 to %" PRIu64 " whole seconds, not '%s'",
                                                PROTO_TTL_MS_MAX / 1000, text);
}

static enum ctl_exit set_deadline(struct options *options, const char *text)
{
    options->deadline_ms = number_parse(text, PROTO_TIME_MS_MAX);
    return options->deadline_ms > 0 ? CTL_OK
                                    : options_misuse("--deadline takes milliseconds from 1 to %" PRIu64 ", not '%s'",
                                                     PROTO_TIME_MS_MAX, text);
}

static enum ctl_exit set_sizes(struct number_list *list, const char *option, const char *text, uint64_t most)
{
    return number_list_parse(text, most, list)
               ? CTL_OK
               : options_misuse("%s takes up to %d numbers from 1 to %" PRIu64 ", with K, M or G behind them or not, "
                                "and commas between them; not '%s'", option, NUMBER_LIST, most, text);
}

static enum ctl_exit set_number(uint64_t *value, const char *option, const char *text, uint64_t least, uint64_t most)
{
    *value = number_parse_bytes(text, most);
    if (least == 0 && strcmp(text, "0") == 0) {
        return CTL_OK;
    }
    return *value >= least && *value > 0 ? CTL_OK
                                         : options_misuse("%s takes a number from %" PRIu64 " to %" PRIu64 ", not '%s'",
                                                          option, least, most, text);
}

/* An empty path is a variable of the caller's that was not set: no other is taken in its place. */
static enum ctl_exit set_path(const char **path, const char *option, const char *text)
{
    *path = text;
    return text[0] != '\0' ? CTL_OK : options_misuse("%s takes a path, and has none", option);
}

/* Leaves room for what is put behind it. */
static enum ctl_exit set_key_prefix(struct options *options, const char *text)
{
    options->key_prefix = text;
    return strlen(text) <= OPTIONS_KEY_PREFIX_BYTES
               ? CTL_OK
               : options_misuse("--key-prefix takes at most %d bytes", OPTIONS_KEY_PREFIX_BYTES);
}

/* Of doctor and bench; adds their bit to *given. */
static enum ctl_exit take_measuring(struct options *options, int letter, unsigned *given)
{
    switch (letter) {
    case LETTER_KEY_PREFIX:
        *given |= OPTION_KEY_PREFIX;
        return set_key_prefix(options, optarg);
    case LETTER_CONFIG:
        *given |= OPTION_CONFIG;
        return set_path(&options->config_path, "--config", optarg);
    case LETTER_DAEMON_PROGRAM:
        *given |= OPTION_DAEMON_PROGRAM;
        return set_path(&options->daemon_program, "--daemon-program", optarg);
    case LETTER_QUICK:
        *given |= OPTION_QUICK;
        options->quick = true;
        return CTL_OK;
    case LETTER_REVOCATION_BYTES:
        *given |= OPTION_REVOCATION_BYTES;
        return set_number(&options->revocation_bytes, "--revocation-bytes", optarg, REVOCATION_BYTES_MIN,
                          PROTO_SIZE_MAX);
    case LETTER_SIZE:
        *given |= OPTION_SIZE;
        return set_sizes(&options->sizes, "--size", optarg, PROTO_SIZE_MAX);
    case LETTER_IN_FLIGHT:
        *given |= OPTION_IN_FLIGHT;
        return set_sizes(&options->in_flight, "--in-flight", optarg, OPTIONS_IN_FLIGHT_MAX);
    case LETTER_MIX:
        *given |= OPTION_MIX;
        return set_number(&options->mix, "--mix", optarg, 0, 100);
    case LETTER_SECONDS:
        *given |= OPTION_SECONDS;
        return set_number(&options->seconds, "--seconds", optarg, 1, SECONDS_MAX);
    case LETTER_COUNT:
        *given |= OPTION_COUNT;
        options->seconds = 0;
        return set_number(&options->count, "--count", optarg, 1, PROTO_SIZE_MAX);
    case LETTER_VERIFY:
        *given |= OPTION_VERIFY;
        options->verify = true;
        return CTL_OK;
    default:
        /* getopt has said what is wrong. */
        return CTL_USAGE;
    }
}

/* Those that mean something to some commands only; adds their bit to *given. */
static enum ctl_exit take_limited(struct options *options, int letter, unsigned *given)
{
    switch (letter) {
    case LETTER_SOCKET:
        *given |= OPTION_SOCKET;
        return set_path(&options->socket_path, "--socket", optarg);
    case LETTER_ADMIN_SOCKET:
        options->admin = true;
        *given |= OPTION_ADMIN_SOCKET;
        return set_path(&options->admin_socket_path, "--admin-socket", optarg);
    case LETTER_JSON:
        options->json = true;
        *given |= OPTION_JSON;
        return CTL_OK;
    case 'q':
        options->quiet = true;
        *given |= OPTION_QUIET;
        return CTL_OK;
    case LETTER_KEY_B64:
        options->key_b64 = true;
        *given |= OPTION_KEY_B64;
        return CTL_OK;
    case LETTER_CHECKSUM:
        options->checksum = true;
        *given |= OPTION_CHECKSUM;
        return CTL_OK;
    case LETTER_UNDO:
        options->undo = true;
        *given |= OPTION_UNDO;
        return CTL_OK;
    case LETTER_TTL:
        *given |= OPTION_TTL;
        return set_ttl(options, optarg);
    case LETTER_DEADLINE:
        *given |= OPTION_DEADLINE;
        return set_deadline(options, optarg);
    default:
        return take_measuring(options, letter, given);
    }
}

static enum ctl_exit find_command(const char *name, const struct command *commands, struct options *options)
{
    for (const struct command *command = commands; command->name != NULL; command++) {
        if (strcmp(command->name, name) == 0) {
            options->command = command;
            return CTL_OK;
        }
    }
    return options_misuse("there is no command '%s'", name);
}

static enum ctl_exit check(const struct options *options, unsigned given)
{
    const struct command *command = options->command;

    for (size_t i = 0; i < sizeof(limited) / sizeof(limited[0]); i++) {
        if ((given & limited[i].bit & ~command->takes) != 0) {
            return options_misuse("%s does not take %s", command->name, limited[i].name);
        }
    }
    if (options->word_count < command->words_min ||
        (command->words_max >= 0 && options->word_count > command->words_max)) {
        return options_misuse("usage: glide-rdmactl %s %s", command->name, command->arguments);
    }
    if (options->json && options->quiet) {
        return options_misuse("--json and --quiet exclude each other");
    }
    if (options->admin && (given & OPTION_SOCKET) != 0 && (command->takes & OPTION_BOTH_SOCKETS) == 0) {
        return options_misuse("--socket and --admin-socket exclude each other");
    }
    if ((given & OPTION_SECONDS) != 0 && (given & OPTION_COUNT) != 0) {
        return options_misuse("--seconds and --count exclude each other");
    }
    return CTL_OK;
}

static void defaults(struct options *options)
{
    const char *path = secure_getenv("GLIDE_RDMAD_SOCKET");

    *options = (struct options){
        .socket_path = path != NULL && path[0] != '\0' ? path : GRD_DEFAULT_SOCKET,
        .admin_socket_path = PROTO_ADMIN_SOCKET,
        .key_prefix = KEY_PREFIX,
        .revocation_bytes = UINT64_C(256) << 20,
        .sizes = {{4 << 10, 64 << 10, 1 << 20, 16 << 20}, 4},
        .in_flight = {{16}, 1},
        .mix = 50,
        .seconds = 2,
    };
}

enum ctl_exit options_parse(int argc, char **argv, const struct command *commands, struct options *options,
                            bool *ended)
{
    unsigned given = 0;
    int letter;
    enum ctl_exit status = CTL_OK;

    defaults(options);
    *ended = false;
    while (status == CTL_OK && (letter = getopt_long(argc, argv, "qhV", long_options, NULL)) != -1) {
        if (letter == 'h' || letter == 'V') {
            *ended = true;
            if (letter == 'h') {
                usage(commands);
            } else {
                printf("glide-rdmactl %s (libglide-rdmad-client %s)\n", GRD_VERSION_STRING, grd_version());
            }
            return CTL_OK;
        }
        status = take_limited(options, letter, &given);
    }
    if (status == CTL_OK && optind >= argc) {
        status = options_misuse("a command is missing");
    }
    if (status == CTL_OK) {
        status = find_command(argv[optind], commands, options);
    }
    if (status == CTL_OK) {
        options->words = argv + optind + 1;
        options->word_count = argc - optind - 1;
        status = check(options, given);
    }
    return status;
}
