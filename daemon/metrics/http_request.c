#include "daemon/metrics/http_request.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

struct word {
    const char *at;
    size_t length;
};

static bool is(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.at, text, word.length) == 0;
}

/* What stands before the next blank, or all; takes the blank too. */
static struct word take_word(const char **at, const char *end)
{
    const char *blank = memchr(*at, ' ', (size_t)(end - *at));
    struct word word = {*at, (size_t)((blank != NULL ? blank : end) - *at)};

    *at = blank != NULL ? blank + 1 : end;
    return word;
}

/* The end of the line without its CR LF, or bare LF; NULL: there is none. */
static const char *line_end(const char *at, const char *end, const char **next)
{
    const char *feed = memchr(at, '\n', (size_t)(end - at));

    if (feed == NULL) {
        return NULL;
    }
    *next = feed + 1;
    return feed > at && feed[-1] == '\r' ? feed - 1 : feed;
}

static bool is_token(struct word word)
{
    for (size_t i = 0; i < word.length; i++) {
        unsigned char c = (unsigned char)word.at[i];
        if (c <= 0x20 || c >= 0x7f || c == ':') {
            return false;
        }
    }
    return word.length > 0;
}

static bool named(struct word name, const char *text)
{
    return name.length == strlen(text) && strncasecmp(name.at, text, name.length) == 0;
}

/* A header that must not be there, or none at all. */
static bool header_is_bad(const char *at, const char *end)
{
    const char *colon = memchr(at, ':', (size_t)(end - at));
    struct word name = {at, colon != NULL ? (size_t)(colon - at) : 0};

    if (!is_token(name) || named(name, "transfer-encoding")) {
        return true;
    }
    if (!named(name, "content-length")) {
        return false;
    }
    for (at = colon + 1; at < end && (*at == ' ' || *at == '\t' || *at == '0'); at++) {
    }
    return at < end;
}

static int status_of(struct word method, struct word target, struct word version)
{
    const char *query;

    if (!is_token(method) || target.length == 0 || target.at[0] != '/' ||
        (!is(version, "HTTP/1.1") && !is(version, "HTTP/1.0"))) {
        return 400;
    }
    query = memchr(target.at, '?', target.length);
    if (query != NULL) {
        target.length = (size_t)(query - target.at);
    }
    if (!is(target, HTTP_PATH)) {
        return 404;
    }
    return is(method, "GET") ? 200 : 405;
}

int http_request_status(const char *bytes, size_t length)
{
    const char *end = bytes + (length < HTTP_REQUEST_BYTES ? length : HTTP_REQUEST_BYTES), *at = bytes, *next;
    const char *line = line_end(bytes, end, &next);
    int unfinished = length >= HTTP_REQUEST_BYTES ? 431 : 0, status;

    if (line == NULL) {
        return unfinished;
    }
    struct word method = take_word(&at, line), target = take_word(&at, line), version = {at, (size_t)(line - at)};
    status = status_of(method, target, version);
    if (status == 400) { /* not HTTP: whoever it is may never send an empty line */
        return status;
    }
    for (at = next; (line = line_end(at, end, &next)) != NULL; at = next) {
        if (line == at) {
            return status;
        }
        if (header_is_bad(at, line)) {
            return 400;
        }
    }
    return unfinished;
}

const char *http_reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    default:
        return "Bad Request";
    }
}
