/*
 * What each known text proves, and that nothing near it proves anything. The lists are written out a second time on
 * purpose: a change of the classifier's table must be made twice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/blob.h"
#include "tests/unit/unit_main.h"

#define WINDOW 4096
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum blob_command commands[] = {BLOB_SET, BLOB_SET_CRC, BLOB_GET, BLOB_TCP_SET, BLOB_TCP_GET};

/* First words with which the core refuses. */
static const char *const words[] = {"NOAUTH", "NOPERM", "WRONGPASS", "READONLY", "LOADING", "MOVED", "ASK",
                                    "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "CROSSSLOT", "OOM", "MISCONF",
                                    "NOREPLICAS", "BUSY", "EXECABORT", "WRONGTYPE"};

/* Whole sentences of a real server, refused before anything moved. */
static const char *const refused[] = {
    "NOAUTH Authentication required.",
    "ERR Protocol error: unauthenticated bulk length",
    "ERR Protocol error: unauthenticated multibulk length",
    "NOPERM User default has no permissions to run the 'blob.rdma_get' command",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "READONLY You can't write against a read only replica.",
    "LOADING Valkey is loading the dataset in memory",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN The cluster is down",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "OOM command not allowed when used disk space > 'disk-maxmemory'.",
    "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "EXECABORT Transaction discarded because of previous errors.",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "ERR unknown command",
    "ERR unknown command 'BLOB.RDMA_GET', with args beginning with: 'k' '1' '2' '3' ",
    "ERR wrong number of arguments",
    "ERR wrong number of arguments for 'blob.rdma_set' command",
    "ERR session create: service 1: Invalid argument",
};

/* Texts that must be met to the letter. */
static const char *const exact[] = {
    "ERR RDMA provider unavailable on this instance",
    "ERR invalid rdma address hex",
    "ERR rdma address must be 32 bytes",
    "ERR rdma address must not be empty",
    "ERR RDMA session already established",
    "ERR DMA session already established (one BLOB.HELLO per connection)",
    "ERR no RDMA session (call BLOB.RDMA_HELLO first)",
    "ERR memory address args must be rkey, addr, len triples",
    "ERR too many memory addresses (max 256)",
    "ERR invalid rkey",
    "ERR invalid memory address",
    "ERR invalid memory address len",
    "ERR invalid len",
    "ERR client address space smaller than object length",
    "ERR object length must be > 0",
    "ERR max object size exceeded",
    "ERR disk staging buffer pool exhausted",
    "ERR disk staging buffer pool exhausted; retry later",
    "ERR invalid information field",
};

static const char *const crc_texts[] = {"ERR CRC mismatch", "ERR crc mismatch", "ERR checksum mismatch",
                                        "ERR RDMA crc mismatch"};

/* Everything else, known or not. */
static const char *const live[] = {
    "",
    "ERR",
    "ERR ",
    "OK",
    "ERR disk read failed",
    "ERR disk write failed",
    "ERR RDMA write failed",
    "ERR RDMA read failed",
    "ERR RDMA timeout",
    "ERR EFA timeout",
    "ERR_EFA_TIMEOUT",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
    "ERR Blocking module command called from transaction",
    "ERR Blocking module command called from Lua script",
    "Blocking module command called from transaction",
    "ERR invalid crc",
    "ERR the crc of the value does not match the checksum",
    "ERR CRC mismatch (expected 1, got 2)",
    "ERR not found",
    "ERR unknown commands",
    "ERR unknown commander 'x'",
    "ERR wrong number of argument",
    "ERR wrong number of argumentss",
    "ERR unknown or disabled command 'BLOB.RDMA_GET'",
    "ERR session create",
    "ERR session create:",
    "ERR session create: ",
    "ERR session created: x",
    "NOSCRIPT No matching script.",
    "BUSYGROUP Consumer Group name already exists",
    "BUSYKEY Target key name already exists.",
    "ASKING",
    "MOVEDx 1 a:1",
    "moved 1 a:1",
    " MOVED 1 a:1",
    "MOVED\t1",
    "-MOVED 1 a:1",
    "ERR MOVED 1 a:1",
    "ERR OOM",
    "OOMx",
    "err invalid rkey",
    "ERR  invalid rkey",
    "ERR invalid memory",
    "ERR invalid memory address length",
    "invalid rkey",
    "ERR client memory address length 1 smaller than object length",
    "ERR client memory address length 1 smaller than object length ",
    "ERR client memory address length 1 smaller than object length 2 ",
    "ERR client memory address length 1 smaller than object length 2x",
    "ERR client memory address length 1 smaller than object length -2",
    "ERR client memory address length 1 smaller than object length +2",
    "ERR client memory address length 1 smaller than object length 02",
    "ERR client memory address length 1 smaller than object length 18446744073709551616",
    "ERR client memory address length  smaller than object length 2",
    "ERR client memory address length x smaller than object length 2",
    "ERR client memory address length 1  smaller than object length 2",
    "ERR client memory address length 99999999999999999999999 smaller than object length 2",
    "ERR client memory address length 1 larger than object length 2",
};

static struct blob_reply classify_error(enum blob_command command, const char *text, size_t length)
{
    char *copy = malloc(length + 1); /* to the byte, for the address sanitizer */
    redisReply reply = {.type = REDIS_REPLY_ERROR, .str = copy, .len = length};
    struct blob_reply out;

    memcpy(copy, text, length);
    copy[length] = '\0';
    blob_classify(command, &reply, WINDOW, &out);
    free(copy);
    return out;
}

static void expect(const char *text, enum blob_command command, enum blob_class class)
{
    struct blob_reply out = classify_error(command, text, strlen(text));

    ck_assert_msg(out.class == class, "'%s' as an answer to %d is %d, not %d", text, command, out.class, class);
    if (class != BLOB_REPLY_DONE && strlen(text) < BLOB_TEXT_BYTES && strchr(text, '\t') == NULL) {
        ck_assert_str_eq(out.text, text);
    }
}

static void expect_all(const char *text, enum blob_class class)
{
    for (size_t c = 0; c < COUNT(commands); c++) {
        expect(text, commands[c], class);
    }
}

START_TEST(proofs_of_the_core)
{
    char text[128];

    for (size_t i = 0; i < COUNT(words); i++) {
        expect_all(words[i], BLOB_REPLY_REFUSED);
        snprintf(text, sizeof(text), "%s something that no server ever said", words[i]);
        expect_all(text, BLOB_REPLY_REFUSED);
        snprintf(text, sizeof(text), "%sx and more", words[i]);
        expect_all(text, BLOB_REPLY_LIVE);
        snprintf(text, sizeof(text), "x%s and more", words[i]);
        expect_all(text, BLOB_REPLY_LIVE);
        snprintf(text, sizeof(text), "%s and more", words[i]);
        memmove(text + strlen(words[i]) - 1, " and more", sizeof(" and more"));
        expect_all(text, BLOB_REPLY_LIVE);
        ck_assert_int_eq(classify_error(BLOB_GET, words[i], strlen(words[i])).wrong_type,
                         strcmp(words[i], "WRONGTYPE") == 0);
    }
    for (size_t i = 0; i < COUNT(refused); i++) {
        expect_all(refused[i], BLOB_REPLY_REFUSED);
    }
}
END_TEST

START_TEST(proofs_of_the_module)
{
    for (size_t i = 0; i < COUNT(exact); i++) {
        expect_all(exact[i], BLOB_REPLY_REFUSED);
    }
    expect("ERR failed to set key", BLOB_SET, BLOB_REPLY_FINISHED);
    expect("ERR failed to set key", BLOB_SET_CRC, BLOB_REPLY_FINISHED);
    expect("ERR failed to set key", BLOB_GET, BLOB_REPLY_LIVE);
    for (size_t i = 0; i < COUNT(crc_texts); i++) {
        expect(crc_texts[i], BLOB_SET_CRC, BLOB_REPLY_FINISHED);
        expect(crc_texts[i], BLOB_SET, BLOB_REPLY_LIVE);
        expect(crc_texts[i], BLOB_GET, BLOB_REPLY_LIVE);
        ck_assert(classify_error(BLOB_SET_CRC, crc_texts[i], strlen(crc_texts[i])).crc_mismatch);
        ck_assert(!classify_error(BLOB_SET, crc_texts[i], strlen(crc_texts[i])).crc_mismatch);
    }
}
END_TEST

START_TEST(all_else_is_live)
{
    for (size_t i = 0; i < COUNT(live); i++) {
        expect_all(live[i], BLOB_REPLY_LIVE);
        ck_assert(!classify_error(BLOB_SET_CRC, live[i], strlen(live[i])).crc_mismatch);
    }
}
END_TEST

static bool is_listed(const char *text, size_t length)
{
    for (size_t i = 0; i < COUNT(exact); i++) {
        if (strlen(exact[i]) == length && memcmp(exact[i], text, length) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(crc_texts); i++) {
        if (strlen(crc_texts[i]) == length && memcmp(crc_texts[i], text, length) == 0) {
            return true;
        }
    }
    return false;
}

static void expect_live_unless_listed(const char *text, size_t length)
{
    for (size_t c = 0; c < COUNT(commands); c++) {
        struct blob_reply out = classify_error(commands[c], text, length);
        UNIT_EXPECT(out.class == BLOB_REPLY_LIVE || is_listed(text, length), "'%.*s' is %d", (int)length, text,
                    out.class);
    }
}

/* Every text with one character more, less or changed, at every place. */
static void mutate(const char *text)
{
    static const char others[] = " x\0E0";
    size_t length = strlen(text);
    char mutant[256];

    for (size_t at = 0; at <= length; at++) {
        for (size_t o = 0; o < sizeof(others) - 1; o++) {
            memcpy(mutant, text, at);
            mutant[at] = others[o];
            memcpy(mutant + at + 1, text + at, length - at);
            expect_live_unless_listed(mutant, length + 1);
            if (at < length && text[at] != others[o]) {
                memcpy(mutant, text, length);
                mutant[at] = others[o];
                expect_live_unless_listed(mutant, length);
            }
        }
        if (at < length) {
            memcpy(mutant, text, at);
            memcpy(mutant + at, text + at + 1, length - at - 1);
            expect_live_unless_listed(mutant, length - 1);
        }
        expect_live_unless_listed(text, at < length ? at : 0);
    }
}

START_TEST(mutations)
{
    for (size_t i = 0; i < COUNT(exact); i++) {
        mutate(exact[i]);
    }
    for (size_t i = 0; i < COUNT(crc_texts); i++) {
        mutate(crc_texts[i]);
    }
    mutate("ERR failed to set key");
}
END_TEST

/* Random bytes with and without a good beginning never prove anything by themselves. */
START_TEST(random_texts)
{
    unsigned seed = 12345;
    char text[64];

    for (int round = 0; round < 200000; round++) {
        size_t length = (size_t)(rand_r(&seed) % 60) + 4;
        bool good_start = round % 2 == 0;
        for (size_t i = 0; i < length; i++) {
            text[i] = (char)(rand_r(&seed) % 256);
        }
        memcpy(text, good_start ? "ERR " : "err ", 4);
        expect_live_unless_listed(text, length);
    }
}
END_TEST

START_TEST(too_small)
{
    static const char text[] = "ERR client memory address length 4096 smaller than object length 5000";
    static const char largest[] =
        "ERR client memory address length 4096 smaller than object length 18446744073709551615";
    static const char absurd[] = "ERR client memory address length 4096 smaller than object length 4096";
    static const char older[] = "ERR client address space smaller than object length";
    struct blob_reply out = classify_error(BLOB_GET, text, strlen(text));

    ck_assert(out.class == BLOB_REPLY_REFUSED && out.too_small && out.need == 5000);
    out = classify_error(BLOB_GET, largest, strlen(largest));
    ck_assert(out.class == BLOB_REPLY_REFUSED && out.too_small && out.need == UINT64_MAX);
    out = classify_error(BLOB_GET, absurd, strlen(absurd));
    ck_assert(out.class == BLOB_REPLY_REFUSED && out.too_small && out.need == 0);
    out = classify_error(BLOB_GET, older, strlen(older));
    ck_assert(out.class == BLOB_REPLY_REFUSED && out.too_small && out.need == 0);
    out = classify_error(BLOB_SET, text, strlen(text));
    ck_assert(out.class == BLOB_REPLY_REFUSED && !out.too_small && out.need == 0);
}
END_TEST

START_TEST(reconnect)
{
    static const char *const texts[] = {"NOAUTH Authentication required.", "READONLY You can't write",
                                        "ERR no RDMA session (call BLOB.RDMA_HELLO first)"};

    for (size_t i = 0; i < COUNT(texts); i++) {
        ck_assert(classify_error(BLOB_GET, texts[i], strlen(texts[i])).reconnect);
    }
    ck_assert(!classify_error(BLOB_GET, "ERR invalid rkey", 16).reconnect);
    ck_assert(!classify_error(BLOB_GET, "LOADING x", 9).reconnect);
}
END_TEST

/* --- replies that are no errors --- */

static struct blob_reply parse(enum blob_command command, const char *wire)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    struct blob_reply out;

    redisReaderFeed(reader, wire, strlen(wire));
    ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
    ck_assert_ptr_nonnull(reply);
    blob_classify(command, reply, WINDOW, &out);
    freeReplyObject(reply);
    redisReaderFree(reader);
    return out;
}

START_TEST(successes)
{
    struct blob_reply out = parse(BLOB_GET, "*2\r\n:4096\r\n:4294967295\r\n");

    ck_assert(out.class == BLOB_REPLY_DONE && out.length == 4096 && out.crc32c == UINT32_MAX);
    out = parse(BLOB_GET, "*2\r\n:0\r\n:0\r\n");
    ck_assert(out.class == BLOB_REPLY_DONE && out.length == 0 && out.crc32c == 0);
    ck_assert_int_eq(parse(BLOB_SET, "+OK\r\n").class, BLOB_REPLY_DONE);
    ck_assert_int_eq(parse(BLOB_SET, "+ok\r\n").class, BLOB_REPLY_DONE);
    ck_assert_int_eq(parse(BLOB_SET_CRC, "+Ok\r\n").class, BLOB_REPLY_DONE);
    ck_assert_int_eq(parse(BLOB_GET, "$-1\r\n").class, BLOB_REPLY_MISSING);
    ck_assert_int_eq(parse(BLOB_GET, "*-1\r\n").class, BLOB_REPLY_MISSING);
}
END_TEST

START_TEST(lies)
{
    static const char *const wires[] = {"*2\r\n:4097\r\n:1\r\n", "*2\r\n:9223372036854775807\r\n:1\r\n",
                                        "*2\r\n:1\r\n:4294967296\r\n", "*2\r\n:1\r\n:-1\r\n"};

    for (size_t i = 0; i < COUNT(wires); i++) {
        struct blob_reply out = parse(BLOB_GET, wires[i]);
        ck_assert_int_eq(out.class, BLOB_REPLY_FINISHED);
        ck_assert_str_ne(out.text, "");
        ck_assert(out.length == 0 && !out.crc_mismatch);
    }
}
END_TEST

START_TEST(wrong_forms)
{
    static const char *const of_get[] = {
        "+OK\r\n", ":4096\r\n", "$2\r\nOK\r\n", "*0\r\n", "*1\r\n:1\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n",
        "*2\r\n$1\r\n1\r\n:1\r\n", "*2\r\n:1\r\n$1\r\n1\r\n", "*2\r\n:1\r\n$-1\r\n", "*2\r\n:-1\r\n:1\r\n",
        "*2\r\n-MOVED 1 a:1\r\n:1\r\n", "*2\r\n:1\r\n*1\r\n:1\r\n", "*1\r\n-OOM\r\n", "*2\r\n+1\r\n+1\r\n"};
    static const char *const of_set[] = {"$-1\r\n", "*-1\r\n", ":1\r\n", "$2\r\nOK\r\n", "+OKAY\r\n", "+\r\n", "+O\r\n",
                                         "+QUEUED\r\n", "*1\r\n+OK\r\n", "*2\r\n:1\r\n:1\r\n", "*0\r\n"};

    for (size_t i = 0; i < COUNT(of_get); i++) {
        struct blob_reply out = parse(BLOB_GET, of_get[i]);
        ck_assert_msg(out.class == BLOB_REPLY_LIVE, "%s", of_get[i]);
        ck_assert_str_ne(out.text, "");
    }
    for (size_t i = 0; i < COUNT(of_set); i++) {
        ck_assert_msg(parse(BLOB_SET, of_set[i]).class == BLOB_REPLY_LIVE, "%s", of_set[i]);
        ck_assert_msg(parse(BLOB_SET_CRC, of_set[i]).class == BLOB_REPLY_LIVE, "%s", of_set[i]);
    }
}
END_TEST

START_TEST(texts_are_clean)
{
    char text[1000];
    struct blob_reply out;

    memset(text, '\n', sizeof(text));
    out = classify_error(BLOB_GET, text, sizeof(text));
    ck_assert_uint_lt(strlen(out.text), BLOB_TEXT_BYTES);
    for (size_t i = 0; out.text[i] != '\0'; i++) {
        ck_assert(out.text[i] >= 0x20 && out.text[i] < 0x7f);
    }
}
END_TEST

/* The value itself is the success of a GET over TCP, its length in `integer`. */
START_TEST(values_over_tcp)
{
    redisReply value = {.type = REDIS_REPLY_STRING, .str = (char[]){""}, .integer = WINDOW};
    redisReply number = {.type = REDIS_REPLY_INTEGER, .integer = 7}, null = {.type = REDIS_REPLY_NIL};
    struct blob_reply out;
    uint32_t crc = 0;
    char text[BLOB_TEXT_BYTES];

    blob_classify(BLOB_TCP_GET, &value, WINDOW, &out);
    ck_assert(out.class == BLOB_REPLY_DONE && out.length == WINDOW && !out.has_crc32c);
    value.integer = WINDOW + 1;
    blob_classify(BLOB_TCP_GET, &value, WINDOW, &out);
    ck_assert(out.class == BLOB_REPLY_REFUSED && out.too_small && out.need == WINDOW + 1);
    blob_classify(BLOB_GET, &value, WINDOW, &out);
    ck_assert_int_eq(out.class, BLOB_REPLY_LIVE);
    blob_classify(BLOB_TCP_GET, &null, WINDOW, &out);
    ck_assert_int_eq(out.class, BLOB_REPLY_MISSING);
    blob_classify(BLOB_TCP_SET, &null, WINDOW, &out);
    ck_assert_int_eq(out.class, BLOB_REPLY_LIVE);

    static const char over[] = "ERR Protocol error: invalid bulk length";
    out = classify_error(BLOB_TCP_SET, over, strlen(over));
    ck_assert(out.class == BLOB_REPLY_REFUSED && out.reconnect);
    for (size_t i = 0; i < COUNT(commands); i++) {
        out = classify_error(commands[i], over, strlen(over));
        ck_assert(commands[i] == BLOB_TCP_SET || out.class == BLOB_REPLY_LIVE);
    }

    /* To a connection that was just made: one with a session has been through that. */
    static const char full[] = "ERR max number of clients reached";
    for (size_t i = 0; i < COUNT(commands); i++) {
        bool over_tcp = commands[i] == BLOB_TCP_SET || commands[i] == BLOB_TCP_GET;
        out = classify_error(commands[i], full, strlen(full));
        ck_assert_int_eq(out.class, over_tcp ? BLOB_REPLY_REFUSED : BLOB_REPLY_LIVE);
        ck_assert(!over_tcp || (out.reconnect && out.redirect.kind == REDIRECT_LATER));
    }

    ck_assert(blob_parse_crc(&number, &crc, text) == 0 && crc == 7);
    ck_assert_int_eq(blob_parse_crc(&null, &crc, text), 1);
    ck_assert(blob_parse_crc(&value, &crc, text) == -EREMOTEIO && text[0] != '\0');
    number.integer = (long long)UINT32_MAX + 1;
    ck_assert_int_eq(blob_parse_crc(&number, &crc, text), -EREMOTEIO);
    ck_assert(blob_is_without_fabric("ERR RDMA provider unavailable on this instance"));
    ck_assert(!blob_is_without_fabric("ERR session create: service 0: RDMA provider unavailable on this instance"));
}
END_TEST

UNIT_MAIN("blob_classify", proofs_of_the_core, proofs_of_the_module, all_else_is_live, mutations, random_texts,
          too_small, reconnect, successes, lies, wrong_forms, texts_are_clean, values_over_tcp)
