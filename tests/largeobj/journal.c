#include "journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "blob.h"
#include "settings.h"

#define NODE_LENGTH 40
#define KEY_MAX ((size_t)256)
#define NONCE_MAX ((size_t)16)
#define LINE_MAX_BYTES (NODE_LENGTH + 2 * KEY_MAX + 2 * NONCE_MAX + 4)

/* Writes two digits for each byte and returns the end. */
static char *put_hex(char *at, const void *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < len; i++) {
        *at++ = digits[byte[i] >> 4];
        *at++ = digits[byte[i] & 15];
    }
    return at;
}

void journal_kept(struct vm_ctx *ctx, const struct vm_string *key, const struct blob *blob)
{
    const char *node = vm_GetMyClusterID();
    char line[LINE_MAX_BYTES];
    size_t key_len;
    const char *key_bytes = vm_StringPtrLen(key, &key_len);
    char *at = line;
    int fd;

    if (settings.journal[0] == 0)
        return;
    at += snprintf(at, NODE_LENGTH + 2, "%.*s ", NODE_LENGTH, node ? node : "-");
    at = put_hex(at, key_bytes, key_len < KEY_MAX ? key_len : KEY_MAX);
    *at++ = ' ';
    at = put_hex(at, blob->bytes, blob->len < NONCE_MAX ? blob->len : NONCE_MAX);
    *at++ = '\n';
    fd = open(settings.journal, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line, (size_t)(at - line)) != at - line)
        vm_Log(ctx, "warning", "largeobj: test-journal %s: a line could not be written", settings.journal);
    if (fd >= 0)
        close(fd);
}
