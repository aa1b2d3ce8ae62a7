/*
 * Every error a user of glide-rdmad can see: one list for the daemon, the library and the documents.
 *
 * X(SYMBOL, code, "name", "text"): GRD_ERR_SYMBOL is the C constant (public header of the library), `code` what
 * travels in error.code, `name` what travels in error.data.name (the contract), `text` what grd_strerror() says.
 * -1..-99 are ours, -32xxx are JSON-RPC 2.0's own. -60..-69 never travel: only the library makes them.
 */
#ifndef GRD_PROTO_ERRORS_H
#define GRD_PROTO_ERRORS_H

#define PROTO_ERRORS(X)                                                                                               \
    X(BUSY, -1, "busy", "too much is queued or in use already; try again later")                                      \
    X(OVERLAP, -2, "overlap", "the window overlaps one in use by a transfer that writes, or would write, it")         \
    X(NO_REGION, -3, "no_region", "no such region in this session")                                                   \
    X(OUT_OF_RANGE, -4, "out_of_range", "the window does not lie inside the region")                                  \
    X(NEED_LARGER_WINDOW, -5, "need_larger_window", "the value is larger than the window; nothing was written")       \
    X(OVER_LIMIT, -6, "over_limit", "a limit of the daemon would be exceeded")                                        \
    X(OVER_BUDGET, -7, "over_budget", "the host's budget of registered memory would be exceeded")                     \
    X(OVER_QUOTA, -8, "over_quota", "a quota of this user would be exceeded")                                         \
    X(DENIED, -9, "denied", "the daemon's policy, or the region's access, does not allow it")                         \
    X(NOT_USABLE, -10, "not_usable", "the fabric or the server cannot carry transfers")                               \
    X(SERVER_ERROR, -11, "server_error", "the Valkey server answered an error")                                       \
    X(SERVER_DOWN, -12, "server_down", "the Valkey server cannot be reached; nothing was sent")                       \
    X(LOST, -13, "lost", "the answer of the Valkey server was lost")                                                  \
    X(CANCELLED, -14, "cancelled", "the request was cancelled")                                                       \
    X(DEADLINE, -15, "deadline", "the request did not finish within its deadline")                                    \
    X(INTERRUPTED, -16, "interrupted", "the daemon or the connection to it ended before the answer")                  \
    X(DRAINING, -17, "draining", "the daemon stops or is drained, and takes no new transfers")                                 \
    X(BAD_FD, -18, "bad_fd", "the descriptor is missing, surplus, or no sealed memory file of the right kind")        \
    X(TOO_LARGE, -19, "too_large", "the value, key or message is larger than allowed")                                \
    X(WRONG_TYPE, -20, "wrong_type", "the key holds a value that is no large object")                                 \
    X(CHECKSUM, -21, "checksum_mismatch", "the bytes do not have the checksum they should have")                      \
    X(SYSTEM, -22, "system", "a system call of the daemon failed")                                                    \
    X(NOT_POPULATED, -23, "not_populated", "pages of the memory file are not allocated, and the daemon is not to do it")      \
    X(NO_DAEMON, -60, "no_daemon", "glide-rdmad cannot be reached on its socket")                                     \
    X(NO_ACCESS, -61, "no_access", "the socket of glide-rdmad does not admit this user")                              \
    X(INVALID_ARGUMENT, -62, "invalid_argument", "an argument is outside what the function documents")                \
    X(NO_MEMORY, -63, "no_memory", "this process is out of memory or descriptors")                                    \
    X(FORKED, -64, "forked", "this process is a fork; the client belongs to its parent")                              \
    X(CLOSED, -65, "closed", "the client or the region is closed")                                                    \
    X(PROTOCOL, -66, "protocol", "the daemon sent something this library cannot understand")                          \
    X(PARSE, -32700, "parse_error", "the packet is no JSON text in UTF-8")                                            \
    X(INVALID_REQUEST, -32600, "invalid_request", "the message is no JSON-RPC 2.0 request of this protocol")          \
    X(NO_METHOD, -32601, "method_not_found", "no such method on this socket")                                         \
    X(INVALID_PARAMS, -32602, "invalid_params", "a parameter is missing, unknown, of the wrong type or out of range")

enum proto_error {
    PROTO_OK = 0,
#define PROTO_ERROR_ENUM(symbol, code, name, text) PROTO_ERR_##symbol = (code),
    PROTO_ERRORS(PROTO_ERROR_ENUM)
#undef PROTO_ERROR_ENUM
};

#define PROTO_ERROR_ONE(symbol, code, name, text) +1
enum { PROTO_ERROR_COUNT = 0 PROTO_ERRORS(PROTO_ERROR_ONE) };
#undef PROTO_ERROR_ONE

/* Place of a code in the list, from 0, for tables of them, and back; -1 and 0 where there is none. Thread safe. */
int proto_error_index(int code);
int proto_error_at(int index);

/* Name and text of a code; "unknown" for one that is not in the list. Never NULL. Thread safe. */
const char *proto_error_name(int code);
const char *proto_error_text(int code);

/* Code of a name, or 0 when there is none. Thread safe. */
int proto_error_by_name(const char *name);

#endif
