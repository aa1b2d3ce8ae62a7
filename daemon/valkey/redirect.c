#include "daemon/valkey/redirect.h"

#include <string.h>

static const struct {
    const char *words; /* these, then the end or a blank and whatever follows */
    enum redirect_kind kind;
} kinds[] = {
    {"MOVED", REDIRECT_MOVED},
    {"ASK", REDIRECT_ASK},
    {"TRYAGAIN", REDIRECT_LATER},
    {"LOADING", REDIRECT_LATER},
    {"BUSY", REDIRECT_LATER},
    {"ERR max number of clients", REDIRECT_LATER}, /* the answer to a connection, which the server ends */
    {"ERR disk staging buffer pool exhausted", REDIRECT_LATER},
    {"ERR disk staging buffer pool exhausted; retry later", REDIRECT_LATER},
    {"CLUSTERDOWN", REDIRECT_LOST},
    {"MASTERDOWN", REDIRECT_LOST},
    {"READONLY", REDIRECT_LOST},
};

static bool begins_with(const char *text, size_t length, const char *words)
{
    size_t count = strlen(words);

    return length >= count && memcmp(text, words, count) == 0 && (length == count || text[count] == ' ');
}

static enum redirect_kind kind_of(const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (begins_with(text, length, kinds[i].words)) {
            return kinds[i].kind;
        }
    }
    return REDIRECT_NONE;
}

bool redirect_passes(const char *text, size_t length)
{
    enum redirect_kind kind = kind_of(text, length);

    return kind == REDIRECT_LATER || kind == REDIRECT_LOST;
}

bool redirect_wants_login(const char *text, size_t length)
{
    /* The last two: to a command of many or long words, which the server does not even read. */
    static const char *const words[] = {"NOAUTH", "ERR Protocol error: unauthenticated bulk length",
                                        "ERR Protocol error: unauthenticated multibulk length"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (begins_with(text, length, words[i])) {
            return true;
        }
    }
    return false;
}

/* "MOVED 3999 host:port": false when it says anything else. */
static bool read_target(const char *text, size_t length, struct redirect *redirect)
{
    static const struct topology_endpoint nowhere;
    const char *end = text + length, *at = memchr(text, ' ', length);
    unsigned digits = 0;

    if (at == NULL) {
        return false;
    }
    redirect->slot = 0;
    for (at++; at < end && *at >= '0' && *at <= '9' && digits < 6; at++, digits++) {
        redirect->slot = redirect->slot * 10 + (unsigned)(*at - '0');
    }
    if (digits == 0 || redirect->slot >= SLOTS || at == end || *at != ' ') {
        return false;
    }
    at++;
    if (topology_endpoint_parse(at, (size_t)(end - at), &nowhere, &redirect->endpoint) != 0) {
        return false;
    }
    redirect->same_host = redirect->endpoint.host[0] == '\0';
    return true;
}

void redirect_parse(const redisReply *reply, struct redirect *redirect)
{
    memset(redirect, 0, sizeof(*redirect));
    if (reply->type != REDIS_REPLY_ERROR) {
        return;
    }
    redirect->kind = kind_of(reply->str, reply->len);
    if ((redirect->kind == REDIRECT_MOVED || redirect->kind == REDIRECT_ASK) &&
        !read_target(reply->str, reply->len, redirect)) {
        redirect->kind = REDIRECT_LOST;
    }
}

unsigned redirect_delay_ms(const struct redirect *redirect, unsigned attempts)
{
    unsigned delay = REDIRECT_BASE_MS;
    bool elsewhere = redirect->kind == REDIRECT_MOVED || redirect->kind == REDIRECT_ASK;

    if (elsewhere && attempts <= REDIRECT_AT_ONCE) {
        return 0;
    }
    for (unsigned i = 1; i < attempts && delay < REDIRECT_LIMIT_MS; i++) {
        delay *= 2;
    }
    return delay < REDIRECT_LIMIT_MS ? delay : REDIRECT_LIMIT_MS;
}
