/*
 * JSON-RPC 2.0 envelopes of this protocol: requests, answers, notifications. Text in, text out.
 */
#ifndef GRD_PROTO_ENVELOPE_H
#define GRD_PROTO_ENVELOPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/shape.h"

/* A parsed request. `root` owns everything; release with json_decref(request->root) (NULL is fine). */
struct proto_request {
    json_t *root;
    int64_t id;         /* 0 when none could be read: the answer then carries id null */
    const char *method; /* borrowed from root */
    json_t *params;     /* borrowed from root; NULL when absent */
};

/*
 * Parses a packet as a request: valid UTF-8 JSON without duplicate names or surplus bytes, an object with
 * jsonrpc "2.0", an integer id 1..2^53-1, a text method, an object params or none, and nothing else.
 * 0, or PROTO_ERR_PARSE / PROTO_ERR_INVALID_REQUEST with a sentence in `why`; request->id is set where it could be
 * read, and root must be released in every case.
 */
int proto_request_parse(const char *text, size_t length, struct proto_request *request, char why[PROTO_WHY_BYTES]);

/* A parsed answer or notification, as the library sees it; the same ownership. */
struct proto_answer {
    json_t *root;
    int64_t id;          /* 0: a notification, or an answer without id */
    const char *method;  /* of a notification, else NULL */
    json_t *params;      /* of a notification */
    json_t *result;      /* of a success, else NULL */
    int code;            /* of an error, else 0 */
    const char *message; /* of an error */
    json_t *data;        /* of an error, may be NULL */
};

/* 0, or PROTO_ERR_PARSE when it is none of the three. Unknown members are ignored. */
int proto_answer_parse(const char *text, size_t length, struct proto_answer *answer);

/*
 * Writers: each writes one message into `buffer` and returns its length, or PROTO_ERR_TOO_LARGE when it would not fit
 * `capacity`, or PROTO_ERR_NO_MEMORY. `params`, `result` and `data` are borrowed and may be NULL (params left out,
 * result {}). No trailing NUL is promised. `id` is > 0, or 0 in an error answer for "null".
 *
 * Errors: `message` NULL stands for proto_error_text(code); it may hold any bytes (what is no UTF-8 goes out as
 * U+FFFD) and is cut after PROTO_ERROR_MESSAGE_BYTES. `data` gets the member "name" in front unless it has one, so
 * callers pass only what is special. Where `data` would not fit it is left out but for its name, because every
 * request must be answered.
 */
int proto_write_request(char *buffer, size_t capacity, int64_t id, const char *method, json_t *params);
int proto_write_result(char *buffer, size_t capacity, int64_t id, json_t *result);
int proto_write_error(char *buffer, size_t capacity, int64_t id, int code, const char *message, json_t *data);
int proto_write_notification(char *buffer, size_t capacity, const char *method, json_t *params);

#endif
