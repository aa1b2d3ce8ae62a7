/*
 * TLS over another transport: OpenSSL with that transport in place of its socket.
 *
 * What is known about bytes. A record is encrypted only when no earlier one waits, and at most one does: it lies in
 * `out` until the transport below has taken it. Its plain bytes count as taken from the moment that one byte of it may
 * have left; before that write() reports them as not taken only when the transport below has failed. So what counts as
 * unsent has not left, while the last record of a connection that ends may count as sent although it was not whole:
 * the safe side.
 *
 * OpenSSL keeps received bytes to itself, of which no event tells: readers read until there is nothing (transport.h),
 * and after the handshake they are told once, since data may have come with its end.
 *
 * A handshake that fails is the end of an address, not of the name: the transport below tries the next one, and each
 * begins with an SSL of its own. The timer limits the reading of the files, then each handshake by the share of time
 * that its address has; afterwards it is idle, and runs out at once when a failure inside read or write is to be
 * reported from outside.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/tls_context.h"
#include "daemon/valkey/tls_words.h"
#include "daemon/valkey/transport.h"

#define RECORD_BYTES SSL3_RT_MAX_PLAIN_LENGTH
#define OUT_BYTES (RECORD_BYTES + 4096) /* a whole record with its frame, and a small one of OpenSSL's own */

enum tls_state {
    TLS_LOADING,    /* the files */
    TLS_CONNECTING, /* the transport below */
    TLS_HANDSHAKE,
    TLS_OPEN,
    TLS_FAILED, /* `closed` was called or will be by the timer */
    TLS_CLOSED, /* close was called: not a callback more */
};

struct tls {
    struct transport base;
    uv_loop_t *loop;
    uv_timer_t timer;
    struct offload *offload;
    const struct transport_address *address;
    const struct transport_settings *settings;
    const struct transport_events *events;
    void *context;
    enum tls_state state;

    struct tls_load *load;
    SSL_CTX *files;
    struct transport *below;
    bool refused; /* at least one peer: what is told when none is left is about TLS */
    bool below_failed; /* its `closed` follows and says why */
    bool below_empty;  /* its last read gave nothing */
    BIO_METHOD *method;
    SSL *ssl;

    char out[OUT_BYTES]; /* encrypted, not taken yet */
    size_t out_length, out_sent;
    bool want_write; /* the owner waits for room */
    bool held_read;  /* OpenSSL wants to write before it reads on */

    int error;
    char why[TRANSPORT_WHY_BYTES];
    char certificate_why[TLS_WHY_BYTES]; /* "" unless the certificate was refused */
};

static struct tls *tls_of(struct transport *transport)
{
    return (struct tls *)transport;
}

__attribute__((format(printf, 3, 4))) static int explain(struct tls *tls, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(tls->why, sizeof(tls->why), format, arguments);
    va_end(arguments);
    tls->error = error;
    return error;
}

/* From a callback of the loop: the end. The owner closes, maybe inside. */
static void report(struct tls *tls)
{
    tls->state = TLS_FAILED;
    uv_timer_stop(&tls->timer);
    tls->events->closed(tls->context, tls->error, tls->why);
}

static void on_report(uv_timer_t *timer)
{
    report(timer->data);
}

/* From anywhere: the end, reported later. */
static int fail_later(struct tls *tls)
{
    tls->state = TLS_FAILED;
    uv_timer_start(&tls->timer, on_report, 0, 0);
    return tls->error;
}

static const char *wanted_name(const struct tls *tls)
{
    const char *name = tls_store_server_name(tls->settings->tls);

    return name != NULL ? name : tls->address->host;
}

/* --- encrypted bytes --- */

/* Gives to the transport below what waits. 0 also when some of it still does; negative when that has failed. */
static int flush(struct tls *tls)
{
    while (tls->out_sent < tls->out_length) {
        ssize_t taken = tls->below->class->write(tls->below, tls->out + tls->out_sent, tls->out_length - tls->out_sent);
        if (taken < 0) {
            return (int)taken;
        }
        if (taken == 0) {
            return 0;
        }
        tls->out_sent += (size_t)taken;
    }
    tls->out_sent = 0;
    tls->out_length = 0;
    return 0;
}

static bool waits(const struct tls *tls)
{
    return tls->out_length > 0;
}

/* OpenSSL writes: into `out`, as far as there is room. */
static int bio_write(BIO *bio, const char *bytes, int length)
{
    struct tls *tls = BIO_get_data(bio);
    size_t room = OUT_BYTES - tls->out_length;
    size_t taken = (size_t)length < room ? (size_t)length : room;

    BIO_clear_retry_flags(bio);
    if (taken == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(tls->out + tls->out_length, bytes, taken);
    tls->out_length += taken;
    return (int)taken;
}

static int bio_read(BIO *bio, char *buffer, int capacity)
{
    struct tls *tls = BIO_get_data(bio);
    ssize_t length = tls->below->class->read(tls->below, buffer, (size_t)capacity);

    BIO_clear_retry_flags(bio);
    tls->below_empty = length == 0;
    if (length > 0) {
        return (int)length;
    }
    if (length == 0) {
        BIO_set_retry_read(bio);
    }
    tls->below_failed = length < 0;
    return -1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/* --- handshake --- */

/* OpenSSL's callback during the verification: which check failed is known only here. */
static int on_verified(int good, X509_STORE_CTX *verification)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *tls = SSL_get_app_data(ssl);

    if (good != 1 && tls->certificate_why[0] == '\0') {
        tls_words_certificate(verification, wanted_name(tls), tls->certificate_why, sizeof(tls->certificate_why));
    }
    return good;
}

/* The name or the address that the certificate must have; no name for the server to choose by when it is an address. */
static int set_name(struct tls *tls)
{
    char host[256];
    unsigned char address[sizeof(struct in6_addr)];

    snprintf(host, sizeof(host), "%s", wanted_name(tls));
    host[strcspn(host, "%")] = '\0'; /* the zone of a link-local address is this host's own business */
    SSL_set_hostflags(tls->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), host);
    }
    return SSL_set1_host(tls->ssl, host) == 1 ? (int)SSL_set_tlsext_host_name(tls->ssl, host) : 0;
}

static BIO *make_bio(struct tls *tls)
{
    BIO *bio;

    tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "transport");
    if (tls->method == NULL || BIO_meth_set_write(tls->method, bio_write) != 1 ||
        BIO_meth_set_read(tls->method, bio_read) != 1 || BIO_meth_set_ctrl(tls->method, bio_control) != 1) {
        return NULL;
    }
    bio = BIO_new(tls->method);
    if (bio != NULL) {
        BIO_set_data(bio, tls);
        BIO_set_init(bio, 1);
    }
    return bio;
}

static int make_ssl(struct tls *tls)
{
    BIO *bio = make_bio(tls);

    tls->ssl = SSL_new(tls->files);
    if (tls->ssl == NULL || bio == NULL) {
        BIO_free(bio);
        return explain(tls, -ENOMEM, "out of memory");
    }
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_app_data(tls->ssl, tls);
    SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, on_verified);
    SSL_set_connect_state(tls->ssl);
    if (set_name(tls) != 1) {
        return explain(tls, -EINVAL, "'%.200s' cannot be looked for in a certificate: set [valkey] tls_server_name",
                       wanted_name(tls));
    }
    return 0;
}

/* Of a connection that was open. */
static int explain_failure(struct tls *tls)
{
    char words[TLS_WHY_BYTES];

    tls_words_error(ERR_peek_error(), words, sizeof(words));
    return explain(tls, -EPROTO, "TLS with %.100s was ended: %s", tls->address->text, words);
}

static void forget_ssl(struct tls *tls)
{
    SSL_free(tls->ssl);
    BIO_meth_free(tls->method);
    tls->ssl = NULL;
    tls->method = NULL;
    tls->out_length = tls->out_sent = 0;
    tls->below_failed = tls->below_empty = false;
    tls->certificate_why[0] = '\0';
}

/* This peer will not do; another address may. Its words lack the server's name. */
static void refuse(struct tls *tls, int error, const char *why)
{
    uv_timer_stop(&tls->timer);
    tls->state = TLS_CONNECTING;
    tls->refused = true;
    tls->below->class->refuse(tls->below, error, why);
    forget_ssl(tls);
}

static void refuse_handshake(struct tls *tls)
{
    char words[TLS_WHY_BYTES], why[TLS_WHY_BYTES + 32];

    if (tls->certificate_why[0] != '\0') {
        snprintf(why, sizeof(why), "%s", tls->certificate_why);
        refuse(tls, -EACCES, why);
        return;
    }
    tls_words_error(ERR_peek_error(), words, sizeof(words));
    ERR_clear_error();
    snprintf(why, sizeof(why), "the handshake failed: %s", words);
    refuse(tls, -EPROTO, why);
}

static void shake_hands(struct tls *tls)
{
    int done, error;

    ERR_clear_error();
    done = SSL_do_handshake(tls->ssl);
    error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, done);
    flush(tls); /* also an alert that says why we end it; a failure is reported from below */
    if (error == SSL_ERROR_NONE) {
        uv_timer_stop(&tls->timer);
        tls->state = TLS_OPEN;
        tls->events->connected(tls->context);
        if (tls->state == TLS_OPEN) {
            tls->events->readable(tls->context);
        }
    } else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE && !tls->below_failed) {
        refuse_handshake(tls);
    }
}

static void on_timeout(uv_timer_t *timer);

/* --- events of the transport below --- */

static void on_connected(void *context)
{
    struct tls *tls = context;

    if (tls->state != TLS_CONNECTING) {
        return;
    }
    if (make_ssl(tls) != 0) {
        report(tls);
        return;
    }
    tls->state = TLS_HANDSHAKE;
    uint64_t now = uv_now(tls->loop), ends = tls->below->class->attempt_ends(tls->below);
    uv_timer_start(&tls->timer, on_timeout, ends > now ? ends - now : 0, 0);
    shake_hands(tls);
}

static void on_readable(void *context)
{
    struct tls *tls = context;

    if (tls->state == TLS_HANDSHAKE) {
        shake_hands(tls);
    } else if (tls->state == TLS_OPEN) {
        tls->events->readable(tls->context);
    }
}

static void on_writable(void *context)
{
    struct tls *tls = context;

    if (flush(tls) != 0 || waits(tls)) {
        return;
    }
    if (tls->state == TLS_HANDSHAKE) {
        shake_hands(tls);
        return;
    }
    if (tls->state == TLS_OPEN && tls->held_read) {
        tls->held_read = false;
        tls->events->readable(tls->context);
    }
    if (tls->state == TLS_OPEN && tls->want_write) {
        tls->want_write = false;
        tls->events->writable(tls->context);
    }
}

static void on_closed(void *context, int error, const char *why)
{
    struct tls *tls = context;

    char words[TLS_WHY_BYTES];

    if (tls->state >= TLS_FAILED) {
        return;
    }
    if (tls->state == TLS_HANDSHAKE) {
        snprintf(words, sizeof(words), "%.300s during the TLS handshake; does this port speak TLS (the server's "
                 "tls-port), and does the server demand a client certificate?", why);
        refuse(tls, error, words);
        return;
    }
    if (tls->refused && tls->state == TLS_CONNECTING) {
        explain(tls, error, "TLS with %.100s: %.640s", tls->address->text, why);
    } else {
        explain(tls, error, "%s", why);
    }
    report(tls);
}

static const struct transport_events below_events = {
    .connected = on_connected,
    .readable = on_readable,
    .writable = on_writable,
    .closed = on_closed,
};

/* --- the way to a connection --- */

static void on_loaded(void *owner, SSL_CTX *context, const char *why)
{
    struct tls *tls = owner;

    tls->load = NULL;
    if (context == NULL) {
        explain(tls, -EINVAL, "TLS with %.100s: %.400s", tls->address->text, why);
        report(tls);
        return;
    }
    uv_timer_stop(&tls->timer); /* from here to the handshake the transport below has the time */
    tls->files = context;
    tls->state = TLS_CONNECTING;
    tls->error = transport_tcp.open(tls->loop, tls->offload, tls->address, tls->settings, &below_events, tls,
                                    &tls->below, tls->why);
    if (tls->error != 0) {
        report(tls);
    }
}

static void on_timeout(uv_timer_t *timer)
{
    struct tls *tls = timer->data;
    char why[160];

    if (tls->state == TLS_HANDSHAKE) {
        snprintf(why, sizeof(why),
                 "the server did not finish the handshake (does this port speak TLS? see its tls-port) in its share of "
                 "connect_timeout_ms = %u ms", tls->settings->connect_timeout_ms);
        refuse(tls, -ETIMEDOUT, why);
        return;
    }
    explain(tls, -ETIMEDOUT, "TLS with %.100s: the certificate files were not read within connect_timeout_ms = %u ms",
            tls->address->text, tls->settings->connect_timeout_ms);
    report(tls);
}

static int tls_open(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                    const struct transport_settings *settings, const struct transport_events *events, void *context,
                    struct transport **transport, char why[TRANSPORT_WHY_BYTES])
{
    struct tls *tls = calloc(1, sizeof(*tls));

    *transport = NULL;
    if (tls != NULL) {
        tls->load = tls_load_start(settings->tls, offload, on_loaded, tls);
    }
    if (tls == NULL || tls->load == NULL) {
        free(tls);
        snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    tls->base.class = &transport_tls;
    tls->loop = loop;
    tls->offload = offload;
    tls->address = address;
    tls->settings = settings;
    tls->events = events;
    tls->context = context;
    uv_timer_init(loop, &tls->timer);
    tls->timer.data = tls;
    uv_timer_start(&tls->timer, on_timeout, settings->connect_timeout_ms, 0);
    *transport = &tls->base;
    return 0;
}

static void free_tls(uv_handle_t *handle)
{
    free(handle->data);
}

/* The end is told to the server as far as there is room for the words. */
static void say_goodbye(struct tls *tls)
{
    ERR_clear_error();
    if (tls->ssl != NULL && SSL_is_init_finished(tls->ssl) && !waits(tls)) {
        SSL_shutdown(tls->ssl);
        flush(tls);
    }
    ERR_clear_error();
}

static void tls_close(struct transport *transport)
{
    struct tls *tls = tls_of(transport);

    tls->state = TLS_CLOSED;
    if (tls->load != NULL) {
        tls_load_cancel(tls->load);
    }
    if (tls->below != NULL) {
        say_goodbye(tls);
        tls->below->class->close(tls->below);
    }
    SSL_free(tls->ssl);
    BIO_meth_free(tls->method);
    SSL_CTX_free(tls->files);
    uv_close((uv_handle_t *)&tls->timer, free_tls);
}

/* --- bytes --- */

static ssize_t read_failed(struct tls *tls, int error)
{
    if (tls->below_failed) {
        return -ECONNRESET; /* told from below */
    }
    if (error == SSL_ERROR_ZERO_RETURN) {
        explain(tls, -ECONNRESET, "%.160s closed the connection", tls->address->text);
    } else {
        explain_failure(tls);
    }
    ERR_clear_error();
    return fail_later(tls);
}

static ssize_t tls_read(struct transport *transport, void *buffer, size_t capacity)
{
    struct tls *tls = tls_of(transport);
    int length, error;

    if (tls->state != TLS_OPEN) {
        return tls->state < TLS_OPEN ? 0 : tls->error;
    }
    do {
        ERR_clear_error();
        length = SSL_read(tls->ssl, buffer, capacity < INT_MAX ? (int)capacity : INT_MAX);
        error = length > 0 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, length);
    } while (error == SSL_ERROR_WANT_READ && !tls->below_empty);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        ssize_t status = read_failed(tls, error);
        flush(tls); /* an alert */
        return status;
    }
    tls->held_read = error == SSL_ERROR_WANT_WRITE;
    flush(tls); /* what OpenSSL had to say, such as new keys */
    return length > 0 ? length : 0;
}

/* Encrypts and gives away one record. Plain bytes that may have left; negative: none. */
static ssize_t write_record(struct tls *tls, const char *bytes, size_t length)
{
    int taken, status;

    ERR_clear_error();
    taken = SSL_write(tls->ssl, bytes, (int)(length < RECORD_BYTES ? length : RECORD_BYTES));
    if (taken <= 0) {
        explain_failure(tls);
        ERR_clear_error();
        return fail_later(tls);
    }
    status = flush(tls);
    return status == 0 || tls->out_sent > 0 ? taken : status;
}

static ssize_t tls_write(struct transport *transport, const void *bytes, size_t length)
{
    struct tls *tls = tls_of(transport);
    size_t done = 0;
    int status;

    if (tls->state != TLS_OPEN) {
        return tls->state < TLS_OPEN ? -ENOTCONN : tls->error;
    }
    status = flush(tls);
    while (status == 0 && done < length && !waits(tls)) {
        ssize_t taken = write_record(tls, (const char *)bytes + done, length - done);
        if (taken < 0) {
            return done > 0 ? (ssize_t)done : taken;
        }
        done += (size_t)taken;
    }
    tls->want_write |= done < length;
    return status == 0 || done > 0 ? (ssize_t)done : status;
}

static void tls_hold(struct transport *transport, bool held)
{
    struct tls *tls = tls_of(transport);

    if (tls->below != NULL) {
        tls->below->class->hold(tls->below, held);
    }
}

static int tls_local_address(const struct transport *transport, char *text, size_t size)
{
    const struct tls *tls = (const struct tls *)transport;

    return tls->below != NULL ? tls->below->class->local_address(tls->below, text, size) : -ENOTCONN;
}

const struct transport_class transport_tls = {
    .name = "tls",
    .open = tls_open,
    .read = tls_read,
    .write = tls_write,
    .hold = tls_hold,
    .local_address = tls_local_address,
    .close = tls_close,
};
