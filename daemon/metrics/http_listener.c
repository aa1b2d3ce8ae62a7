#include "daemon/metrics/http_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG 16

struct http_connection {
    struct http_listener *listener;
    struct http_connection *next, **link; /* in the listener's list */
    uv_tcp_t tcp;
    uv_timer_t patience;
    uv_write_t write;
    uv_shutdown_t shutdown;
    unsigned handles; /* open */
    bool answered;
    char request[HTTP_REQUEST_BYTES];
    size_t length;
    char head[256];
    struct metrics_text body;
};

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static bool parse_port(const char *text, int *port)
{
    char *end;
    long number = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : 0;

    *port = (int)number;
    return number > 0 && number <= 65535 && *end == '\0';
}

/* IPv6 is written in brackets. */
static bool split(const char *text, char *host, size_t size, int *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;

    if (length == 0 || length >= size || !parse_port(colon + 1, port)) {
        return false;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        memmove(host, host + 1, length - 1);
        return strchr(host, ':') != NULL;
    }
    return strchr(host, ':') == NULL;
}

int http_address_parse(const char *text, struct sockaddr_storage *address, char why[HTTP_WHY_BYTES])
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    char host[64];
    int port = 0;
    bool whole = split(text, host, sizeof(host), &port), loopback;

    memset(address, 0, sizeof(*address));
    if (whole && uv_ip4_addr(host, port, four) == 0) {
        loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
    } else if (whole && uv_ip6_addr(host, port, six) == 0) {
        loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    } else {
        snprintf(why, HTTP_WHY_BYTES, "\"%.64s\" is no address such as 127.0.0.1:9111 or [::1]:9111", text);
        return -EINVAL;
    }
    if (!loopback) {
        snprintf(why, HTTP_WHY_BYTES,
                 "%.64s is no loopback address: whoever reaches the port may read the metrics, so it is only for this "
                 "host; use 127.0.0.1 or [::1], and a proxy with access control for others", text);
        return -EINVAL;
    }
    return 0;
}

/* --- one connection ----------------------------------------------------------------------------------------------- */

static void handle_closed(uv_handle_t *handle)
{
    struct http_connection *connection = handle->data;

    if (--connection->handles > 0) {
        return;
    }
    metrics_free(&connection->body);
    free(connection);
}

static void hang_up(struct http_connection *connection)
{
    if (uv_is_closing((uv_handle_t *)&connection->tcp)) {
        return;
    }
    *connection->link = connection->next;
    if (connection->next != NULL) {
        connection->next->link = connection->link;
    }
    connection->listener->count--;
    uv_close((uv_handle_t *)&connection->tcp, handle_closed);
    uv_close((uv_handle_t *)&connection->patience, handle_closed);
}

static void out_of_patience(uv_timer_t *timer)
{
    hang_up(timer->data);
}

/* The other side is to close first: what it may have sent behind its request would otherwise cost it the answer
 * (RST). */
static void written(uv_write_t *write, int status)
{
    struct http_connection *connection = write->data;

    if (status != 0 || uv_is_closing((uv_handle_t *)&connection->tcp) ||
        uv_shutdown(&connection->shutdown, (uv_stream_t *)&connection->tcp, NULL) != 0) {
        hang_up(connection);
    }
}

static size_t write_head(char *head, size_t size, int status, size_t length)
{
    int written_bytes = snprintf(head, size,
                                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
                                 status, http_reason(status),
                                 status == 200 ? METRICS_CONTENT_TYPE : "text/plain; charset=utf-8", length,
                                 status == 405 ? "Allow: GET\r\n" : "");

    return (size_t)written_bytes;
}

static void answer(struct http_connection *connection, int status)
{
    struct http_listener *listener = connection->listener;
    char *reason = connection->request; /* has been read */
    uv_buf_t parts[2];

    connection->answered = true;
    if (status == 200) {
        listener->render(listener->context, &connection->body);
        status = connection->body.failed ? 503 : 200;
    }
    snprintf(reason, sizeof(connection->request), "%s\n", http_reason(status));
    parts[1] = status == 200 ? uv_buf_init(connection->body.bytes, (unsigned)connection->body.length)
                             : uv_buf_init(reason, (unsigned)strlen(reason));
    parts[0] = uv_buf_init(connection->head, (unsigned)write_head(connection->head, sizeof(connection->head), status,
                                                                  parts[1].len));
    connection->write.data = connection;
    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, parts, 2, written) != 0) {
        hang_up(connection);
    }
}

/* After the answer, what still comes is read into the upper half, and forgotten: the lower one may be on its way. */
static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct http_connection *connection = handle->data;
    size_t from = connection->answered ? HTTP_REQUEST_BYTES / 2 : connection->length;

    (void)suggested;
    *room = uv_buf_init(connection->request + from, (unsigned)(HTTP_REQUEST_BYTES - from));
}

static void received(uv_stream_t *stream, ssize_t length, const uv_buf_t *room)
{
    struct http_connection *connection = stream->data;
    int status;

    (void)room;
    if (length < 0) {
        hang_up(connection);
        return;
    }
    if (connection->answered) {
        return;
    }
    connection->length += (size_t)length;
    status = http_request_status(connection->request, connection->length);
    if (status != 0) {
        answer(connection, status);
    }
}

/* --- the listener ------------------------------------------------------------------------------------------------- */

static void refuse(struct http_connection *connection)
{
    char text[sizeof(connection->head)];
    size_t length = write_head(text, sizeof(text), 503, 0);
    uv_buf_t part = uv_buf_init(text, (unsigned)length);

    (void)uv_try_write((uv_stream_t *)&connection->tcp, &part, 1);
    uv_close((uv_handle_t *)&connection->tcp, handle_closed);
    uv_close((uv_handle_t *)&connection->patience, handle_closed);
}

static void enter(struct http_connection *connection)
{
    struct http_listener *listener = connection->listener;

    connection->next = listener->connections;
    connection->link = &listener->connections;
    if (connection->next != NULL) {
        connection->next->link = &connection->next;
    }
    listener->connections = connection;
    listener->count++;
    uv_timer_start(&connection->patience, out_of_patience, HTTP_PATIENCE_MS, 0);
    if (uv_read_start((uv_stream_t *)&connection->tcp, give_room, received) != 0) {
        hang_up(connection);
    }
}

static void connected(uv_stream_t *stream, int status)
{
    struct http_listener *listener = stream->data;
    struct http_connection *connection = status == 0 ? calloc(1, sizeof(*connection)) : NULL;

    if (connection == NULL) {
        return; /* libuv has closed it, or keeps it for the next turn */
    }
    connection->listener = listener;
    uv_tcp_init(stream->loop, &connection->tcp);
    uv_timer_init(stream->loop, &connection->patience);
    connection->handles = 2;
    connection->tcp.data = connection->patience.data = connection;
    if (uv_accept(stream, (uv_stream_t *)&connection->tcp) != 0 || listener->count >= HTTP_CONNECTIONS) {
        refuse(connection);
    } else {
        enter(connection);
    }
}

int http_listener_open(struct http_listener *listener, uv_loop_t *loop, const char *address,
                       void (*render)(void *context, struct metrics_text *text), void *context,
                       char why[HTTP_WHY_BYTES])
{
    struct sockaddr_storage parsed;
    int status = http_address_parse(address, &parsed, why);

    *listener = (struct http_listener){.render = render, .context = context};
    if (status != 0) {
        return status;
    }
    uv_tcp_init(loop, &listener->tcp);
    listener->tcp.data = listener;
    listener->open = true;
    status = uv_tcp_bind(&listener->tcp, (const struct sockaddr *)&parsed, 0);
    if (status == 0) {
        status = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, connected);
    }
    if (status != 0) {
        snprintf(why, HTTP_WHY_BYTES, "%.64s: %s", address, uv_strerror(status));
        http_listener_close(listener);
    }
    return status;
}

void http_listener_close(struct http_listener *listener)
{
    if (!listener->open) {
        return;
    }
    listener->open = false;
    while (listener->connections != NULL) {
        hang_up(listener->connections);
    }
    uv_close((uv_handle_t *)&listener->tcp, NULL);
}
