/*
 * What a reply to SET or GET proves: one closed list. An entry is on it because every known server sends the text only
 * before it starts a transfer, or only after the transfer is over. A text that is nearly one of them is none of them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/valkey/blob.h"
#include "proto/text.h"

enum match {
    MATCH_WORDS,  /* these words, then the end or a blank and whatever follows */
    MATCH_PREFIX, /* these bytes, then at least one more */
    MATCH_EXACT,
};

enum {
    ON_SET = 1 << BLOB_SET,
    ON_SET_CRC = 1 << BLOB_SET_CRC,
    ON_GET = 1 << BLOB_GET,
    ON_TCP_SET = 1 << BLOB_TCP_SET,
    ON_TCP_GET = 1 << BLOB_TCP_GET,
    ON_SETS = ON_SET | ON_SET_CRC | ON_TCP_SET,
    ON_ALL = ON_SETS | ON_GET | ON_TCP_GET,
};

enum flag { FLAG_NONE, FLAG_WRONG_TYPE, FLAG_CRC_MISMATCH, FLAG_TOO_SMALL, FLAG_RECONNECT };

struct proof {
    enum match match;
    const char *text;
    unsigned commands; /* for which it is a proof */
    enum blob_class class;
    enum flag flag;
};

#define WITHOUT_FABRIC "ERR RDMA provider unavailable on this instance"

static const struct proof proofs[] = {
    /* The core refused before the module's handler was entered. */
    {MATCH_WORDS, "NOAUTH", ON_ALL, BLOB_REPLY_REFUSED, FLAG_RECONNECT},
    {MATCH_WORDS, "NOPERM", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "WRONGPASS", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "READONLY", ON_ALL, BLOB_REPLY_REFUSED, FLAG_RECONNECT},
    {MATCH_WORDS, "LOADING", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "MOVED", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "ASK", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "TRYAGAIN", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "CLUSTERDOWN", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "MASTERDOWN", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "CROSSSLOT", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "MISCONF", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "NOREPLICAS", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "BUSY", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "EXECABORT", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "ERR unknown command", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "ERR wrong number of arguments", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    /* Sent by the core or by the module, in both cases before it starts: maxmemory, the DRAM pool, disk-maxmemory. */
    {MATCH_WORDS, "OOM", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_WORDS, "WRONGTYPE", ON_ALL, BLOB_REPLY_REFUSED, FLAG_WRONG_TYPE},

    /* The core could not read the command, and has closed the connection: proto-max-bulk-len. */
    {MATCH_EXACT, "ERR Protocol error: invalid bulk length", ON_TCP_SET, BLOB_REPLY_REFUSED, FLAG_RECONNECT},
    /* The same, as NOAUTH: of a connection whose login is gone it reads short commands only. */
    {MATCH_EXACT, "ERR Protocol error: unauthenticated bulk length", ON_ALL, BLOB_REPLY_REFUSED, FLAG_RECONNECT},
    {MATCH_EXACT, "ERR Protocol error: unauthenticated multibulk length", ON_ALL, BLOB_REPLY_REFUSED, FLAG_RECONNECT},

    /* The core's answer to a connection, which may already have its first command. Over RDMA that is no transfer. */
    {MATCH_WORDS, "ERR max number of clients", ON_TCP_SET | ON_TCP_GET, BLOB_REPLY_REFUSED, FLAG_RECONNECT},

    /* The module, while it opens a session: there is none then, and without one nothing moves. */
    {MATCH_EXACT, WITHOUT_FABRIC, ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR invalid rdma address hex", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR rdma address must be 32 bytes", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR rdma address must not be empty", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_PREFIX, "ERR session create: ", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR RDMA session already established", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR DMA session already established (one BLOB.HELLO per connection)", ON_ALL, BLOB_REPLY_REFUSED,
     FLAG_NONE},

    /* The module, while it checks a command. */
    {MATCH_EXACT, "ERR no RDMA session (call BLOB.RDMA_HELLO first)", ON_ALL, BLOB_REPLY_REFUSED, FLAG_RECONNECT},
    {MATCH_EXACT, "ERR memory address args must be rkey, addr, len triples", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR too many memory addresses (max 256)", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR invalid rkey", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR invalid memory address", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR invalid memory address len", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR invalid len", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR client address space smaller than object length", ON_ALL, BLOB_REPLY_REFUSED, FLAG_TOO_SMALL},
    {MATCH_EXACT, "ERR object length must be > 0", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR max object size exceeded", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR disk staging buffer pool exhausted", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR disk staging buffer pool exhausted; retry later", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},
    {MATCH_EXACT, "ERR invalid information field", ON_ALL, BLOB_REPLY_REFUSED, FLAG_NONE},

    /* The module, after the transfer. The words for a differing checksum are stated nowhere, so these are the few that
     * are taken for it; other words about a checksum prove nothing. */
    {MATCH_EXACT, "ERR failed to set key", ON_SETS, BLOB_REPLY_FINISHED, FLAG_NONE},
    {MATCH_EXACT, "ERR CRC mismatch", ON_SET_CRC, BLOB_REPLY_FINISHED, FLAG_CRC_MISMATCH},
    {MATCH_EXACT, "ERR crc mismatch", ON_SET_CRC, BLOB_REPLY_FINISHED, FLAG_CRC_MISMATCH},
    {MATCH_EXACT, "ERR checksum mismatch", ON_SET_CRC, BLOB_REPLY_FINISHED, FLAG_CRC_MISMATCH},
    {MATCH_EXACT, "ERR RDMA crc mismatch", ON_SET_CRC, BLOB_REPLY_FINISHED, FLAG_CRC_MISMATCH},
};

static bool matches(const struct proof *proof, const char *text, size_t length)
{
    size_t expected = strlen(proof->text);

    if (length < expected || memcmp(text, proof->text, expected) != 0) {
        return false;
    }
    switch (proof->match) {
    case MATCH_WORDS:
        return length == expected || text[expected] == ' ';
    case MATCH_PREFIX:
        return length > expected;
    case MATCH_EXACT:
        return length == expected;
    }
    return false;
}

/* Digits of a u64 without a leading zero; the number of bytes, or 0. */
static size_t parse_number(const char *text, size_t length, uint64_t *number)
{
    size_t digits = 0;
    uint64_t value = 0;

    while (digits < length && text[digits] >= '0' && text[digits] <= '9') {
        unsigned digit = (unsigned)(text[digits] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        value = value * 10 + digit;
        digits++;
    }
    if (digits > 1 && text[0] == '0') {
        return 0;
    }
    *number = value;
    return digits;
}

/* "ERR client memory address length <sum> smaller than object length <n>", to the letter. */
static bool parse_smaller(const char *text, size_t length, uint64_t *need)
{
    static const char before[] = "ERR client memory address length ", between[] = " smaller than object length ";
    const size_t before_length = sizeof(before) - 1, between_length = sizeof(between) - 1;
    uint64_t sum;
    size_t at, digits;

    if (length < before_length || memcmp(text, before, before_length) != 0) {
        return false;
    }
    digits = parse_number(text + before_length, length - before_length, &sum);
    at = before_length + digits;
    if (digits == 0 || length - at < between_length || memcmp(text + at, between, between_length) != 0) {
        return false;
    }
    at += between_length;
    digits = parse_number(text + at, length - at, need);
    return digits > 0 && at + digits == length;
}

static void set_too_small(enum blob_command command, uint64_t need, uint64_t window, struct blob_reply *out)
{
    out->too_small = command == BLOB_GET || command == BLOB_TCP_GET;
    out->need = out->too_small && need > window ? need : 0; /* a server that contradicts itself said nothing */
}

static void classify_error(enum blob_command command, const redisReply *reply, uint64_t window, struct blob_reply *out)
{
    uint64_t need;

    proto_text_quote(out->text, sizeof(out->text), reply->str, reply->len);
    if (parse_smaller(reply->str, reply->len, &need)) {
        out->class = BLOB_REPLY_REFUSED;
        set_too_small(command, need, window, out);
        return;
    }
    for (size_t i = 0; i < sizeof(proofs) / sizeof(proofs[0]); i++) {
        if ((proofs[i].commands & (1U << command)) == 0 || !matches(&proofs[i], reply->str, reply->len)) {
            continue;
        }
        out->class = proofs[i].class;
        if (out->class == BLOB_REPLY_REFUSED) {
            redirect_parse(reply, &out->redirect);
        }
        out->wrong_type = proofs[i].flag == FLAG_WRONG_TYPE;
        out->reconnect = proofs[i].flag == FLAG_RECONNECT;
        out->crc_mismatch = proofs[i].flag == FLAG_CRC_MISMATCH;
        if (proofs[i].flag == FLAG_TOO_SMALL) {
            set_too_small(command, 0, window, out);
        }
        return;
    }
}

static bool is_integer_pair(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[1]->type == REDIS_REPLY_INTEGER;
}

/* The shape of a success says that the server is done, also when its numbers cannot be true. A length below zero is no
 * such shape. */
static void classify_pair(const redisReply *reply, uint64_t window, struct blob_reply *out)
{
    long long length = reply->element[0]->integer, crc = reply->element[1]->integer;

    if (length < 0) {
        snprintf(out->text, sizeof(out->text), "the server answered a length of %lld", length);
    } else if ((uint64_t)length > window) {
        out->class = BLOB_REPLY_FINISHED;
        snprintf(out->text, sizeof(out->text), "the server says that it wrote %lld bytes to a window of %" PRIu64,
                 length, window);
    } else if (crc < 0 || crc > UINT32_MAX) {
        out->class = BLOB_REPLY_FINISHED;
        snprintf(out->text, sizeof(out->text), "the server answered a checksum of %lld, which is none of 32 bits", crc);
    } else {
        out->class = BLOB_REPLY_DONE;
        out->length = (uint64_t)length;
        out->has_crc32c = true;
        out->crc32c = (uint32_t)crc;
    }
}

/* The value itself; `integer` is its length (resp_sink). One that is too large was not written anywhere. */
static void classify_value(const redisReply *reply, uint64_t window, struct blob_reply *out)
{
    uint64_t length = (uint64_t)reply->integer;

    if (length > window) {
        out->class = BLOB_REPLY_REFUSED;
        set_too_small(BLOB_TCP_GET, length, window, out);
        snprintf(out->text, sizeof(out->text), "the value has %" PRIu64 " bytes, the window %" PRIu64 "; nothing was "
                 "written", length, window);
    } else {
        out->class = BLOB_REPLY_DONE;
        out->length = length;
    }
}

static bool is_ok(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STATUS && reply->len == 2 && strncasecmp(reply->str, "OK", 2) == 0;
}

void blob_classify(enum blob_command command, const redisReply *reply, uint64_t window, struct blob_reply *out)
{
    memset(out, 0, sizeof(*out));
    out->class = BLOB_REPLY_LIVE;
    if (reply->type == REDIS_REPLY_ERROR) {
        classify_error(command, reply, window, out);
    } else if (command == BLOB_GET && is_integer_pair(reply)) {
        classify_pair(reply, window, out);
    } else if (command == BLOB_TCP_GET && reply->type == REDIS_REPLY_STRING) {
        classify_value(reply, window, out);
    } else if ((command == BLOB_GET || command == BLOB_TCP_GET) && reply->type == REDIS_REPLY_NIL) {
        out->class = BLOB_REPLY_MISSING;
    } else if ((ON_SETS & (1U << command)) != 0 && is_ok(reply)) {
        out->class = BLOB_REPLY_DONE;
    } else {
        static const char *const names[] = {[BLOB_HELLO] = "BLOB.RDMA_HELLO", [BLOB_SET] = "BLOB.RDMA_SET",
                                            [BLOB_SET_CRC] = "BLOB.RDMA_SET", [BLOB_GET] = "BLOB.RDMA_GET",
                                            [BLOB_TCP_SET] = "BLOB.TCP_SET", [BLOB_TCP_GET] = "BLOB.TCP_GET"};
        snprintf(out->text, sizeof(out->text), "the server answered %s with a reply of the wrong form", names[command]);
    }
}

int blob_parse_crc(const redisReply *reply, uint32_t *crc32c, char text[BLOB_TEXT_BYTES])
{
    bool missing = reply->type == REDIS_REPLY_ERROR && strcmp(reply->str, "ERR not found") == 0; /* older modules */

    text[0] = '\0';
    if (reply->type == REDIS_REPLY_NIL || missing) {
        return 1;
    }
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= UINT32_MAX) {
        *crc32c = (uint32_t)reply->integer;
        return 0;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        proto_text_quote(text, BLOB_TEXT_BYTES, reply->str, reply->len);
    } else {
        snprintf(text, BLOB_TEXT_BYTES, "the server answered BLOB.INFO with a reply of the wrong form");
    }
    return -EREMOTEIO;
}

bool blob_is_without_fabric(const char *text)
{
    return strcmp(text, WITHOUT_FABRIC) == 0;
}

bool blob_is_unknown_command(const redisReply *reply)
{
    static const struct proof words[] = {
        {MATCH_WORDS, "ERR unknown command", 0, BLOB_REPLY_REFUSED, FLAG_NONE},
        {MATCH_WORDS, "ERR unknown or disabled command", 0, BLOB_REPLY_REFUSED, FLAG_NONE}, /* of hosted servers */
    };

    return reply->type == REDIS_REPLY_ERROR &&
           (matches(&words[0], reply->str, reply->len) || matches(&words[1], reply->str, reply->len));
}
