/*
 * Clients: what they send, and what they must get for it: one answer for each packet that the daemon read, each of them
 * a message the library can read, and nothing after `session.closed`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/envelope.h"
#include "proto/errors.h"
#include "tests/rig/fake_host.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/session_rig.h"

#define PACKETS 512 /* of a client that count; more are not sent */
#define FILE_BYTES (1 << 20)
#define FIRST_UID 1000

struct asked {
    int64_t id; /* 0: none could be read */
    int method; /* -1: none */
    bool answered;
};

struct client {
    bool used;
    int fd, life; /* socket; readable at the daemon's side when the process has ended */
    uint64_t session; /* 0: refused at once */
    bool reads;
    bool deaf; /* answers may be lost: it does not listen to the end */
    bool said_closed;
    unsigned sent, asked_count, unanswered;
    struct asked asked[PACKETS];
};

static struct client clients[RIG_CLIENTS];

/* --- descriptors that travel -------------------------------------------------------------------------------------- */

static struct {
    char kind;
    int fd;
} given[16];
static size_t given_count;
static int spare; /* the other end of things */

static void give(char kind, int fd)
{
    FUZZ_CHECK(fd >= 0, "descriptor of kind %c: errno %d", kind, errno);
    given[given_count].kind = kind;
    given[given_count++].fd = fd;
}

static int sparse_file(off_t bytes, int seals)
{
    int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (ftruncate(fd, bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) {
        return -1;
    }
    return fd;
}

/* With all pages, before a seal forbids it. */
static int memory_file(off_t bytes, int seals)
{
    int fd = sparse_file(bytes, 0);

    for (off_t at = 0; at < bytes; at += 4096) {
        if (pwrite(fd, "", 1, at) != 1) {
            return -1;
        }
    }
    return fcntl(fd, F_ADD_SEALS, seals) == 0 ? fd : -1;
}

static int opened_again(int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

void clients_init(void)
{
    int ends[2];

    give('m', memory_file(FILE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW));
    give('n', memory_file(FILE_BYTES + 4096, F_SEAL_SHRINK));
    give('i', memory_file(4096, F_SEAL_SHRINK));
    give('h', sparse_file(FILE_BYTES, F_SEAL_SHRINK));
    give('u', memory_file(FILE_BYTES, F_SEAL_GROW));
    give('w', memory_file(FILE_BYTES, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE));
    give('r', opened_again(given[0].fd, O_RDONLY));
    give('o', opened_again(given[0].fd, O_PATH));
    give('d', open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    give('c', open("/dev/null", O_RDWR | O_CLOEXEC));
    FUZZ_CHECK(pipe2(ends, O_CLOEXEC) == 0, "errno %d", errno);
    give('p', ends[0]);
    spare = ends[1];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "errno %d", errno);
    give('s', ends[0]);
    spare = ends[1];
}

/* How many of `kind`, and which. */
static int to_pass(char kind, int fds[PROTO_FDS_RECEIVED_MAX])
{
    int count = 0;

    if (kind >= '0' && kind <= '9') {
        for (; count < kind - '0'; count++) {
            fds[count] = given[0].fd;
        }
    } else if (kind == 'x') {
        for (; count < PROTO_FDS_RECEIVED_MAX; count++) {
            fds[count] = given[0].fd;
        }
    }
    for (size_t i = 0; i < given_count; i++) {
        if (given[i].kind == kind) {
            fds[count++] = given[i].fd;
        }
    }
    return count;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

void clients_start(void)
{
    for (size_t i = 0; i < RIG_CLIENTS; i++) {
        clients[i].used = false;
    }
}

static struct client *living(unsigned number)
{
    struct client *client = &clients[number % RIG_CLIENTS];

    return client->used && client->fd >= 0 ? client : NULL;
}

void client_open(unsigned number, unsigned user, bool admin)
{
    struct client *client = &clients[number % RIG_CLIENTS];
    uint64_t next = rig_service.next_session;
    int ends[2];

    if (client->used) {
        return;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "errno %d", errno);
    memset(client, 0, offsetof(struct client, asked));
    client->used = true;
    client->reads = true;
    client->fd = ends[0];
    client->life = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake_peer = (struct peer){.pid = 100 + (pid_t)number,
                              .uid = FIRST_UID + user,
                              .gid = FIRST_UID,
                              .pidfd = user == 3 ? -1 : client->life}; /* an older kernel tells no pidfd */
    enum session_taken taken =
        session_start(&rig_service, admin ? &rig_config.admin : &rig_config.sockets[0], admin, ends[1]);
    FUZZ_CHECK(taken != SESSION_HELD, "a connection is held, and nothing hangs");
    client->session = rig_service.next_session > next ? next : 0;
}

void client_toggle_reading(unsigned number)
{
    struct client *client = living(number);

    if (client != NULL) {
        client->reads = !client->reads;
    }
}

void client_close(unsigned number)
{
    struct client *client = living(number);

    if (client != NULL) {
        client->deaf = true;
        close(client->fd);
        client->fd = -1;
    }
}

void client_shut_writing(unsigned number)
{
    struct client *client = living(number);

    if (client != NULL) {
        shutdown(client->fd, SHUT_WR);
    }
}

void client_shut_reading(unsigned number)
{
    struct client *client = living(number);

    if (client != NULL) {
        client->deaf = true;
        shutdown(client->fd, SHUT_RD);
    }
}

void client_die(unsigned number)
{
    struct client *client = &clients[number % RIG_CLIENTS];

    if (client->used) {
        client->deaf = true;
        eventfd_write(client->life, 1);
    }
}

void clients_listen(void)
{
    for (size_t i = 0; i < RIG_CLIENTS; i++) {
        clients[i].reads = true;
    }
}

unsigned clients_unanswered(void)
{
    unsigned count = 0;

    for (size_t i = 0; i < RIG_CLIENTS; i++) {
        count += clients[i].used && !clients[i].deaf ? clients[i].unanswered : 0;
    }
    return count;
}

void clients_leave(void)
{
    for (unsigned i = 0; i < RIG_CLIENTS; i++) {
        client_close(i);
    }
}

void clients_stop(void)
{
    for (size_t i = 0; i < RIG_CLIENTS; i++) {
        if (clients[i].used) {
            close(clients[i].life);
        }
    }
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

void client_send(unsigned number, char kind, const char *bytes, size_t length)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PROTO_FDS_RECEIVED_MAX)];
    } control = {0};
    int fds[PROTO_FDS_RECEIVED_MAX], count = to_pass(kind, fds);
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct client *client = living(number);

    if (client == NULL || client->sent == PACKETS) {
        return;
    }
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * (size_t)count);
    }
    client->sent += sendmsg(client->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void clients_dispatched(const struct session *session, const char *text, const struct channel_packet *packet)
{
    struct proto_request request = {0};
    char why[PROTO_WHY_BYTES];
    int error = packet->truncated ? 1 : proto_request_parse(text, packet->length, &request, why);

    for (size_t i = 0; i < RIG_CLIENTS; i++) {
        struct client *client = &clients[i];
        if (client->used && client->session == session->id && client->asked_count < PACKETS) {
            client->asked[client->asked_count++] =
                (struct asked){.id = request.id, .method = error == 0 ? proto_method_find(request.method) : -1};
            client->unanswered++;
        }
    }
    json_decref(request.root);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* Numbers that every JSON implementation keeps. */
static void check_numbers(const json_t *limits)
{
    const json_t *limit;
    const char *name;

    json_object_foreach((json_t *)(uintptr_t)limits, name, limit) {
        json_int_t value = json_integer_value(limit);
        if (json_is_object(limit)) { /* quotas */
            continue;
        }
        FUZZ_CHECK(value > 0 && value <= (json_int_t)PROTO_SIZE_MAX, "limit %s is %lld", name, (long long)value);
    }
}

static void check_limits(const json_t *result)
{
    const json_t *limits = json_object_get(result, "limits");

    check_numbers(limits);
    check_numbers(json_object_get(limits, "quotas"));
}

/* The result is one of a method that was asked for under this id. */
static void check_result(const struct client *client, const struct proto_answer *answer)
{
    union {
        struct proto_hello_result hello;
        struct proto_register_result region;
        struct proto_set_result set;
        struct proto_get_result get;
        char room[256];
    } out;
    char why[PROTO_WHY_BYTES] = "no such request";

    for (unsigned i = 0; i < client->asked_count; i++) {
        const struct asked *asked = &client->asked[i];
        if (asked->id == answer->id && asked->method >= 0) {
            const struct proto_shape *shape = proto_methods[asked->method].result;
            if (proto_shape_decode(shape, answer->result, false, &out, why) == 0) {
                proto_shape_free(shape, &out);
                return;
            }
        }
    }
    FUZZ_CHECK(false, "the library cannot read a result: %s", why);
}

static void check_error(const struct proto_answer *answer)
{
    const char *name = json_string_value(json_object_get(answer->data, "name"));

    FUZZ_CHECK(name != NULL && proto_error_by_name(name) == answer->code, "error %d is named %s", answer->code,
               name != NULL ? name : "nothing");
    FUZZ_CHECK(answer->message[0] != '\0', "error %d says nothing", answer->code);
}

static void settle_answer(struct client *client, const struct proto_answer *answer)
{
    for (unsigned i = 0; i < client->asked_count; i++) {
        if (client->asked[i].id == answer->id && !client->asked[i].answered) {
            client->asked[i].answered = true;
            client->unanswered--;
            return;
        }
    }
    FUZZ_CHECK(false, "an answer with id %lld that is one too many", (long long)answer->id);
}

static bool of_keys(const struct asked *asked)
{
    return asked->method == PROTO_METHOD_KEYS_EXISTS || asked->method == PROTO_METHOD_KEYS_DELETE ||
           asked->method == PROTO_METHOD_KEYS_INFO || asked->method == PROTO_METHOD_KEYS_EXPIRE;
}

/* The end of a session answers what is left; only commands on keys, which touch no memory, may be among it. Counted for
 * each id, since answers that are read late do not tell which of several requests with one id they are for. */
static void settle_end(struct client *client)
{
    client->said_closed = true;
    for (unsigned i = 0; i < client->asked_count; i++) {
        unsigned open = 0, keys = 0;
        for (unsigned j = 0; j < client->asked_count; j++) {
            bool same = client->asked[j].id == client->asked[i].id;
            open += same && !client->asked[j].answered;
            keys += same && of_keys(&client->asked[j]);
        }
        FUZZ_CHECK(open <= keys || client->deaf, "the session is closed before request %lld is answered",
                   (long long)client->asked[i].id);
    }
    client->unanswered = 0;
}

static void take(struct client *client, const char *text, size_t length)
{
    struct proto_answer answer;

    if (getenv("FUZZ_LOG") != NULL) {
        fprintf(stderr, "client %td: %.*s\n", client - clients, (int)length, text);
    }
    FUZZ_CHECK(proto_answer_parse(text, length, &answer) == 0, "the library cannot read: %.*s", (int)length, text);
    FUZZ_CHECK(!client->said_closed, "something came after session.closed: %.*s", (int)length, text);
    if (answer.method != NULL) {
        if (strcmp(answer.method, PROTO_NOTIFY_SESSION_CLOSED) == 0) {
            settle_end(client);
        }
    } else {
        if (answer.result != NULL) {
            check_result(client, &answer);
            check_limits(answer.result);
        } else {
            check_error(&answer);
        }
        settle_answer(client, &answer);
    }
    json_decref(answer.root);
}

static bool client_read(struct client *client)
{
    static char text[PROTO_MESSAGE_BYTES];
    struct channel_packet packet;
    bool active = false;

    while (client->fd >= 0 && channel_receive(client->fd, text, sizeof(text), &packet) == 1) {
        FUZZ_CHECK(!packet.truncated && packet.fd_count <= 1, "%d descriptors", packet.fd_count);
        channel_close_fds(&packet);
        take(client, text, packet.length);
        active = true;
    }
    return active;
}

bool clients_read(void)
{
    bool active = false;

    for (size_t i = 0; i < RIG_CLIENTS; i++) {
        if (clients[i].used && clients[i].reads) {
            active |= client_read(&clients[i]);
        }
    }
    return active;
}
