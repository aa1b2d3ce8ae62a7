/*
 * The store and its loads. A worker gets a context of its own reference and the print of the files it was made of, and
 * hands back the same or a new one; only the loop's thread touches the store.
 */
#include "daemon/valkey/tls_context.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/tls_files.h"

/* Enough for the numbers of a few keys: the old and the new one, and of connections being made. */
#define SECURE_HEAP_BYTES (128 * 1024)
#define SECURE_HEAP_SMALLEST 64

struct tls_store {
    struct tls_settings settings;
    unsigned references;
    bool prepared;    /* OpenSSL's memory, for a key */
    SSL_CTX *context; /* NULL: none read yet */
    uint64_t print;   /* of the files it was made of */
};

struct tls_load {
    struct offload_job job;
    struct tls_store *store; /* a reference */
    tls_load_done done;      /* NULL: cancelled */
    void *owner;
    SSL_CTX *context; /* before and after */
    uint64_t print;
    bool read_again;
    char why[TLS_WHY_BYTES];
};

static char *copy(const char *text, bool *failed)
{
    char *copied = text != NULL ? strdup(text) : NULL;

    *failed |= text != NULL && copied == NULL;
    return copied;
}

/* What OpenSSL gives back is wiped: reading a key leaves copies behind. */
static void wipe_and_free(void *memory, const char *file, int line)
{
    if (memory != NULL) {
        explicit_bzero(memory, malloc_usable_size(memory));
        free(memory);
    }
}

static void *allocate(size_t length, const char *file, int line)
{
    return malloc(length);
}

/* One that moves must not leave its old place as it was. */
static void *reallocate(void *memory, size_t length, const char *file, int line)
{
    size_t before = memory != NULL ? malloc_usable_size(memory) : 0;
    void *moved = malloc(length);

    if (moved != NULL && memory != NULL) {
        memcpy(moved, memory, before < length ? before : length);
        wipe_and_free(memory, file, line);
    }
    return moved;
}

/*
 * OpenSSL has one allocator and one secure heap for the whole process. Both are set when the first key is about to be
 * read: the allocator only if nothing else has used OpenSSL before, the heap only with the right to lock memory.
 */
static void prepare_for_keys(struct tls_store *store)
{
    if (store->prepared || CRYPTO_secure_malloc_initialized() != 0) {
        return;
    }
    store->prepared = true;
    CRYPTO_set_mem_functions(allocate, reallocate, wipe_and_free);
    if (CRYPTO_secure_malloc_init(SECURE_HEAP_BYTES, SECURE_HEAP_SMALLEST) != 1) {
        log_notice("TLS: no locked memory for the private key (see LimitMEMLOCK=)");
    }
}

struct tls_store *tls_store_create(const struct tls_settings *settings)
{
    struct tls_store *store = calloc(1, sizeof(*store));
    bool failed = false;

    if (store == NULL) {
        return NULL;
    }
    store->references = 1;
    store->settings.enabled = settings->enabled;
    store->settings.ca = copy(settings->ca, &failed);
    store->settings.certificate = copy(settings->certificate, &failed);
    store->settings.key = copy(settings->key, &failed);
    store->settings.server_name = copy(settings->server_name, &failed);
    if (failed) {
        tls_store_unref(store);
        return NULL;
    }
    return store;
}

void tls_store_unref(struct tls_store *store)
{
    if (store == NULL || --store->references > 0) {
        return;
    }
    SSL_CTX_free(store->context);
    free(store->settings.ca);
    free(store->settings.certificate);
    free(store->settings.key);
    free(store->settings.server_name);
    free(store);
}

const char *tls_store_server_name(const struct tls_store *store)
{
    return store->settings.server_name;
}

static void run_load(struct offload_job *job)
{
    struct tls_load *load = (struct tls_load *)job;
    uint64_t print = tls_files_print(&load->store->settings);

    if (load->context != NULL && print == load->print) {
        return;
    }
    load->read_again = load->context != NULL;
    SSL_CTX_free(load->context);
    load->print = print;
    load->context = tls_files_read(&load->store->settings, load->why);
}

/* Files may change between the look and the reading: then the print is the older one, and the next look differs. */
static void keep(struct tls_store *store, const struct tls_load *load)
{
    if (load->context == NULL || load->context == store->context) {
        return;
    }
    if (load->read_again) {
        log_notice("TLS: the certificate files have changed and were read again");
    }
    SSL_CTX_up_ref(load->context);
    SSL_CTX_free(store->context);
    store->context = load->context;
    store->print = load->print;
}

static void load_done(struct offload_job *job)
{
    struct tls_load *load = (struct tls_load *)job;
    tls_load_done done = load->done;

    keep(load->store, load);
    if (done == NULL) {
        SSL_CTX_free(load->context);
    } else {
        done(load->owner, load->context, load->why);
    }
    tls_store_unref(load->store);
    free(load);
}

struct tls_load *tls_load_start(struct tls_store *store, struct offload *offload, tls_load_done done, void *owner)
{
    struct tls_load *load = calloc(1, sizeof(*load));

    if (load == NULL) {
        return NULL;
    }
    if (store->settings.key != NULL) {
        prepare_for_keys(store);
    }
    store->references++;
    load->store = store;
    load->done = done;
    load->owner = owner;
    load->context = store->context;
    load->print = store->print;
    if (load->context != NULL) {
        SSL_CTX_up_ref(load->context);
    }
    offload_submit(offload, &load->job, run_load, load_done);
    return load;
}

void tls_load_cancel(struct tls_load *load)
{
    load->done = NULL;
}
