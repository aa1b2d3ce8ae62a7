/*
 * Property: whatever comes, the codec neither crashes nor leaks, and refuses with a sentence. Mutations of valid
 * messages with a fixed seed; the sanitizers of a second build are the judge.
 */
#include <stdio.h>
#include <string.h>

#include "proto/envelope.h"
#include "proto/errors.h"
#include "unit_main.h"

#define SEED UINT64_C(20240607)
#define ROUNDS 60000

static const char *const seeds[] = {
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1,\"client\":\"bench 1.0\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"region.register\",\"params\":{\"type\":\"memfd\",\"size\":1048576,"
    "\"offset\":4096,\"access\":\"rw\",\"populate\":true,\"label\":\"arena \\u00e9\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"transfer.set\",\"params\":{\"region\":1,\"offset\":0,\"length\":65536,"
    "\"key\":\"user:1\",\"crc32c\":3808858755,\"deadline_ms\":5000}}",
    "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"transfer.get\",\"params\":{\"region\":1,\"offset\":0,\"length\":65536,"
    "\"key_b64\":\"AP8Aq8M=\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"keys.info\",\"params\":"
    "{\"keys\":[\"a\",{\"key_b64\":\"/w==\"},\"c\"]}}",
    "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"region.close\",\"params\":{\"region\":1,\"force\":false}}",
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"found\":true,\"length\":65536,\"crc32c\":1,\"path\":\"rdma\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-13,\"message\":\"lost\",\"data\":{\"name\":\"lost\"}}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"session.closed\",\"params\":{\"code\":-17,\"reason\":\"drain\"}}",
};

static const char *const pieces[] = {
    "\"", "\\", "\\u0000", "\\ud800", "\xFF", "\xC3", "\xED\xA0\x80", "{", "}", "[", "]", ",", ":", "null", "true",
    "-1", "1.5", "1e999", "9223372036854775808", "9007199254740992", "0", "\"key\":\"x\",", "\"key_b64\":\"=\",", "{}",
    "\"id\":3,", " ", "\n", "\x01", "\x7F",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t state = SEED;

/* xorshift64*: the same sequence on every machine. */
static size_t below(size_t bound)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (size_t)((state * UINT64_C(2685821657736338717)) >> 33) % bound;
}

#define ROOM 4096

static size_t splice(char *text, size_t length, size_t at, size_t cut, const char *piece, size_t added)
{
    cut = cut > length - at ? length - at : cut;
    if (length - cut + added > ROOM) {
        return length;
    }
    memmove(text + at + added, text + at + cut, length - at - cut);
    memcpy(text + at, piece, added);
    return length - cut + added;
}

static size_t mutate(char *text, size_t length)
{
    size_t at = below(length + 1);
    char byte = (char)below(256);
    const char *piece = pieces[below(COUNT(pieces))];
    const char *other = seeds[below(COUNT(seeds))];
    size_t from = below(strlen(other));
    switch (below(6)) {
    case 0:
        return splice(text, length, at, 1, &byte, 1);
    case 1:
        return splice(text, length, at, below(8), "", 0);
    case 2:
        return splice(text, length, at, 0, piece, strlen(piece));
    case 3:
        return splice(text, length, at, strlen(piece), piece, strlen(piece));
    case 4:
        return splice(text, length, at, below(16), other + from, below(strlen(other) - from) + 1);
    default:
        return at;
    }
}

/* What the daemon does with a packet. */
static int serve(const char *text, size_t length, char why[PROTO_WHY_BYTES])
{
    struct proto_request request;
    union proto_any_params params;
    int error = proto_request_parse(text, length, &request, why);
    if (error == 0) {
        int method = proto_method_find(request.method);
        if (method >= 0) {
            const struct proto_shape *shape = proto_methods[method].params;
            error = proto_shape_decode(shape, request.params, true, &params, why);
            if (error == 0) {
                json_t *again = proto_shape_encode(shape, &params); /* what was accepted can be said again */
                ck_assert_ptr_nonnull(again);
                json_decref(again);
                proto_shape_free(shape, &params);
            }
        }
    }
    json_decref(request.root);
    return error;
}

/* What the library does with one. */
static void listen_to(const char *text, size_t length)
{
    struct proto_answer answer;
    struct proto_get_result get;
    struct proto_session_closed closed;
    char why[PROTO_WHY_BYTES];
    if (proto_answer_parse(text, length, &answer) == 0) {
        ck_assert_int_eq((answer.result != NULL) + (answer.code != 0) + (answer.method != NULL), 1);
        const struct proto_shape *shape = proto_methods[PROTO_METHOD_TRANSFER_GET].result;
        if (answer.result != NULL && proto_shape_decode(shape, answer.result, false, &get, why) == 0) {
            proto_shape_free(shape, &get);
        }
        if (answer.method != NULL &&
            proto_shape_decode(&proto_shape_session_closed, answer.params, false, &closed, why) == 0) {
            proto_shape_free(&proto_shape_session_closed, &closed);
        }
    }
    json_decref(answer.root);
}

/* Ended, not empty, and printable ASCII only. */
static bool is_sentence(const char why[PROTO_WHY_BYTES])
{
    size_t length = strnlen(why, PROTO_WHY_BYTES);
    for (size_t i = 0; i < length; i++) {
        if (why[i] < 0x20 || why[i] >= 0x7F) {
            return false;
        }
    }
    return length > 0 && length < PROTO_WHY_BYTES;
}

static void try_one(const char *text, size_t length)
{
    char why[PROTO_WHY_BYTES] = "";
    char answer[PROTO_MESSAGE_BYTES];
    char *exact = malloc(length > 0 ? length : 1); /* so that reading past the packet is seen */
    memcpy(exact, text, length);
    int error = serve(exact, length, why);
    if (error != 0) {
        bool expected = error == PROTO_ERR_PARSE || error == PROTO_ERR_INVALID_REQUEST ||
                        error == PROTO_ERR_INVALID_PARAMS || error == PROTO_ERR_TOO_LARGE;
        ck_assert_msg(expected && is_sentence(why), "error %d: %s", error, why);
        ck_assert_int_gt(proto_write_error(answer, sizeof(answer), 0, error, why, NULL), 0);
    }
    listen_to(exact, length);
    free(exact);
}

START_TEST(mutations_never_crash)
{
    char text[ROOM];
    for (size_t round = 0; round < ROUNDS; round++) {
        const char *base = seeds[below(COUNT(seeds))];
        size_t length = strlen(base);
        memcpy(text, base, length);
        for (size_t left = below(4) + 1; left > 0; left--) {
            length = mutate(text, length);
        }
        try_one(text, length);
    }
}
END_TEST

START_TEST(every_prefix_is_harmless)
{
    for (size_t i = 0; i < COUNT(seeds); i++) {
        for (size_t length = 0; length <= strlen(seeds[i]); length++) {
            try_one(seeds[i], length);
        }
    }
}
END_TEST

START_TEST(deep_nesting_is_refused_or_read)
{
    static char text[PROTO_MESSAGE_BYTES];
    static const char openers[] = "[{";
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < sizeof(text); i++) {
            text[i] = openers[kind];
        }
        try_one(text, sizeof(text));
    }
    /* as deep as the parser goes, balanced, inside a message */
    for (size_t depth = 2000; depth <= 2100; depth += 10) {
        size_t used = (size_t)snprintf(text, sizeof(text),
                                       "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"params\":{\"x\":");
        memset(text + used, '[', depth);
        memset(text + used + depth, ']', depth);
        memcpy(text + used + 2 * depth, "}}", 2);
        try_one(text, used + 2 * depth + 2);
    }
}
END_TEST

START_TEST(full_packets_of_one_byte_are_harmless)
{
    static char text[PROTO_MESSAGE_BYTES];
    for (int byte = 0; byte < 256; byte++) {
        memset(text, byte, sizeof(text));
        try_one(text, sizeof(text));
        text[0] = '"';
        text[sizeof(text) - 1] = '"';
        try_one(text, sizeof(text));
    }
}
END_TEST

START_TEST(many_members_are_refused_quickly)
{
    static char text[PROTO_MESSAGE_BYTES];
    size_t used = (size_t)snprintf(text, sizeof(text),
                                   "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"params\":{");
    for (int i = 0; used < sizeof(text) - 32; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\"%d\":0", i > 0 ? "," : "", i);
    }
    used += (size_t)snprintf(text + used, sizeof(text) - used, "}}");
    for (int i = 0; i < 10; i++) {
        try_one(text, used);
    }
}
END_TEST

int main(void)
{
    printf("# seed %llu, %d rounds\n", (unsigned long long)SEED, ROUNDS);
    fflush(stdout);
    Suite *suite = suite_create("proto_hostile");
    TCase *all = tcase_create("proto_hostile");
    tcase_set_timeout(all, 100);
    tcase_add_test(all, mutations_never_crash);
    tcase_add_test(all, every_prefix_is_harmless);
    tcase_add_test(all, deep_nesting_is_refused_or_read);
    tcase_add_test(all, full_packets_of_one_byte_are_harmless);
    tcase_add_test(all, many_members_are_refused_quickly);
    suite_add_tcase(suite, all);
    return unit_run(suite);
}
