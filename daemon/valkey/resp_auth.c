/*
 * AUTH on a connection: the first one, before anything else, and its renewals.
 *
 * A renewal never stands between a transfer's command and its reply: it waits until no request is in flight, reads the
 * file, and goes out then, or when that is so again; requests that follow go behind it. On the control connection,
 * whose commands are independent of each other, it goes out between two commands. When it is refused the server still
 * takes us for who we were, so what is in flight ends in order, and then the connection does.
 */
#include <stddef.h>
#include <string.h>

#include "daemon/valkey/redirect.h"
#include "daemon/valkey/resp_private.h"
#include "proto/text.h"

bool auth_goes(const struct resp_connection *connection)
{
    return connection->auth != NULL && connection->renewal != RENEWAL_HELD;
}

void auth_flush(struct resp_connection *connection)
{
    const struct transport_class *class = connection->transport->class;
    ssize_t taken;

    if (!auth_goes(connection)) {
        return;
    }
    taken = class->write(connection->transport, connection->auth + connection->auth_sent,
                         connection->auth_length - connection->auth_sent);
    connection->auth_sent += taken > 0 ? (size_t)taken : 0;
    if (taken < 0 || connection->auth_sent == connection->auth_length) {
        auth_wipe(connection->auth, connection->auth_length);
        connection->auth = NULL;
    }
}

/* NULL: AUTH may leave on this connection. The configuration may have been reloaded since it was made. */
static const char *forbidden(const struct resp_connection *connection)
{
    return connection->attempt.rdma ? dial_rdma_forbidden(connection->config) : NULL;
}

static void keep_command(struct resp_connection *connection, char *command, size_t length)
{
    connection->auth = command;
    connection->auth_length = length;
    connection->auth_sent = 0;
}

void auth_end(struct resp_connection *connection)
{
    patience_end(&connection->patience);
    if (connection->password != NULL) {
        auth_read_cancel(connection->password);
        connection->password = NULL;
    }
    auth_wipe(connection->auth, connection->auth_length);
    connection->auth = NULL;
}

/* --- the first one --- */

static void on_first_password(void *context, char *command, size_t length, const char *why)
{
    struct resp_connection *connection = context;

    connection->password = NULL;
    if (command == NULL || forbidden(connection) != NULL) {
        auth_wipe(command, length);
        resp_fail(connection, true, "%s", command == NULL ? why : forbidden(connection));
        return;
    }
    connection->state = RESP_AUTHENTICATING;
    keep_command(connection, command, length);
    auth_flush(connection);
}

static void on_patience_over(void *context)
{
    struct resp_connection *connection = context;
    bool reading = connection->state == RESP_READING_PASSWORD;

    resp_fail(connection, false, "%s within connect_timeout_ms = %u ms",
              reading ? "password_file could not be read" : "AUTH was not answered",
              connection->config->connect_timeout_ms);
}

void auth_begin(struct resp_connection *connection)
{
    const struct valkey_config *config = connection->config;

    if (config->password_file == NULL) {
        resp_become_ready(connection);
        return;
    }
    connection->state = RESP_READING_PASSWORD;
    connection->password = auth_read_start(connection->offload, config->user, config->password_file,
                                           on_first_password, connection);
    connection->patience = patience_start(connection->loop, config->connect_timeout_ms, on_patience_over, connection);
    if (connection->password == NULL || connection->patience == NULL) {
        resp_fail(connection, false, "out of memory");
    }
}

/* Words of a server that is about our credentials, and not about its own state; with what to do. */
static const struct {
    const char *prefix, *hint;
} complaints[] = {
    {"WRONGPASS", "; [valkey] user, or what password_file holds, is not what the server knows"},
    {"NOPERM", "; the ACL of [valkey] user does not permit it"},
    {"NOAUTH", "; set [valkey] password_file"},
    {"ERR AUTH", "; the server has no password: remove [valkey] password_file"},
    {"ERR Client sent AUTH", "; the server has no password: remove [valkey] password_file"},
    {"ERR invalid password", "; what [valkey] password_file holds is not what the server knows"},
    {"ERR wrong number of arguments", "; the server knows no ACL users: remove [valkey] user"},
};

/* NULL when it is about something else. */
static const char *complaint_about_us(const redisReply *reply)
{
    for (size_t i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++) {
        if (strncmp(reply->str, complaints[i].prefix, strlen(complaints[i].prefix)) == 0) {
            return complaints[i].hint;
        }
    }
    return NULL;
}

static void note_success(struct resp_connection *connection)
{
    patience_end(&connection->patience);
    connection->authenticated_at = uv_now(connection->loop);
}

void auth_take_reply(struct resp_connection *connection, const redisReply *reply)
{
    const char *hint;
    char text[160];

    if (reply->type == REDIS_REPLY_STATUS && connection->auth == NULL) {
        note_success(connection);
        resp_become_ready(connection);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        hint = complaint_about_us(reply);
        connection->put_off = redirect_passes(reply->str, reply->len);
        resp_fail(connection, hint != NULL, "AUTH was refused: %s%s",
                  proto_text_quote(text, sizeof(text), reply->str, reply->len), hint != NULL ? hint : "");
    } else {
        resp_fail(connection, false, "protocol error: AUTH was answered by something that is neither OK nor an error");
    }
}

/* --- renewals --- */

static void on_renewed(struct resp_request *request, const redisReply *reply)
{
    struct resp_connection *connection =
        (struct resp_connection *)((char *)request - offsetof(struct resp_connection, renewed));
    const char *hint;
    char text[160];

    connection->renewal = RENEWAL_NONE;
    if (reply->type == REDIS_REPLY_STATUS) {
        note_success(connection);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        hint = complaint_about_us(reply);
        resp_leave(connection, "the renewal of AUTH was refused: %s%s",
                   proto_text_quote(text, sizeof(text), reply->str, reply->len), hint != NULL ? hint : "");
    } else {
        resp_fail(connection, false, "protocol error: AUTH was answered by something that is neither OK nor an error");
    }
}

static void on_renewal_lost(struct resp_request *request, bool may_have_run, const char *why)
{
}

/* Nothing of a command waits, so that AUTH stands between two. */
static bool may_go(const struct resp_connection *connection)
{
    return connection->out_length == connection->out_sent && connection->payload_left == 0 &&
           (connection->renew_among || connection->pending_count == 0);
}

static void give_up(struct resp_connection *connection)
{
    patience_end(&connection->patience);
    connection->renewal = RENEWAL_NONE;
}

static void on_password(void *context, char *command, size_t length, const char *why)
{
    struct resp_connection *connection = context;

    connection->password = NULL;
    if (command == NULL || forbidden(connection) != NULL) {
        auth_wipe(command, length);
        give_up(connection);
        resp_leave(connection, "AUTH cannot be renewed: %s", command == NULL ? why : forbidden(connection));
        return;
    }
    patience_end(&connection->patience);
    keep_command(connection, command, length);
    connection->renewal = RENEWAL_HELD;
    auth_renewal_step(connection);
}

static void on_reading_late(void *context)
{
    struct resp_connection *connection = context;

    auth_read_cancel(connection->password);
    connection->password = NULL;
    give_up(connection);
    resp_leave(connection, "AUTH cannot be renewed: password_file could not be read within connect_timeout_ms = %u ms",
               connection->config->connect_timeout_ms);
}

/* Without memory it stays wanted. */
static void begin_reading(struct resp_connection *connection)
{
    const struct valkey_config *config = connection->config;

    connection->patience = patience_start(connection->loop, config->connect_timeout_ms, on_reading_late, connection);
    if (connection->patience == NULL) {
        return;
    }
    connection->password = auth_read_start(connection->offload, config->user, config->password_file, on_password,
                                           connection);
    if (connection->password == NULL) {
        patience_end(&connection->patience);
        return;
    }
    connection->renewal = RENEWAL_READING;
}

/* Who waits for the replies before and after it owns the deadline for this one, too. */
static void send_renewal(struct resp_connection *connection)
{
    connection->renewal = RENEWAL_SENT;
    connection->renewed = (struct resp_request){.reply = on_renewed, .lost = on_renewal_lost};
    resp_expect(connection, &connection->renewed, 0); /* its command counts no bytes */
    auth_flush(connection);
}

void auth_renewal_step(struct resp_connection *connection)
{
    if (connection->state != RESP_READY || connection->leaving || !may_go(connection)) {
        return;
    }
    if (connection->renewal == RENEWAL_WANTED) {
        begin_reading(connection);
    } else if (connection->renewal == RENEWAL_HELD) {
        send_renewal(connection);
    }
}

void resp_renew(struct resp_connection *connection, bool among_requests)
{
    if (connection->state != RESP_READY || connection->config->password_file == NULL) {
        return;
    }
    if (connection->renewal == RENEWAL_NONE) {
        connection->renewal = RENEWAL_WANTED;
        connection->renew_among = among_requests;
    }
    auth_renewal_step(connection);
}

uint64_t resp_authenticated_at(const struct resp_connection *connection)
{
    return connection->authenticated_at;
}

bool auth_is_gone(const struct resp_connection *connection, const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && redirect_wants_login(reply->str, reply->len) &&
           connection->config->password_file != NULL && !connection->leaving;
}
