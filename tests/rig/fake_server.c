#include "tests/rig/fake_server.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#include "daemon/valkey/transport.h"
#include "tests/rig/check.h"

#define COMMANDS 64

struct fake_connection {
    struct transport base;
    TAILQ_ENTRY(fake_connection) link;
    const struct transport_events *events;
    void *context;
    unsigned number, turn;
    bool connected, ended, failing, told, want_write;
    const char *why;
    int error;

    char *input; /* to the daemon */
    size_t input_length, input_read;
    bool news;

    redisReader *reader; /* of the commands */
    struct fake_command commands[COMMANDS];
    unsigned waiting;
};

struct fake_server fake_server = {.room = SIZE_MAX, .piece = SIZE_MAX, .checks = true};

static TAILQ_HEAD(, fake_connection) connections = TAILQ_HEAD_INITIALIZER(connections);
static unsigned count, next_number, this_turn;

void fake_server_reset(void)
{
    RIG_CHECK(count == 0, "%u connections to the server are left", count);
    fake_server = (struct fake_server){.room = SIZE_MAX, .piece = SIZE_MAX, .checks = true};
    next_number = 0;
}

unsigned fake_server_connections(void)
{
    return count;
}

struct fake_connection *fake_server_connection(unsigned pick)
{
    struct fake_connection *connection = TAILQ_FIRST(&connections);

    for (pick = count > 0 ? pick % count : 0; pick > 0; pick--) {
        connection = TAILQ_NEXT(connection, link);
    }
    return connection;
}

unsigned fake_server_number(const struct fake_connection *connection)
{
    return connection->number;
}

struct fake_command *fake_server_oldest(struct fake_connection *connection)
{
    return connection->waiting > 0 && !connection->ended ? &connection->commands[0] : NULL;
}

/* --- the commands --- */

static bool is(const redisReply *words, const char *name)
{
    return strcasecmp(words->element[0]->str, name) == 0;
}

static uint64_t number(const redisReply *word)
{
    char *end;
    uint64_t value;

    RIG_CHECK(word->type == REDIS_REPLY_STRING && word->len > 0, "a word of a command is no number");
    value = strtoull(word->str, &end, 10);
    RIG_CHECK(*end == '\0', "'%s' in a command is no number", word->str);
    return value;
}

/* Sum of the lengths of the triples from `first` on. */
static uint64_t triples(const redisReply *words, size_t first)
{
    uint64_t sum = 0;

    RIG_CHECK(words->elements > first && (words->elements - first) % 3 == 0, "%zu words", words->elements);
    for (size_t i = first; i < words->elements; i += 3) {
        RIG_CHECK(number(words->element[i]) > 0, "a triple without a key");
        sum += number(words->element[i + 2]);
    }
    return sum;
}

static void check_set(const redisReply *words, uint64_t *bytes)
{
    bool crc;

    RIG_CHECK(words->elements >= 6, "%zu words in a SET", words->elements);
    crc = strcmp(words->element[3]->str, "CRC") == 0;
    *bytes = triples(words, crc ? 5 : 3);
    RIG_CHECK(*bytes == number(words->element[2]), "a SET of %" PRIu64 " bytes names %" PRIu64,
               number(words->element[2]), *bytes);
}

static void take_command(struct fake_connection *connection, const redisReply *words)
{
    struct fake_command *command = &connection->commands[connection->waiting < COMMANDS ? connection->waiting : 0];

    RIG_CHECK(words->type == REDIS_REPLY_ARRAY && words->elements > 0, "a command that is no array");
    for (size_t i = 0; i < words->elements; i++) {
        RIG_CHECK(words->element[i]->type == REDIS_REPLY_STRING, "a word of a command that is no string");
    }
    if (connection->waiting == COMMANDS) {
        return; /* answered by nobody */
    }
    *command = (struct fake_command){0};
    snprintf(command->name, sizeof(command->name), "%s", words->element[0]->str);
    if (is(words, "BLOB.RDMA_SET")) {
        check_set(words, &command->bytes);
    } else if (is(words, "BLOB.RDMA_GET")) {
        command->bytes = triples(words, 2);
    } else {
        static const char *const known[] = {"AUTH", "BLOB.RDMA_HELLO", "BLOB.INFO", "CONFIG", "EXISTS", "DEL",
                                            "PEXPIRE"};
        bool found = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            found |= is(words, known[i]);
        }
        RIG_CHECK(found, "the command %s", command->name);
    }
    connection->waiting++;
    if (fake_server.took != NULL) {
        fake_server.took(connection, command, words);
    }
}

static void take_bytes(struct fake_connection *connection, const void *bytes, size_t length)
{
    void *words = NULL;

    if (!fake_server.checks) {
        return;
    }
    redisReaderFeed(connection->reader, bytes, length);
    while (redisReaderGetReply(connection->reader, &words) == REDIS_OK && words != NULL) {
        take_command(connection, words);
        freeReplyObject(words);
    }
    RIG_CHECK(connection->reader->err == 0, "the daemon's bytes are no RESP: %s", connection->reader->errstr);
}

/* --- the script --- */

void fake_server_send(struct fake_connection *connection, const void *bytes, size_t length)
{
    char *input;

    if (!connection->connected || connection->ended || length == 0) {
        return;
    }
    input = realloc(connection->input, connection->input_length + length);
    if (input == NULL) {
        return;
    }
    memcpy(input + connection->input_length, bytes, length);
    connection->input = input;
    connection->input_length += length;
    connection->news = true;
}

void fake_server_skip(struct fake_connection *connection)
{
    if (connection->waiting > 0) {
        connection->waiting--;
        memmove(connection->commands, connection->commands + 1, connection->waiting * sizeof(struct fake_command));
    }
}

bool fake_server_answer(struct fake_connection *connection)
{
    const struct fake_command *command = &connection->commands[0];
    char text[128];

    if (connection->waiting == 0 || connection->ended) {
        return false;
    }
    if (strcmp(command->name, "BLOB.RDMA_HELLO") == 0) {
        snprintf(text, sizeof(text), "*1\r\n$32\r\n000102030405060708090a0b0c0d0e0f\r\n");
    } else if (strcmp(command->name, "BLOB.RDMA_GET") == 0) {
        snprintf(text, sizeof(text), "*2\r\n:%" PRIu64 "\r\n:4711\r\n", command->bytes);
    } else if (strcmp(command->name, "BLOB.INFO") == 0) {
        snprintf(text, sizeof(text), "*4\r\n$3\r\nlen\r\n:100\r\n$4\r\ntier\r\n$4\r\ndram\r\n");
    } else if (strcmp(command->name, "CONFIG") == 0) {
        snprintf(text, sizeof(text), "*2\r\n$24\r\nlargeobj.max-object-size\r\n$5\r\n65536\r\n");
    } else if (strcmp(command->name, "BLOB.RDMA_SET") == 0 || strcmp(command->name, "AUTH") == 0) {
        snprintf(text, sizeof(text), "+OK\r\n");
    } else {
        snprintf(text, sizeof(text), ":1\r\n");
    }
    fake_server_send(connection, text, strlen(text));
    fake_server_skip(connection);
    return true;
}

void fake_server_hang_up(struct fake_connection *connection)
{
    if (connection->connected && !connection->ended) {
        connection->ended = true;
        connection->news = true;
    }
}

/* --- what the daemon sees --- */

static int transport_open(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                          const struct transport_settings *settings, const struct transport_events *events,
                          void *context, struct transport **transport, char why[TRANSPORT_WHY_BYTES])
{
    struct fake_connection *connection;

    *transport = NULL;
    if (fake_server.mode == FAKE_NO_OPEN) {
        snprintf(why, TRANSPORT_WHY_BYTES, "the script lets no connection begin");
        return -EMFILE;
    }
    connection = calloc(1, sizeof(*connection));
    connection->base.class = transport_class_for(address, NULL);
    connection->events = events;
    connection->context = context;
    connection->number = next_number++;
    connection->turn = this_turn; /* nothing happens to it before the next one */
    connection->reader = redisReaderCreate();
    TAILQ_INSERT_TAIL(&connections, connection, link);
    count++;
    *transport = &connection->base;
    return 0;
}

static ssize_t transport_read(struct transport *transport, void *buffer, size_t capacity)
{
    struct fake_connection *connection = (struct fake_connection *)transport;
    size_t length = connection->input_length - connection->input_read;

    if (connection->failing) {
        return connection->error;
    }
    length = length < capacity ? length : capacity;
    length = length < fake_server.piece ? length : fake_server.piece;
    if (length > 0) {
        memcpy(buffer, connection->input + connection->input_read, length);
        connection->input_read += length;
        return (ssize_t)length;
    }
    if (!connection->ended) {
        return 0;
    }
    connection->failing = true;
    connection->error = -ECONNRESET;
    connection->why = "the server closed the connection";
    return connection->error;
}

static ssize_t transport_write(struct transport *transport, const void *bytes, size_t length)
{
    struct fake_connection *connection = (struct fake_connection *)transport;

    if (!connection->connected) {
        return -ENOTCONN;
    }
    if (connection->failing || connection->ended) {
        connection->news = true; /* the end will be read */
        return -EPIPE;
    }
    if (length > fake_server.room) {
        length = fake_server.room;
        connection->want_write = true;
    }
    if (fake_server.room != SIZE_MAX) {
        fake_server.room -= length;
    }
    take_bytes(connection, bytes, length);
    return (ssize_t)length;
}

/* Bytes that are there are told of in every turn. */
static void transport_hold(struct transport *transport, bool held)
{
    struct fake_connection *connection = (struct fake_connection *)transport;

    connection->news |= !held;
}

static int transport_local_address(const struct transport *transport, char *text, size_t size)
{
    snprintf(text, size, "127.0.0.1");
    return 0;
}

static void transport_close(struct transport *transport)
{
    struct fake_connection *connection = (struct fake_connection *)transport;

    TAILQ_REMOVE(&connections, connection, link);
    count--;
    redisReaderFree(connection->reader);
    free(connection->input);
    free(connection);
}

const struct transport_class transport_tcp = {
    .name = "tcp",
    .open = transport_open,
    .read = transport_read,
    .write = transport_write,
    .hold = transport_hold,
    .local_address = transport_local_address,
    .close = transport_close,
};

const struct transport_class transport_unix = {
    .name = "unix",
    .open = transport_open,
    .read = transport_read,
    .write = transport_write,
    .hold = transport_hold,
    .local_address = transport_local_address,
    .close = transport_close,
};

/* --- turns --- */

static struct fake_connection *find(unsigned number)
{
    struct fake_connection *connection;

    TAILQ_FOREACH (connection, &connections, link) {
        if (connection->number == number) {
            return connection;
        }
    }
    return NULL;
}

static void tell_end(struct fake_connection *connection)
{
    connection->failing = true;
    RIG_CHECK(!connection->told, "a connection that has ended was not closed");
    connection->told = true;
    connection->events->closed(connection->context, connection->error, connection->why);
}

static bool tell_connected(struct fake_connection *connection)
{
    if (fake_server.mode == FAKE_ACCEPT) {
        connection->connected = true;
        connection->events->connected(connection->context);
        return true;
    }
    if (fake_server.mode == FAKE_REFUSE || fake_server.mode == FAKE_NO_OPEN) {
        connection->error = -ECONNREFUSED;
        connection->why = "cannot connect to the server: it refuses";
        tell_end(connection);
        return true;
    }
    return false;
}

/* Every callback may close the connection, or any other. */
static bool turn(struct fake_connection *connection)
{
    unsigned own = connection->number;
    bool active = false;

    if (connection->failing) {
        tell_end(connection);
        return true;
    }
    if (!connection->connected) {
        return tell_connected(connection);
    }
    if (connection->news) {
        active = true;
        connection->news = false;
        connection->events->readable(connection->context);
        connection = find(own);
    }
    if (connection != NULL && !connection->failing && connection->want_write && fake_server.room > 0) {
        active = true;
        connection->want_write = false;
        connection->events->writable(connection->context);
    }
    return active;
}

bool fake_server_turn(void)
{
    struct fake_connection *connection;
    bool active = false;

    this_turn++;
    do {
        TAILQ_FOREACH (connection, &connections, link) {
            if (connection->turn != this_turn) {
                break;
            }
        }
        if (connection != NULL) {
            connection->turn = this_turn;
            active |= turn(connection);
        }
    } while (connection != NULL);
    return active;
}
