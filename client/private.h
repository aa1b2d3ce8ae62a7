/*
 * Inside of the client library: its structs, and what one source file offers the others.
 *
 * Concepts
 *   session   one connection to the daemon, and what is known about its end (session.c)
 *   call      one request on its way to its answer; lives on the stack of the thread that waits for it, or in a ticket
 *             (call.c)
 *   ticket    a transfer that was submitted to a queue and not reaped yet (queue.h)
 *   waiter    a thread that waits for a call, or for something to reap
 *   leader    the one waiter that reads the socket for all; it dispatches answers by id, and when its own has come it
 *             hands the role to another waiter (lead.c). Nobody reads when nobody waits.
 *   use       a window of a region locked by a transfer (windows.c)
 *   farewell  the notification session.closed: the daemon's word that it has made all memory of the session safe
 *   epoch     number of a session: 1 for the one that grd_connect() made, one more for each that follows (reconnect.c)
 *   parked    a ticket that is in nobody's hands but the library's, and waits for a session (park.c)
 *
 * Locking: client->lock guards everything marked so, in the client, its regions and its calls. It is never held across
 * a system call that may block. The fork lock (fork.c) guards the list of clients and the two descriptors against
 * being closed or opened while a fork copies them; it may be taken inside client->lock, and nothing inside it.
 * A forked child takes no client->lock: client_forked() is asked first, everywhere.
 */
#ifndef GRD_CLIENT_PRIVATE_H
#define GRD_CLIENT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "client/backoff.h"
#include "glide-rdmad.h"
#include "proto/channel.h"
#include "proto/envelope.h"
#include "proto/limits.h"
#include "proto/methods.h"

#define CLIENT_CALL_BUCKETS 64
#define CLIENT_TIMEOUT_MS_DEFAULT 10000

/* Requests of a client at once, where the daemon states no limit. */
#define CLIENT_REQUESTS_DEFAULT 1024

/* --- windows ----------------------------------------------------------------------------------------------------- */

/* A locked window; part of its transfer. */
struct window_use {
    LIST_ENTRY(window_use) entry;
    uint64_t offset, length;
    bool writes;
};

LIST_HEAD(window_list, window_use);

/* Does [offset, offset + length) lie inside `size` bytes, and is it not empty? Any values, without overflow. */
bool window_inside(uint64_t offset, uint64_t length, uint64_t size);

/* Locks the window and returns true, unless it overlaps one in use and either of the two writes. O(uses). */
bool windows_try_lock(struct window_list *list, struct window_use *use, uint64_t offset, uint64_t length, bool writes);
void windows_unlock(struct window_use *use);

/* --- client ------------------------------------------------------------------------------------------------------ */

enum session_state {
    SESSION_OPEN,
    SESSION_BROKEN, /* given up: our side is shut down, answers still count until the stream ends */
    SESSION_MUTE,   /* the stream ended without farewell: the daemon may still live, memory may still be touched */
    SESSION_ENDED,  /* farewell and end of stream, or the daemon's process is gone: nothing touches memory any more */
    SESSION_GREETING /* after SESSION_ENDED: connected again, hello is sent; no memory is at stake yet */
};

/* Lives on its thread's stack; under the lock. */
struct waiter {
    TAILQ_ENTRY(waiter) entry;           /* in client->waiting while it sleeps */
    bool (*ready)(const void *subject);  /* has come what it waits for? */
    const void *subject;
    grd_queue *queue;                    /* it waits for something to reap here; NULL: for something else */
    uint64_t end_ms;                     /* as clock_ms() tells; WAIT_FOREVER */
    bool woken; /* it slept, and was signalled: it is going to lead, or sees to it that another does */
    pthread_cond_t wake;
};

#define WAIT_FOREVER UINT64_MAX

enum call_kind {
    CALL_WAITED,   /* a thread waits for it */
    CALL_TICKET,   /* part of a ticket */
    CALL_FORGOTTEN, /* nobody wants the answer; from the heap, freed with it */
    CALL_GREETING, /* hello of a session that follows another: client->greeting */
    CALL_RESTORE   /* a region is registered again: region->restore */
};

struct call {
    LIST_ENTRY(call) entry; /* in client->calls until it is done */
    enum call_kind kind;
    int64_t id;
    bool done;
    bool answered; /* `answer` holds the daemon's answer, else the session ended first, with the code: */
    int ended_with;
    struct proto_answer answer;
    struct waiter *waiter; /* CALL_WAITED */
};

struct client_limits {
    uint64_t message_bytes, regions, requests, in_flight, region_bytes, value_bytes;
};

struct grd_client {
    atomic_uint references; /* the handle and each region */
    unsigned generation;    /* of the process that connected, see fork.c */
    LIST_ENTRY(grd_client) entry; /* of all clients, under the fork lock */
    int socket;                   /* -1 once closed; written under the fork lock */
    int pidfd;
    int bell; /* eventfd: interrupts a leader, whatever it waits for */

    char *path, *name; /* constant after the connect: what connecting again takes */
    uint64_t timeout_ms, reconnect_ms;
    bool reconnects;

    pthread_mutex_t lock;
    /* under the lock: */
    uint64_t protocol;
    const char *server, *why, *provider; /* in `texts` */
    bool usable;
    struct client_limits limits;
    SLIST_HEAD(, client_text) texts;

    enum session_state state;
    uint64_t epoch;
    unsigned senders;      /* threads that send on `socket`, which is not replaced before they are done: */
    pthread_cond_t unsent; /* senders has become 0 */
    struct grd_error end_error; /* how the last session ended */

    unsigned wanting; /* threads that wait for a session */
    struct backoff backoff;
    uint64_t attempt_ms;            /* SESSION_ENDED: time of the next attempt */
    uint64_t greeting_ms;           /* SESSION_GREETING: when it is given up */
    struct call greeting;
    struct grd_error attempt_error; /* of the last attempt that failed since the session ended; code 0: none */
    unsigned hopeless;              /* attempts that failed in a way that passes by no waiting */

    TAILQ_HEAD(, ticket) parked;
    size_t parked_count;
    uint64_t parked_ms; /* when the first of them is given up, or earlier */
    bool parked_blocked; /* some, or regions, could not be sent for lack of room: retried with each answer */

    bool closing;       /* grd_close() has started */
    bool draining;
    bool farewell;      /* session.closed has come, with: */
    int farewell_code;
    char farewell_reason[256];
    int broken_code;    /* session_break() was called, with: */
    char broken_why[128];
    bool has_leader;
    grd_queue *leader_queue; /* for which the leader reads, or NULL */
    int64_t last_id;
    unsigned active;    /* public functions inside this client; the descriptors stay open until it is 0 */
    pthread_cond_t idle; /* active has become 0 while closing */
    LIST_HEAD(, call) calls[CLIENT_CALL_BUCKETS];
    size_t open_calls;   /* in `calls` */
    size_t open_tickets; /* those of them that are tickets */
    bool crowded;        /* some queue waits for room */
    TAILQ_HEAD(, waiter) waiting;
    LIST_HEAD(, grd_region) regions;
    LIST_HEAD(, grd_queue) queues;

    char receive_buffer[PROTO_MESSAGE_BYTES]; /* the leader's */
};

/* What the daemon said, kept until the client is freed: programs hold pointers to it. */
struct client_text {
    SLIST_ENTRY(client_text) entry;
    char text[];
};

/* The same text, kept; NULL: no memory. Lock held, or nobody shares the client yet. */
const char *client_keep_text(grd_client *client, const char *text);

/* Is this process a fork of the one that connected? Takes no lock. */
bool client_forked(const grd_client *client);

/*
 * Enters the client for one public function: GRD_ERR_FORKED, GRD_ERR_CLOSED (grd_close() runs), or 0; then client_leave
 * must follow. The _locked variants expect the lock and not client_forked().
 */
int client_enter(grd_client *client, struct grd_error *error);
int client_enter_locked(grd_client *client, struct grd_error *error);
void client_leave(grd_client *client);
void client_leave_locked(grd_client *client);

grd_client *client_hold(grd_client *client);
void client_release(grd_client *client);

/* --- fork -------------------------------------------------------------------------------------------------------- */

/* The current process's generation: it changes in every forked child. */
unsigned fork_generation(void);

/* While held no fork happens, and no fork handler looks at the clients. Do not block inside. */
void fork_lock(void);
void fork_unlock(void);

/*
 * Adds the client to the list of those whose descriptors a child closes (0 or GRD_ERR_NO_MEMORY), or takes it off and
 * closes them; does nothing in a child.
 */
int fork_watch(grd_client *client);
void fork_unwatch(grd_client *client);

/* The same for a queue, whose descriptors it opens (0 or errno) and closes. */
int fork_watch_queue(grd_queue *queue);
void fork_unwatch_queue(grd_queue *queue);

/* --- connecting -------------------------------------------------------------------------------------------------- */

/* Connects client->socket and exchanges `hello`; on error the caller releases the client. */
int hello_connect(grd_client *client, const struct grd_connect_options *options, struct grd_error *error);

/* Connects client->socket without waiting and sends client->greeting. Lock held. On error the socket is closed. */
int hello_send_again(grd_client *client, struct grd_error *error);

/* Takes over what the answer to hello says. Lock held, or nobody shares the client yet. */
int hello_read(grd_client *client, const struct proto_answer *answer, struct grd_error *error);

/* Receives a packet, and keeps its descriptor as the pidfd: as channel_receive(). Only the leader. */
int hello_receive(grd_client *client, struct channel_packet *packet);

/* Closes the two descriptors. Nobody polls them, or sends. */
void hello_close(grd_client *client);

/* --- session ----------------------------------------------------------------------------------------------------- */

/* Milliseconds of CLOCK_MONOTONIC. */
uint64_t clock_ms(void);

/* A packet arrived, and is taken over. Lock held. `answer` NULL: it was no message of the protocol. */
void session_packet(grd_client *client, struct proto_answer *answer);

/* A notification came that is about draining, or about nothing that is known here. */
void session_drain_notified(grd_client *client, const char *method);

/* The stream ended: calls without an answer are finished now, or when the daemon's process is gone. Lock held. */
void session_stream_ended(grd_client *client);

/* Nothing touches memory any more: finishes every call. Lock held. */
void session_end(grd_client *client);

/* Gives the session up; calls in flight still wait for its end, and then fail with `code`. Lock held. */
void session_break(grd_client *client, int code, const char *why);

/* Is there a session, or a way to one, that a leader can do something for? Lock held. */
bool session_has_work(const grd_client *client);

/* Waits until nothing of this session can touch memory: for the daemon's process, if its stream ended in silence. */
void session_wait_proof(grd_client *client);

/* Fills the error of a call that finds, or found, the session not open. Lock held. Returns the code. */
int session_error(grd_client *client, struct grd_error *error);

/* --- reconnecting ------------------------------------------------------------------------------------------------ */

/* What a call needs before it can be sent. */
struct need {
    grd_region *region;    /* registered in the session; NULL: none */
    uint64_t after;        /* a session later than this epoch */
    uint64_t deadline_ms;  /* as clock_ms() tells; WAIT_FOREVER */
    uint64_t end_ms;       /* set by the first loss of the session: when to give up; 0 */
    uint64_t tried;        /* epoch in which the region's registration was tried for this call */
};

/*
 * Waits for it, making the session if need be: 0; GRD_ERR_CLOSED; GRD_ERR_DEADLINE; how the last attempt failed; the
 * region's refusal; without reconnecting how the session ended. Lock held, and on return.
 */
int session_need(grd_client *client, struct need *need, struct grd_error *error);

/* The first loss of a session starts the time that a call may spend on it: fills *end_ms where it is 0. */
void session_start_limit(const grd_client *client, uint64_t *end_ms);

/* Does anybody need a session that is not there? Lock held. */
bool session_wanted(const grd_client *client);

/* The leader's: does what is due (a connection, giving up); and when the next is. Lock held. */
void session_tick(grd_client *client);
uint64_t session_due(const grd_client *client);

/* hello was answered, or its connection failed, in SESSION_GREETING. Lock held. */
void session_greeted(grd_client *client);
void session_attempt_failed(grd_client *client, const struct grd_error *error);

/* Enters and leaves the sending of packets; `epoch`: of a session that may be over: false. Lock held. */
bool send_begin(grd_client *client, uint64_t epoch);
void send_end(grd_client *client);

/* --- waiting ----------------------------------------------------------------------------------------------------- */

/*
 * Waits until waiter->ready() or waiter->end_ms, reading for everybody while nobody else does. Lock held by the caller
 * and again on return, not while it waits.
 */
void lead_wait(grd_client *client, struct waiter *waiter);

/*
 * Reads what has arrived, without blocking, for `queue` (NULL: for whom it concerns) and until enough(subject) (NULL:
 * all). Lock as above. False, and nothing was done: somebody leads.
 */
bool lead_look(grd_client *client, grd_queue *queue, bool (*enough)(const void *), const void *subject);

/* There is something new for a leader, or a waiter that leads, or the descriptors of queues. Lock held. */
void lead_kick(grd_client *client);

/* Wakes a waiter. Lock held. */
void lead_wake(struct waiter *waiter);

/* Wakes waiters that wait to reap `queue` (NULL: all waiters): one that sleeps, or all. Lock held. */
void lead_wake_queue(grd_client *client, const grd_queue *queue, bool all);

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* Most requests fit; others get a buffer of PROTO_MESSAGE_BYTES from the heap. */
#define CALL_SMALL_BYTES 2048

struct message {
    char small[CALL_SMALL_BYTES];
    char *large;
    const char *text;
    size_t length;
};

/* Writes a request: 0, GRD_ERR_TOO_LARGE or GRD_ERR_NO_MEMORY. In every case message->large is to be freed. */
int message_write(struct message *message, int64_t id, enum proto_method_id method, json_t *params);

/* The call with this id, or NULL. Lock held. */
struct call *call_find(grd_client *client, int64_t id);

/* Gives the call an id that the session never had, and enters it. Lock held. */
void call_open(grd_client *client, struct call *call, enum call_kind kind);

/* Enters a call anew, under the id that it has, in a session that has not seen it. Lock held. */
void call_open_again(grd_client *client, struct call *call);

/* Takes a call back that was not sent, unless the session's end has done so. Frees a CALL_FORGOTTEN. Lock held. */
void call_withdraw(grd_client *client, struct call *call);

/* Marks the call done and tells who wants to know. Lock held. */
void call_finish(grd_client *client, struct call *call);

/*
 * Fills the error of a call that could not be sent in session `epoch` for `reason`, a negative errno. -EPIPE: that
 * session is over, or on its way. Lock held, and on return.
 */
int call_not_sent(grd_client *client, uint64_t epoch, int reason, struct grd_error *error);

/* Decodes the answer of a call that is done, and releases it. Results as call_run(). Lock not held. */
int call_read(grd_client *client, struct call *call, enum proto_method_id method, void *result,
              struct grd_error *error);

/* Is it an error that says that the daemon stops, and that the request may be sent again to the one that follows? */
bool call_was_postponed(const struct call *call, bool again);

struct request {
    enum proto_method_id method;
    json_t *params;       /* borrowed; `region` and `deadline_ms` are set in it */
    int pass_fd;          /* -1: none; stays the caller's */
    bool now;             /* only in the session that is open now; passes while grd_close() runs */
    bool again;           /* changes nothing that matters: run again where its session ended without an answer */
    grd_region *region;   /* whose number goes into params; NULL: none */
    uint64_t deadline_ms; /* 0: none */
    uint64_t epoch;       /* out: session that it was sent in */
};

/*
 * Sends a request and waits for its answer, through as many sessions as it takes. The caller is inside the client
 * (client_enter).
 * 0: *result (the struct of the method's shape) is decoded, to be freed with call_free_result(). Otherwise a code, with
 * `error` (not NULL) filled.
 */
int call_run(grd_client *client, struct request *request, void *result, struct grd_error *error);

/* Sets the two members of a request's parameters that differ from one session to the next (0, WAIT_FOREVER: leaves it):
 * 0 or GRD_ERR_NO_MEMORY. */
int request_complete(json_t *params, uint64_t region, uint64_t deadline_ms);

/* The same with the struct of the method's shape, without a region or descriptor. */
int call_request(grd_client *client, enum proto_method_id method, const void *params, void *result,
                 struct grd_error *error);
void call_free_result(enum proto_method_id method, void *result);

/* --- regions ----------------------------------------------------------------------------------------------------- */

enum registration {
    REGION_REGISTERED, /* in the session that is open */
    REGION_WAITING,    /* for a session, or for room in its socket */
    REGION_RESTORING,  /* region.register was sent again: region->restore */
    REGION_REFUSED     /* with region->refusal: the next call that needs it tries again */
};

struct grd_region {
    grd_client *client; /* held */
    LIST_ENTRY(grd_region) entry; /* in client->regions, under its lock */

    int fd; /* own descriptor; with the next five: all that registering again takes */
    uint64_t offset, size;
    enum grd_access access;
    unsigned flags;
    char *label;

    void *data;  /* the caller's mapping, or NULL */
    void *bytes; /* a mapping for checksums: `data`, or read-only and made when first needed; under the lock */

    /* under the client's lock: */
    uint64_t id;       /* the daemon's number, in this session; 0: none */
    enum registration registration;
    struct call restore;
    uint64_t restore_epoch;   /* session in which `restore` was sent last */
    struct grd_error refusal;
    bool closing;      /* grd_region_close() runs */
    bool forced;       /* grd_close() has asked the daemon to cancel its transfers */
    bool lost;         /* the daemon closed it: */
    bool lost_kept;    /* and did not get the memory released */
    char lost_reason[256];
    struct window_list uses;
};

/* The parameters of region.register; NULL: no memory. `may_populate`: the daemon, where the flags say so. The caller's
 * reference. */
json_t *region_params(const grd_region *region, bool may_populate);

/* The session has ended: no region is registered any more. Lock held. */
void regions_forget(grd_client *client);

/* Registers those that wait for it in the session that is open, as many as there is room for. Lock held. */
void regions_restore(grd_client *client);

/* Registers this one, unless that was tried in this session since `tried`. Lock held. */
void region_restore(grd_region *region);

/* The answer to it came, or the session ended. Lock held. */
void region_restored(struct call *call);

/* Start of the region for reading in this thread, mapping it if need be; NULL and a filled error otherwise. */
const unsigned char *region_bytes(grd_region *region, struct grd_error *error);

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Page size of a memory file, bytes; 0 with errno set when it cannot be told. */
uint64_t memory_page_size(int fd);

/* New sealed memory file of `size` bytes (a multiple of the page size), close-on-exec: *fd is the caller's. */
int memory_create(uint64_t size, const char *label, int *fd, struct grd_error *error);

/* Seals against shrinking, growing and further seals. */
int memory_seal(int fd, struct grd_error *error);

/* Is it a memory file that a region can be made of? Fills *size when it is 0. */
int memory_check(int fd, uint64_t offset, uint64_t *size, bool writable, struct grd_error *error);

/* Allocates and maps all pages with `threads` threads (0: automatic), without risk of SIGBUS. */
int memory_populate(int fd, uint64_t offset, void *address, uint64_t size, bool writable, unsigned threads,
                    struct grd_error *error);

/* --- errors ------------------------------------------------------------------------------------------------------ */

/* Each fills *error (NULL is fine) and returns `code`. */
int error_set(struct grd_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int error_system(struct grd_error *error, int code, int os_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void error_clear(struct grd_error *error);

/* From the daemon's error answer. */
int error_from_answer(const struct proto_answer *answer, struct grd_error *error);

/* Is the options struct (NULL is fine) large enough to be one? Later fields are read by OPTION(). */
#define OPTION(options, field, standard)                                                                              \
    ((options) != NULL &&                                                                                             \
             (options)->struct_size >= offsetof(__typeof__(*(options)), field) + sizeof((options)->field)             \
         ? (options)->field                                                                                           \
         : (standard))

#endif
