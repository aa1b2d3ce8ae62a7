/*
 * Whole sessions: several clients, the daemon behind its sockets, a server, a fabric and the clock, all played by the
 * input. README.md has the words of its lines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/fake_host.h"
#include "tests/rig/fake_server.h"
#include "tests/rig/fake_threads.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/session_rig.h"
#include "tests/rig/fake_fabric.h"

#define LINES 300
#define CLOCK_MS 3600000
#define LONG_PACKET (PROTO_MESSAGE_BYTES + 1000)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    rig_init();
    clients_init();
    return 0;
}

static unsigned digit(const char *line, size_t length, size_t at)
{
    return at < length && line[at] >= '0' && line[at] <= '9' ? (unsigned)(line[at] - '0') : 0;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

/* "#ID METHOD {PARAMS}" stands for the whole request. */
static void send_short(unsigned client, char kind, const char *bytes, size_t length)
{
    static char text[PROTO_MESSAGE_BYTES];
    size_t number = strspn(bytes + 1, "0123456789"), method;
    const char *params;
    int used;

    params = memchr(bytes, '{', length);
    method = (size_t)((params != NULL ? params : bytes + length) - bytes) - 1 - number;
    used = snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"method\":\"%.*s\"%s%.*s}", (int)number,
                    bytes + 1, (int)method, bytes + 1 + number, params != NULL ? ",\"params\":" : "",
                    params != NULL ? (int)(bytes + length - params) : 0, params != NULL ? params : "");
    client_send(client, kind, text, used < (int)sizeof(text) ? (size_t)used : sizeof(text));
}

static void send_long(unsigned client, char kind, const char *bytes, size_t length)
{
    static char text[LONG_PACKET];

    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = bytes[i % length];
    }
    client_send(client, kind, text, sizeof(text));
}

static void packet(const char *line, size_t length)
{
    unsigned client = digit(line, length, 0);
    char *bytes;

    if (length < 3) {
        return;
    }
    bytes = strndup(line + 2, length - 2); /* ends where a NUL stands, which strspn needs */
    if (line[2] == '#') {
        send_short(client, line[1], bytes, strlen(bytes));
    } else if (line[2] == '*' && length > 3) {
        send_long(client, line[1], line + 3, length - 3);
    } else {
        client_send(client, line[1], line + 2, length - 2);
    }
    free(bytes);
}

/* Bytes of the server: "|" stands for the end of a line, and one more comes at the end unless that is a "~". */
static void server_says(const char *line, size_t length)
{
    struct fake_connection *connection = fake_server_connection(digit(line, length, 1));
    char *bytes = malloc(2 * length + 2);
    size_t used = 0;

    for (size_t i = 2; i < length && (line[i] != '~' || i + 1 < length); i++) {
        if (line[i] == '|') {
            bytes[used++] = '\r';
            bytes[used++] = '\n';
        } else {
            bytes[used++] = line[i];
        }
    }
    if (line[length - 1] != '~') {
        memcpy(bytes + used, "\r\n", 2);
        used += 2;
    }
    if (connection != NULL) {
        fake_server_send(connection, bytes, used);
        fake_server_skip(connection);
    }
    free(bytes);
}

static void server_answers(bool all)
{
    bool answered;

    do {
        answered = false;
        for (unsigned i = 0; i < fake_server_connections(); i++) {
            answered |= fake_server_answer(fake_server_connection(i));
        }
        rig_settle();
    } while (answered && all);
}

static void server_mode(const char *line, size_t length)
{
    static const enum fake_server_mode modes[] = {FAKE_ACCEPT, FAKE_REFUSE, FAKE_SILENT, FAKE_NO_OPEN};

    fake_server.mode = modes[digit(line, length, 1) % 4];
}

static void hang_up(const char *line, size_t length)
{
    struct fake_connection *connection = fake_server_connection(digit(line, length, 1));

    if (connection != NULL) {
        fake_server_hang_up(connection);
    }
}

static void fabric_fails(const char *line, size_t length)
{
    /* What opens. What closes is closed once whatever it answers, and its memory then kept for good. */
    static const enum fake_op names[] = {FAKE_DOMAIN_OPEN, FAKE_ENDPOINT_OPEN, FAKE_ADD_PEER, FAKE_MR_OPEN};

    fake_fail(names[digit(line, length, 1) % 4], digit(line, length, 2), -12);
}

static void stop_sessions(void)
{
    struct session *session, *next;

    for (session = TAILQ_FIRST(&rig_service.sessions); session != NULL; session = next) {
        next = TAILQ_NEXT(session, link);
        session_end(session, TRANSFER_STOPPING, -17, "the daemon is stopping", false);
    }
}

static void play_client(const char *line, size_t length)
{
    unsigned number = digit(line, length, 1);

    switch (line[0]) {
    case 'o':
        client_open(number, digit(line, length, 2) % 4, false);
        break;
    case 'a':
        client_open(number, 0, true);
        break;
    case 'k':
        client_close(number);
        break;
    case 'e':
        client_shut_writing(number);
        break;
    case 'E':
        client_shut_reading(number);
        break;
    case 'q':
        client_die(number);
        break;
    case 'n':
        client_toggle_reading(number);
        break;
    default:
        packet(line, length);
        break;
    }
}

static void play_server(const char *line, size_t length)
{
    switch (line[0]) {
    case 's':
        if (length > 2) {
            server_says(line, length);
        }
        break;
    case '*':
        server_answers(length > 1 && line[1] == '*');
        break;
    case 'h':
        hang_up(line, length);
        break;
    case 'M':
        server_mode(line, length);
        break;
    case 'b':
        fake_server.room = length > 1 ? fuzz_number(line + 1, length - 1, 1 << 20, 0) : SIZE_MAX;
        break;
    default:
        fake_server.piece = fuzz_number(line + 1, length - 1, 1 << 20, 0) + 1;
        break;
    }
}

static void play(const char *line, size_t length)
{
    switch (line[0]) {
    case '.':
        rig_turn();
        break;
    case '!':
        rig_settle();
        break;
    case 't':
        rig_loop();
        break;
    case 'w':
        fake_workers_run(fuzz_number(line + 1, length - 1, 255, 0));
        break;
    case 'd':
        fake_workers_deliver();
        break;
    case 'g':
        fake_progress_turn();
        break;
    case 'v':
        fake_server_turn();
        break;
    case 'T':
        fake_clock_advance(fuzz_number(line + 1, length - 1, CLOCK_MS, 1));
        break;
    case 'F':
        fabric_fails(line, length);
        break;
    case 'D':
        rig_service.draining = true;
        break;
    case 'Z':
        stop_sessions();
        break;
    case 's':
    case '*':
    case 'h':
    case 'M':
    case 'b':
    case 'p':
        play_server(line, length);
        break;
    default:
        play_client(line, length);
        break;
    }
}

static struct rig_options read_options(struct fuzz_lines *lines)
{
    struct rig_options options = {0};
    struct fuzz_lines first = *lines;
    const char *line;
    size_t length;

    if (fuzz_line(&first, &line, &length) && length > 0 && line[0] == ':') {
        options.efa_direct = memchr(line, 'e', length) != NULL;
        options.real_nics = options.efa_direct || memchr(line, 'v', length) != NULL;
        options.virtual_addresses = memchr(line, 'V', length) != NULL;
        options.two_nics = memchr(line, '2', length) != NULL;
        options.no_fabric = memchr(line, 'x', length) != NULL;
        options.warm = memchr(line, 'w', length) != NULL;
        options.password = memchr(line, 'p', length) != NULL;
        options.small_slices = memchr(line, 's', length) != NULL;
        options.quotas = memchr(line, 'q', length) != NULL;
        *lines = first;
    }
    return options;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_lines lines = {.at = (const char *)data, .end = (const char *)data + size};
    struct rig_options options = read_options(&lines);
    const char *line;
    size_t length;

    session_rig_start(&options);
    for (int i = 0; i < LINES && fuzz_line(&lines, &line, &length); i++) {
        if (length > 0) {
            play(line, length);
        }
    }
    session_rig_stop();
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return fuzz_mutate_lines(data, size, max_size, seed);
}
