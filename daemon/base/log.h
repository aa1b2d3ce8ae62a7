/*
 * The log. Under systemd (JOURNAL_STREAM names standard error) entries go to the journal by its own protocol, with
 * fields of their own (SESSION=, NODE=, ...), and never wait: what the journal has no room for is counted and left out.
 * Where it cannot be reached, lines with `<N>` priorities go to standard error. Elsewhere: `level=... message key=value
 * ...`, one line a message, written with one write(2), and left out where the reader of a pipe has fallen behind.
 * Thread safe. Never log values, passwords or payload; keys only at debug, escaped (proto/text.h).
 */
#ifndef GRD_BASE_LOG_H
#define GRD_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/log_events.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Messages above the level are dropped; default notice. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* 0, or -EINVAL for a word that is no level. */
int log_level_parse(const char *word, enum log_level *level);
const char *log_level_name(enum log_level level);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a line is about, for programs that read the log. Numbers count from 1; 0 and NULL: not about one. */
struct log_fields {
    enum log_event event;
    uint64_t session, request, region, transfer; /* region: the number within the session */
    const char *node;                            /* address of a server */
    bool has_uid;
    uid_t uid;
};

void log_about(const struct log_fields *fields, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The line of an event that is about nothing else. */
#define LOG_EVENT(symbol) (&(struct log_fields){.event = LOG_EVENT_##symbol})

/*
 * Lines that a peer can cause at will: one a second for each limit, with the number of those left out since the last
 * one. Not thread safe: a limit belongs to one thread, and starts as zeroes.
 */
struct log_limit {
    uint64_t second; /* of the last line, plus one; 0: none yet */
    uint64_t left_out;
};

void log_limited(struct log_limit *limit, uint64_t now_ms, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void log_limited_about(struct log_limit *limit, uint64_t now_ms, const struct log_fields *fields, enum log_level level,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Lines left out since the process began: by log_limited, and because the journal had no room. Thread safe. */
uint64_t log_left_out(void);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_notice(...) log_write(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
