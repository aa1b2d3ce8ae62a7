/*
 * A command on one key, sent on the control connection of the node that serves the key, and sent again where that is
 * safe: when the server refused it without running it (redirect.h), also because the connection was not logged in any
 * more, or when it cannot have left. What may have run is
 * never sent again.
 *
 * Intrusive; the words are borrowed from the start until `done`. Loop thread only.
 */
#ifndef GRD_VALKEY_KEY_COMMAND_H
#define GRD_VALKEY_KEY_COMMAND_H

#include "daemon/valkey/deployment.h"

#define KEY_COMMAND_WORDS 3

struct key_command {
    /* set by the caller; argv[1] is the key */
    int argc;
    const char *argv[KEY_COMMAND_WORDS];
    size_t lengths[KEY_COMMAND_WORDS];
    /*
     * Once, perhaps from inside key_command_start. `reply`, borrowed, is the server's: also an error, and also a
     * refusal after the last attempt. NULL: there is none, `code` (proto error) and `why` say why.
     */
    void (*done)(struct key_command *command, const redisReply *reply, int code, const char *why);

    /* private */
    struct resp_request request;
    struct resp_asking asked;
    struct deployment *deployment;
    struct member *member; /* held while the command is with it, or is to go to it */
    bool asking;
    bool refused; /* once, by a server that ran nothing, or by a connection that ends for another to follow */
    unsigned slot, attempts;
    unsigned logins; /* times that the connection was not logged in any more */
    uint64_t due; /* uv_now, while it waits for its next attempt */
    TAILQ_ENTRY(key_command) link;
};

void key_command_start(struct deployment *deployment, struct key_command *command);

/* Private to the deployment: commands that wait for their next attempt. */
TAILQ_HEAD(key_command_list, key_command);
struct key_commands {
    uv_timer_t timer;                /* runs while one waits; closed by the deployment */
    struct key_command_list waiting; /* by `due` */
};
void key_commands_init(struct key_commands *commands, uv_loop_t *loop);
/* Ends all that wait. */
void key_commands_stop(struct key_commands *commands);

#endif
