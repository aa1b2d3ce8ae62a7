#include "daemon/valkey/tls_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/regular_file.h"

#define FILE_BYTES (8 * 1024 * 1024) /* a bundle of authorities has 200 KiB */

/* --- has something changed? --- */

/* FNV-1a, which is enough for "differs". */
static void mix(uint64_t *print, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < length; i++) {
        *print = (*print ^ at[i]) * UINT64_C(0x100000001B3);
    }
}

static void mix_status(uint64_t *print, int folder, const char *path)
{
    struct stat status = {0};
    int error = fstatat(folder, path, &status, 0) != 0 ? errno : 0;

    mix(print, &error, sizeof(error));
    mix(print, &status.st_dev, sizeof(status.st_dev));
    mix(print, &status.st_ino, sizeof(status.st_ino));
    mix(print, &status.st_size, sizeof(status.st_size));
    mix(print, &status.st_mtim, sizeof(status.st_mtim));
    mix(print, &status.st_ctim, sizeof(status.st_ctim));
}

static void mix_path(uint64_t *print, const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    mix_status(print, AT_FDCWD, path);
    if (folder == NULL) {
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            mix_status(print, dirfd(folder), entry->d_name);
        }
    }
    closedir(folder);
}

/* The environment variables are OpenSSL's own. */
static const char *system_path(const char *variable, const char *otherwise)
{
    const char *path = getenv(variable);

    return path != NULL ? path : otherwise;
}

static const char *system_file(void)
{
    return system_path(X509_get_default_cert_file_env(), X509_get_default_cert_file());
}

static const char *system_folder(void)
{
    return system_path(X509_get_default_cert_dir_env(), X509_get_default_cert_dir());
}

uint64_t tls_files_print(const struct tls_settings *settings)
{
    uint64_t print = UINT64_C(0xCBF29CE484222325);

    if (settings->ca != NULL) {
        mix_path(&print, settings->ca);
    } else {
        mix_path(&print, system_file());
        mix_path(&print, system_folder());
    }
    if (settings->certificate != NULL) {
        mix_path(&print, settings->certificate);
        mix_path(&print, settings->key);
    }
    return print;
}

/* --- reading --- */

__attribute__((format(printf, 2, 3))) static int refuse(char why[TLS_WHY_BYTES], const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, TLS_WHY_BYTES, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* A file in memory, with its length; wiped when given back, since it may hold a key. */
struct content {
    char *bytes;
    size_t length, capacity;
};

static void forget_content(struct content *content)
{
    if (content->bytes != NULL) {
        explicit_bzero(content->bytes, content->capacity);
    }
    free(content->bytes);
    *content = (struct content){0};
}

static int read_all(int fd, off_t size, struct content *content)
{
    if (size > FILE_BYTES) {
        return -EFBIG;
    }
    content->capacity = (size_t)size + 1;
    content->bytes = malloc(content->capacity);
    if (content->bytes == NULL) {
        return -ENOMEM;
    }
    while (content->length < content->capacity) {
        ssize_t got = read(fd, content->bytes + content->length, content->capacity - content->length);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        content->length += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static int read_content(int folder, const char *path, struct content *content)
{
    struct stat file;
    int fd = regular_file_open(folder, path, &file), status;

    if (fd < 0) {
        return fd;
    }
    status = read_all(fd, file.st_size, content);
    close(fd);
    if (status != 0) {
        forget_content(content);
    }
    return status;
}

/* --- authorities --- */

/* How many certificates of a PEM file were taken; what else is in it is left alone. */
static unsigned add_authorities(X509_STORE *store, const struct content *content)
{
    BIO *bio = BIO_new_mem_buf(content->bytes, (int)content->length);
    unsigned count = 0;
    X509 *certificate;

    while (bio != NULL && (certificate = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)) != NULL) {
        count += X509_STORE_add_cert(store, certificate) == 1 ? 1 : 0;
        X509_free(certificate);
    }
    BIO_free(bio);
    ERR_clear_error();
    return count;
}

static int add_file(X509_STORE *store, int folder, const char *path, unsigned *count)
{
    struct content content = {0};
    int status = read_content(folder, path, &content);

    if (status == 0) {
        *count += add_authorities(store, &content);
        forget_content(&content);
    }
    return status;
}

/* Every file of a folder that holds certificates; links to the same one by its hash do no harm. */
static int add_folder(X509_STORE *store, const char *path, unsigned *count)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    if (folder == NULL) {
        return -errno;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            add_file(store, dirfd(folder), entry->d_name, count);
        }
    }
    closedir(folder);
    return 0;
}

static int add_path(X509_STORE *store, const char *path, unsigned *count)
{
    int status = add_file(store, AT_FDCWD, path, count);

    return status == -EISDIR ? add_folder(store, path, count) : status;
}

static int read_authorities(SSL_CTX *context, const struct tls_settings *settings, char why[TLS_WHY_BYTES])
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    unsigned count = 0;
    int status;

    if (settings->ca == NULL) {
        add_path(store, system_file(), &count);
        if (count == 0) {
            add_path(store, system_folder(), &count);
        }
        if (count == 0) {
            return refuse(why, "the system has no certificate authorities (%.100s, %.100s): set [valkey] tls_ca to the "
                          "certificate of the one that signed the server's", system_file(), system_folder());
        }
        return 0;
    }
    status = add_path(store, settings->ca, &count);
    if (status != 0) {
        return refuse(why, "cannot read tls_ca %.200s: %s", settings->ca, regular_file_error(status));
    }
    if (count == 0) {
        return refuse(why, "tls_ca %.200s holds no certificate: expected PEM, -----BEGIN CERTIFICATE-----",
                      settings->ca);
    }
    return 0;
}

/* --- our own certificate --- */

static int take_chain(SSL_CTX *context, BIO *bio)
{
    X509 *certificate = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
    int taken = certificate != NULL ? SSL_CTX_use_certificate(context, certificate) : 0;

    X509_free(certificate);
    while (taken == 1 && (certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
        taken = (int)SSL_CTX_add0_chain_cert(context, certificate);
        if (taken != 1) {
            X509_free(certificate);
        }
    }
    return taken;
}


/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *buffer, int size, int writing, void *asked)
{
    *(bool *)asked = true;
    return -1;
}

static int take_key(SSL_CTX *context, BIO *bio, bool *encrypted)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, encrypted);
    int taken = key != NULL ? SSL_CTX_use_PrivateKey(context, key) : 0;

    EVP_PKEY_free(key);
    return taken;
}

static int read_certificate(SSL_CTX *context, const char *path, char why[TLS_WHY_BYTES])
{
    struct content content = {0};
    int status = read_content(AT_FDCWD, path, &content), taken;
    BIO *bio;

    if (status != 0) {
        return refuse(why, "cannot read tls_certificate %.200s: %s", path, regular_file_error(status));
    }
    bio = BIO_new_mem_buf(content.bytes, (int)content.length);
    taken = bio != NULL ? take_chain(context, bio) : 0;
    BIO_free(bio);
    forget_content(&content);
    if (taken != 1) {
        return refuse(why, "tls_certificate %.200s holds no certificate that can be used: expected PEM, first our own, "
                      "then those between it and the authority", path);
    }
    return 0;
}

static int read_key(SSL_CTX *context, const struct tls_settings *settings, char why[TLS_WHY_BYTES])
{
    struct content content = {0};
    bool encrypted = false;
    int status = read_content(AT_FDCWD, settings->key, &content), taken;
    BIO *bio;

    if (status != 0) {
        return refuse(why, "cannot read tls_key %.200s: %s", settings->key, regular_file_error(status));
    }
    bio = BIO_new_mem_buf(content.bytes, (int)content.length);
    taken = bio != NULL ? take_key(context, bio, &encrypted) : 0;
    BIO_free(bio);
    forget_content(&content);
    if (encrypted) {
        return refuse(why, "tls_key %.200s needs a passphrase, and nobody is there to enter it: store it without one, "
                      "readable for the daemon only", settings->key);
    }
    if (taken != 1 || SSL_CTX_check_private_key(context) != 1) {
        return refuse(why, "tls_key %.160s is no private key in PEM that belongs to tls_certificate %.160s",
                      settings->key, settings->certificate);
    }
    return 0;
}

/* --- the context --- */

static void set_rules(SSL_CTX *context)
{
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    /* Each connection makes its own handshake: tickets are received and forgotten. */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_AUTO_RETRY | SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1); /* one system call for many small records */
}

static int read_files(SSL_CTX *context, const struct tls_settings *settings, char why[TLS_WHY_BYTES])
{
    int status = read_authorities(context, settings, why);

    if (status == 0 && settings->certificate != NULL) {
        status = read_certificate(context, settings->certificate, why);
        if (status == 0) {
            status = read_key(context, settings, why);
        }
    }
    return status;
}

SSL_CTX *tls_files_read(const struct tls_settings *settings, char why[TLS_WHY_BYTES])
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());

    if (context == NULL) {
        refuse(why, "OpenSSL makes no context: out of memory, or its configuration file is wrong");
        ERR_clear_error();
        return NULL;
    }
    set_rules(context);
    if (read_files(context, settings, why) != 0) {
        SSL_CTX_free(context);
        context = NULL;
    }
    ERR_clear_error(); /* each thread has a queue of its own */
    return context;
}
