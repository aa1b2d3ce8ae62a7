/*
 * The little of HTTP/1.1 that a scraper of metrics needs: one GET without a body. Reads what anybody may have sent; no
 * state, no memory of its own. Thread safe.
 */
#ifndef GRD_METRICS_HTTP_REQUEST_H
#define GRD_METRICS_HTTP_REQUEST_H

#include <stddef.h>

#define HTTP_REQUEST_BYTES 4096 /* headers included */
#define HTTP_PATH "/metrics"

/*
 * 0: the head is not complete yet; else the status to answer: 200 (GET /metrics), 400 (no HTTP request, one of version
 * 0.9 or 2, or one with a body), 404 (another path), 405 (another method), 431 (longer than HTTP_REQUEST_BYTES).
 */
int http_request_status(const char *bytes, size_t length);

/* "Not Found" */
const char *http_reason(int status);

#endif
