/*
 * What the files of sessions share: session.c (life, requests, regions), session_input.c (what comes from the client),
 * session_output.c (what goes to it), silence.c (those that say nothing). Loop thread only.
 */
#ifndef GRD_LOCAL_SESSION_PRIVATE_H
#define GRD_LOCAL_SESSION_PRIVATE_H

#include "daemon/base/log.h"
#include "daemon/local/session.h"

/* Whose session a line of the log is about. */
struct log_fields session_fields(const struct session *session);

/* Opens the handles of a session; each calls session_handle_closed. 0 or -ENOMEM: then there is none. */
int session_watch(struct session *session);
void session_handle_closed(uv_handle_t *handle);
void session_unwatch(struct session *session);

/* Polls for what the session waits for now; called after every change of that. */
void session_poll(struct session *session);

/* More answers than these wait for the client: it is not read. */
bool session_output_full(const struct session *session);
/* An error as an answer, which costs its user nothing; `data` is consumed. */
void session_send_error(struct session *session, int64_t id, int code, const char *message, json_t *data);
/* Sends what waits, as far as the client takes it. */
void session_flush(struct session *session);

/* A client that has not said hello: within [limits] hello_ms it must. session_spoke() ends that. */
void silence_init(struct service *service);
void silence_stop(struct service *service);
void silence_watch(struct session *session);

#endif
