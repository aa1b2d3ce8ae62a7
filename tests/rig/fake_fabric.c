#include "tests/rig/fake_fabric.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/fake_object.h"

static const char *const names[FAKE_OPS] = {
    "domain_open", "domain_close", "endpoint_open", "endpoint_close", "endpoint_free",
    "add_peer",    "progress",     "try_wait",      "mr_open",        "mr_close",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
struct fake_object *fake_objects;
static struct {
    unsigned calls, hold, held, percent;
    int fail_after, error, random_error;
} script[FAKE_OPS];
static unsigned live[3], nic_count, jitter_us, generation;
static bool virtual_form, with_waits;
static unsigned random_state;
static uint64_t next_key, next_serial, registrations;
struct fake_surroundings fake_surroundings;
static char record[8192];
static const char *fault;
static char broken_nic[64];

static void note(const char *text)
{
    if (fault == NULL) {
        fault = text;
    }
}

void fake_reset(void)
{
    pthread_mutex_lock(&lock);
    while (fake_objects != NULL) {
        struct fake_object *object = fake_objects;
        fake_objects = object->next;
        if (object->wait_fd >= 0) {
            close(object->wait_fd);
        }
        free(object);
    }
    memset(script, 0, sizeof(script));
    memset(live, 0, sizeof(live));
    for (int i = 0; i < FAKE_OPS; i++) {
        script[i].fail_after = -1;
    }
    nic_count = 1;
    registrations = 0;
    virtual_form = false;
    with_waits = true;
    jitter_us = 0;
    record[0] = '\0';
    fault = NULL;
    broken_nic[0] = '\0';
    fake_surroundings = (struct fake_surroundings){0};
    pthread_mutex_unlock(&lock);
}

void fake_set_registrations(uint64_t count)
{
    registrations = count;
}

void fake_set_nics(unsigned count, bool virtual_addresses, bool waits)
{
    nic_count = count;
    virtual_form = virtual_addresses;
    with_waits = waits;
}

void fake_fail(enum fake_op op, unsigned skip, int error)
{
    pthread_mutex_lock(&lock);
    script[op].fail_after = (int)skip;
    script[op].error = error;
    pthread_mutex_unlock(&lock);
}

void fake_fail_randomly(enum fake_op op, unsigned percent, int error)
{
    pthread_mutex_lock(&lock);
    script[op].percent = percent;
    script[op].random_error = error;
    pthread_mutex_unlock(&lock);
}

void fake_hold(enum fake_op op, unsigned count)
{
    pthread_mutex_lock(&lock);
    script[op].hold = count;
    pthread_mutex_unlock(&lock);
}

void fake_release(enum fake_op op)
{
    pthread_mutex_lock(&lock);
    script[op].hold = 0;
    generation++;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

void fake_jitter(unsigned seed, unsigned max_us)
{
    random_state = seed * 2654435761u + 1;
    jitter_us = max_us;
}

void fake_break_nic(const char *name)
{
    pthread_mutex_lock(&lock);
    snprintf(broken_nic, sizeof(broken_nic), "%s", name);
    pthread_mutex_unlock(&lock);
}

static unsigned next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Under the lock, which is given up while the call is held or delayed: the scripted error, or 0. */
static int enter(enum fake_op op)
{
    int error = 0;

    script[op].calls++;
    if (op != FAKE_PROGRESS && op != FAKE_TRY_WAIT) {
        size_t length = strlen(record);
        snprintf(record + length, sizeof(record) - length, "%s%s", length > 0 ? " " : "", names[op]);
    }
    if (script[op].fail_after == 0) {
        error = script[op].error;
    }
    if (script[op].fail_after >= 0) {
        script[op].fail_after--;
    }
    if (script[op].percent > 0 && next_random() % 100 < script[op].percent) {
        error = script[op].random_error;
    }
    if (script[op].hold > 0) {
        unsigned seen = generation;
        script[op].hold--;
        script[op].held++;
        while (generation == seen) {
            pthread_cond_wait(&released, &lock);
        }
        script[op].held--;
    }
    if (jitter_us > 0) {
        struct timespec pause = {.tv_nsec = (long)(next_random() % jitter_us) * 1000};
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&lock);
    }
    return error;
}

bool fake_virtual_addresses(void)
{
    return virtual_form;
}

/* Without the lock: what happens at the same time in other places. */
static void calling(enum fake_op op)
{
    if (fake_surroundings.calling != NULL) {
        fake_surroundings.calling(op);
    }
}

static struct fake_object *new_object(int kind, struct fake_object *domain)
{
    struct fake_object *object = calloc(1, sizeof(*object));

    object->kind = kind;
    object->domain = domain;
    object->wait_fd = -1;
    object->next = fake_objects;
    fake_objects = object;
    live[kind]++;
    if (domain != NULL) {
        domain->children++;
    }
    return object;
}

static void end_object(struct fake_object *object)
{
    live[object->kind]--;
    if (object->domain != NULL) {
        object->domain->children--;
    }
}

static void version(char *text, size_t size)
{
    snprintf(text, size, "2.1");
}

static void providers(char *text, size_t size)
{
    snprintf(text, size, "fake");
}

static int query(const struct fabric_settings *settings, struct fabric_nic *nics, size_t capacity,
                 char why[FABRIC_WHY_BYTES])
{
    for (unsigned i = 0; i < nic_count; i++) {
        nics[i] = (struct fabric_nic){.max_message_bytes = UINT64_MAX,
                                      .registrations = registrations,
                                      .virtual_addresses = virtual_form};
        snprintf(nics[i].name, sizeof(nics[i].name), "fake%u", i);
    }
    return (int)nic_count;
}

static int domain_open(const struct fabric_settings *settings, struct fabric_domain **domain,
                       char why[FABRIC_WHY_BYTES])
{
    pthread_mutex_lock(&lock);
    int error = enter(FAKE_DOMAIN_OPEN);
    if (error == 0 && settings->nic != NULL && strcmp(settings->nic, broken_nic) == 0) {
        error = -ENODEV;
    }
    if (error == 0) {
        *domain = (struct fabric_domain *)new_object(KIND_DOMAIN, NULL);
    } else {
        snprintf(why, FABRIC_WHY_BYTES, "scripted failure of domain_open");
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int domain_close(struct fabric_domain *domain)
{
    struct fake_object *object = (struct fake_object *)domain;

    calling(FAKE_DOMAIN_CLOSE);
    pthread_mutex_lock(&lock);
    if (object->kind != KIND_DOMAIN || object->closed) {
        note("domain_close: not an open domain");
    }
    object->closed = true;
    int error = enter(FAKE_DOMAIN_CLOSE);
    if (object->children > 0) {
        note("domain_close: something in it is not closed");
    }
    end_object(object);
    pthread_mutex_unlock(&lock);
    return error;
}

static int endpoint_open(struct fabric_domain *domain, struct fabric_endpoint **endpoint,
                         uint8_t address[FABRIC_ADDRESS_BYTES], size_t *address_length, char why[FABRIC_WHY_BYTES])
{
    struct fake_object *parent = (struct fake_object *)domain;

    pthread_mutex_lock(&lock);
    if (parent->closed) {
        note("endpoint_open: domain closed");
    }
    int error = enter(FAKE_ENDPOINT_OPEN);
    if (error == 0 && fake_surroundings.one_endpoint && parent->endpoints > 0) {
        error = -EINVAL; /* tcp: a second endpoint on an address vector */
        note("endpoint_open: a second one in its domain");
    }
    if (error == 0) {
        parent->endpoints++;
        struct fake_object *object = new_object(KIND_ENDPOINT, parent);
        object->wait_fd = with_waits ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
        next_serial++;
        memcpy(object->address, &next_serial, sizeof(next_serial));
        memcpy(address, object->address, FAKE_ADDRESS_BYTES);
        *address_length = FAKE_ADDRESS_BYTES;
        *endpoint = (struct fabric_endpoint *)object;
    } else {
        snprintf(why, FABRIC_WHY_BYTES, "scripted failure of endpoint_open");
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int endpoint_close(struct fabric_endpoint *endpoint)
{
    struct fake_object *object = (struct fake_object *)endpoint;

    calling(FAKE_ENDPOINT_CLOSE);
    pthread_mutex_lock(&lock);
    if (object->kind != KIND_ENDPOINT || object->closed) {
        note("endpoint_close: not an open endpoint");
    }
    if (object->busy) {
        note("endpoint_close: its queue is being read");
    }
    object->closed = true;
    int error = enter(FAKE_ENDPOINT_CLOSE);
    object->close_failed = error < 0;
    pthread_mutex_unlock(&lock);
    if (error < 0) {
        fake_in_doubt(object);
    }
    return error;
}

static int endpoint_free(struct fabric_endpoint *endpoint)
{
    struct fake_object *object = (struct fake_object *)endpoint;

    calling(FAKE_ENDPOINT_FREE);
    pthread_mutex_lock(&lock);
    if (object->kind != KIND_ENDPOINT || !object->closed || object->freed) {
        note("endpoint_free: not a closed endpoint");
    }
    object->freed = true;
    int error = enter(FAKE_ENDPOINT_FREE);
    end_object(object);
    pthread_mutex_unlock(&lock);
    return error;
}

static int endpoint_add_peer(struct fabric_endpoint *endpoint, const uint8_t *address, size_t length)
{
    struct fake_object *object = (struct fake_object *)endpoint;

    pthread_mutex_lock(&lock);
    int error = enter(FAKE_ADD_PEER);
    if (object->closed) {
        note("endpoint_add_peer: endpoint closed");
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int endpoint_wait_fd(struct fabric_endpoint *endpoint)
{
    return ((struct fake_object *)endpoint)->wait_fd;
}

static int endpoint_progress(struct fabric_endpoint *endpoint)
{
    struct fake_object *object = (struct fake_object *)endpoint;
    uint64_t count;

    pthread_mutex_lock(&lock);
    if (object->closed || object->busy) {
        note("endpoint_progress: endpoint closed or read by another thread");
    }
    object->busy = true;
    int error = enter(FAKE_PROGRESS);
    ssize_t n = read(object->wait_fd, &count, sizeof(count));
    object->busy = false;
    pthread_mutex_unlock(&lock);
    return error < 0 ? error : n > 0 ? 1 : 0;
}

static int endpoint_try_wait(struct fabric_endpoint *endpoint)
{
    pthread_mutex_lock(&lock);
    int error = enter(FAKE_TRY_WAIT);
    pthread_mutex_unlock(&lock);
    return error;
}

static int mr_open(struct fabric_domain *domain, void *base, size_t length, unsigned access, struct fabric_mr **mr,
                   uint64_t *key)
{
    struct fake_object *parent = (struct fake_object *)domain;

    pthread_mutex_lock(&lock);
    int error = enter(FAKE_MR_OPEN);
    if (parent->closed) {
        note("mr_open: domain closed");
    }
    if (error == 0) {
        struct fake_object *object = new_object(KIND_MR, parent);
        object->key = *key = ++next_key;
        object->base = base;
        object->length = length;
        object->access = access;
        *mr = (struct fabric_mr *)object;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int mr_close(struct fabric_mr *mr)
{
    struct fake_object *object = (struct fake_object *)mr;

    calling(FAKE_MR_CLOSE);
    pthread_mutex_lock(&lock);
    if (object->kind != KIND_MR || object->closed) {
        note("mr_close: not an open registration");
    }
    if (object->domain->closed) {
        note("mr_close: domain closed before");
    }
    object->closed = true;
    int error = enter(FAKE_MR_CLOSE);
    object->close_failed = error < 0;
    end_object(object);
    pthread_mutex_unlock(&lock);
    if (error < 0) {
        fake_in_doubt(object);
    }
    return error;
}

static const char *text(int error)
{
    return strerrordesc_np(error < 0 ? -error : error);
}

const struct fabric_ops fake_ops = {
    .abi = FABRIC_OPS_ABI,
    .keep_mappings = true,
    .version = version,
    .providers = providers,
    .query = query,
    .domain_open = domain_open,
    .domain_close = domain_close,
    .endpoint_open = endpoint_open,
    .endpoint_close = endpoint_close,
    .endpoint_free = endpoint_free,
    .endpoint_add_peer = endpoint_add_peer,
    .endpoint_wait_fd = endpoint_wait_fd,
    .endpoint_progress = endpoint_progress,
    .endpoint_try_wait = endpoint_try_wait,
    .mr_open = mr_open,
    .mr_close = mr_close,
    .text = text,
};

static unsigned peek(const unsigned *value)
{
    pthread_mutex_lock(&lock);
    unsigned copy = *value;
    pthread_mutex_unlock(&lock);
    return copy;
}

unsigned fake_calls(enum fake_op op)
{
    return peek(&script[op].calls);
}

unsigned fake_held(enum fake_op op)
{
    return peek(&script[op].held);
}

unsigned fake_domains(void)
{
    return peek(&live[KIND_DOMAIN]);
}

unsigned fake_endpoints(void)
{
    return peek(&live[KIND_ENDPOINT]);
}

unsigned fake_mrs(void)
{
    return peek(&live[KIND_MR]);
}

const char *fake_log(void)
{
    static char copy[sizeof(record)];

    pthread_mutex_lock(&lock);
    memcpy(copy, record, sizeof(record));
    pthread_mutex_unlock(&lock);
    return copy;
}

void fake_log_clear(void)
{
    pthread_mutex_lock(&lock);
    record[0] = '\0';
    pthread_mutex_unlock(&lock);
}

const char *fake_fault(void)
{
    pthread_mutex_lock(&lock);
    const char *copy = fault;
    pthread_mutex_unlock(&lock);
    return copy;
}

void fake_ring(void)
{
    uint64_t one = 1;

    pthread_mutex_lock(&lock);
    for (struct fake_object *object = fake_objects; object != NULL; object = object->next) {
        if (object->kind == KIND_ENDPOINT && !object->closed && object->wait_fd >= 0 &&
            write(object->wait_fd, &one, sizeof(one)) < 0) {
            note("fake_ring");
        }
    }
    pthread_mutex_unlock(&lock);
}
