#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/blob.h"
#include "proto/text.h"

static int hex_digit(char character)
{
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    if (character >= 'a' && character <= 'f') {
        return character - 'a' + 10;
    }
    if (character >= 'A' && character <= 'F') {
        return character - 'A' + 10;
    }
    return -1;
}

static bool parse_hex(const char *hex, size_t bytes, uint8_t *out)
{
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

/* What is wrong with the form of the array; NULL when nothing is. */
static const char *check_form(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY) {
        return "the reply is no array";
    }
    if (reply->elements == 0 || reply->elements > BLOB_ADDRESSES) {
        return reply->elements == 0 ? "the array is empty" : "the array is too long";
    }
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *element = reply->element[i];
        if (element->type != REDIS_REPLY_STRING) {
            return "an address is no string";
        }
        if (element->len == 0 || element->len % 2 != 0 || element->len > 2 * FABRIC_ADDRESS_BYTES) {
            return "an address has a length that none has";
        }
        if (element->len != reply->element[0]->len) {
            return "the addresses differ in length";
        }
    }
    return NULL;
}

static int malformed(char text[BLOB_TEXT_BYTES], const char *wrong)
{
    snprintf(text, BLOB_TEXT_BYTES, "the reply of BLOB.RDMA_HELLO is malformed: %s", wrong);
    return -EPROTO;
}

int blob_parse_hello(const redisReply *reply, uint8_t **addresses, size_t *length, size_t *count, bool *no_module,
                     char text[BLOB_TEXT_BYTES])
{
    const char *wrong;
    uint8_t *parsed;
    size_t bytes;

    *addresses = NULL;
    *length = *count = 0;
    *no_module = false;
    text[0] = '\0';
    if (reply->type == REDIS_REPLY_ERROR) {
        *no_module = blob_is_unknown_command(reply);
        proto_text_quote(text, BLOB_TEXT_BYTES, reply->str, reply->len);
        return -EREMOTEIO;
    }
    wrong = check_form(reply);
    if (wrong != NULL) {
        return malformed(text, wrong);
    }
    bytes = reply->element[0]->len / 2;
    parsed = malloc(bytes * reply->elements);
    if (parsed == NULL) {
        snprintf(text, BLOB_TEXT_BYTES, "out of memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        if (!parse_hex(reply->element[i]->str, bytes, parsed + i * bytes)) {
            free(parsed);
            return malformed(text, "an address is not hexadecimal");
        }
    }
    *addresses = parsed;
    *length = bytes;
    *count = reply->elements;
    return 0;
}
