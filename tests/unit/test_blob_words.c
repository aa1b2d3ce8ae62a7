#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/blob.h"
#include "tests/unit/unit_main.h"

static struct blob_words words;

static void expect_words(const char *expected)
{
    char joined[8192] = "";
    size_t used = 0;

    for (int i = 0; i < words.argc; i++) {
        used += (size_t)snprintf(joined + used, sizeof(joined) - used, "%s%.*s", i == 0 ? "" : " ",
                                 (int)words.lengths[i], words.argv[i]);
    }
    ck_assert_str_eq(joined, expected);
}

START_TEST(set)
{
    const struct slice_triple triples[] = {{1, 0, 4096}, {UINT64_MAX, 18446744073709551614ULL, 1}};

    ck_assert_int_eq(blob_words_set(&words, "key", 3, 4097, false, 7, triples, 2), 0);
    expect_words("BLOB.RDMA_SET key 4097 1 0 4096 18446744073709551615 18446744073709551614 1");
    ck_assert_int_eq(blob_words_set(&words, "key", 3, 4097, true, UINT32_MAX, triples, 1), 0);
    expect_words("BLOB.RDMA_SET key 4097 CRC 4294967295 1 0 4096");
    ck_assert_int_eq(blob_words_set(&words, "key", 3, 1, true, 0, triples, 1), 0);
    expect_words("BLOB.RDMA_SET key 1 CRC 0 1 0 4096");
}
END_TEST

START_TEST(get)
{
    const struct slice_triple triples[] = {{10, 20, 30}};

    ck_assert_int_eq(blob_words_get(&words, "a\0b", 3, triples, 1), 0);
    ck_assert_int_eq(words.argc, 5);
    ck_assert_uint_eq(words.lengths[1], 3);
    ck_assert_int_eq(memcmp(words.argv[1], "a\0b", 3), 0);
    ck_assert_int_eq(blob_words_get(&words, "key", 3, triples, 1), 0);
    expect_words("BLOB.RDMA_GET key 10 20 30");
}
END_TEST

START_TEST(limits)
{
    struct slice_triple *triples = calloc(BLOB_TRIPLES + 1, sizeof(*triples));

    for (int i = 0; i <= BLOB_TRIPLES; i++) {
        triples[i] = (struct slice_triple){UINT64_MAX, UINT64_MAX, UINT64_MAX};
    }
    ck_assert_int_eq(blob_words_set(&words, "k", 1, UINT64_MAX, true, UINT32_MAX, triples, BLOB_TRIPLES), 0);
    ck_assert_int_eq(words.argc, BLOB_WORDS);
    ck_assert_uint_le(words.numbers_used, sizeof(words.numbers));
    ck_assert_int_eq(blob_words_get(&words, "k", 1, triples, BLOB_TRIPLES), 0);
    ck_assert_int_eq(blob_words_set(&words, "k", 1, 1, false, 0, triples, BLOB_TRIPLES + 1), -EINVAL);
    ck_assert_int_eq(blob_words_get(&words, "k", 1, triples, BLOB_TRIPLES + 1), -EINVAL);
    ck_assert_int_eq(blob_words_get(&words, "k", 1, triples, 0), -EINVAL);
    free(triples);
}
END_TEST

START_TEST(hello)
{
    const uint8_t address[] = {0x00, 0x0f, 0xf0, 0xff, 0x12};
    char hex[11];

    blob_hex(address, sizeof(address), hex);
    blob_words_hello(&words, hex);
    expect_words("BLOB.RDMA_HELLO 000ff0ff12");
}
END_TEST

/* --- the reply of HELLO --- */

struct parsed {
    int status;
    uint8_t *addresses;
    size_t length, count;
    bool no_module;
    char text[BLOB_TEXT_BYTES];
};

static struct parsed parse(const char *wire)
{
    redisReader *reader = redisReaderCreate();
    struct parsed parsed;
    void *reply = NULL;

    redisReaderFeed(reader, wire, strlen(wire));
    ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
    ck_assert_ptr_nonnull(reply);
    parsed.status = blob_parse_hello(reply, &parsed.addresses, &parsed.length, &parsed.count, &parsed.no_module,
                                     parsed.text);
    freeReplyObject(reply);
    redisReaderFree(reader);
    return parsed;
}

START_TEST(hello_accepted)
{
    struct parsed parsed = parse("*2\r\n$4\r\n00fF\r\n$4\r\nAb12\r\n");

    ck_assert_int_eq(parsed.status, 0);
    ck_assert_uint_eq(parsed.length, 2);
    ck_assert_uint_eq(parsed.count, 2);
    ck_assert_int_eq(memcmp(parsed.addresses, "\x00\xff\xab\x12", 4), 0);
    free(parsed.addresses);
}
END_TEST

START_TEST(hello_malformed)
{
    static const char *const wires[] = {"+OK\r\n", ":1\r\n", "$-1\r\n", "$4\r\n00ff\r\n", "*0\r\n", "*1\r\n:1\r\n",
                                        "*1\r\n+00ff\r\n", "*1\r\n$0\r\n\r\n", "*1\r\n$3\r\n00f\r\n",
                                        "*1\r\n$4\r\n00fg\r\n", "*1\r\n$4\r\n0x00\r\n", "*1\r\n$-1\r\n",
                                        "*2\r\n$4\r\n00ff\r\n$2\r\n00\r\n", "*2\r\n$4\r\n00ff\r\n$4\r\n00 f\r\n",
                                        "*1\r\n*1\r\n$4\r\n00ff\r\n"};
    char long_one[400];

    for (size_t i = 0; i < sizeof(wires) / sizeof(wires[0]); i++) {
        struct parsed parsed = parse(wires[i]);
        ck_assert_msg(parsed.status == -EPROTO, "%s", wires[i]);
        ck_assert_ptr_null(parsed.addresses);
        ck_assert_str_ne(parsed.text, "");
    }
    snprintf(long_one, sizeof(long_one), "*1\r\n$130\r\n%0130d\r\n", 0);
    ck_assert_int_eq(parse(long_one).status, -EPROTO);
    snprintf(long_one, sizeof(long_one), "*1\r\n$128\r\n%0128d\r\n", 0);
    struct parsed parsed = parse(long_one);
    ck_assert_int_eq(parsed.status, 0);
    free(parsed.addresses);
}
END_TEST

START_TEST(hello_refused)
{
    struct parsed parsed = parse("-ERR unknown command 'BLOB.RDMA_HELLO', with args beginning with: '00'\r\n");

    ck_assert_int_eq(parsed.status, -EREMOTEIO);
    ck_assert(parsed.no_module);
    ck_assert(parse("-ERR unknown or disabled command 'BLOB.RDMA_HELLO'\r\n").no_module);
    parsed = parse("-ERR RDMA provider unavailable on this instance\r\n");
    ck_assert_int_eq(parsed.status, -EREMOTEIO);
    ck_assert(!parsed.no_module);
    ck_assert_str_eq(parsed.text, "ERR RDMA provider unavailable on this instance");
}
END_TEST

START_TEST(over_tcp)
{
    blob_words_tcp_set(&words, "key", 3);
    expect_words("BLOB.TCP_SET key");
    blob_words_tcp_get(&words, "key", 3);
    expect_words("BLOB.TCP_GET key");
    blob_words_crc(&words, "key", 3);
    expect_words("BLOB.INFO key CRC");
    blob_words_expire(&words, "key", 3, 2592000000);
    expect_words("PEXPIRE key 2592000000");
}
END_TEST

UNIT_MAIN("blob_words", over_tcp, set, get, limits, hello, hello_accepted, hello_malformed, hello_refused)
