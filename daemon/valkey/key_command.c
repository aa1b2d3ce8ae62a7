#include "daemon/valkey/key_command.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "daemon/valkey/deployment_private.h"
#include "proto/errors.h"

#define LOGINS 3

static void attempt(struct key_command *command);

static struct key_command *of_request(struct resp_request *request)
{
    return (struct key_command *)((char *)request - offsetof(struct key_command, request));
}

static void let_go(struct key_command *command)
{
    struct member *member = command->member;

    command->member = NULL;
    if (member != NULL) {
        deployment_let_go(member);
    }
}

/* The member is let go of last: its words are borrowed. */
static void end(struct key_command *command, const redisReply *reply, int code, const char *why)
{
    struct member *member = command->member;

    command->member = NULL;
    command->done(command, reply, code, why);
    if (member != NULL) {
        deployment_let_go(member);
    }
}

/* --- waiting for the next attempt --- */

static void on_timer(uv_timer_t *timer);

static void run_timer(struct key_commands *commands)
{
    const struct key_command *first = TAILQ_FIRST(&commands->waiting);
    uint64_t now = uv_now(commands->timer.loop);

    if (first == NULL) {
        uv_timer_stop(&commands->timer);
    } else {
        uv_timer_start(&commands->timer, on_timer, first->due > now ? first->due - now : 0, 0);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct key_commands *commands = timer->data;
    struct key_command *command;
    uint64_t now = uv_now(timer->loop);

    while ((command = TAILQ_FIRST(&commands->waiting)) != NULL && command->due <= now) {
        TAILQ_REMOVE(&commands->waiting, command, link);
        attempt(command);
    }
    run_timer(commands);
}

/* Most waits are as long as the one before: the place is found from the end. */
static void wait_until_due(struct key_command *command, unsigned ms)
{
    struct key_commands *commands = &command->deployment->key_commands;
    struct key_command *before = TAILQ_LAST(&commands->waiting, key_command_list);

    command->due = uv_now(commands->timer.loop) + ms;
    while (before != NULL && before->due > command->due) {
        before = TAILQ_PREV(before, key_command_list, link);
    }
    if (before != NULL) {
        TAILQ_INSERT_AFTER(&commands->waiting, before, command, link);
    } else {
        TAILQ_INSERT_HEAD(&commands->waiting, command, link);
    }
    run_timer(commands);
}

/* --- answers --- */

static const struct redirect for_now = {.kind = REDIRECT_LATER};

/* The connection's login is gone: the next one reads password_file anew. Not for ever, of a server that forgets. */
static bool logs_in_again(struct key_command *command, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR || !redirect_wants_login(reply->str, reply->len) ||
        command->deployment->config->password_file == NULL || command->logins == LOGINS) {
        return false;
    }
    command->logins++;
    command->refused = true;
    let_go(command);
    command->asking = false;
    wait_until_due(command, redirect_delay_ms(&for_now, command->attempts));
    return true;
}

/* True: it goes to the member that the server named, or to whoever serves the slot. */
static bool is_sent_again(struct key_command *command, const redisReply *reply)
{
    struct member *next;
    struct redirect redirect;
    bool cluster = deployment_is_cluster(command->deployment);

    redirect_parse(reply, &redirect);
    if (redirect.kind == REDIRECT_NONE || command->attempts >= REDIRECT_ATTEMPTS ||
        (!cluster && (redirect.kind == REDIRECT_MOVED || redirect.kind == REDIRECT_ASK))) {
        return false;
    }
    next = deployment_redirect(command->member, &redirect);
    if (next != NULL) {
        deployment_hold(next);
    }
    let_go(command);
    command->member = next;
    command->asking = next != NULL && redirect.kind == REDIRECT_ASK;
    command->refused = true;
    wait_until_due(command, redirect_delay_ms(&redirect, command->attempts));
    return true;
}

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct key_command *command = of_request(request);

    if (!logs_in_again(command, reply) && !is_sent_again(command, reply)) {
        end(command, reply, 0, "");
    }
}

/* Nothing ran: in a cluster another node may serve the slot soon; so may another server, where one refused as after a
 * failover. */
static void not_sent(struct key_command *command, int code, const char *why)
{
    bool may_move = command->refused || deployment_is_cluster(command->deployment);

    if (code != PROTO_ERR_SERVER_DOWN || !may_move || command->attempts >= REDIRECT_ATTEMPTS ||
        command->deployment->stopping) {
        end(command, NULL, code, why);
        return;
    }
    let_go(command);
    command->asking = false;
    wait_until_due(command, redirect_delay_ms(&for_now, command->attempts));
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct key_command *command = of_request(request);

    if (may_have_run) {
        end(command, NULL, PROTO_ERR_LOST, why);
    } else {
        not_sent(command, PROTO_ERR_SERVER_DOWN, why);
    }
}

/* --- sending --- */

static void send_failed(struct key_command *command, int status)
{
    struct node_health health;
    char why[NODE_WHY_BYTES + 64];

    if (status == -ENOBUFS) {
        end(command, NULL, PROTO_ERR_BUSY, "too many commands wait for the server; try again later");
        return;
    }
    if (status == -ENOMEM) {
        end(command, NULL, PROTO_ERR_SYSTEM, "the daemon is out of memory");
        return;
    }
    node_health(command->member->node, &health);
    if (status == -EAGAIN) {
        snprintf(why, sizeof(why), "the connection to %s is being replaced", health.address);
        command->refused = true;
        not_sent(command, PROTO_ERR_SERVER_DOWN, why);
        return;
    }
    command->refused |= health.put_off;
    snprintf(why, sizeof(why), "%s is %s: %s", health.address, health.state, health.why);
    if (health.login_refused && command->logins > 0) {
        end(command, NULL, PROTO_ERR_SERVER_DOWN, why);
    } else {
        not_sent(command, PROTO_ERR_SERVER_DOWN, why);
    }
}

static void attempt(struct key_command *command)
{
    struct node *node;
    int status;

    command->attempts++;
    if (command->member == NULL) {
        command->asking = false;
        command->member = deployment_member_of(command->deployment, command->slot);
        if (command->member == NULL) {
            char why[NODE_WHY_BYTES];
            bool later;
            int code = map_describe_lack(command->deployment, &later, why, sizeof(why));
            if (later || map_is_coming(command->deployment)) {
                not_sent(command, PROTO_ERR_SERVER_DOWN, why);
            } else {
                end(command, NULL, code, why);
            }
            return;
        }
        deployment_hold(command->member);
    }
    node = command->member->node;
    command->request.reply = on_reply;
    command->request.lost = on_lost;
    status = command->asking ? node_command_asking(node, &command->asked, &command->request, command->argc,
                                                   command->argv, command->lengths)
                             : node_command(node, &command->request, command->argc, command->argv, command->lengths);
    if (status != 0) {
        send_failed(command, status);
    }
}

void key_command_start(struct deployment *deployment, struct key_command *command)
{
    command->deployment = deployment;
    command->member = NULL;
    command->attempts = command->logins = 0;
    command->refused = false;
    command->slot = deployment_slot(deployment, command->argv[1], command->lengths[1]);
    attempt(command);
}

void key_commands_init(struct key_commands *commands, uv_loop_t *loop)
{
    uv_timer_init(loop, &commands->timer);
    commands->timer.data = commands;
    TAILQ_INIT(&commands->waiting);
}

void key_commands_stop(struct key_commands *commands)
{
    struct key_command *command;

    while ((command = TAILQ_FIRST(&commands->waiting)) != NULL) {
        TAILQ_REMOVE(&commands->waiting, command, link);
        end(command, NULL, PROTO_ERR_SERVER_DOWN, "the daemon is stopping");
    }
}
