#include <errno.h>
#include <string.h>

#include "daemon/valkey/blob.h"

static void begin(struct blob_words *words, const char *command)
{
    words->argc = 1;
    words->argv[0] = command;
    words->lengths[0] = strlen(command);
    words->numbers_used = 0;
}

static void add(struct blob_words *words, const char *bytes, size_t length)
{
    words->argv[words->argc] = bytes;
    words->lengths[words->argc] = length;
    words->argc++;
}

/* Plain digits: the server takes no sign, blank or 0x. Written backwards, since a transfer in 256 pieces has 768 of
 * them and printf would cost as much as the rest of the command. */
static void add_number(struct blob_words *words, uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    char *text = words->numbers + words->numbers_used;

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    memcpy(text, digits + at, sizeof(digits) - at);
    words->numbers_used += sizeof(digits) - at;
    add(words, text, sizeof(digits) - at);
}

static void add_triples(struct blob_words *words, const struct slice_triple *triples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_number(words, triples[i].key);
        add_number(words, triples[i].address);
        add_number(words, triples[i].length);
    }
}

int blob_words_set(struct blob_words *words, const void *key, size_t key_length, uint64_t length, bool has_crc,
                   uint32_t crc, const struct slice_triple *triples, size_t count)
{
    if (count == 0 || count > BLOB_TRIPLES) {
        return -EINVAL;
    }
    begin(words, "BLOB.RDMA_SET");
    add(words, key, key_length);
    add_number(words, length);
    if (has_crc) {
        add(words, "CRC", 3);
        add_number(words, crc);
    }
    add_triples(words, triples, count);
    return 0;
}

int blob_words_get(struct blob_words *words, const void *key, size_t key_length, const struct slice_triple *triples,
                   size_t count)
{
    if (count == 0 || count > BLOB_TRIPLES) {
        return -EINVAL;
    }
    begin(words, "BLOB.RDMA_GET");
    add(words, key, key_length);
    add_triples(words, triples, count);
    return 0;
}

void blob_words_tcp_set(struct blob_words *words, const void *key, size_t key_length)
{
    begin(words, "BLOB.TCP_SET");
    add(words, key, key_length);
}

void blob_words_tcp_get(struct blob_words *words, const void *key, size_t key_length)
{
    begin(words, "BLOB.TCP_GET");
    add(words, key, key_length);
}

void blob_words_crc(struct blob_words *words, const void *key, size_t key_length)
{
    begin(words, "BLOB.INFO");
    add(words, key, key_length);
    add(words, "CRC", 3);
}

void blob_words_expire(struct blob_words *words, const void *key, size_t key_length, uint64_t ttl_ms)
{
    begin(words, "PEXPIRE");
    add(words, key, key_length);
    add_number(words, ttl_ms);
}

void blob_words_hello(struct blob_words *words, const char *hex)
{
    begin(words, "BLOB.RDMA_HELLO");
    add(words, hex, strlen(hex));
}

void blob_hex(const uint8_t *address, size_t length, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < length; i++) {
        hex[2 * i] = digits[address[i] >> 4];
        hex[2 * i + 1] = digits[address[i] & 15];
    }
    hex[2 * length] = '\0';
}
