#include "tests/unit/fake_rdma.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_WINDOW (1024 * 1024)

struct fake_rdma_message {
    bool is_write;
    uint8_t bytes[RDMA_CONTROL_BYTES];
    size_t offset, length;
    uint64_t address, token;
    uint32_t rkey;
};

struct fake_rdma_knobs fake_rdma_knobs;
void (*fake_rdma_hook)(struct rdma_queue_pair *pair);
void (*fake_rdma_before_open)(const char *host);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, rdma_queue_pair) pairs = LIST_HEAD_INITIALIZER(pairs);
static unsigned opened, open_now;

/* Room for one more element. */
static void grow(void *array, size_t count, size_t *capacity, size_t size)
{
    void **memory = array;

    if (count == *capacity) {
        *capacity = *capacity == 0 ? 64 : *capacity * 2;
        *memory = realloc(*memory, *capacity * size);
        FAKE_CHECK(*memory != NULL, "no memory");
    }
}

/* Takes the first `count` messages away. */
static void drop_first(struct fake_rdma_message *messages, size_t *length, size_t count)
{
    if (count > 0) {
        *length -= count;
        memmove(messages, messages + count, *length * sizeof(*messages));
    }
}

static void append(uint8_t **bytes, size_t *length, size_t *capacity, const void *more, size_t more_length)
{
    while (*length + more_length > *capacity) {
        *capacity = *capacity == 0 ? 65536 : *capacity * 2;
        *bytes = realloc(*bytes, *capacity);
        FAKE_CHECK(*bytes != NULL, "no memory");
    }
    memcpy(*bytes + *length, more, more_length);
    *length += more_length;
}

/* --- events --- */

static void add_event(struct rdma_queue_pair *pair, const struct rdma_event *event)
{
    bool of_the_connection =
        event->kind == RDMA_CONNECTED || event->kind == RDMA_REFUSED || event->kind == RDMA_DISCONNECTED;
    uint64_t one = 1;

    if (pair->over) {
        return;
    }
    pair->over = event->kind == RDMA_REFUSED || event->kind == RDMA_DISCONNECTED || event->kind == RDMA_FAILED;
    grow(&pair->events, pair->event_count, &pair->event_capacity, sizeof(*pair->events));
    pair->events[pair->event_count++] = *event;
    if (pair->armed) {
        pair->armed = false;
        FAKE_CHECK(write(pair->descriptors[of_the_connection ? 1 : 0], &one, sizeof(one)) == sizeof(one), "%d", errno);
    }
}

static size_t fake_poll(struct rdma_queue_pair *pair, struct rdma_event *events, size_t capacity)
{
    size_t count = 0;

    while (count < capacity && pair->event_first < pair->event_count) {
        events[count] = pair->events[pair->event_first++];
        pair->under_way -= events[count].kind == RDMA_SENT ? 1 : 0;
        pair->receives += events[count].kind == RDMA_MESSAGE || events[count].kind == RDMA_PAYLOAD ? 1 : 0;
        count++;
    }
    if (pair->event_first == pair->event_count) {
        pair->event_first = 0;
        pair->event_count = 0;
    }
    return count;
}

static int fake_try_wait(struct rdma_queue_pair *pair)
{
    uint64_t count;

    if (pair->event_count > 0) {
        return -EAGAIN;
    }
    for (int i = 0; i < 2; i++) {
        FAKE_CHECK(read(pair->descriptors[i], &count, sizeof(count)) > 0 || errno == EAGAIN, "%d", errno);
    }
    pair->armed = true;
    return 0;
}

static int fake_descriptors(const struct rdma_queue_pair *pair, int descriptors[2])
{
    descriptors[0] = pair->descriptors[0];
    descriptors[1] = pair->descriptors[1];
    return 2;
}

/* --- life --- */

static int fake_open(const struct rdma_settings *settings, struct rdma_queue_pair **opened_pair,
                     struct rdma_memory *memory, char why[RDMA_WHY_BYTES])
{
    struct rdma_queue_pair *pair;

    if (fake_rdma_before_open != NULL) {
        fake_rdma_before_open(settings->host);
    }
    pthread_mutex_lock(&lock);
    if (fake_rdma_knobs.open_error != 0) {
        pthread_mutex_unlock(&lock);
        snprintf(why, RDMA_WHY_BYTES, "no device has a route to %s", settings->host);
        return fake_rdma_knobs.open_error;
    }
    pair = calloc(1, sizeof(*pair));
    ck_assert_ptr_nonnull(pair);
    pair->number = ++opened;
    pair->knobs = fake_rdma_knobs;
    pair->settings = *settings;
    snprintf(pair->host, sizeof(pair->host), "%s", settings->host);
    pair->window = malloc(settings->window_bytes);
    pair->staging = malloc(settings->staging_bytes);
    memset(pair->window, 'w', settings->window_bytes);
    memset(pair->staging, 's', settings->staging_bytes);
    for (int i = 0; i < 2; i++) {
        pair->descriptors[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        ck_assert_int_ge(pair->descriptors[i], 0);
    }
    pair->receives = RDMA_RECEIVES;
    pair->peer.receives = RDMA_RECEIVES;
    pair->peer.random = pair->number * 2654435761U + 12345;
    *memory = (struct rdma_memory){
        .window = pair->window,
        .window_address = (uint64_t)(uintptr_t)pair->window,
        .window_rkey = 0x1000 + pair->number,
        .staging = pair->staging,
        .pinned_bytes = pair->knobs.pinned != 0 ? pair->knobs.pinned
                                                : settings->window_bytes + settings->staging_bytes,
    };
    LIST_INSERT_HEAD(&pairs, pair, link);
    open_now++;
    pthread_mutex_unlock(&lock);
    *opened_pair = pair;
    return 0;
}

static void fake_close(struct rdma_queue_pair *pair)
{
    pthread_mutex_lock(&lock);
    LIST_REMOVE(pair, link);
    open_now--;
    pthread_mutex_unlock(&lock);
    close(pair->descriptors[0]);
    close(pair->descriptors[1]);
    free(pair->window);
    free(pair->staging);
    free(pair->events);
    free(pair->held);
    free(pair->posted);
    free(pair->unseen);
    free(pair->peer.window);
    free(pair->peer.got);
    free(pair->peer.say);
    free(pair);
}

static int fake_connect(struct rdma_queue_pair *pair)
{
    pair->connecting = true;
    return 0;
}

/* Also on a worker, while the test's thread plays the servers' turns. */
static void fake_disconnect(struct rdma_queue_pair *pair)
{
    pthread_mutex_lock(&lock);
    fake_rdma_disconnect(pair);
    pthread_mutex_unlock(&lock);
}

static int fake_local_address(const struct rdma_queue_pair *pair, char *text, size_t size)
{
    snprintf(text, size, "192.0.2.7");
    return pair->knobs.local_address_error;
}

static void fake_version(char *text, size_t size)
{
    snprintf(text, size, "2.1");
}

static const char *fake_text(int error)
{
    return strerror(-error);
}

/* --- what the client posts --- */

static int post(struct rdma_queue_pair *pair, const struct fake_rdma_message *message)
{
    if (pair->over) {
        return -ENOTCONN;
    }
    FAKE_CHECK(pair->connected, "posted too early");
    if (pair->under_way == pair->settings.sends) {
        return -EAGAIN;
    }
    pair->under_way++;
    grow(&pair->posted, pair->posted_count, &pair->posted_capacity, sizeof(*pair->posted));
    pair->posted[pair->posted_count++] = *message;
    return 0;
}

static int fake_send(struct rdma_queue_pair *pair, const uint8_t bytes[RDMA_CONTROL_BYTES], uint64_t token)
{
    struct fake_rdma_message message = {.token = token, .length = RDMA_CONTROL_BYTES};

    memcpy(message.bytes, bytes, RDMA_CONTROL_BYTES);
    return post(pair, &message);
}

static int fake_write(struct rdma_queue_pair *pair, size_t offset, size_t length, uint64_t address, uint32_t rkey,
                      uint64_t token)
{
    struct fake_rdma_message message = {
        .is_write = true, .offset = offset, .length = length, .address = address, .rkey = rkey, .token = token};

    FAKE_CHECK(length > 0 && offset <= pair->settings.staging_bytes && length <= pair->settings.staging_bytes - offset,
               "%zu bytes at %zu of %zu", length, offset, pair->settings.staging_bytes);
    return post(pair, &message);
}

const struct rdma_ops fake_rdma_ops = {
    .abi = RDMA_OPS_ABI,
    .version = fake_version,
    .open = fake_open,
    .connect = fake_connect,
    .local_address = fake_local_address,
    .descriptors = fake_descriptors,
    .try_wait = fake_try_wait,
    .poll = fake_poll,
    .send = fake_send,
    .write = fake_write,
    .disconnect = fake_disconnect,
    .close = fake_close,
    .text = fake_text,
};

/* --- the server --- */

void fake_rdma_message(struct rdma_queue_pair *pair, const void *bytes, size_t length)
{
    struct rdma_event event = {.kind = RDMA_MESSAGE, .length = length};

    memcpy(event.message, bytes, length < RDMA_CONTROL_BYTES ? length : RDMA_CONTROL_BYTES);
    FAKE_CHECK(pair->receives > 0, "the client posts none again");
    pair->receives--;
    add_event(pair, &event);
}

static void say_control(struct rdma_queue_pair *pair, uint16_t opcode, uint64_t address, uint32_t length, uint32_t rkey)
{
    uint8_t bytes[RDMA_CONTROL_BYTES] = {0};

    opcode = htobe16(opcode);
    address = htobe64(address);
    length = htobe32(length);
    rkey = htobe32(rkey);
    memcpy(bytes, &opcode, 2);
    memcpy(bytes + 16, &address, 8);
    memcpy(bytes + 24, &length, 4);
    memcpy(bytes + 28, &rkey, 4);
    fake_rdma_message(pair, bytes, sizeof(bytes));
}

void fake_rdma_keepalive(struct rdma_queue_pair *pair)
{
    say_control(pair, 2, 0, 0, 0);
}

void fake_rdma_advertise_as(struct rdma_queue_pair *pair, uint64_t address, uint32_t length, uint32_t rkey)
{
    say_control(pair, 3, address, length, rkey);
}

static uint32_t next_random(struct fake_rdma_peer *peer)
{
    peer->random ^= peer->random << 13;
    peer->random ^= peer->random >> 17;
    peer->random ^= peer->random << 5;
    return peer->random;
}

void fake_rdma_advertise(struct rdma_queue_pair *pair)
{
    struct fake_rdma_peer *peer = &pair->peer;
    uint32_t most = pair->knobs.window != 0 ? pair->knobs.window : DEFAULT_WINDOW;

    if (!peer->advertised || pair->knobs.varies) {
        free(peer->window);
        peer->length = pair->knobs.varies ? 1 + next_random(peer) % most : most;
        peer->window = calloc(1, peer->length);
        FAKE_CHECK(peer->window != NULL, "no memory");
        peer->rkey = pair->knobs.varies ? next_random(peer) : 0x77;
        peer->address = pair->knobs.varies ? (uint64_t)next_random(peer) << 8 : 0x7000;
    }
    peer->advertised = true;
    peer->have = 0;
    fake_rdma_advertise_as(pair, peer->address, peer->length, peer->rkey);
}

void fake_rdma_deliver(struct rdma_queue_pair *pair, size_t most)
{
    struct fake_rdma_peer *peer = &pair->peer;
    size_t count = 0;

    for (; count < most && count < pair->posted_count && !pair->over; count++) {
        struct fake_rdma_message *message = &pair->posted[count];
        struct rdma_event sent = {.kind = RDMA_SENT, .token = message->token};

        if (peer->receives == 0) {
            fake_rdma_fail(pair, 13);
            break;
        }
        peer->receives--;
        if (message->is_write) {
            uint64_t at = message->address - peer->address;

            FAKE_CHECK(peer->advertised, "a write before a window was advertised");
            FAKE_CHECK(message->rkey == peer->rkey, "%x, not %x", message->rkey, peer->rkey);
            FAKE_CHECK(at <= peer->length && message->length <= peer->length - at, "%zu bytes at %llu of %u",
                       message->length, (unsigned long long)at, peer->length);
            memcpy(peer->window + at, pair->staging + message->offset, message->length);
        }
        grow(&pair->unseen, pair->unseen_count, &pair->unseen_capacity, sizeof(*pair->unseen));
        pair->unseen[pair->unseen_count++] = *message;
        pair->most_unseen = pair->unseen_count > pair->most_unseen ? (unsigned)pair->unseen_count : pair->most_unseen;
        if (pair->hold_sent) {
            grow(&pair->held, pair->held_count, &pair->held_capacity, sizeof(*pair->held));
            pair->held[pair->held_count++] = sent;
        } else {
            add_event(pair, &sent);
        }
    }
    drop_first(pair->posted, &pair->posted_count, count);
}

void fake_rdma_release(struct rdma_queue_pair *pair)
{
    for (size_t i = 0; i < pair->held_count; i++) {
        add_event(pair, &pair->held[i]);
    }
    pair->held_count = 0;
}

static void take_window(struct rdma_queue_pair *pair, const uint8_t *bytes)
{
    struct fake_rdma_peer *peer = &pair->peer;
    uint64_t address;
    uint32_t length, rkey;

    memcpy(&address, bytes + 16, 8);
    memcpy(&length, bytes + 24, 4);
    memcpy(&rkey, bytes + 28, 4);
    FAKE_CHECK(peer->windows == 0 || peer->to_offset == peer->to_length,
               "a window was advertised anew when %u of %u bytes were written", peer->to_offset, peer->to_length);
    peer->windows++;
    peer->to_address = be64toh(address);
    peer->to_length = be32toh(length);
    peer->to_rkey = be32toh(rkey);
    peer->to_offset = 0;
    FAKE_CHECK(peer->to_length == pair->settings.window_bytes &&
                   peer->to_address == (uint64_t)(uintptr_t)pair->window && peer->to_rkey == 0x1000 + pair->number,
               "not our window");
}

static void take_control(struct rdma_queue_pair *pair, const struct fake_rdma_message *message)
{
    uint16_t opcode;

    memcpy(&opcode, message->bytes, 2);
    switch (be16toh(opcode)) {
    case 0:
        pair->peer.features++;
        if (!pair->knobs.no_features) {
            say_control(pair, 0, 0, 0, 0);
        }
        break;
    case 2:
        pair->peer.keepalives++;
        break;
    case 3:
        take_window(pair, message->bytes);
        break;
    default:
        ck_abort_msg("opcode %u", be16toh(opcode));
    }
}

static void take_payload(struct rdma_queue_pair *pair, const struct fake_rdma_message *message)
{
    struct fake_rdma_peer *peer = &pair->peer;

    peer->payloads++;
    FAKE_CHECK(message->address - peer->address == peer->have && message->length <= peer->length - peer->have,
               "the server takes other bytes than were written");
    append(&peer->got, &peer->got_length, &peer->got_capacity, peer->window + peer->have, message->length);
    peer->have += (uint32_t)message->length;
    if (peer->have == peer->length && !pair->knobs.no_again) {
        fake_rdma_advertise(pair);
    }
}

void fake_rdma_look(struct rdma_queue_pair *pair, size_t most)
{
    size_t count = 0;

    for (; count < most && count < pair->unseen_count && !pair->over; count++) {
        const struct fake_rdma_message *message = &pair->unseen[count];

        pair->peer.receives++;
        if (message->is_write) {
            take_payload(pair, message);
        } else {
            take_control(pair, message);
        }
    }
    drop_first(pair->unseen, &pair->unseen_count, count);
}

void fake_rdma_say(struct rdma_queue_pair *pair, const void *bytes, size_t length)
{
    append(&pair->peer.say, &pair->peer.say_length, &pair->peer.say_capacity, bytes, length);
}

void fake_rdma_payload(struct rdma_queue_pair *pair, uint32_t immediate)
{
    const struct rdma_event event = {.kind = RDMA_PAYLOAD, .immediate = immediate};

    FAKE_CHECK(pair->receives > 0, "the client posts none again");
    pair->receives--;
    add_event(pair, &event);
}

void fake_rdma_write(struct rdma_queue_pair *pair, size_t most)
{
    struct fake_rdma_peer *peer = &pair->peer;

    for (size_t i = 0; i < most && !pair->over && pair->receives > 0; i++) {
        size_t length = peer->say_length - peer->said, room = peer->to_length - peer->to_offset;

        length = length < room ? length : room;
        length = pair->knobs.piece != 0 && length > pair->knobs.piece ? pair->knobs.piece : length;
        if (length == 0) {
            break;
        }
        memcpy(pair->window + peer->to_offset, peer->say + peer->said, length);
        peer->to_offset += (uint32_t)length;
        peer->said += length;
        fake_rdma_payload(pair, (uint32_t)length);
    }
}

void fake_rdma_disconnect(struct rdma_queue_pair *pair)
{
    const struct rdma_event event = {.kind = RDMA_DISCONNECTED};

    add_event(pair, &event);
}

void fake_rdma_fail_with(struct rdma_queue_pair *pair, int status, int provider_status)
{
    const struct rdma_event event = {.kind = RDMA_FAILED, .status = status, .provider_status = provider_status};

    add_event(pair, &event);
}

void fake_rdma_fail(struct rdma_queue_pair *pair, int provider_status)
{
    fake_rdma_fail_with(pair, -EIO, provider_status);
}

static void answer_connect(struct rdma_queue_pair *pair)
{
    const struct rdma_event yes = {.kind = RDMA_CONNECTED};
    const struct rdma_event no = {
        .kind = RDMA_REFUSED, .status = pair->knobs.refuse, .provider_status = pair->knobs.refuse_provider};

    pair->connecting = false;
    if (pair->knobs.refuse != 0) {
        add_event(pair, &no);
        return;
    }
    pair->connected = true;
    if (!pair->knobs.mute && pair->knobs.window_first) {
        fake_rdma_advertise(pair);
    }
    add_event(pair, &yes);
    if (!pair->knobs.mute && !pair->knobs.window_first) {
        fake_rdma_advertise(pair);
    }
}

void fake_rdma_turn(void)
{
    struct rdma_queue_pair *pair;

    pthread_mutex_lock(&lock);
    LIST_FOREACH(pair, &pairs, link)
    {
        if (pair->connecting && !pair->knobs.no_answer) {
            answer_connect(pair);
        }
        fake_rdma_deliver(pair, SIZE_MAX);
        if (!pair->asleep) {
            fake_rdma_look(pair, SIZE_MAX);
            if (fake_rdma_hook != NULL) {
                fake_rdma_hook(pair);
            }
            fake_rdma_write(pair, SIZE_MAX);
        }
    }
    pthread_mutex_unlock(&lock);
}

void fake_rdma_reset(void)
{
    ck_assert_uint_eq(open_now, 0);
    opened = 0;
    fake_rdma_knobs = (struct fake_rdma_knobs){0};
    fake_rdma_hook = NULL;
    fake_rdma_before_open = NULL;
}

static unsigned read_count(const unsigned *count)
{
    unsigned value;

    pthread_mutex_lock(&lock);
    value = *count;
    pthread_mutex_unlock(&lock);
    return value;
}

unsigned fake_rdma_open_count(void)
{
    return read_count(&open_now);
}

unsigned fake_rdma_ever(void)
{
    return read_count(&opened);
}

struct rdma_queue_pair *fake_rdma_last(void)
{
    struct rdma_queue_pair *pair;

    pthread_mutex_lock(&lock);
    pair = LIST_FIRST(&pairs);
    if (pair != NULL && pair->number != opened) {
        pair = NULL;
    }
    pthread_mutex_unlock(&lock);
    return pair;
}
