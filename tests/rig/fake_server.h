/*
 * A Valkey server in memory: the transports of daemon/valkey/transport_stream.c replaced, and a script behind them that
 * reads the commands and answers what it is told to. Nothing happens but in fake_server_turn.
 */
#ifndef GRD_TESTS_RIG_FAKE_SERVER_H
#define GRD_TESTS_RIG_FAKE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_server_mode {
    FAKE_ACCEPT,
    FAKE_REFUSE,  /* connections fail later */
    FAKE_SILENT,  /* connections stay as they are */
    FAKE_NO_OPEN, /* the transport cannot even begin */
};

struct redisReply;
struct fake_connection;

/* A command that waits for its answer. */
struct fake_command {
    char name[24];
    uint64_t bytes; /* of all triples */
    void *tag;      /* of who uses `took` */
};

struct fake_server {
    enum fake_server_mode mode;
    size_t room;  /* bytes of commands that are taken before a write takes no more */
    size_t piece; /* the most that one read gives */
    bool checks;  /* of what the daemon sends: off where the target sends commands of its own */
    /* A whole command has come; `words` are borrowed. May be NULL. */
    void (*took)(struct fake_connection *connection, struct fake_command *command, const struct redisReply *words);
};

extern struct fake_server fake_server;

/* Accepts, takes and gives everything. No connection may be left. */
void fake_server_reset(void);
unsigned fake_server_connections(void);
/* Number `pick` modulo their number, in the order of their making; NULL when there is none. */
struct fake_connection *fake_server_connection(unsigned pick);

/* Its number, never used again before fake_server_reset. */
unsigned fake_server_number(const struct fake_connection *connection);
/* The oldest command without an answer, or NULL. */
struct fake_command *fake_server_oldest(struct fake_connection *connection);

/* Tells every connection what has happened to it. False: nothing has. */
bool fake_server_turn(void);

void fake_server_send(struct fake_connection *connection, const void *bytes, size_t length);
/* The oldest command without an answer counts as answered. */
void fake_server_skip(struct fake_connection *connection);
/* Answers the oldest command as a server does with which all is well. False: there is none. */
bool fake_server_answer(struct fake_connection *connection);
void fake_server_hang_up(struct fake_connection *connection);

#endif
