/*
 * The server: what it does for a command goes in steps, whether or not the connection that brought the command is still
 * there. Each step asks the fabric whether the provider would let its bytes through.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#include "proto/methods.h"
#include "tests/property/model.h"
#include "tests/rig/fake_server.h"

#define CONNECTIONS 4096 /* of a round */
#define WHO_BYTES 96

/* One run of a transfer on the server. */
struct run {
    TAILQ_ENTRY(run) link;
    struct model_request *request;
    unsigned number; /* among the runs of the request, from 0 */
    bool set;
    uint8_t endpoint[FAKE_ADDRESS_BYTES];
    struct fake_target *targets; /* owned: the triples */
    size_t target_count, target; /* the one at work */
    struct fake_message message;
    bool begun;                  /* its message */
    uint64_t message_done;
    uint8_t *value; /* owned: what is written, or was read */
    uint64_t total, done;
    bool moved;    /* a byte, ever */
    bool over;     /* nothing more is moved */
    bool complete; /* all of it was moved */
    bool keeps;    /* a set that will be stored when it is complete */
    bool proved;   /* answered with a reply that proves the end */
};

static TAILQ_HEAD(, run) runs = TAILQ_HEAD_INITIALIZER(runs);
static uint8_t endpoints[CONNECTIONS][FAKE_ADDRESS_BYTES]; /* that the sessions of connections name */

static const char *name(const struct run *run)
{
    static char text[WHO_BYTES];

    snprintf(text, sizeof(text), "%s %" PRIu64 " (run %u)", run->set ? "set" : "get", run->request->number,
             run->number + 1);
    return text;
}

/* --- what may still move ------------------------------------------------------------------------------------------ */

/* The next target, cut to the bytes that a run still has to move. */
static struct fake_target target_at(const struct run *run, size_t index)
{
    struct fake_target target = run->targets[index];

    memcpy(target.endpoint, run->endpoint, sizeof(target.endpoint));
    target.writes = !run->set;
    return target;
}

static bool may_move(const struct run *run)
{
    if (run->over) {
        return false;
    }
    if (run->begun && fake_message_goes_on(&run->message)) {
        return true;
    }
    for (size_t i = run->target + run->begun; i < run->target_count; i++) {
        struct fake_target target = target_at(run, i);
        if (fake_message_admitted(&target)) {
            return true;
        }
    }
    return false;
}

void server_check_handed_back(struct model_request *request, const char *how)
{
    const struct run *run;

    TAILQ_FOREACH (run, &runs, link) {
        if (run->request != request || !may_move(run)) {
            continue;
        }
        RIG_CHECK(fake_endpoint_failed(run->endpoint),
                  "the window of %s is handed back (%s) while its lane lets the server go on", name(run), how);
        request->tainted = true;
    }
}

void server_check_unmapped(const uint8_t *base, uint64_t length)
{
    const struct run *run;

    RIG_CHECK(!fake_registered(base, length), "memory is unmapped while a registration of it is open");
    TAILQ_FOREACH (run, &runs, link) {
        for (size_t i = 0; i < run->target_count && may_move(run); i++) {
            const uint8_t *at = fake_key_base(run->targets[i].key);
            RIG_CHECK(!mapping_holds(base, length, at),
                      "the memory of %s is unmapped while its lane lets the server go on", name(run));
        }
    }
}

void server_endpoint_failed(const uint8_t *address)
{
    const struct run *run;

    TAILQ_FOREACH (run, &runs, link) {
        if (run->proved || run->request->answered || memcmp(run->endpoint, address, FAKE_ADDRESS_BYTES) != 0) {
            continue;
        }
        for (size_t i = 0; i < run->target_count; i++) {
            mapping_in_doubt(fake_key_base(run->targets[i].key), true);
        }
    }
}

const uint8_t *server_value(const struct model_request *request, uint32_t checksum, uint64_t *length)
{
    const struct run *run;

    TAILQ_FOREACH (run, &runs, link) {
        if (run->request == request && run->complete && run->proved &&
            checksum == (uint32_t)(request->number * 16 + run->number)) {
            *length = run->total;
            return run->value;
        }
    }
    return NULL;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static void complete(struct run *run)
{
    struct model_request *request = run->request;

    run->over = true;
    run->complete = true;
    if (!run->set || !run->keeps) {
        return;
    }
    RIG_CHECK(!request->denied, "%s is stored, although its client was told that it did not run", name(run));
    RIG_CHECK(request->stored == 0, "%s is executed a second time", name(run));
    RIG_CHECK(request->expected == NULL || request->tainted ||
                  memcmp(run->value, request->expected, run->total) == 0,
              "the value that %s stores is torn: the window changed while the server read it", name(run));
    request->stored++;
    saw(SIGHT_SET_STORED);
}

/* Up to `bytes` of the message at work; 0: none is possible. */
static uint64_t move_in_message(struct run *run, uint64_t bytes)
{
    struct fake_target target = target_at(run, run->target);
    struct place place;
    uint64_t count;

    if (!run->begun) {
        if (!fake_message_begin(&run->message, &target)) {
            return 0;
        }
        run->begun = true;
        run->message_done = 0;
    } else if (!fake_message_goes_on(&run->message)) {
        return 0;
    }
    count = run->message.length - run->message_done;
    count = count < run->total - run->done ? count : run->total - run->done;
    count = count < bytes ? count : bytes;
    if (!place_of(fake_message_at(&run->message, run->message_done), &place)) {
        return 0; /* unmapped: what was checked then */
    }
    if (run->set) {
        memcpy(run->value + run->done, file_bytes(place.file) + place.at, count);
    } else {
        file_land(place, run->value + run->done, count, name(run));
    }
    return count;
}

static void move(struct run *run, uint64_t bytes)
{
    while (!run->over && bytes > 0) {
        uint64_t count = move_in_message(run, bytes);
        if (count == 0) {
            run->over = true; /* the server sees an error, and does not go on */
            saw(SIGHT_REFUSED_LATE);
            return;
        }
        run->moved = true;
        bytes -= count;
        run->done += count;
        run->message_done += count;
        if (run->done == run->total) {
            complete(run);
        } else if (run->message_done == run->message.length) {
            run->begun = false;
            run->target++;
        }
    }
}

static struct run *pick_running(void)
{
    struct run *run;
    unsigned count = 0, pick;

    TAILQ_FOREACH (run, &runs, link) {
        count += !run->over;
    }
    pick = random_below(count + 1);
    TAILQ_FOREACH (run, &runs, link) {
        if (!run->over && pick-- == 0) {
            return run;
        }
    }
    return NULL;
}

bool server_step_move(uint64_t bytes)
{
    struct run *run = pick_running();

    if (run == NULL) {
        return false;
    }
    move(run, bytes);
    trace("server: %s moves up to %" PRIu64 " bytes, %" PRIu64 " of %" PRIu64 " are done%s", name(run), bytes,
          run->done, run->total, run->over && !run->complete ? ", and is refused" : "");
    return true;
}

void server_move_all(void)
{
    struct run *run;

    TAILQ_FOREACH (run, &runs, link) {
        move(run, UINT64_MAX);
    }
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static bool overlaps(const struct model_request *a, const struct model_request *b)
{
    return a->region->file == b->region->file && a->start < b->end && b->start < a->end;
}

static void check_command(const struct run *new)
{
    const struct model_request *request = new->request;
    const struct run *run;

    RIG_CHECK(!request->answered, "%s: a command is sent for a request that was answered", name(new));
    TAILQ_FOREACH (run, &runs, link) {
        if (run->request == request) {
            RIG_CHECK(!run->set || (run->over && !run->complete && run->proved) || !run->keeps,
                      "%s: a set that may have run is sent again", name(new));
            RIG_CHECK(!may_move(run) || fake_endpoint_failed(run->endpoint),
                      "%s: the transfer is sent again while the lane of its last run lets the server go on", name(new));
        } else if (overlaps(run->request, request) && !(run->set && new->set) && may_move(run)) {
            RIG_CHECK(fake_endpoint_failed(run->endpoint) || run->request->tainted,
                      "%s is sent while request %" PRIu64 " is at work on the same bytes", name(new),
                      run->request->number);
        }
    }
}

/* The triples are the window, the whole of it and nothing else. */
static void check_targets(const struct run *run)
{
    uint64_t at = run->request->start;

    for (size_t i = 0; i < run->target_count; i++) {
        struct fake_target target = target_at(run, i);
        struct fake_message message;
        struct place place;
        if (!fake_message_begin(&message, &target)) {
            return; /* closed meanwhile: the server will see */
        }
        RIG_CHECK(place_of(fake_message_at(&message, 0), &place) && place.file == run->request->region->file &&
                      place.at == at,
                  "%s names other memory than its window", name(run));
        at += target.length;
    }
    RIG_CHECK(at == run->request->end, "%s names %" PRIu64 " bytes instead of %" PRIu64, name(run),
              at - run->request->start, run->request->end - run->request->start);
}

static uint64_t number(const redisReply *word)
{
    return strtoull(word->str, NULL, 10);
}

static void make_value(struct run *run, uint64_t window)
{
    run->total = run->set || random_percent(50) ? window : 1 + random_below((uint32_t)window);
    run->value = malloc(run->total);
    for (uint64_t i = 0; i < run->total; i++) {
        run->value[i] = (uint8_t)(run->request->number * 37 + run->number * 101 + i * 3 + (i >> 8));
    }
}

static struct run *new_run(const struct fake_connection *connection, const redisReply *words, bool set)
{
    size_t first = 2;
    struct run *run = calloc(1, sizeof(*run));

    if (set) {
        first = strcmp(words->element[3]->str, "CRC") == 0 ? 5 : 3;
    }
    run->set = set;
    run->keeps = set && !random_percent(15);
    run->request = request_numbered(number(words->element[1]));
    RIG_CHECK(run->request != NULL && (run->request->method == PROTO_METHOD_TRANSFER_SET) == set,
              "a command is sent that nobody asked for");
    run->number = run->request->commands++;
    memcpy(run->endpoint, endpoints[fake_server_number(connection)], sizeof(run->endpoint));
    run->target_count = (words->elements - first) / 3;
    run->targets = calloc(run->target_count, sizeof(*run->targets));
    for (size_t i = 0; i < run->target_count; i++) {
        run->targets[i].key = number(words->element[first + 3 * i]);
        run->targets[i].address = number(words->element[first + 3 * i + 1]);
        run->targets[i].length = number(words->element[first + 3 * i + 2]);
    }
    make_value(run, run->request->end - run->request->start);
    return run;
}

static void take_endpoint(const struct fake_connection *connection, const char *hex)
{
    uint8_t *endpoint = endpoints[fake_server_number(connection)];

    RIG_CHECK(strlen(hex) == sizeof(endpoints[0]) * 2, "HELLO names the address %s", hex);
    for (size_t i = 0; i < sizeof(endpoints[0]); i++) {
        unsigned byte;
        RIG_CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1, "HELLO names the address %s", hex);
        endpoint[i] = (uint8_t)byte;
    }
}

static void took(struct fake_connection *connection, struct fake_command *command, const redisReply *words)
{
    struct run *run;

    RIG_CHECK(fake_server_number(connection) < CONNECTIONS, "the daemon made %d connections", CONNECTIONS);
    if (strcasecmp(command->name, "BLOB.RDMA_HELLO") == 0) {
        take_endpoint(connection, words->element[1]->str);
    }
    if (strcasecmp(command->name, "BLOB.RDMA_GET") != 0 && strcasecmp(command->name, "BLOB.RDMA_SET") != 0) {
        return;
    }
    run = new_run(connection, words, strcasecmp(command->name, "BLOB.RDMA_SET") == 0);
    check_command(run);
    check_targets(run);
    if (run->number > 0) {
        saw(SIGHT_RUN_AGAIN);
    }
    TAILQ_INSERT_TAIL(&runs, run, link);
    command->tag = run;
    trace("server: %s arrives on connection %u", name(run), fake_server_number(connection));
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void send_text(struct fake_connection *connection, const char *text)
{
    fake_server_send(connection, text, strlen(text));
}

static void success(const struct run *run, char *text, size_t size)
{
    if (run->set) {
        snprintf(text, size, "+OK\r\n");
    } else {
        snprintf(text, size, "*2\r\n:%" PRIu64 "\r\n:%" PRIu64 "\r\n", run->total,
                 run->request->number * 16 + run->number);
    }
}

/* The end is proved: only what is true may be said. */
static const char *proof(struct run *run, char *text, size_t size)
{
    static const char *const refusals[] = {"-WRONGTYPE Operation against a key holding the wrong kind of value",
                                           "-ERR invalid rkey", "-NOPERM this user has no permissions",
                                           "-LOADING the server is loading", "-ERR max object size exceeded"};

    if (run->moved || run->over) {
        move(run, UINT64_MAX);
        if (!run->complete) {
            return NULL;
        }
        if (run->set && !run->keeps) {
            snprintf(text, size, "-ERR failed to set key\r\n");
        } else if (!run->set && random_percent(10)) {
            snprintf(text, size, "*2\r\n:%" PRIu64 "\r\n:0\r\n", run->request->end - run->request->start + 1);
        } else {
            success(run, text, size);
        }
        run->proved = true;
        return text;
    }
    run->over = true;
    run->proved = true;
    run->keeps = false;
    if (!run->set && random_percent(40)) {
        return "$-1\r\n";
    }
    snprintf(text, size, "%s\r\n", refusals[random_below(sizeof(refusals) / sizeof(refusals[0]))]);
    return text;
}

/* Bytes may go on moving after it. */
static const char *no_proof(struct run *run)
{
    static const char *const texts[] = {"-ERR something went wrong\r\n", "-ERR RDMA write failed\r\n",
                                        "-ERR RDMA timeout\r\n", ":5\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n", "+QUEUED\r\n",
                                        "!?$ no RESP\r\n"};

    if (run->set && !run->complete && random_percent(30)) {
        run->keeps = false;
        return "-ERR RDMA read failed\r\n";
    }
    return texts[random_below(sizeof(texts) / sizeof(texts[0]))];
}

static void answer(struct fake_connection *connection, struct run *run)
{
    unsigned number_of_connection = fake_server_number(connection), choice = random_below(100);
    char text[160];
    const char *reply;

    if (choice < 55 && !run->over && random_percent(75)) {
        move(run, UINT64_MAX);
    }
    reply = choice < 55 ? proof(run, text, sizeof(text)) : NULL;
    if (reply == NULL && choice < 80) {
        reply = no_proof(run);
    }
    if (reply != NULL) {
        trace("server: answers %s with %.*s", name(run), (int)strcspn(reply, "\r"), reply);
        send_text(connection, reply);
        fake_server_skip(connection);
        return;
    }
    if (choice >= 90) {
        success(run, text, sizeof(text));
        fake_server_send(connection, text, 3);
    }
    trace("server: hangs up connection %u%s instead of answering %s", number_of_connection,
          choice >= 90 ? " in the middle of a reply" : "", name(run));
    fake_server_hang_up(connection);
}

/* A connection whose oldest command is (not) a transfer. */
static struct fake_connection *pick_connection(bool transfer)
{
    unsigned count = fake_server_connections(), first = random_below(count + 1);

    for (unsigned i = 0; i < count; i++) {
        struct fake_connection *connection = fake_server_connection(first + i);
        const struct fake_command *command = fake_server_oldest(connection);
        if (command != NULL && (command->tag != NULL) == transfer) {
            return connection;
        }
    }
    return NULL;
}

void server_step_answer(void)
{
    struct fake_connection *connection = pick_connection(true);

    if (connection != NULL) {
        answer(connection, fake_server_oldest(connection)->tag);
    }
}

bool server_step_answer_session(void)
{
    struct fake_connection *connection = pick_connection(false);
    const struct fake_command *command;

    if (connection == NULL) {
        return false;
    }
    command = fake_server_oldest(connection);
    if (strcasecmp(command->name, "BLOB.RDMA_HELLO") == 0 && random_percent(4)) {
        trace("server: refuses a session on connection %u", fake_server_number(connection));
        send_text(connection, "-ERR session create: service 0: refused\r\n");
        fake_server_skip(connection);
        return true;
    }
    trace("server: answers %s on connection %u", command->name, fake_server_number(connection));
    return fake_server_answer(connection);
}

void server_step_hang_up(void)
{
    struct fake_connection *connection = fake_server_connection(random_next());

    if (connection != NULL) {
        trace("server: hangs up connection %u", fake_server_number(connection));
        fake_server_hang_up(connection);
    }
}

void server_start(void)
{
    fake_server.took = took;
}

void server_end(void)
{
    struct run *run;

    while ((run = TAILQ_FIRST(&runs)) != NULL) {
        TAILQ_REMOVE(&runs, run, link);
        free(run->targets);
        free(run->value);
        free(run);
    }
}
