/*
 * The outcome table: every way a transfer can end, and what follows from it (docs/architecture.md, rules 1 and 2).
 * PROTOCOL.md shows the same rows; a test compares the two.
 */
#ifndef GRD_TRANSFER_OUTCOME_H
#define GRD_TRANSFER_OUTCOME_H

#include <stdbool.h>

#include "daemon/valkey/blob.h"
#include "proto/errors.h"

/* Which transfers are run again after an outcome; ever only after the lane is gone where the row destroys it. */
enum outcome_again {
    OUTCOME_AGAIN_NEVER,
    OUTCOME_AGAIN_GET, /* gets: they change nothing on the server */
    OUTCOME_AGAIN_ANY, /* sets too: it is certain that the command did not run */
};

/*
 * X(SYMBOL, "name", lane destroyed before the answer, run again, code, a SET may have run, meaning)
 *
 * The lane of a transfer over TCP is its connection and the worker's job that moves its bytes (carrier_tcp.c): closing
 * the one and awaiting the other is what the rows mean by destroying it.
 *
 * The code is what the client gets; where the server's words say more (wrong type, window too small, checksum, value
 * too large) outcome_code() narrows it. "May have run" is what a SET's error says in data.may_have_run; a GET changes
 * nothing on the server, but its window holds an unknown mix of old and new bytes in the same rows. A row that says
 * that a SET may have run never runs one again (rule 2); outcome_runs_again() has the one exception to "get".
 * Refusals that name another node or another time are sent again beside this table: again.c, redirect.h.
 */
#define TRANSFER_OUTCOMES(X)                                                                                          \
    X(DONE, "done", false, NEVER, PROTO_OK, true, "the server answered success")                                      \
    X(MISSING, "missing", false, NEVER, PROTO_OK, false, "the server answered that there is no such key")             \
    X(REFUSED, "refused", false, NEVER, PROTO_ERR_SERVER_ERROR, false, "an error that proves that no byte moved")     \
    X(FINISHED, "failed and finished", false, NEVER, PROTO_ERR_SERVER_ERROR, false,                                   \
      "an error that proves that the transfer is over and nothing was stored")                                        \
    X(LIVE, "failed and maybe running", true, GET, PROTO_ERR_SERVER_ERROR, true, "an answer that proves nothing")     \
    X(MEMORY, "memory failed", true, NEVER, PROTO_ERR_SYSTEM, false,                                                  \
      "the daemon could not read or write the window's memory")                                                       \
    X(LOST, "lost", true, GET, PROTO_ERR_LOST, true, "the connection ended between the command and its answer")       \
    X(UNSENT, "unsent", true, ANY, PROTO_ERR_SERVER_DOWN, false,                                                      \
      "the connection ended before the whole command had left")                                                       \
    X(UNAVAILABLE, "unavailable", false, NEVER, PROTO_ERR_SERVER_DOWN, false,                                         \
      "no connection, lane or session could be made")                                                                 \
    X(UNPREPARED, "unprepared", false, NEVER, PROTO_ERR_NOT_USABLE, false,                                            \
      "the fabric refused to register the window")                                                                    \
    X(DEADLINE_WAITING, "deadline, not sent", false, NEVER, PROTO_ERR_DEADLINE, false,                                \
      "its time ended while it waited")                                                                               \
    X(DEADLINE_RUNNING, "deadline, sent", true, NEVER, PROTO_ERR_DEADLINE, true, "its time ended before the answer")  \
    X(CANCELLED_WAITING, "cancelled, not sent", false, NEVER, PROTO_ERR_CANCELLED, false,                             \
      "taken back while it waited")                                                                                   \
    X(CANCELLED_RUNNING, "cancelled, sent", true, NEVER, PROTO_ERR_CANCELLED, true, "taken back before the answer")   \
    X(GONE_WAITING, "client gone, not sent", false, NEVER, PROTO_ERR_INTERRUPTED, false, "the client left")           \
    X(GONE_RUNNING, "client gone, sent", true, NEVER, PROTO_ERR_INTERRUPTED, true,                                    \
      "the client left before the answer")                                                                            \
    X(STOPPING_WAITING, "daemon stopping, not sent", false, NEVER, PROTO_ERR_DRAINING, false, "the daemon ends")      \
    X(STOPPING_RUNNING, "daemon stopping, sent", true, NEVER, PROTO_ERR_INTERRUPTED, true,                            \
      "the daemon's drain_ms ended before the answer")

enum transfer_outcome {
#define OUTCOME_ENUM(symbol, name, lane, again, code, ran, meaning) OUTCOME_##symbol,
    TRANSFER_OUTCOMES(OUTCOME_ENUM)
#undef OUTCOME_ENUM
        OUTCOME_COUNT
};

struct outcome_row {
    const char *name;
    bool lane_destroyed; /* before the client gets its answer */
    enum outcome_again again;
    int code;            /* proto error, 0: a result */
    bool may_have_run;   /* of a SET */
    const char *meaning;
};

extern const struct outcome_row outcome_table[OUTCOME_COUNT];

/* The row of a server's reply. */
enum transfer_outcome outcome_of_reply(const struct blob_reply *reply);

/* The client's error code for an outcome with this reply (NULL without one). */
int outcome_code(enum transfer_outcome outcome, const struct blob_reply *reply);

/* Whether a SET with this outcome may have been stored. */
bool outcome_may_have_run(enum transfer_outcome outcome, const struct blob_reply *reply);

/*
 * Whether a transfer with this outcome may be run again, once its lane is gone: a GET by its row; a SET where its row
 * says "any", or "get" and the server's own words say that it did not keep the value. Either when it was refused because
 * the connection is not logged in any more (redirect_wants_login): nothing ran, and the next connection logs in anew.
 */
bool outcome_runs_again(enum transfer_outcome outcome, const struct blob_reply *reply, bool set);

#endif
