/*
 * Values over TCP: BLOB.TCP_SET and BLOB.TCP_GET on a carrier without lane (fallback.h).
 *
 * Concepts. A value passes through one buffer of TCP_BUFFER_BYTES: the loop moves bytes between it and the connection,
 * workers between it and the client's memory (file_range.h), in turns. So no more of a value is ever in the daemon, the
 * loop never waits for memory, and one turn of it moves no more than a buffer. While a worker has the buffer nothing is
 * read from the connection, and the server waits.
 *
 * Nothing of ours reads or writes the window but those jobs. So a transfer is over when no job is out and none will be
 * begun: with its reply, or when its connection was closed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/node_private.h"

#define TCP_BUFFER_BYTES (256 * 1024)

/* A value larger than its window is read and thrown away up to this size; beyond it a new connection is cheaper. */
#define TCP_DISCARD_BYTES (1024 * 1024)

struct checksum {
    struct resp_request request;
    struct resp_asking asking;
    bool known;
    uint32_t crc32c;
};

struct tcp_value {
    struct carrier *carrier;
    struct file_range window;
    const void *key;      /* borrowed, as the window */
    size_t key_length;
    bool set;
    uint64_t length;      /* of the value */
    uint64_t moved;       /* SET: bytes read from the window; GET: written to it */
    char *buffer;         /* TCP_BUFFER_BYTES; the worker's while `working` */
    size_t filled, given; /* bytes put into the buffer, and of those taken out */
    bool discard, left;   /* GET: too large: only to be read, or not even that */

    struct worker_job job;
    bool working;
    int failure; /* of a job: a negative errno */
    atomic_bool dropped; /* what the job is for is over */

    struct resp_request request;
    struct resp_asking asking;
    struct resp_sink sink;
    bool sent;   /* SET: the last byte was given to the connection */
    unsigned awaited; /* replies beside the value's that have not come */
    bool replied, lost, may_have_run;
    struct blob_reply reply;
    char why[TRANSPORT_WHY_BYTES];

    bool has_crc32c; /* SET: to be compared with what the server keeps */
    uint32_t crc32c;
    struct checksum before, after;
    bool check_lost; /* SET: the connection ended between the reply and the checksum */
    struct resp_request expire;
    struct resp_asking expire_asking;
};

static void settle(struct tcp_value *value);

/* --- jobs --- */

static void run_job(struct worker_job *job)
{
    struct tcp_value *value = (struct tcp_value *)((char *)job - offsetof(struct tcp_value, job));

    if (atomic_load(&value->dropped)) {
        value->failure = -ECANCELED;
    } else if (value->set) {
        value->failure = file_range_read(&value->window, value->moved, value->buffer, value->filled);
    } else {
        value->failure = file_range_write(&value->window, value->moved, value->buffer, value->filled);
    }
}

static void give(struct tcp_value *value);

static void job_done(struct worker_job *job)
{
    struct tcp_value *value = (struct tcp_value *)((char *)job - offsetof(struct tcp_value, job));
    struct carrier *carrier = value->carrier;

    value->working = false;
    if (carrier->state == CARRIER_DYING) {
        carrier_gone(carrier, 0);
        return;
    }
    if (value->failure != 0 || value->lost) {
        settle(value);
        return;
    }
    value->moved += value->filled;
    if (value->set) {
        if (!value->replied) {
            give(value);
        }
    } else {
        value->filled = 0;
        if (!value->replied) {
            resp_resume(carrier->resp); /* may end the transfer, and the carrier */
            return;
        }
    }
    settle(value);
}

static void begin_job(struct tcp_value *value)
{
    value->working = true;
    workers_submit(value->carrier->node->workers, value->window.owner, &value->job, run_job, job_done);
}

bool tcp_value_ends(struct carrier *carrier)
{
    struct tcp_value *value = carrier->value;

    if (value == NULL || !value->working) {
        return true;
    }
    atomic_store(&value->dropped, true);
    return false;
}

void tcp_value_free(struct tcp_value *value)
{
    if (value != NULL) {
        free(value->buffer);
        free(value);
    }
}

/* --- the end --- */

static void deliver(struct tcp_value *value)
{
    struct carrier *carrier = value->carrier;
    struct carrier_request *request = carrier->request;
    struct blob_reply reply = value->reply; /* the carrier may go with its transfer */

    carrier->request = NULL;
    carrier->tainted = reply.class == BLOB_REPLY_LIVE || reply.class == BLOB_REPLY_MEMORY;
    carrier->spent |= reply.reconnect;
    if (reply.class != BLOB_REPLY_DONE) {
        request->ttl = CARRIER_TTL_NONE;
    }
    request->done(request, &reply, true, "");
}

static void deliver_loss(struct tcp_value *value)
{
    struct carrier *carrier = value->carrier;
    struct carrier_request *request = carrier->request;

    carrier->request = NULL;
    carrier->tainted = true;
    request->done(request, NULL, value->may_have_run, value->why);
}

static void fail_memory(struct tcp_value *value)
{
    memset(&value->reply, 0, sizeof(value->reply));
    value->reply.class = BLOB_REPLY_MEMORY;
    value->reply.error = value->failure;
    snprintf(value->reply.text, sizeof(value->reply.text), "the window cannot be %s: %s",
             value->set ? "read" : "written", strerror(-value->failure));
}

/* What the checksums of the server say about a success. */
static void judge_checksums(struct tcp_value *value)
{
    struct blob_reply *reply = &value->reply;

    if (!value->set) {
        reply->has_crc32c = value->before.known && value->after.known && value->before.crc32c == value->after.crc32c;
        reply->crc32c = reply->has_crc32c ? value->after.crc32c : 0;
    } else if (value->after.known && value->after.crc32c != value->crc32c) {
        reply->class = BLOB_REPLY_FINISHED;
        reply->crc_mismatch = reply->stored = true;
        snprintf(reply->text, sizeof(reply->text), "the value was stored, but the server's checksum of it is %" PRIu32
                 ", not %" PRIu32, value->after.crc32c, value->crc32c);
    }
}

/* Goes on where nothing is under way: to the answer, if everything for it is there. */
static void settle(struct tcp_value *value)
{
    bool done;

    if (value->carrier->request == NULL || value->working) {
        return; /* revoked, or a job has the window */
    }
    if (value->failure != 0) {
        fail_memory(value);
        deliver(value);
        return;
    }
    if (value->lost) {
        deliver_loss(value);
        return;
    }
    if (!value->replied) {
        return;
    }
    done = value->reply.class == BLOB_REPLY_DONE;
    /* The next transfer must not meet replies that belong to this one. */
    if (value->awaited > 0 && value->reply.class != BLOB_REPLY_LIVE && !value->reply.reconnect) {
        return;
    }
    if (done && value->check_lost) {
        deliver_loss(value);
        return;
    }
    if (done) {
        judge_checksums(value);
    }
    deliver(value);
}

/* --- replies --- */

static struct tcp_value *of_request(struct resp_request *request)
{
    return (struct tcp_value *)((char *)request - offsetof(struct tcp_value, request));
}

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct tcp_value *value = of_request(request);

    blob_classify(value->set ? BLOB_TCP_SET : BLOB_TCP_GET, reply, value->window.length, &value->reply);
    if (value->set && !value->sent) { /* only an error comes here: a part of a command is never run */
        value->reply.class = BLOB_REPLY_REFUSED;
        value->reply.reconnect = true;
    }
    value->reply.reconnect |= value->left;
    value->replied = true;
    settle(value);
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct tcp_value *value = of_request(request);

    value->lost = true;
    value->may_have_run = may_have_run;
    snprintf(value->why, sizeof(value->why), "%s", why);
    settle(value);
}

static void beside_ended(struct tcp_value *value)
{
    value->awaited--;
    settle(value);
}

static struct tcp_value *of_expire(struct resp_request *request)
{
    return (struct tcp_value *)((char *)request - offsetof(struct tcp_value, expire));
}

static void expire_ended(struct tcp_value *value, enum carrier_ttl ttl)
{
    if (value->carrier->request != NULL) {
        value->carrier->request->ttl = ttl;
    }
    beside_ended(value);
}

static void on_expire_reply(struct resp_request *request, const redisReply *reply)
{
    bool applied = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;

    expire_ended(of_expire(request), applied ? CARRIER_TTL_APPLIED : CARRIER_TTL_REFUSED);
}

static void on_expire_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    expire_ended(of_expire(request), CARRIER_TTL_UNKNOWN);
}

static struct tcp_value *of_before(struct resp_request *request)
{
    return (struct tcp_value *)((char *)request - offsetof(struct tcp_value, before.request));
}

static struct tcp_value *of_after(struct resp_request *request)
{
    return (struct tcp_value *)((char *)request - offsetof(struct tcp_value, after.request));
}

static void on_before(struct resp_request *request, const redisReply *reply)
{
    struct tcp_value *value = of_before(request);
    char text[BLOB_TEXT_BYTES];

    value->before.known = blob_parse_crc(reply, &value->before.crc32c, text) == 0;
    beside_ended(value);
}

static void on_before_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    beside_ended(of_before(request));
}

static void on_after(struct resp_request *request, const redisReply *reply)
{
    struct tcp_value *value = of_after(request);
    struct blob_reply *answer = &value->reply;
    char text[BLOB_TEXT_BYTES];
    int status = blob_parse_crc(reply, &value->after.crc32c, text);

    value->after.known = status == 0;
    if (status < 0 && value->set && answer->class == BLOB_REPLY_DONE) {
        answer->class = BLOB_REPLY_FINISHED;
        answer->stored = true;
        snprintf(answer->text, sizeof(answer->text), "the value was stored, but its checksum could not be compared: "
                 "%.180s", text);
    }
    beside_ended(value);
}

static void on_after_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct tcp_value *value = of_after(request);

    value->check_lost = value->set;
    value->may_have_run = true;
    snprintf(value->why, sizeof(value->why), "the value was stored, but its checksum could not be compared: %.300s",
             why);
    beside_ended(value);
}

/* --- sending --- */

static int send_one(struct tcp_value *value, struct resp_request *request, struct resp_asking *asking)
{
    struct carrier *carrier = value->carrier;
    struct blob_words *words = &carrier->node->words;

    if (carrier->request->asking) {
        return resp_send_asking(carrier->resp, asking, request, words->argc, words->argv, words->lengths);
    }
    return resp_send(carrier->resp, request, words->argc, words->argv, words->lengths);
}

static int ask_checksum(struct tcp_value *value, struct checksum *checksum)
{
    int status;

    blob_words_crc(&value->carrier->node->words, value->key, value->key_length);
    status = send_one(value, &checksum->request, &checksum->asking);
    value->awaited += status == 0 ? 1 : 0;
    return status;
}

/* The value and its window are new; the transfer is the carrier's from now on. 0 or -ENOMEM. */
static int begin_value(struct carrier *carrier, struct carrier_request *request, bool set,
                       const struct file_range *window)
{
    struct tcp_value *value = carrier->value;
    char *buffer = value != NULL ? value->buffer : malloc(TCP_BUFFER_BYTES);

    if (value == NULL) {
        value = calloc(1, sizeof(*value));
    }
    if (value == NULL || buffer == NULL) {
        free(value);
        free(buffer);
        carrier->value = NULL;
        return -ENOMEM;
    }
    memset(value, 0, sizeof(*value));
    atomic_init(&value->dropped, false);
    value->carrier = carrier;
    value->buffer = buffer;
    value->window = *window;
    value->set = set;
    value->request.reply = on_reply;
    value->request.lost = on_lost;
    value->before.request = (struct resp_request){.reply = on_before, .lost = on_before_lost};
    value->after.request = (struct resp_request){.reply = on_after, .lost = on_after_lost};
    value->expire = (struct resp_request){.reply = on_expire_reply, .lost = on_expire_lost};
    carrier->value = value;
    carrier->request = request;
    request->carrier = carrier;
    request->ttl = CARRIER_TTL_NONE;
    return 0;
}

/* Nothing, or not everything, was sent: the connection goes, and no callback comes. */
static int not_sent(struct carrier *carrier, int status)
{
    carrier->request = NULL;
    carrier->spent = true;
    return status;
}

/* --- SET --- */

static void fill(struct tcp_value *value)
{
    uint64_t left = value->length - value->moved;

    value->filled = left < TCP_BUFFER_BYTES ? (size_t)left : TCP_BUFFER_BYTES;
    value->given = 0;
    begin_job(value);
}

static void send_expire(struct tcp_value *value)
{
    struct carrier_request *request = value->carrier->request;
    struct blob_words *words = &value->carrier->node->words;
    int status;

    blob_words_expire(words, value->key, value->key_length, request->ttl_ms);
    status = send_one(value, &value->expire, &value->expire_asking);
    value->awaited += status == 0 ? 1 : 0;
    if (status != 0) {
        request->ttl = CARRIER_TTL_REFUSED;
    }
}

/* Pipelined behind the value. */
static void send_behind(struct tcp_value *value)
{
    value->sent = true;
    if (value->carrier->request->ttl_ms > 0) {
        send_expire(value);
    }
    if (value->has_crc32c && ask_checksum(value, &value->after) != 0) {
        value->check_lost = true;
        value->may_have_run = true;
        snprintf(value->why, sizeof(value->why), "the value was sent, but its checksum could not be asked for");
    }
}

static void give(struct tcp_value *value)
{
    value->given += resp_write(value->carrier->resp, value->buffer + value->given, value->filled - value->given);
    if (value->given < value->filled) {
        return; /* `writable` comes, or the loss */
    }
    if (value->moved < value->length) {
        fill(value);
    } else {
        send_behind(value);
    }
}

static void on_writable(struct resp_request *request)
{
    struct tcp_value *value = of_request(request);

    if (!value->working && value->carrier->request != NULL) {
        give(value);
    }
}

static void ignore_reply(struct resp_request *request, const redisReply *reply)
{
}

static void ignore_loss(struct resp_request *request, bool may_have_run, const char *why)
{
}

/* ASKING holds for the next command of the connection, however it is written. */
static int send_asking(struct tcp_value *value)
{
    const char *word = "ASKING";
    const size_t length = strlen(word);

    value->asking.request = (struct resp_request){.reply = ignore_reply, .lost = ignore_loss};
    return resp_send(value->carrier->resp, &value->asking.request, 1, &word, &length);
}

int carrier_tcp_set(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                    bool has_crc, uint32_t crc, const struct file_range *window)
{
    struct blob_words *words = &carrier->node->words;
    struct tcp_value *value;
    int status = carrier_can_send(carrier);

    if (status == 0) {
        status = begin_value(carrier, request, true, window);
    }
    if (status != 0) {
        return status;
    }
    value = carrier->value;
    value->key = key;
    value->key_length = key_length;
    value->has_crc32c = has_crc;
    value->crc32c = crc;
    value->length = window->length;
    value->request.writable = on_writable;
    status = request->asking ? send_asking(value) : 0;
    if (status == 0) {
        blob_words_tcp_set(words, key, key_length);
        status = resp_send_payload(carrier->resp, &value->request, words->argc, words->argv, words->lengths,
                                   value->length);
    }
    if (status != 0) {
        return not_sent(carrier, status);
    }
    fill(value);
    return 0;
}

/* --- GET --- */

static struct tcp_value *of_sink(struct resp_sink *sink)
{
    return (struct tcp_value *)((char *)sink - offsetof(struct tcp_value, sink));
}

static enum resp_sink_choice on_begin(struct resp_sink *sink, uint64_t length)
{
    struct tcp_value *value = of_sink(sink);

    value->length = length;
    value->discard = length > value->window.length;
    value->left = value->discard && length > TCP_DISCARD_BYTES;
    return value->left ? RESP_SINK_LEAVE : RESP_SINK_TAKE;
}

static void *on_room(struct resp_sink *sink, size_t *capacity)
{
    struct tcp_value *value = of_sink(sink);

    *capacity = TCP_BUFFER_BYTES - value->filled;
    return value->working ? NULL : value->buffer + value->filled;
}

static void on_filled(struct resp_sink *sink, size_t length)
{
    struct tcp_value *value = of_sink(sink);

    if (value->discard) {
        return;
    }
    value->filled += length;
    if (value->filled == TCP_BUFFER_BYTES || sink->bulk.left == 0) {
        begin_job(value);
    }
}

int carrier_tcp_get(struct carrier *carrier, struct carrier_request *request, const void *key, size_t key_length,
                    const struct file_range *window)
{
    struct tcp_value *value;
    int status = carrier_can_send(carrier);

    if (status == 0) {
        status = begin_value(carrier, request, false, window);
    }
    if (status != 0) {
        return status;
    }
    value = carrier->value;
    value->key = key;
    value->key_length = key_length;
    value->sink = (struct resp_sink){.begin = on_begin, .room = on_room, .filled = on_filled};
    bulk_init(&value->sink.bulk);
    value->request.sink = &value->sink;
    status = ask_checksum(value, &value->before);
    if (status == 0) {
        blob_words_tcp_get(&carrier->node->words, key, key_length);
        status = send_one(value, &value->request, &value->asking);
    }
    if (status == 0) {
        status = ask_checksum(value, &value->after);
    }
    return status != 0 ? not_sent(carrier, status) : 0;
}
