/*
 * A carrier's life: connect, AUTH, lane, HELLO, address vector, transfers, and back. Each step has a callback; whatever
 * fails ends in carrier_dispose, which drops the connection before it lets go of the lane.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/node_private.h"
#include "daemon/valkey/patience.h"
#include "daemon/valkey/renewal.h"
#include "proto/errors.h"

#define ADDRESS_TEXT_BYTES 64

/* A server behind a Unix socket runs on this host; providers that need an address to bind reach it here. */
#define UNIX_SOCKET_BIND "127.0.0.1"

void carrier_gone(struct carrier *carrier, int status)
{
    struct node *node = carrier->node;
    lane_done gone = carrier->gone;
    void *context = carrier->gone_context;
    bool laneless = carrier->laneless;

    if (status != 0) {
        log_error("valkey %s, %s: the lane was not closed properly (%d); memory of its windows is kept",
                  node->address->text, carrier->name, status);
    }
    TAILQ_REMOVE(&node->dying, carrier, link);
    node->dying_count--;
    tcp_value_free(carrier->value);
    free(carrier);
    if (gone != NULL) {
        gone(context, status);
    }
    if (!laneless) {
        places_give(node->places, true);
    }
    node_part_gone(node, status);
}

static void on_lane_gone(void *context, int status)
{
    carrier_gone(context, status);
}

void carrier_dispose(struct carrier *carrier, lane_done gone, void *context)
{
    struct resp_connection *resp = carrier->resp;

    node_move(carrier, CARRIER_DYING);
    if (!carrier->laneless) {
        places_dying(carrier->node->places);
    }
    carrier->gone = gone;
    carrier->gone_context = context;
    carrier->request = NULL; /* whoever revokes it does not wait for it any more */
    carrier->resp = NULL;
    patience_end(&carrier->patience);
    if (resp != NULL) {
        resp_close(resp);
    }
    if (carrier->lane != NULL) {
        lane_destroy(carrier->lane, on_lane_gone, carrier);
    } else if (tcp_value_ends(carrier)) {
        carrier_gone(carrier, 0);
    }
}

/* --- being made --- */

static void end_attempt(struct carrier *carrier, int code, bool later, const char *format, va_list arguments)
{
    struct node *node = carrier->node;
    bool session = carrier->state != CARRIER_CONNECTING;
    char why[NODE_WHY_BYTES];

    vsnprintf(why, sizeof(why), format, arguments);
    carrier_dispose(carrier, NULL, NULL);
    node_attempt_failed(node, code, later, why, session);
    node_settle(node);
}

__attribute__((format(printf, 3, 4))) static void attempt_failed(struct carrier *carrier, int code, const char *format,
                                                                 ...)
{
    va_list arguments;

    va_start(arguments, format);
    end_attempt(carrier, code, false, format, arguments);
    va_end(arguments);
}

/* The server is there, and will do later what it refused. */
__attribute__((format(printf, 2, 3))) static void attempt_put_off(struct carrier *carrier, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    end_attempt(carrier, PROTO_ERR_SERVER_DOWN, true, format, arguments);
    va_end(arguments);
}

static void on_peers_added(void *context, int status)
{
    struct carrier *carrier = context;
    struct node *node = carrier->node;

    if (carrier->state != CARRIER_ADDING_PEERS) {
        return;
    }
    if (status != 0) {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE,
                       "node %s names fabric addresses that the fabric of this host cannot use (%d): server and client "
                       "must use the same provider, and each must reach the other", node->address->text, status);
        return;
    }
    node_move(carrier, CARRIER_IDLE);
    log_info("valkey %s, %s: session open", node->address->text, carrier->name);
    fallback_ends(node);
    node_carrier_made(node);
}

static const char *hint_for(const char *text)
{
    static const struct {
        const char *prefix, *hint;
    } hints[] = {
        {"ERR RDMA provider unavailable", "the server has no fabric of its own; see its log and largeobj.fabric-*"},
        {"ERR rdma address must", "the server uses another fabric provider than [fabric] provider here"},
        {"ERR invalid rdma address", "the server uses another fabric provider than [fabric] provider here"},
        {"ERR session create", "the server's fabric cannot use the address of this host: another provider, or IPv4 on "
                               "one side and IPv6 on the other ([fabric] bind here, largeobj.fabric-interfaces there)"},
        {"READONLY", "transfers need a primary; give its address"},
        {"LOADING", "it reads its data set in, and serves when that is done"},
        {"MASTERDOWN", "it is a replica without its primary, with replica-serve-stale-data no"},
        {"BUSY", "a script or function runs for long there"},
        {"NOPERM", "the ACL user needs +@largeobj or the BLOB.* commands"},
        {"NOAUTH", "set [valkey] password_file"},
    };

    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (strncmp(text, hints[i].prefix, strlen(hints[i].prefix)) == 0) {
            return hints[i].hint;
        }
    }
    return "see the server's log";
}

static void hello_refused(struct carrier *carrier, bool no_module, const char *text)
{
    const char *node = carrier->node->address->text;
    struct node *owner = carrier->node;

    if (fallback_after_refusal(owner, text)) {
        carrier_dispose(carrier, NULL, NULL);
        if (owner->config->warm) {
            node_warm(owner);
        }
        node_settle(owner);
        return;
    }
    if (no_module) {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE,
                       "node %s has no large-object module loaded (BLOB.RDMA_HELLO is unknown); load "
                       "valkey-large-object", node);
    } else if (redirect_passes(text, strlen(text))) {
        attempt_put_off(carrier, "node %s refused the RDMA session for now: %s (%s)", node, text, hint_for(text));
    } else {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE, "node %s refused the RDMA session: %s (%s)", node, text,
                       hint_for(text));
    }
}

static void on_hello_reply(struct resp_request *request, const redisReply *reply)
{
    struct carrier *carrier = (struct carrier *)((char *)request - offsetof(struct carrier, hello));
    char text[BLOB_TEXT_BYTES];
    uint8_t *addresses;
    size_t length, count;
    bool no_module;
    int status = blob_parse_hello(reply, &addresses, &length, &count, &no_module, text);

    patience_end(&carrier->patience);
    if (status == -EREMOTEIO) {
        hello_refused(carrier, no_module, text);
    } else if (status != 0) {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE, "node %s: %s", carrier->node->address->text, text);
    } else {
        carrier->state = CARRIER_ADDING_PEERS;
        lane_add_peers(carrier->lane, addresses, length, count, on_peers_added, carrier);
    }
    free(addresses);
}

/* `closed` follows and tells the same. */
static void on_hello_lost(struct resp_request *request, bool may_have_run, const char *why)
{
}

/* A server that takes connections and says nothing. */
static void hello_late(void *context)
{
    struct carrier *carrier = context;

    attempt_failed(carrier, PROTO_ERR_SERVER_DOWN,
                   "node %s did not answer BLOB.RDMA_HELLO within [valkey] connect_timeout_ms = %u ms",
                   carrier->node->address->text, carrier->node->config->connect_timeout_ms);
}

static void say_hello(struct carrier *carrier)
{
    struct blob_words *words = &carrier->node->words;
    char hex[2 * FABRIC_ADDRESS_BYTES + 1];
    size_t length;
    const uint8_t *address = lane_address(carrier->lane, &length);
    int status;

    if (length > FABRIC_ADDRESS_BYTES) {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE, "the address of this host's endpoint has %zu bytes", length);
        return;
    }
    blob_hex(address, length, hex);
    blob_words_hello(words, hex);
    carrier->state = CARRIER_HELLO;
    carrier->hello.reply = on_hello_reply;
    carrier->hello.lost = on_hello_lost;
    status = resp_send(carrier->resp, &carrier->hello, words->argc, words->argv, words->lengths);
    carrier->patience = patience_start(carrier->node->loop, carrier->node->config->connect_timeout_ms, hello_late,
                                       carrier);
    if (status == 0 && carrier->patience == NULL) {
        status = -ENOMEM;
    }
    if (status != 0) {
        attempt_failed(carrier, PROTO_ERR_SERVER_DOWN, "node %s: cannot send BLOB.RDMA_HELLO: %s",
                       carrier->node->address->text, strerror(-status));
    }
}

static void on_lane_opened(void *context, struct lane *lane, int status, const char *why)
{
    struct carrier *carrier = context;

    if (carrier->state == CARRIER_DYING) {
        return; /* lane_destroy was called, and its end follows */
    }
    if (lane == NULL) {
        carrier->lane = NULL;
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE, "cannot open a fabric endpoint: %s", why);
        return;
    }
    carrier->nics = UINT32_C(1) << lane_nic(lane); /* perhaps not the one that was tried first */
    say_hello(carrier);
}

static void lane_refused(struct carrier *carrier, int status)
{
    struct node *node = carrier->node;
    const struct fabric *fabric = node->fabric;

    if (status == -ENOSPC && node->places->taken > 1) { /* others were quicker, on the only NIC that it could use */
        carrier_dispose(carrier, NULL, NULL);
        places_refused(node);
    } else if (status == -ENOSPC) {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE,
                       "%u lanes are open and no more are allowed ([fabric] lanes_max = %u for each of %u NICs)",
                       fabric->lanes, fabric->config->lanes_max, fabric->nic_count);
    } else if (status == -ENETDOWN) {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE, "%s", fabric->why);
    } else {
        attempt_failed(carrier, PROTO_ERR_NOT_USABLE, "cannot open a fabric endpoint: %s", strerror(-status));
    }
}

static void on_ready(void *context)
{
    struct carrier *carrier = context;
    char bind[ADDRESS_TEXT_BYTES];
    int status;

    renewal_note(carrier->node);
    if (carrier->laneless) {
        node_move(carrier, CARRIER_IDLE);
        log_info("valkey %s, %s: open for values over TCP", carrier->node->address->text, carrier->name);
        node_carrier_made(carrier->node);
        return;
    }
    if (resp_local_address(carrier->resp, bind, sizeof(bind)) != 0) {
        snprintf(bind, sizeof(bind), "%s", UNIX_SOCKET_BIND);
    }
    carrier->state = CARRIER_OPENING_LANE;
    status = lane_open(carrier->node->fabric, carrier->nics, bind, on_lane_opened, carrier, &carrier->lane);
    if (status != 0) {
        carrier->lane = NULL;
        lane_refused(carrier, status);
        return;
    }
    carrier->nics = UINT32_C(1) << lane_nic(carrier->lane);
}

static void on_closed(void *context, bool auth, const char *why)
{
    struct carrier *carrier = context;
    struct node *node = carrier->node;
    struct resp_connection *resp = carrier->resp;

    switch (carrier->state) {
    case CARRIER_BUSY:
        carrier->resp = NULL; /* whoever holds it has been told, or will see it when he sends */
        resp_close(resp);
        break;
    case CARRIER_IDLE:
        log_info("valkey %s, %s: the idle connection ended: %s", node->address->text, carrier->name, why);
        carrier_dispose(carrier, NULL, NULL);
        node_settle(node);
        break;
    default:
        if (resp_was_put_off(resp)) {
            attempt_put_off(carrier, "node %s: %s", node->address->text, why);
            return;
        }
        attempt_failed(carrier, auth ? PROTO_ERR_NOT_USABLE : PROTO_ERR_SERVER_DOWN, "node %s: %s",
                       node->address->text, why);
    }
}

static const struct resp_events carrier_events = {
    .ready = on_ready,
    .closed = on_closed,
};

static bool number_is_taken(const struct carrier_list *list, unsigned number)
{
    const struct carrier *carrier;

    TAILQ_FOREACH(carrier, list, link)
    {
        if (carrier->number == number) {
            return true;
        }
    }
    return false;
}

static void give_name(struct node *node, struct carrier *carrier)
{
    unsigned number = 0;

    while (number_is_taken(&node->making, number) || number_is_taken(&node->idle, number) ||
           number_is_taken(&node->busy, number)) {
        number++;
    }
    carrier->number = number;
    snprintf(carrier->name, sizeof(carrier->name), "data %u", number);
}

int carrier_begin(struct node *node, uint32_t nics, bool laneless)
{
    struct carrier *carrier = calloc(1, sizeof(*carrier));
    char reason[TRANSPORT_WHY_BYTES] = "out of memory", why[NODE_WHY_BYTES];
    int status = -ENOMEM;

    if (carrier != NULL) {
        status = resp_open(node->loop, node->offload, node->config, &node->dial, &carrier_events, carrier,
                           &carrier->resp, reason);
    }
    if (status != 0) {
        free(carrier);
        snprintf(why, sizeof(why), "node %s: %s", node->address->text, reason);
        node_attempt_failed(node, PROTO_ERR_SERVER_DOWN, false, why, false);
        return status;
    }
    carrier->node = node;
    carrier->nics = laneless ? 0 : nics; /* without a lane it serves all */
    carrier->laneless = laneless;
    give_name(node, carrier);
    TAILQ_INSERT_TAIL(&node->making, carrier, link);
    node->making_count++;
    return 0;
}

/* --- transfers --- */

struct lane *carrier_lane(struct carrier *carrier)
{
    return carrier->lane;
}

const char *carrier_name(const struct carrier *carrier)
{
    return carrier->name;
}

/* The session is good and its first transfers fail: the server cannot reach this host, and operators need more words
 * than its own, which name no cause. */
static bool unreached(const struct carrier *carrier, const struct blob_reply *reply)
{
    return !carrier->reached && reply->class == BLOB_REPLY_LIVE &&
           (strcmp(reply->text, "ERR RDMA read failed") == 0 || strcmp(reply->text, "ERR RDMA write failed") == 0);
}

static void explain(const struct carrier *carrier, const char *text, char *why, size_t size)
{
    struct node *node = carrier->node;

    snprintf(why, size,
             "%s; no transfer of this session has succeeded yet: node %s most likely cannot reach interface %s of this "
             "host over the fabric. Check the security group (rules that name itself, inbound and outbound, on both "
             "sides), that both are in the same Availability Zone and a subnet that routes between them, and the "
             "interface ([fabric] interfaces, bind)",
             text, node->address->text, node->fabric->nics[lane_nic(carrier->lane)].name);
    log_limited(&node->unreached, uv_now(node->loop), LOG_LEVEL_WARN, "valkey %s, %s: %s", node->address->text,
                carrier->name, why);
}

static void deliver(struct carrier_request *request)
{
    struct carrier *carrier = request->carrier;
    char why[NODE_WHY_BYTES] = "";

    carrier->request = NULL;
    carrier->tainted = request->reply.class == BLOB_REPLY_LIVE;
    carrier->spent = request->reply.reconnect;
    if (request->reply.class != BLOB_REPLY_DONE) {
        request->ttl = CARRIER_TTL_NONE;
    }
    if (unreached(carrier, &request->reply)) {
        explain(carrier, request->reply.text, why, sizeof(why));
    }
    carrier->reached |= request->reply.class == BLOB_REPLY_DONE || request->reply.class == BLOB_REPLY_FINISHED;
    request->done(request, &request->reply, true, why);
}

static void on_reply(struct resp_request *resp, const redisReply *reply)
{
    struct carrier_request *request = (struct carrier_request *)((char *)resp - offsetof(struct carrier_request, resp));

    if (request->carrier->request != request) {
        return;
    }
    blob_classify(request->command, reply, request->window, &request->reply);
    request->replied = true;
    /* Without proof the lane goes at once, and the connection with what is still to come on it. */
    if (!request->expire_pending || request->reply.class == BLOB_REPLY_LIVE) {
        deliver(request);
    }
}

static void on_lost(struct resp_request *resp, bool may_have_run, const char *why)
{
    struct carrier_request *request = (struct carrier_request *)((char *)resp - offsetof(struct carrier_request, resp));
    struct carrier *carrier = request->carrier;

    if (carrier == NULL || carrier->request != request) {
        return; /* revoked: whoever did it does not wait any more */
    }
    carrier->request = NULL;
    carrier->tainted = true;
    request->done(request, NULL, may_have_run, why);
}

static struct carrier_request *of_expire(struct resp_request *expire)
{
    return (struct carrier_request *)((char *)expire - offsetof(struct carrier_request, expire));
}

static void expire_ended(struct carrier_request *request, enum carrier_ttl ttl)
{
    if (request->carrier->request != request) {
        return;
    }
    request->expire_pending = false;
    request->ttl = ttl;
    if (request->replied) {
        deliver(request);
    }
}

static void on_expire_reply(struct resp_request *expire, const redisReply *reply)
{
    bool applied = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;

    expire_ended(of_expire(expire), applied ? CARRIER_TTL_APPLIED : CARRIER_TTL_REFUSED);
}

static void on_expire_lost(struct resp_request *expire, bool may_have_run, const char *why)
{
    expire_ended(of_expire(expire), CARRIER_TTL_UNKNOWN);
}

static void send_expire(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length)
{
    struct blob_words *words = &carrier->node->words;
    int status;

    blob_words_expire(words, key, key_length, request->ttl_ms);
    request->expire.reply = on_expire_reply;
    request->expire.lost = on_expire_lost;
    if (request->asking) {
        status = resp_send_asking(carrier->resp, &request->asked[1], &request->expire, words->argc, words->argv,
                                  words->lengths);
    } else {
        status = resp_send(carrier->resp, &request->expire, words->argc, words->argv, words->lengths);
    }
    request->expire_pending = status == 0;
    if (!request->expire_pending) {
        request->ttl = CARRIER_TTL_REFUSED;
    }
}

static int send_words(struct carrier *carrier, struct carrier_request *request, enum blob_command command,
                      uint64_t window)
{
    struct blob_words *words = &carrier->node->words;
    int status;

    request->carrier = carrier;
    request->command = command;
    request->window = window;
    request->expire_pending = false;
    request->replied = false;
    request->ttl = CARRIER_TTL_NONE;
    request->resp.reply = on_reply;
    request->resp.lost = on_lost;
    if (request->asking) {
        status = resp_send_asking(carrier->resp, &request->asked[0], &request->resp, words->argc, words->argv,
                                  words->lengths);
    } else {
        status = resp_send(carrier->resp, &request->resp, words->argc, words->argv, words->lengths);
    }
    if (status == 0) {
        carrier->request = request;
    }
    return status;
}

int carrier_can_send(const struct carrier *carrier)
{
    if (carrier->state != CARRIER_BUSY || carrier->resp == NULL || !resp_is_ready(carrier->resp)) {
        return -ENOTCONN;
    }
    return carrier->request != NULL || carrier->tainted ? -EBUSY : 0;
}

int carrier_set(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                uint64_t length, bool has_crc, uint32_t crc, const struct slice_triple *triples, size_t count)
{
    int status = carrier_can_send(carrier);

    if (status == 0) {
        status = blob_words_set(&carrier->node->words, key, key_length, length, has_crc, crc, triples, count);
    }
    if (status != 0) {
        return status;
    }
    status = send_words(carrier, request, has_crc ? BLOB_SET_CRC : BLOB_SET, length);
    if (status == 0 && request->ttl_ms > 0) {
        send_expire(carrier, request, key, key_length);
    }
    return status;
}

int carrier_get(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                uint64_t window, const struct slice_triple *triples, size_t count)
{
    int status = carrier_can_send(carrier);

    if (status == 0) {
        status = blob_words_get(&carrier->node->words, key, key_length, triples, count);
    }
    if (status != 0) {
        return status;
    }
    return send_words(carrier, request, BLOB_GET, window);
}
