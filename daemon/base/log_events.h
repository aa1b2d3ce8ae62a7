/*
 * Lines of the log that operators match: each has a MESSAGE_ID in the journal (journalctl MESSAGE_ID=...) and
 * event=NAME at the end of the line elsewhere. glide-rdmad(8) shows the same rows; a test compares the two. An id never
 * changes.
 *
 * X(SYMBOL, "name", "MESSAGE_ID", "meaning")
 */
#ifndef GRD_BASE_LOG_EVENTS_H
#define GRD_BASE_LOG_EVENTS_H

#define LOG_EVENTS(X)                                                                                                 \
    X(READY, "ready", "0a1e613b5d9844eca7fe0abb6978d324", "The daemon serves")                                        \
    X(STOPPING, "stopping", "c3b67e9340864595b4196d8fc3ad279a", "It has begun to stop")                               \
    X(ENDED, "ended", "4ae134abdc7f4f14b18e6627bdf7a4ba", "It has ended, with its status")                            \
    X(RELOADED, "reloaded", "62d3a03d53bb4794acb613a951047669", "The configuration was read again")                   \
    X(NOT_RELOADED, "not_reloaded", "4d24de78185247b5a36abed5a3c8ea11", "The configuration has an error, and stays as it was") \
    X(DRAINED, "drained", "e10b8675f6d048d598f640aacc81c658", "An operator has stopped new transfers")                \
    X(NODE_UP, "node_up", "331e4f3a0e4a4a7182eb5c245a913c8b", "A Valkey server is connected")                         \
    X(NODE_DOWN, "node_down", "f94ef0529e014dc09d8ca4ec1211085c", "A Valkey server is not connected any more, or cannot be") \
    X(FABRIC_UNUSABLE, "fabric_unusable", "07a3678634e14dc2a28f064a8c11655c", "No transfer can be carried, and why")  \
    X(QUARANTINE, "quarantine", "c9186b339729449e8ade124d520500ba", "Memory could not be given back, and stays registered") \
    X(BUDGET_REFUSED, "budget_refused", "02973d2997144354853ceb0dc62d505f", "A region was refused for want of budget") \
    X(CLIENT_REFUSED, "client_refused", "ff460ea6b3a544bf8ba3c003b77b37ab", "A connection was not admitted")

enum log_event {
    LOG_EVENT_NONE,
#define LOG_EVENT_ENUM(symbol, name, id, meaning) LOG_EVENT_##symbol,
    LOG_EVENTS(LOG_EVENT_ENUM)
#undef LOG_EVENT_ENUM
};

#endif
