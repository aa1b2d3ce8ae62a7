#include "daemon/valkey/bulk.h"

#include <string.h>

#include "proto/limits.h"

void bulk_init(struct bulk *bulk)
{
    bulk->state = BULK_HEAD;
    bulk->kind = BULK_NULL;
    bulk->length = 0;
    bulk->left = 0;
    bulk->line_length = 0;
    bulk->tail = 0;
    bulk->why = "";
}

static void break_off(struct bulk *bulk, const char *why)
{
    bulk->state = BULK_BROKEN;
    bulk->why = why;
}

/* Plain digits up to PROTO_SIZE_MAX, without a leading zero. */
static int parse_length(const char *digits, size_t count, uint64_t *length)
{
    uint64_t value = 0;

    if (count == 0 || count > 16 || (count > 1 && digits[0] == '0')) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return -1;
        }
        value = value * 10 + (uint64_t)(digits[i] - '0');
    }
    *length = value;
    return value <= PROTO_SIZE_MAX ? 0 : -1;
}

/* The line is there, without its end. */
static void take_head(struct bulk *bulk)
{
    char type = bulk->line[0];

    if (type == '-') {
        bulk->kind = BULK_ERROR;
        bulk->line_length--;
        memmove(bulk->line, bulk->line + 1, bulk->line_length);
        bulk->line[bulk->line_length] = '\0';
        bulk->state = BULK_DONE;
    } else if (bulk->line_length == 3 && memcmp(bulk->line, "$-1", 3) == 0) {
        bulk->kind = BULK_NULL;
        bulk->state = BULK_DONE;
    } else if (parse_length(bulk->line + 1, bulk->line_length - 1, &bulk->length) == 0) {
        bulk->kind = BULK_STRING;
        bulk->left = bulk->length;
        bulk->state = bulk->left > 0 ? BULK_PAYLOAD : BULK_TAIL;
    } else {
        break_off(bulk, "a bulk string has a length that is none");
    }
}

static void feed_head(struct bulk *bulk, char byte)
{
    size_t at = bulk->line_length;

    if (at == 0 && byte != '$' && byte != '-') {
        break_off(bulk, "a value came as something that is neither a bulk string nor an error");
    } else if (byte == '\n' && at > 0 && bulk->line[at - 1] == '\r') {
        bulk->line_length--;
        take_head(bulk);
    } else if (at > 0 && (byte == '\n' || bulk->line[at - 1] == '\r')) {
        break_off(bulk, "a line of a reply does not end as it must");
    } else if (at == BULK_LINE_BYTES) {
        break_off(bulk, "the first line of a reply is too long");
    } else {
        bulk->line[bulk->line_length++] = byte;
    }
}

static void feed_tail(struct bulk *bulk, char byte)
{
    static const char end[] = {'\r', '\n'};

    if (byte != end[bulk->tail]) {
        break_off(bulk, "a bulk string is longer than it was said to be");
    } else if (++bulk->tail == sizeof(end)) {
        bulk->state = BULK_DONE;
    }
}

size_t bulk_feed(struct bulk *bulk, const char *bytes, size_t length)
{
    enum bulk_state state = bulk->state;
    size_t taken = 0;

    while (taken < length && bulk->state == state && (state == BULK_HEAD || state == BULK_TAIL)) {
        char byte = bytes[taken++];
        if (state == BULK_HEAD) {
            feed_head(bulk, byte);
        } else {
            feed_tail(bulk, byte);
        }
    }
    return taken;
}

void bulk_took(struct bulk *bulk, uint64_t length)
{
    bulk->left -= length;
    if (bulk->left == 0) {
        bulk->state = BULK_TAIL;
    }
}
