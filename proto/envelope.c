#include "proto/envelope.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "proto/errors.h"
#include "proto/text.h"

/* --- reading ---------------------------------------------------------------------------------------------------- */

/* The JSON value of a packet, or NULL with a sentence. JSON_DECODE_ANY only so that the sentence can be right. */
static json_t *load(const char *text, size_t length, char why[PROTO_WHY_BYTES])
{
    if (length == 0) {
        snprintf(why, PROTO_WHY_BYTES, "the packet is empty");
        return NULL;
    }
    const char *nul = memchr(text, '\0', length);
    if (nul != NULL) {
        snprintf(why, PROTO_WHY_BYTES, "the packet holds a NUL byte at offset %zu; it must be one JSON text, no more",
                 (size_t)(nul - text));
        return NULL;
    }
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (root == NULL && json_error_code(&error) == json_error_null_character) {
        snprintf(why, PROTO_WHY_BYTES, "a text holds U+0000 (byte %d); keys with such bytes travel as \"key_b64\"",
                 error.position);
    } else if (root == NULL) {
        char quoted[JSON_ERROR_TEXT_LENGTH];
        proto_text_quote(quoted, sizeof(quoted), error.text, strlen(error.text));
        snprintf(why, PROTO_WHY_BYTES, "the packet is no JSON text in UTF-8: %s (byte %d)", quoted, error.position);
    }
    return root;
}

/* 1..PROTO_ID_MAX, or 0. */
static int64_t read_id(const json_t *id)
{
    json_int_t value = json_integer_value(id); /* 0 for all that is no integer */
    return value >= 1 && value <= PROTO_ID_MAX ? value : 0;
}

static int refuse(char why[PROTO_WHY_BYTES], const char *sentence)
{
    snprintf(why, PROTO_WHY_BYTES, "%s", sentence);
    return PROTO_ERR_INVALID_REQUEST;
}

static bool is_version(const json_t *version)
{
    return json_is_string(version) && strcmp(json_string_value(version), "2.0") == 0;
}

struct request_members {
    json_t *jsonrpc, *id, *method, *params;
    const char *unknown; /* name of a member that is none of them */
};

static void collect(json_t *root, struct request_members *found)
{
    for (void *member = json_object_iter(root); member != NULL; member = json_object_iter_next(root, member)) {
        const char *name = json_object_iter_key(member);
        json_t *value = json_object_iter_value(member);
        if (strcmp(name, "id") == 0) {
            found->id = value;
        } else if (strcmp(name, "jsonrpc") == 0) {
            found->jsonrpc = value;
        } else if (strcmp(name, "method") == 0) {
            found->method = value;
        } else if (strcmp(name, "params") == 0) {
            found->params = value;
        } else {
            found->unknown = name;
        }
    }
}

int proto_request_parse(const char *text, size_t length, struct proto_request *request, char why[PROTO_WHY_BYTES])
{
    *request = (struct proto_request){0};
    why[0] = '\0';
    request->root = load(text, length, why);
    if (request->root == NULL) {
        return PROTO_ERR_PARSE;
    }
    if (json_is_array(request->root)) {
        return refuse(why, "batch arrays are not supported; send one request a packet, many may be in flight");
    }
    if (!json_is_object(request->root)) {
        return refuse(why, "a request must be a JSON object");
    }
    struct request_members found = {0};
    collect(request->root, &found);
    request->id = read_id(found.id); /* first of all, so that every refusal below can name it */
    if (request->id == 0) {
        return refuse(why, found.id == NULL ? "\"id\" is missing; notifications from clients are not supported"
                                            : "\"id\" must be an integer from 1 to 2^53-1");
    }
    if (!is_version(found.jsonrpc)) {
        return refuse(why, found.jsonrpc == NULL ? "\"jsonrpc\" is missing; it must be \"2.0\""
                                                 : "\"jsonrpc\" must be \"2.0\"");
    }
    if (!json_is_string(found.method)) {
        return refuse(why, found.method == NULL ? "\"method\" is missing" : "\"method\" must be a text");
    }
    if (found.params != NULL && !json_is_object(found.params)) {
        return refuse(why, "\"params\" must be an object, or be left out; parameters by position are not supported");
    }
    if (found.unknown != NULL) {
        char quoted[64];
        proto_text_quote(quoted, sizeof(quoted), found.unknown, strlen(found.unknown));
        snprintf(why, PROTO_WHY_BYTES,
                 "\"%s\" is no member of a request; allowed: \"jsonrpc\", \"id\", \"method\", \"params\"", quoted);
        return PROTO_ERR_INVALID_REQUEST;
    }
    request->method = json_string_value(found.method);
    request->params = found.params;
    return 0;
}

static int read_notification(struct proto_answer *answer)
{
    json_t *method = json_object_get(answer->root, "method");
    json_t *params = json_object_get(answer->root, "params");
    if (!json_is_string(method) || (params != NULL && !json_is_object(params))) {
        return PROTO_ERR_PARSE;
    }
    answer->method = json_string_value(method);
    answer->params = params;
    return 0;
}

static int read_error(struct proto_answer *answer, const json_t *error)
{
    const json_t *code = json_object_get(error, "code");
    const json_t *message = json_object_get(error, "message");
    json_int_t value = json_integer_value(code);
    if (!json_is_string(message) || value == 0 || value < INT_MIN || value > INT_MAX) {
        return PROTO_ERR_PARSE;
    }
    answer->code = (int)value;
    answer->message = json_string_value(message);
    answer->data = json_object_get(error, "data");
    return 0;
}

int proto_answer_parse(const char *text, size_t length, struct proto_answer *answer)
{
    char why[PROTO_WHY_BYTES];
    *answer = (struct proto_answer){0};
    answer->root = load(text, length, why);
    if (!json_is_object(answer->root) || !is_version(json_object_get(answer->root, "jsonrpc"))) {
        return PROTO_ERR_PARSE;
    }
    json_t *id = json_object_get(answer->root, "id");
    if (id == NULL) {
        return read_notification(answer);
    }
    json_t *result = json_object_get(answer->root, "result");
    json_t *error = json_object_get(answer->root, "error");
    answer->id = read_id(id);
    if (answer->id == 0 && !json_is_null(id)) {
        return PROTO_ERR_PARSE;
    }
    if (error != NULL) {
        return result != NULL ? PROTO_ERR_PARSE : read_error(answer, error);
    }
    if (answer->id == 0 || !json_is_object(result)) {
        return PROTO_ERR_PARSE; /* a result for no request is none */
    }
    answer->result = result;
    return 0;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

/* Appends to the caller's buffer; the first failure sticks and everything after it is skipped. */
struct writer {
    char *buffer;
    size_t capacity;
    size_t used;
    int error; /* 0, PROTO_ERR_TOO_LARGE or PROTO_ERR_NO_MEMORY */
};

static struct writer writer_start(char *buffer, size_t capacity)
{
    return (struct writer){.buffer = buffer, .capacity = capacity > INT_MAX ? INT_MAX : capacity};
}

static int writer_finish(const struct writer *writer)
{
    return writer->error != 0 ? writer->error : (int)writer->used;
}

static void put_bytes(struct writer *writer, const char *bytes, size_t length)
{
    if (writer->error != 0) {
        return;
    }
    if (length > writer->capacity - writer->used) {
        writer->error = PROTO_ERR_TOO_LARGE;
        return;
    }
    memcpy(writer->buffer + writer->used, bytes, length);
    writer->used += length;
}

static void put(struct writer *writer, const char *text)
{
    put_bytes(writer, text, strlen(text));
}

static void put_integer(struct writer *writer, int64_t value)
{
    char digits[24];
    put_bytes(writer, digits, (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)value));
}

/* Opens a message; id 0 becomes null, and a negative one means a message that has none. */
static void put_head(struct writer *writer, int64_t id)
{
    put(writer, "{\"jsonrpc\":\"2.0\"");
    if (id < 0) {
        return;
    }
    put(writer, ",\"id\":");
    if (id == 0) {
        put(writer, "null");
    } else {
        put_integer(writer, id);
    }
}

/* NULL writes {}. */
static void put_json(struct writer *writer, const json_t *json)
{
    if (json == NULL) {
        put(writer, "{}");
        return;
    }
    if (writer->error != 0) {
        return;
    }
    size_t room = writer->capacity - writer->used;
    size_t length = json_dumpb(json, writer->buffer + writer->used, room, JSON_COMPACT | JSON_ENCODE_ANY);
    if (length == 0) {
        writer->error = PROTO_ERR_NO_MEMORY;
    } else if (length > room) {
        writer->error = PROTO_ERR_TOO_LARGE;
    } else {
        writer->used += length;
    }
}

/* Any bytes as a JSON text, escaped. */
static void put_text(struct writer *writer, const char *text, size_t length)
{
    json_t *json = proto_text_json(text, length);
    if (json == NULL) {
        writer->error = writer->error != 0 ? writer->error : PROTO_ERR_NO_MEMORY;
        return;
    }
    put_json(writer, json);
    json_decref(json);
}

static int write_call(char *buffer, size_t capacity, int64_t id, const char *method, const json_t *params)
{
    struct writer writer = writer_start(buffer, capacity);
    put_head(&writer, id);
    put(&writer, ",\"method\":");
    put_text(&writer, method, strlen(method));
    if (params != NULL) {
        put(&writer, ",\"params\":");
        put_json(&writer, params);
    }
    put(&writer, "}");
    return writer_finish(&writer);
}

int proto_write_request(char *buffer, size_t capacity, int64_t id, const char *method, json_t *params)
{
    return write_call(buffer, capacity, id, method, params);
}

int proto_write_notification(char *buffer, size_t capacity, const char *method, json_t *params)
{
    return write_call(buffer, capacity, -1, method, params);
}

int proto_write_result(char *buffer, size_t capacity, int64_t id, json_t *result)
{
    struct writer writer = writer_start(buffer, capacity);
    put_head(&writer, id);
    put(&writer, ",\"result\":");
    put_json(&writer, result);
    put(&writer, "}");
    return writer_finish(&writer);
}

/* The members of `data` behind a "name" of ours, unless it brings one. */
static void put_data(struct writer *writer, int code, const json_t *data)
{
    if (json_object_get(data, "name") != NULL) {
        put_json(writer, data);
        return;
    }
    put(writer, "{\"name\":");
    const char *name = proto_error_name(code);
    put_text(writer, name, strlen(name));
    if (json_object_size(data) == 0) {
        put(writer, "}");
        return;
    }
    size_t open = writer->used;
    put_json(writer, data);
    if (writer->error == 0) {
        writer->buffer[open] = ','; /* its own brace: one object comes out */
    }
}

static int write_error(char *buffer, size_t capacity, int64_t id, int code, const char *message, const json_t *data)
{
    struct writer writer = writer_start(buffer, capacity);
    put_head(&writer, id);
    put(&writer, ",\"error\":{\"code\":");
    put_integer(&writer, code);
    put(&writer, ",\"message\":");
    put_text(&writer, message, strnlen(message, PROTO_ERROR_MESSAGE_BYTES));
    put(&writer, ",\"data\":");
    put_data(&writer, code, data);
    put(&writer, "}}");
    return writer_finish(&writer);
}

int proto_write_error(char *buffer, size_t capacity, int64_t id, int code, const char *message, json_t *data)
{
    const char *text = message != NULL ? message : proto_error_text(code);
    int length = write_error(buffer, capacity, id, code, text, data);
    if (length == PROTO_ERR_TOO_LARGE && data != NULL) {
        /* An answer without its details is better than none: the request must get one. */
        length = write_error(buffer, capacity, id, code, text, NULL);
    }
    return length;
}
