/*
 * glide-rdmactl: values and keys from the shell, and a look at what glide-rdmad does. See glide-rdmactl(1).
 */
#include <errno.h>
#include <string.h>

#include "client/ctl/commands.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/progress.h"
#include "client/ctl/report.h"
#include "proto/standard_streams.h"

#define ON_CLIENT_SOCKET (OPTION_SOCKET | OPTION_DEADLINE | OPTION_JSON)
#define ON_KEYS (ON_CLIENT_SOCKET | OPTION_KEY_B64 | OPTION_QUIET)
#define ON_ADMIN_SOCKET (OPTION_ADMIN_SOCKET | OPTION_DEADLINE | OPTION_JSON)

static const struct command commands[] = {
    {"put", "KEY FILE|-", "store a file as the value of the key", 2, 2, ON_KEYS | OPTION_TTL | OPTION_CHECKSUM,
     command_put},
    {"get", "KEY FILE|-", "fetch the value of the key into a file", 2, 2, ON_KEYS, command_get},
    {"exists", "KEY...", "do the keys exist?", 1, -1, ON_KEYS, command_exists},
    {"del", "KEY...", "delete the keys", 1, -1, ON_KEYS, command_del},
    {"info", "KEY", "length and checksum of the value", 1, 1, ON_KEYS, command_info},
    {"expire", "KEY SECONDS", "give the key a time to live", 2, 2, ON_KEYS, command_expire},
    {"status", "", "the daemon, its fabric and its server", 0, 0, ON_CLIENT_SOCKET | OPTION_ADMIN_SOCKET,
     command_status},
    {"clients", "", "all sessions (admin socket)", 0, 0, ON_ADMIN_SOCKET, command_clients},
    {"regions", "", "all regions (admin socket)", 0, 0, ON_ADMIN_SOCKET, command_regions},
    {"transfers", "", "transfers in progress (admin socket)", 0, 0, ON_ADMIN_SOCKET, command_transfers},
    {"users", "", "use and quotas of each user (admin socket)", 0, 0, ON_ADMIN_SOCKET, command_users},
    {"nodes", "", "the Valkey servers (admin socket)", 0, 0, ON_ADMIN_SOCKET, command_nodes},
    {"metrics", "", "all numbers, as OpenMetrics text (admin socket)", 0, 0, ON_ADMIN_SOCKET & ~OPTION_JSON,
     command_metrics},
    {"doctor", "", "check everything between a program and the server", 0, 0,
     ON_CLIENT_SOCKET | OPTION_ADMIN_SOCKET | OPTION_BOTH_SOCKETS | OPTION_KEY_PREFIX | OPTION_CONFIG |
         OPTION_DAEMON_PROGRAM | OPTION_QUICK | OPTION_REVOCATION_BYTES,
     command_doctor},
    {"bench", "", "measure sets and gets through the daemon", 0, 0,
     ON_CLIENT_SOCKET | OPTION_KEY_PREFIX | OPTION_SIZE | OPTION_IN_FLIGHT | OPTION_MIX | OPTION_SECONDS |
         OPTION_COUNT | OPTION_VERIFY,
     command_bench},
    {"log-level", "[LEVEL]", "print or set the level of the log (admin socket)", 0, 1, ON_ADMIN_SOCKET,
     command_log_level},
    {"reload", "", "read the configuration again (admin socket)", 0, 0, ON_ADMIN_SOCKET, command_reload},
    {"drain", "", "stop new transfers, wait for the others (admin socket)", 0, 0,
     ON_ADMIN_SOCKET | OPTION_QUIET | OPTION_UNDO, command_drain},
    {0},
};

/* What was printed must have arrived. */
static enum ctl_exit flush(enum ctl_exit status)
{
    int error = standard_streams_flush();

    if (error == 0) {
        return status;
    }
    if (error != EPIPE) {
        report("cannot write standard output: %s", strerror(error));
    }
    return CTL_IO;
}

int main(int argc, char **argv)
{
    struct options options;
    bool ended;
    enum ctl_exit status;

    standard_streams_fill();
    interrupt_install();
    status = options_parse(argc, argv, commands, &options, &ended);
    if (status == CTL_OK && !ended) {
        status = options.command->run(&options);
    }
    progress_end();
    return flush(status);
}
