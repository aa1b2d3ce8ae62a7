/* The HTTP of the metrics listener: one GET is understood, everything else gets its status, nothing is read beyond. */
#include <string.h>

#include "daemon/metrics/http_listener.h"
#include "tests/unit/unit_main.h"

/* From memory of exactly that size, so that a sanitizer sees a byte too many. */
static int status_of(const char *text, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    int status;

    memcpy(copy, text, length);
    status = http_request_status(copy, length);
    free(copy);
    return status;
}

static const struct {
    const char *text;
    int status;
} cases[] = {
    {"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", 200},
    {"GET /metrics HTTP/1.0\r\n\r\n", 200},
    {"GET /metrics HTTP/1.1\n\n", 200},
    {"GET /metrics?name=x HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200},
    {"GET /metrics HTTP/1.1\r\n\r\nGET /other HTTP/1.1\r\n\r\n", 200},
    {"HEAD /metrics HTTP/1.1\r\n\r\n", 405},
    {"POST /metrics HTTP/1.1\r\nContent-Length: 00\r\n\r\n", 405},
    {"GET / HTTP/1.1\r\n\r\n", 404},
    {"GET /metrics/ HTTP/1.1\r\n\r\n", 404},
    {"GET /../metrics HTTP/1.1\r\n\r\n", 404},
    {"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400},
    {"GET /metrics HTTP/1.1\r\ntransfer-ENCODING: chunked\r\n\r\n", 400},
    {"GET /metrics HTTP/1.1\r\n folded: header\r\n\r\n", 400},
    {"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400},
    {"GET /metrics HTTP/1.1\r\n: empty\r\n\r\n", 400},
    {"GET /metrics\r\n\r\n", 400},
    {"GET  /metrics HTTP/1.1\r\n\r\n", 400},
    {"GET /metrics HTTP/1.1 \r\n\r\n", 400},
    {"GET http://host/metrics HTTP/1.1\r\n\r\n", 400},
    {"PRI * HTTP/2.0\r\n\r\n", 400},
    {"\r\n\r\n", 400},
    {"\x16\x03\x01\x02\n", 400},
    {"", 0},
    {"GET /metrics HTTP/1.1", 0},
    {"GET /metrics HTTP/1.1\r\n", 0},
    {"GET /metrics HTTP/1.1\r\nHost: localhost\r\n", 0},
};

START_TEST(requests)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int status = status_of(cases[i].text, strlen(cases[i].text));
        ck_assert_msg(status == cases[i].status, "%d for %s", status, cases[i].text);
    }
}
END_TEST

/* What came so far never gets another answer by what follows, but for "not complete". */
START_TEST(pieces)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int before = 0;
        for (size_t length = 0; length <= strlen(cases[i].text); length++) {
            int status = status_of(cases[i].text, length);
            ck_assert_msg(before == 0 || status == before, "%d, then %d, for %s", before, status, cases[i].text);
            before = status;
        }
    }
}
END_TEST

START_TEST(too_long)
{
    char text[2 * HTTP_REQUEST_BYTES];

    memset(text, 'x', sizeof(text));
    ck_assert_int_eq(status_of(text, HTTP_REQUEST_BYTES - 1), 0);
    ck_assert_int_eq(status_of(text, HTTP_REQUEST_BYTES), 431);
    memcpy(text, "GET /metrics HTTP/1.1\r\nA: ", 26);
    ck_assert_int_eq(status_of(text, HTTP_REQUEST_BYTES), 431);
    memcpy(text + HTTP_REQUEST_BYTES - 2, "\r\n\r\n", 4);
    ck_assert_int_eq(status_of(text, sizeof(text)), 431);
    memcpy(text + HTTP_REQUEST_BYTES - 4, "\r\n\r\n", 4);
    ck_assert_int_eq(status_of(text, sizeof(text)), 200);
}
END_TEST

/* Whatever bytes come: an answer, and no crash. */
START_TEST(random_bytes)
{
    static const char *const words[] = {"GET", " ", "/metrics", "HTTP/1.1", "\r\n", "\n", ":", "\r", "A", "Content-Length", "\0", "\xff", "9"};
    uint64_t state = 88172645463325252;
    char text[512];

    for (int round = 0; round < 200000; round++) {
        size_t length = 0;
        while (length < 64 && (state & 31) != 0) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            const char *word = words[(state >> 8) % (sizeof(words) / sizeof(words[0]))];
            size_t size = word[0] == '\0' ? 1 : strlen(word);
            memcpy(text + length, word, size);
            length += size;
        }
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        int status = status_of(text, length);
        ck_assert(status == 0 || (status >= 200 && status <= 431));
    }
}
END_TEST

START_TEST(addresses)
{
    static const char *const good[] = {"127.0.0.1:9111", "127.8.0.1:1", "[::1]:65535"};
    static const char *const bad[] = {"",           "9111",          ":9111",      "127.0.0.1",  "127.0.0.1:", "127.0.0.1:0",
                                      "127.0.0.1:65536", "127.0.0.1:1x", "127.0.0.1: 1", "::1:9111",   "localhost:9111", "[127.0.0.1]:1"};
    static const char *const open_to_others[] = {"0.0.0.0:9111", "10.0.0.1:9111", "[::]:9111", "[::ffff:127.0.0.1]:9111"};
    struct sockaddr_storage address;
    char why[HTTP_WHY_BYTES];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(http_address_parse(good[i], &address, why) == 0, "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(http_address_parse(bad[i], &address, why) < 0 && strstr(why, "is no address such as") != NULL, "%s", bad[i]);
    }
    for (size_t i = 0; i < sizeof(open_to_others) / sizeof(open_to_others[0]); i++) {
        ck_assert_int_lt(http_address_parse(open_to_others[i], &address, why), 0);
        ck_assert_msg(strstr(why, "is no loopback address") != NULL, "%s", why);
    }
}
END_TEST

UNIT_MAIN("http_request", requests, pieces, too_long, random_bytes, addresses)
