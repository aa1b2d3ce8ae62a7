/*
 * The BLOB.* commands: their words, their replies, and what a reply proves.
 *
 * Concepts. The server moves the bytes and the reply is the only completion signal, so what a reply *proves* decides
 * over memory. BLOB_REPLY_LIVE is the default: everything that is not on the closed list of proofs (the table in
 * blob_classify.c) means that the server may still read or write the window, and its lane must be destroyed before
 * anybody gets the memory back.
 *
 * Pure functions, thread safe.
 */
#ifndef GRD_VALKEY_BLOB_H
#define GRD_VALKEY_BLOB_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/fabric/slice.h"
#include "daemon/valkey/redirect.h"

/* BLOB_SET_CRC: a SET with the option CRC, the only command that a differing checksum can answer. BLOB_TCP_*: the value
 * is in the command, or in the reply. */
enum blob_command { BLOB_HELLO, BLOB_SET, BLOB_SET_CRC, BLOB_GET, BLOB_TCP_SET, BLOB_TCP_GET };

enum blob_class {
    BLOB_REPLY_DONE,     /* success: SET stored, GET delivered `length` bytes */
    BLOB_REPLY_MISSING,  /* GET: no such key, nothing written */
    BLOB_REPLY_REFUSED,  /* an error that proves that no byte moved and none will */
    BLOB_REPLY_FINISHED, /* an error that proves that the transfer ran and is over (CRC mismatch, failed to set key,
                            or a success of GET that lies about length or CRC) */
    BLOB_REPLY_LIVE,     /* no proof */
    BLOB_REPLY_MEMORY,   /* no reply: the daemon could not read or write the window, see `error` (BLOB_TCP_*) */
};

#define BLOB_TEXT_BYTES 256

struct blob_reply {
    enum blob_class class;
    uint64_t length;      /* GET, DONE */
    bool has_crc32c;      /* GET, DONE */
    uint32_t crc32c;
    bool crc_mismatch;    /* SET with CRC refused by the server for a differing checksum */
    bool wrong_type;
    bool too_small;       /* GET: the value is larger than the window; `need` bytes if the server said so, else 0 */
    uint64_t need;        /* larger than the window, or 0 */
    bool stored;          /* SET, FINISHED: the value was stored all the same (BLOB_TCP_SET) */
    int error;            /* MEMORY: a negative errno */
    struct redirect redirect; /* REFUSED: where or when it would be run */
    bool reconnect;       /* this connection will not do better: a session or login that is gone, a failover */
    /* Of an error: the server's words, printable characters only; else what is wrong with the reply; "" for DONE and
     * MISSING. */
    char text[BLOB_TEXT_BYTES];
};

/* Classifies a reply of SET or GET for a window of `window` bytes. Never fails: what it does not know is LIVE. */
void blob_classify(enum blob_command command, const redisReply *reply, uint64_t window, struct blob_reply *out);

/* A reply of BLOB.INFO key CRC: 0 and the checksum, 1 where there is no such key, or -EREMOTEIO with `text` for
 * everything else. */
int blob_parse_crc(const redisReply *reply, uint32_t *crc32c, char text[BLOB_TEXT_BYTES]);

/* HELLO was refused because the server has no fabric: values move by BLOB.TCP_* or not at all. */
bool blob_is_without_fabric(const char *text);

/* True for the two errors with which a server says that it does not know a command at all. */
bool blob_is_unknown_command(const redisReply *reply);

/* Addresses in one reply of HELLO: one for each NIC of the server. */
#define BLOB_ADDRESSES 1024

/*
 * Parses the reply of HELLO: at least one hex string of even length, all of one length, at most FABRIC_ADDRESS_BYTES
 * and BLOB_ADDRESSES of them. 0 and a malloc'ed flat array of `count` addresses of `length` bytes; else `text` says
 * why: -EPROTO (drop the connection: the server holds a session that we cannot use), -EREMOTEIO (an error reply;
 * *no_module when the command is unknown) or -ENOMEM.
 */
int blob_parse_hello(const redisReply *reply, uint8_t **addresses, size_t *length, size_t *count, bool *no_module,
                     char text[BLOB_TEXT_BYTES]);

#define BLOB_TRIPLES 256

/* A command under construction: words and their lengths for resp_send. Fixed size, no allocation. */
#define BLOB_WORDS (5 + 3 * BLOB_TRIPLES)
struct blob_words {
    int argc;
    const char *argv[BLOB_WORDS];
    size_t lengths[BLOB_WORDS];
    char numbers[BLOB_WORDS * 21];
    size_t numbers_used;
};

/* Build commands; key and triples are borrowed until resp_send returned. 0, or -EINVAL for no or more than BLOB_TRIPLES
 * triples. */
int blob_words_set(struct blob_words *words, const void *key, size_t key_length, uint64_t length, bool has_crc,
                   uint32_t crc, const struct slice_triple *triples, size_t count);
int blob_words_get(struct blob_words *words, const void *key, size_t key_length, const struct slice_triple *triples,
                   size_t count);

/* The same for values on the connection. SET: without its last word, the value. */
void blob_words_tcp_set(struct blob_words *words, const void *key, size_t key_length);
void blob_words_tcp_get(struct blob_words *words, const void *key, size_t key_length);
void blob_words_crc(struct blob_words *words, const void *key, size_t key_length);

void blob_words_expire(struct blob_words *words, const void *key, size_t key_length, uint64_t ttl_ms);

/* The argument of HELLO, lower-case hex: `hex` has room for 2 * length + 1 bytes. */
void blob_hex(const uint8_t *address, size_t length, char *hex);
void blob_words_hello(struct blob_words *words, const char *hex);

#endif
