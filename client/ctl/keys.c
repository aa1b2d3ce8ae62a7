#include "client/ctl/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"
#include "client/ctl/text.h"
#include "proto/base64.h"
#include "proto/shape.h"

enum ctl_exit key_parse(const struct options *options, const char *word, struct grd_key *key)
{
    size_t length = strlen(word);
    uint8_t *bytes = need_memory(malloc(length + 1));

    if (options->key_b64) {
        ssize_t decoded = proto_base64_decode(word, length, bytes);

        if (decoded < 0) {
            free(bytes);
            return options_misuse("'%s' is not base64 with padding", word);
        }
        length = (size_t)decoded;
    } else {
        memcpy(bytes, word, length);
    }
    if (length == 0 || length > GRD_KEY_BYTES_MAX) {
        free(bytes);
        return options_misuse("a key has 1 to %d bytes, not %zu", GRD_KEY_BYTES_MAX, length);
    }
    *key = (struct grd_key){.data = bytes, .length = length};
    return CTL_OK;
}

/* Keys of the public interface are constant; those made here were allocated. */
static uint8_t *own_bytes(const struct grd_key *key)
{
    union {
        const void *in;
        uint8_t *out;
    } bytes = {.in = key->data};

    return bytes.out;
}

void key_free(struct grd_key *key)
{
    free(own_bytes(key));
    *key = (struct grd_key){0};
}

json_t *key_json(const struct grd_key *key)
{
    struct proto_key wire = {.data = own_bytes(key), .length = key->length};
    json_t *object = need_memory(json_object());

    if (proto_key_encode(object, &wire) != 0) {
        need_memory(NULL);
    }
    return object;
}

char *key_text(const struct grd_key *key)
{
    return text_safe(key->data, key->length);
}

void print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(value);
}

enum ctl_exit connect_client(const struct options *options, grd_client **client)
{
    struct grd_connect_options connect = {
        .struct_size = sizeof(connect),
        .socket_path = options->socket_path,
        .name = "glide-rdmactl " GRD_VERSION_STRING,
        .timeout_ms = options->deadline_ms,
        .flags = GRD_CLIENT_NO_RECONNECT, /* a command tells that the daemon is gone, and does not wait for another */
    };
    struct grd_error error;

    if (grd_connect(&connect, client, &error) == 0) {
        return CTL_OK;
    }
    if (error.code == GRD_ERR_NO_ACCESS) {
        return report_no_access(options->socket_path);
    }
    report_error(options->command->name, &error);
    return report_connect_status(error.code);
}
