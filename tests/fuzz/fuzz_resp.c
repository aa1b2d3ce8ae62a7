/*
 * The RESP path: a server's bytes in pieces through a real connection, each reply classified for a transfer and read as
 * the answer of HELLO and as the map of a cluster. The same bytes at once and in pieces must mean the same.
 *
 * An input is a line and the server's bytes. The line: 0 a plain connection, 1 with a password, 2 with a server that
 * takes only part of the commands; a character whose code is the size of the pieces; then the requests that wait, one
 * character each: s SET, c SET with a checksum, g GET, h HELLO, m a request whose reply may be large, a ASKING and a
 * command, b a GET whose reply is the value itself, anything else a command on a key.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/valkey/blob.h"
#include "daemon/valkey/resp.h"
#include "tests/fuzz/fuzz.h"
#include "tests/rig/fake_server.h"
#include "tests/rig/fake_threads.h"

#define REQUESTS 16
#define WINDOW 65536
#define STORY_BYTES 16384
#define SINK_BYTES (32 * 1024) /* more than is ever copied to it at once */

struct asked {
    struct resp_request resp;
    struct resp_sink sink;
    char room[SINK_BYTES];
    uint64_t announced, got;
    uint32_t sum; /* of the bytes in order */
    struct resp_asking asking;
    char kind;
    unsigned answers;
};

struct run {
    struct asked asked[REQUESTS];
    size_t count;
    unsigned ready, closed;
    size_t used;
    char story[STORY_BYTES]; /* all that was told, in order */
};

static struct run runs[2], *now;
static uv_loop_t loop; /* of a timer that never runs out */
static struct workers *workers;
static char password_path[64];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int fd = memfd_create("password", 0);

    if (fd < 0 || write(fd, "secret\n", 7) != 7 || uv_loop_init(&loop) != 0) {
        return 1;
    }
    uv_run(&loop, UV_RUN_NOWAIT); /* what libuv opens when it first runs is open from here on */
    snprintf(password_path, sizeof(password_path), "/proc/self/fd/%d", fd);
    workers = workers_start(&loop);
    return 0;
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    now->used += (size_t)vsnprintf(now->story + now->used, STORY_BYTES - now->used, format, arguments);
    va_end(arguments);
    now->used = now->used < STORY_BYTES ? now->used : STORY_BYTES - 1;
}

static void check_text(const char *text, size_t size)
{
    size_t length = strnlen(text, size);

    FUZZ_CHECK(length < size, "a text without an end");
    for (size_t i = 0; i < length; i++) {
        FUZZ_CHECK(text[i] >= 0x20 && text[i] < 0x7F, "byte %d in a text", text[i]);
    }
}

static void classify(const redisReply *reply, enum blob_command command)
{
    struct blob_reply out;

    blob_classify(command, reply, WINDOW, &out);
    check_text(out.text, sizeof(out.text));
    FUZZ_CHECK(out.class != BLOB_REPLY_DONE || out.length <= WINDOW, "%" PRIu64 " bytes in the window", out.length);
    FUZZ_CHECK(out.class != BLOB_REPLY_DONE || reply->type != REDIS_REPLY_ERROR, "an error that is a success");
    FUZZ_CHECK(out.class != BLOB_REPLY_MISSING || command == BLOB_GET || command == BLOB_TCP_GET,
               "a SET that misses its key");
    FUZZ_CHECK(!out.crc_mismatch || command == BLOB_SET_CRC, "a checksum that nobody gave");
    FUZZ_CHECK(out.need == 0 || (out.too_small && out.need > WINDOW), "need %" PRIu64, out.need);
    tell("[%d %d %" PRIu64 " %" PRIu32 " %d%d%d%d %s]", command, out.class, out.length, out.crc32c, out.crc_mismatch,
         out.wrong_type, out.too_small, out.reconnect, out.text);
}

static void parse_hello(const redisReply *reply)
{
    char text[BLOB_TEXT_BYTES];
    uint8_t *addresses;
    size_t length, count;
    bool no_module;
    int status = blob_parse_hello(reply, &addresses, &length, &count, &no_module, text);

    check_text(text, sizeof(text));
    if (status == 0) {
        FUZZ_CHECK(count >= 1 && count <= BLOB_ADDRESSES && length >= 1 && length <= FABRIC_ADDRESS_BYTES,
                   "%zu addresses of %zu bytes", count, length);
        tell("[hello %zu %zu %02x]", count, length, addresses[count * length - 1]);
    } else {
        FUZZ_CHECK(addresses == NULL, "an address in a refusal");
        FUZZ_CHECK(text[0] != '\0' || reply->type == REDIS_REPLY_ERROR, "a refusal without a reason");
        tell("[hello %d %d %s]", status, no_module, text);
    }
    free(addresses);
}

static void parse_map(const redisReply *reply)
{
    static const struct topology_endpoint asked = {"server", "1"};
    struct topology *map;
    struct redirect redirect;
    char why[TOPOLOGY_WHY_BYTES];
    int status = topology_parse(reply, &asked, &map, why);

    redirect_parse(reply, &redirect);
    FUZZ_CHECK(!redirect_names_node(&redirect) || redirect.slot < SLOTS, "slot %u", redirect.slot);
    tell("[map %d %d %u %s:%s]", status, redirect.kind, redirect.slot, redirect.endpoint.host, redirect.endpoint.port);
    if (status != 0) {
        FUZZ_CHECK(map == NULL, "a map in a refusal");
        check_text(why, sizeof(why));
        return;
    }
    unsigned covered = 0, counted = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        FUZZ_CHECK(map->owners[slot] < map->count || map->owners[slot] == TOPOLOGY_NODES, "an owner that is none");
        covered += map->owners[slot] < map->count;
    }
    for (size_t i = 0; i < map->count; i++) {
        check_text(map->nodes[i].endpoint.host, sizeof(map->nodes[i].endpoint.host));
        counted += map->nodes[i].slots;
    }
    FUZZ_CHECK(map->count > 0 && map->count <= TOPOLOGY_NODES && covered == map->covered && covered == counted,
               "%u slots, %u, %u", covered, map->covered, counted);
    tell("[%zu %u]", map->count, covered);
    free(map);
}

static struct asked *of_sink(struct resp_sink *sink)
{
    return (struct asked *)((char *)sink - offsetof(struct asked, sink));
}

static enum resp_sink_choice sink_begin(struct resp_sink *sink, uint64_t length)
{
    struct asked *asked = of_sink(sink);

    FUZZ_CHECK(asked->answers == 0 && asked->announced == 0, "a value begins twice");
    asked->announced = length;
    return length > WINDOW ? RESP_SINK_LEAVE : RESP_SINK_TAKE;
}

static void *sink_room(struct resp_sink *sink, size_t *capacity)
{
    *capacity = SINK_BYTES;
    return of_sink(sink)->room;
}

static void sink_filled(struct resp_sink *sink, size_t length)
{
    struct asked *asked = of_sink(sink);

    for (size_t i = 0; i < length; i++) {
        asked->sum = asked->sum * 31 + (unsigned char)asked->room[i];
    }
    asked->got += length;
    FUZZ_CHECK(asked->got <= asked->announced, "more than was announced");
}

static void check_value(const struct asked *asked, const redisReply *reply)
{
    bool value = reply->type == REDIS_REPLY_STRING;

    FUZZ_CHECK(value || reply->type == REDIS_REPLY_NIL || reply->type == REDIS_REPLY_ERROR, "type %d", reply->type);
    FUZZ_CHECK(!value || (uint64_t)reply->integer == asked->announced, "another length");
    FUZZ_CHECK(!value || asked->announced > WINDOW || asked->got == asked->announced, "a part of a value");
    tell("(%" PRIu64 " %" PRIu64 " %" PRIu32 ")", asked->announced, asked->got, asked->sum);
}

static void replied(struct resp_request *resp, const redisReply *reply)
{
    struct asked *asked = (struct asked *)resp;

    FUZZ_CHECK(asked->answers++ == 0, "a second answer");
    tell("<%c %d>", asked->kind, reply->type);
    if (asked->resp.sink != NULL) {
        check_value(asked, reply);
    }
    /* Whatever was asked, every reader must stand every reply. */
    for (int command = BLOB_HELLO; command <= BLOB_TCP_GET; command++) {
        classify(reply, (enum blob_command)command);
    }
    parse_hello(reply);
    parse_map(reply);
}

static void lost(struct resp_request *resp, bool may_have_run, const char *why)
{
    struct asked *asked = (struct asked *)resp;

    FUZZ_CHECK(asked->answers++ == 0, "a second answer");
    check_text(why, TRANSPORT_WHY_BYTES);
    tell("<%c lost %d %s>", asked->kind, may_have_run, why);
}

static void ready(void *context)
{
    FUZZ_CHECK(now->ready++ == 0, "ready twice");
    tell("<ready>");
}

static void closed(void *context, bool auth, const char *why)
{
    struct resp_connection **connection = context;

    FUZZ_CHECK(now->closed++ == 0, "closed twice");
    for (size_t i = 0; i < now->count; i++) {
        FUZZ_CHECK(now->asked[i].answers == 1, "request %zu was not answered before the end", i);
    }
    tell("<closed %d %s>", auth, why);
    resp_close(*connection);
    *connection = NULL;
}

static void ask(struct resp_connection *connection, const char *line, size_t length)
{
    for (size_t i = 0; i < length && i < REQUESTS; i++) {
        struct asked *asked = &now->asked[now->count];
        const char *words[] = {"EXISTS", "key", "1", "2", "3", "4"};
        const size_t lengths[] = {6, 3, 1, 1, 1, 1};
        *asked = (struct asked){.resp = {.reply = replied, .lost = lost, .large = line[i] == 'm'}, .kind = line[i]};
        if (line[i] == 'b') {
            asked->sink = (struct resp_sink){.begin = sink_begin, .room = sink_room, .filled = sink_filled};
            bulk_init(&asked->sink.bulk);
            asked->resp.sink = &asked->sink;
        }
        int status = line[i] == 'a' ? resp_send_asking(connection, &asked->asking, &asked->resp, 6, words, lengths)
                                    : resp_send(connection, &asked->resp, 6, words, lengths);
        if (status == 0) {
            now->count++;
        }
    }
}

static void settle(void)
{
    bool active;

    do {
        active = fake_server_turn();
        active |= fake_workers_run(0);
        active |= fake_workers_deliver();
    } while (active);
}

static void play(struct run *run, char mode, size_t piece, const char *requests, size_t request_length,
                 const uint8_t *bytes, size_t length)
{
    static const struct resp_events events = {.ready = ready, .closed = closed};
    static char host[] = "server", port[] = "1", text[] = "server:1";
    const struct transport_address address = {.text = text, .host = host, .port = port};
    struct valkey_config config = {.password_file = mode == '1' ? password_path : NULL,
                                    .connect_timeout_ms = 600000};
    struct offload *offload = offload_create(workers);
    struct resp_connection *connection;
    struct dial dial;
    char why[TRANSPORT_WHY_BYTES];

    FUZZ_CHECK(dial_init(&dial, &config, &address) == 0, "no memory");
    now = run;
    memset(run, 0, offsetof(struct run, story) + 1);
    fake_server_reset();
    fake_server.checks = false;
    fake_server.piece = piece;
    FUZZ_CHECK(resp_open(&loop, offload, &config, &dial, &events, &connection, &connection, why) == 0, "%s", why);
    if (mode == '2') {
        fake_server.room = 200;
    }
    ask(connection, requests, request_length);
    settle();
    if (connection != NULL) {
        fake_server_send(fake_server_connection(0), bytes, length);
        settle();
    }
    if (connection != NULL) {
        fake_server_hang_up(fake_server_connection(0));
        settle();
    }
    FUZZ_CHECK(connection == NULL, "the end of the connection was not told");
    for (size_t i = 0; i < run->count; i++) {
        FUZZ_CHECK(run->asked[i].answers == 1, "request %zu has %u answers", i, run->asked[i].answers);
    }
    dial_end(&dial);
    offload_unref(offload);
    uv_run(&loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(uv_loop_alive(&loop) == 0, "a handle of the loop is open");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_lines lines = {.at = (const char *)data, .end = (const char *)data + size};
    unsigned before = fuzz_descriptors();
    const char *line;
    size_t length, piece, rest;

    if (!fuzz_line(&lines, &line, &length) || length < 2) {
        return -1;
    }
    piece = (unsigned char)line[1] % 64 + 1;
    rest = (size_t)(lines.end - lines.at);
    play(&runs[0], line[0], SIZE_MAX, line + 2, length - 2, (const uint8_t *)lines.at, rest);
    play(&runs[1], line[0], piece, line + 2, length - 2, (const uint8_t *)lines.at, rest);
    FUZZ_CHECK(strcmp(runs[0].story, runs[1].story) == 0, "at once: %s\nin pieces of %zu: %s", runs[0].story, piece,
               runs[1].story);
    FUZZ_CHECK(fuzz_descriptors() == before, "%u descriptors became %u", before, fuzz_descriptors());
    return 0;
}
