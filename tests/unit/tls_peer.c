#include "tests/unit/tls_peer.h"

#include <check.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tls_peer tls_peer = {.piece = SIZE_MAX, .room = SIZE_MAX};

struct below {
    struct transport base;
    const struct transport_events *events;
    void *context;
    bool connected, want_write, told;
    int refused;     /* error: the end follows */
    char why[TRANSPORT_WHY_BYTES];
};

static struct below *below;
static SSL_CTX *server;

static X509 *sign(EVP_PKEY *key, const char *names)
{
    X509 *made = X509_new();
    X509_NAME *name = X509_get_subject_name(made);
    X509V3_CTX extensions;
    X509_EXTENSION *extension;

    X509_set_version(made, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"peer", -1, -1, 0);
    X509_set_issuer_name(made, name);
    X509V3_set_ctx(&extensions, made, made, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &extensions, NID_subject_alt_name, names);
    ck_assert_ptr_nonnull(extension);
    X509_add_ext(made, extension, -1);
    X509_EXTENSION_free(extension);
    ck_assert_int_gt(X509_sign(made, key, EVP_sha256()), 0);
    return made;
}

void tls_peer_start(const char *ca_path, const char *names, int version)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = sign(key, names);
    FILE *file = fopen(ca_path, "w");

    ck_assert_ptr_nonnull(file);
    PEM_write_X509(file, certificate);
    fclose(file);
    memset(&tls_peer, 0, sizeof(tls_peer));
    tls_peer.piece = SIZE_MAX;
    tls_peer.room = SIZE_MAX;
    server = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_max_proto_version(server, version);
    ck_assert_int_eq(SSL_CTX_use_certificate(server, certificate), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey(server, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

void tls_peer_stop(void)
{
    SSL_free(tls_peer.ssl);
    SSL_CTX_free(server);
    tls_peer.ssl = NULL;
}

static bool work(void)
{
    size_t before = tls_peer.plain_length;
    int length;

    if (tls_peer.silent) {
        return false;
    }
    while ((length = SSL_read(tls_peer.ssl, tls_peer.plain + tls_peer.plain_length,
                              (int)(sizeof(tls_peer.plain) - tls_peer.plain_length))) > 0) {
        tls_peer.plain_length += (size_t)length;
    }
    ERR_clear_error();
    if (tls_peer.early != NULL && SSL_is_init_finished(tls_peer.ssl)) {
        tls_peer_say(tls_peer.early, strlen(tls_peer.early));
        tls_peer.early = NULL;
    }
    return tls_peer.plain_length > before;
}

static bool something_comes(void)
{
    return BIO_ctrl_pending(SSL_get_wbio(tls_peer.ssl)) > 0;
}

bool tls_peer_turn(void)
{
    bool happened = false;

    if (below == NULL) {
        return false;
    }
    if (below->refused != 0) {
        below->events->closed(below->context, below->refused, below->why);
        return true;
    }
    if (!below->connected) {
        below->connected = true;
        below->events->connected(below->context);
        return true;
    }
    happened = work();
    if (below != NULL && below->want_write && tls_peer.room > 0 && tls_peer.piece > 0) {
        below->want_write = false;
        below->events->writable(below->context);
        happened = true;
    }
    if (below != NULL && (something_comes() || (tls_peer.ends && !below->told))) {
        below->events->readable(below->context);
        happened = true;
    }
    if (below != NULL && below->told) {
        below->events->closed(below->context, -ECONNRESET, "the other side is gone");
        happened = true;
    }
    return happened;
}

void tls_peer_say(const void *bytes, size_t length)
{
    ck_assert_int_eq(SSL_write(tls_peer.ssl, bytes, (int)length), (int)length);
}

/* --- the transport --- */

static void begin_server(void)
{
    SSL_free(tls_peer.ssl);
    tls_peer.ssl = SSL_new(server);
    SSL_set_bio(tls_peer.ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(tls_peer.ssl);
}

static void below_refuse(struct transport *transport, int error, const char *why)
{
    tls_peer.refusals++;
    below->told = below->want_write = false;
    snprintf(below->why, sizeof(below->why), "%s", why);
    if (tls_peer.addresses == 0) {
        below->refused = error;
        return;
    }
    tls_peer.addresses--;
    tls_peer.silent = tls_peer.ends = false;
    tls_peer.attempt_ends = 0;
    below->connected = false;
    begin_server();
}

static uint64_t below_attempt_ends(const struct transport *transport)
{
    return tls_peer.attempt_ends > 0 ? tls_peer.attempt_ends : UINT64_MAX;
}

static int below_open(uv_loop_t *loop, struct offload *offload, const struct transport_address *address,
                      const struct transport_settings *settings, const struct transport_events *events, void *context,
                      struct transport **transport, char why[TRANSPORT_WHY_BYTES])
{
    below = calloc(1, sizeof(*below));
    below->base.class = &transport_tcp;
    below->events = events;
    below->context = context;
    begin_server();
    *transport = &below->base;
    return 0;
}

static ssize_t below_read(struct transport *transport, void *buffer, size_t capacity)
{
    size_t length = capacity < tls_peer.piece ? capacity : tls_peer.piece;
    int got;

    if (below->told) {
        return -ECONNRESET;
    }
    got = length > 0 && something_comes() ? BIO_read(SSL_get_wbio(tls_peer.ssl), buffer, (int)length) : 0;
    if (got <= 0 && tls_peer.ends) {
        below->told = true;
        return -ECONNRESET;
    }
    return got > 0 ? got : 0;
}

static ssize_t below_write(struct transport *transport, const void *bytes, size_t length)
{
    size_t taken = length < tls_peer.piece ? length : tls_peer.piece;

    if (tls_peer.write_fails) {
        return -EPIPE;
    }
    taken = taken < tls_peer.room ? taken : tls_peer.room;
    tls_peer.room -= tls_peer.room == SIZE_MAX ? 0 : taken;
    below->want_write |= taken < length;
    tls_peer.from_daemon += taken;
    BIO_write(SSL_get_rbio(tls_peer.ssl), bytes, (int)taken);
    return (ssize_t)taken;
}

static int below_local_address(const struct transport *transport, char *text, size_t size)
{
    snprintf(text, size, "192.0.2.1");
    return 0;
}

static void below_close(struct transport *transport)
{
    tls_peer.closes++;
    free(below);
    below = NULL;
    work(); /* what was said at the end */
}

const struct transport_class transport_tcp = {
    .name = "tcp",
    .open = below_open,
    .read = below_read,
    .write = below_write,
    .local_address = below_local_address,
    .refuse = below_refuse,
    .attempt_ends = below_attempt_ends,
    .close = below_close,
};

const struct transport_class transport_unix = {.name = "unix"};
