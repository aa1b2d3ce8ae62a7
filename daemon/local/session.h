/*
 * Sessions: one connection of a client, its requests, regions and answers.
 *
 * Concepts. Every accepted request gets exactly one answer (docs/architecture.md, rule 3); a request is open from its
 * acceptance to its answer. Answers that the client does not fetch wait in an outbound queue; while as many packets
 * wait or requests are open as `[limits] requests` allows, or as many bytes wait as OUTBOUND_BYTES, the session is not
 * read any further, so that a client that never reads harms nobody. A session ends in steps: its transfers end (their
 * lanes first), its regions are closed, the last packet `session.closed` is sent, the descriptors are closed.
 * Loop thread only.
 */
#ifndef GRD_LOCAL_SESSION_H
#define GRD_LOCAL_SESSION_H

#include <jansson.h>
#include <uthash.h>

#include "daemon/local/peer.h"
#include "daemon/local/service.h"
#include "daemon/local/user.h"
#include "proto/channel.h"
#include "proto/methods.h"

/* A request that was accepted and is not answered yet; embedded at the start of what a method needs for it. */
struct request {
    uint64_t id;
    struct session *session;
    int method; /* enum proto_method_id */
    bool leaves; /* touches no memory: need not be over before its session; `session` is then NULL, see free */
    void (*free)(struct request *request);
    UT_hash_handle hh;
};

/* A region of a session. */
struct session_region {
    uint64_t id;
    uint64_t number; /* among those of all sessions */
    struct session *session;
    char *label;
    bool open;
    bool closing;       /* takes no more transfers; closed when the last one that uses it has ended */
    bool close_started;
    uint64_t registering; /* id of the request that registers it; 0 afterwards */
    struct request *close_request; /* answered when it is closed, or NULL */
    struct region region;
    TAILQ_ENTRY(session_region) all_link;
    UT_hash_handle hh;
};

struct outbound;

struct session {
    struct service *service;
    struct user *user;
    const struct config_socket *socket; /* borrowed from the configuration */
    bool admin;
    uint64_t id;
    int fd; /* owned */
    struct peer peer; /* owned */
    struct policy policy; /* what holds for it */
    uv_poll_t poll, peer_poll;
    unsigned handles; /* open uv handles */
    bool polled_peer;
    bool peer_ended;                /* its process has */
    bool at_end;                    /* the client sends no more; what it has sent may still be read */
    bool waits;                     /* for its user's turn, out of the poll; see schedule.h */
    TAILQ_ENTRY(session) wait_link;
    bool hello_done;
    char *client_name;
    int events;
    struct request *requests;       /* hash by id */
    unsigned request_count;
    struct session_region *regions; /* hash by id */
    uint64_t next_region;
    struct transfer_session transfers;
    STAILQ_HEAD(, outbound) outbound;
    unsigned outbound_count;
    size_t outbound_bytes;
    unsigned malformed;             /* packets in a row */
    bool ending;                    /* no more requests */
    bool gone;                      /* the client is: nothing is sent any more */
    bool said_closed;
    bool settling;
    int end_code;
    const char *end_reason;
    bool silent;
    uint64_t silent_until; /* ms, the loop's clock */
    TAILQ_ENTRY(session) silent_link;
    TAILQ_ENTRY(session) link;
};

enum session_taken {
    SESSION_TAKEN,
    SESSION_FLOOD, /* its user makes too many: whoever takes connections should leave the next ones for a moment */
    SESSION_HELD   /* it cannot be closed now, nor be kept: it stays the caller's, who tries again later */
};

/*
 * Takes over a connected socket; on failure it is closed. SESSION_HELD: closing_max descriptors of its user wait to be
 * closed, and there are more in its packets. As nobody knows whose the next connection is before it is taken, none must
 * be until then.
 */
enum session_taken session_start(struct service *service, const struct config_socket *socket, bool admin, int fd);

/* Prepares the watch over clients that say nothing; before the first session. Stop it before the loop ends. */
void sessions_init(struct service *service);
void sessions_stop(struct service *service);

/* The client has said hello, or the session ends. */
void session_spoke(struct session *session);

/*
 * Ends a session on purpose, or because the client left (`gone`: nothing can be sent any more). Idempotent. With
 * TRANSFER_STOPPING, answers of the server to requests that leave are waited for until the session is ended otherwise.
 */
void session_end(struct session *session, enum transfer_reason reason, int code, const char *why, bool gone);

/* --- for the methods ---------------------------------------------------------------------------------------------- */

/* Registers a request as open; the struct is freed by session_answer. */
void session_open_request(struct session *session, struct request *request);

/* Answers an open request and frees it. `result` and `data` (what an error tells beside its name; may be NULL) are
 * consumed. A result that is NULL could not be made for want of memory: the session ends instead. */
void session_answer(struct request *request, json_t *result);
void session_answer_error(struct request *request, int code, const char *message, json_t *data);

/* Answers a request that was never opened. `pass_fd` < 0: none; `data` and `result` are consumed. */
void session_reply(struct session *session, int64_t id, json_t *result, int pass_fd);
/* The same with a descriptor that becomes the session's, which closes it when it was sent or cannot be. */
void session_reply_with(struct session *session, int64_t id, json_t *result, int fd);

/* The same with an error, which its user pays for (pace.h). */
void session_reply_error(struct session *session, int64_t id, int code, const char *message, json_t *data);

void session_notify(struct session *session, const char *method, json_t *params);

/* Goes on reading when what held the session back is over; or stops. */
void session_read_on(struct session *session);

/* It waits no more: its user has a turn. */
void session_serve(struct session *session);

/* Enters a new region of a session, and forgets one that did not open or is closed. */
void session_region_add(struct session *session, struct session_region *region);
void session_region_free(struct session_region *region);

struct session_region *session_region_find(struct session *session, uint64_t id);

/* Starts closing a region with no windows in use; frees it at the end, perhaps from inside, answering close_request. */
void session_region_close(struct session_region *region);

/* A transfer of region `id` has ended and was answered: closes the region when it still waits for that. */
void session_region_transfer_ended(struct session *session, uint64_t id);

/* Goes on with an ending session when one of its parts has come to rest. */
void session_settle(struct session *session);

/* Serves one decoded request (dispatch.c). */
void dispatch_packet(struct session *session, const char *text, struct channel_packet *packet);

#endif
