/*
 * The opt-in TCP listener of the metrics, on a loopback address only: GET /metrics, one request a connection.
 *
 * Anybody on the host may connect, so everything is bounded: HTTP_CONNECTIONS at once (a further one is answered 503),
 * HTTP_REQUEST_BYTES to read, HTTP_PATIENCE_MS for request and answer together. Nothing runs while nobody is connected.
 * Loop thread only.
 */
#ifndef GRD_METRICS_HTTP_LISTENER_H
#define GRD_METRICS_HTTP_LISTENER_H

#include <stdbool.h>
#include <uv.h>

#include "daemon/metrics/http_request.h"
#include "daemon/metrics/text.h"

#define HTTP_CONNECTIONS 8
#define HTTP_PATIENCE_MS 5000
#define HTTP_WHY_BYTES 256

struct http_connection;

struct http_listener {
    uv_tcp_t tcp;
    bool open;
    struct http_connection *connections; /* all that are not closed yet */
    unsigned count;
    void (*render)(void *context, struct metrics_text *text); /* the answer to GET /metrics, at the time of asking */
    void *context;
};

/* 0 for "127.0.0.1:9111" or "[::1]:9111"; -EINVAL with `why` for what is no such address, or no loopback address. */
int http_address_parse(const char *text, struct sockaddr_storage *address, char why[HTTP_WHY_BYTES]);

/* Listens. 0, or -errno with `why`; then there is nothing to close. */
int http_listener_open(struct http_listener *listener, uv_loop_t *loop, const char *address,
                       void (*render)(void *context, struct metrics_text *text), void *context,
                       char why[HTTP_WHY_BYTES]);

/* Closes the listener and every connection; `listener` must stay until the loop has run once more. Idempotent. */
void http_listener_close(struct http_listener *listener);

#endif
