#include "daemon/base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/journal.h"

/* Longer messages are cut: one write of at most this size is never torn by another thread's line. */
#define LOG_LINE_BYTES 2048

static const struct {
    const char *name;
    int priority; /* of syslog(3), what the journal reads from the prefix */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3}, [LOG_LEVEL_WARN] = {"warn", 4},   [LOG_LEVEL_NOTICE] = {"notice", 5},
    [LOG_LEVEL_INFO] = {"info", 6},   [LOG_LEVEL_DEBUG] = {"debug", 7},
};

static const struct {
    const char *name, *id;
} events[] = {
    [LOG_EVENT_NONE] = {"", ""},
#define EVENT_ROW(symbol, name, id, meaning) [LOG_EVENT_##symbol] = {(name), (id)},
    LOG_EVENTS(EVENT_ROW)
#undef EVENT_ROW
};

static _Atomic enum log_level current_level = LOG_LEVEL_NOTICE;
static _Atomic uint64_t left_out_total;
static pthread_once_t sink_once = PTHREAD_ONCE_INIT;
static bool sink_is_journal;
static int journal = -1; /* its socket, where it is to be used */
static const char *journal_path;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&current_level, level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return atomic_load_explicit(&current_level, memory_order_relaxed);
}

int log_level_parse(const char *word, enum log_level *level)
{
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(word, levels[i].name) == 0) {
            *level = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *log_level_name(enum log_level level)
{
    return levels[level].name;
}

/*
 * JOURNAL_STREAM says device:inode of the stream the service was started with. It is inherited by children whose
 * stderr was redirected since, so the numbers have to match.
 */
static void look_at_sink(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;

    if (stream == NULL || sscanf(stream, "%llu:%llu", &device, &inode) != 2 || fstat(STDERR_FILENO, &st) != 0) {
        return;
    }
    sink_is_journal = st.st_dev == (dev_t)device && st.st_ino == (ino_t)inode;
    if (sink_is_journal) {
        const char *path = getenv("GLIDE_RDMAD_TEST_JOURNAL"); /* tests play the journal */
        journal_path = path != NULL ? path : JOURNAL_PATH;
        journal = journal_open();
    }
}

/* Text of peers ends up in messages: a control character in it must neither start a line nor move a cursor. */
static void mask_controls(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) {
            text[i] = c == '\t' ? ' ' : '?';
        }
    }
}

/* Appends what fits. */
static size_t append(char *text, size_t size, size_t length, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static size_t append(char *text, size_t size, size_t length, const char *format, ...)
{
    va_list arguments;
    int added;

    va_start(arguments, format);
    added = vsnprintf(text + length, size - length, format, arguments);
    va_end(arguments);
    if (added < 0) {
        return length;
    }
    return (size_t)added < size - length ? length + (size_t)added : size - 1;
}

/* The fields that are there, each as `before`, its name, '=', its value, `after`. */
static size_t append_fields(char *text, size_t size, size_t length, const struct log_fields *fields, bool native)
{
    const struct {
        const char *field, *key;
        uint64_t value;
    } numbers[] = {{"SESSION", "session", fields->session},
                   {"REQUEST", "request", fields->request},
                   {"REGION", "region", fields->region},
                   {"TRANSFER", "transfer", fields->transfer}};
    const char *before = native ? "" : " ", *after = native ? "\n" : "";

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value > 0) {
            length = append(text, size, length, "%s%s=%llu%s", before, native ? numbers[i].field : numbers[i].key,
                            (unsigned long long)numbers[i].value, after);
        }
    }
    if (fields->node != NULL) {
        char node[256];
        snprintf(node, sizeof(node), "%s", fields->node);
        mask_controls(node, strlen(node));
        length = append(text, size, length, "%s%s=%s%s", before, native ? "NODE" : "node", node, after);
    }
    if (fields->has_uid) {
        length = append(text, size, length, "%s%s=%u%s", before, native ? "UID" : "uid", fields->uid, after);
    }
    if (fields->event != LOG_EVENT_NONE) {
        length = append(text, size, length, "%s%s=%s%s", before, native ? "MESSAGE_ID" : "event",
                        native ? events[fields->event].id : events[fields->event].name, after);
    }
    return length;
}

/* False: nobody can be reached there. */
static bool to_journal(const struct log_fields *fields, enum log_level level, const char *message)
{
    char entry[LOG_LINE_BYTES + 1024];
    size_t length = append(entry, sizeof(entry), 0, "PRIORITY=%d\nSYSLOG_IDENTIFIER=glide-rdmad\n",
                           levels[level].priority);
    int status;

    length = append_fields(entry, sizeof(entry), length, fields, true);
    length = append(entry, sizeof(entry), length, "MESSAGE=%s\n", message);
    status = journal_send(journal, journal_path, entry, length);
    if (status == -EAGAIN) {
        atomic_fetch_add_explicit(&left_out_total, 1, memory_order_relaxed);
    }
    return status == 0 || status == -EAGAIN;
}

/*
 * A reader that hangs costs lines, as a journal does, and no transfer. What poll() calls writable takes a line without
 * waiting: a pipe has room for PIPE_BUF then. One line at a time, or two would count on the same room. Standard error
 * is not made non-blocking, since it is shared with others.
 */
static void write_if_room(const char *line, size_t length)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct pollfd entry = {.fd = STDERR_FILENO, .events = POLLOUT};

    pthread_mutex_lock(&lock);
    if (poll(&entry, 1, 0) == 0) {
        atomic_fetch_add_explicit(&left_out_total, 1, memory_order_relaxed);
    } else {
        while (write(STDERR_FILENO, line, length) < 0 && errno == EINTR) {
        }
    }
    pthread_mutex_unlock(&lock);
}

static void to_stderr(const struct log_fields *fields, enum log_level level, const char *message)
{
    char line[LOG_LINE_BYTES + 1024];
    _Static_assert(sizeof(line) <= PIPE_BUF, "see write_if_room");
    size_t length = sink_is_journal ? append(line, sizeof(line), 0, "<%d>%s", levels[level].priority, message)
                                    : append(line, sizeof(line), 0, "level=%s %s", levels[level].name, message);

    length = append_fields(line, sizeof(line), length, fields, false);
    line[length++] = '\n'; /* in place of the final zero byte */
    write_if_room(line, length);
}

static void write_line(const struct log_fields *fields, enum log_level level, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

static void write_line(const struct log_fields *fields, enum log_level level, const char *format, va_list arguments)
{
    int saved_errno = errno;
    char message[LOG_LINE_BYTES];

    pthread_once(&sink_once, look_at_sink);
    if (vsnprintf(message, sizeof(message), format, arguments) >= 0) {
        mask_controls(message, strlen(message));
        if (journal < 0 || !to_journal(fields, level, message)) {
            to_stderr(fields, level, message);
        }
    }
    errno = saved_errno;
}

void log_write(enum log_level level, const char *format, ...)
{
    static const struct log_fields none;
    va_list arguments;

    if (level > log_get_level()) {
        return;
    }
    va_start(arguments, format);
    write_line(&none, level, format, arguments);
    va_end(arguments);
}

void log_about(const struct log_fields *fields, enum log_level level, const char *format, ...)
{
    va_list arguments;

    if (level > log_get_level()) {
        return;
    }
    va_start(arguments, format);
    write_line(fields, level, format, arguments);
    va_end(arguments);
}

static void write_limited(struct log_limit *limit, uint64_t now_ms, const struct log_fields *fields,
                          enum log_level level, const char *format, va_list arguments)
    __attribute__((format(printf, 5, 0)));

static void write_limited(struct log_limit *limit, uint64_t now_ms, const struct log_fields *fields,
                          enum log_level level, const char *format, va_list arguments)
{
    char text[LOG_LINE_BYTES];
    uint64_t second = now_ms / 1000 + 1;

    if (level > log_get_level()) {
        return;
    }
    if (limit->second == second) {
        limit->left_out++;
        atomic_fetch_add_explicit(&left_out_total, 1, memory_order_relaxed);
        return;
    }
    vsnprintf(text, sizeof(text), format, arguments);
    if (limit->left_out > 0) {
        log_about(fields, level, "%.1900s (and %llu times more since the last such line)", text,
                  (unsigned long long)limit->left_out);
    } else {
        log_about(fields, level, "%s", text);
    }
    limit->second = second;
    limit->left_out = 0;
}

void log_limited(struct log_limit *limit, uint64_t now_ms, enum log_level level, const char *format, ...)
{
    static const struct log_fields none;
    va_list arguments;

    va_start(arguments, format);
    write_limited(limit, now_ms, &none, level, format, arguments);
    va_end(arguments);
}

void log_limited_about(struct log_limit *limit, uint64_t now_ms, const struct log_fields *fields, enum log_level level,
                       const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_limited(limit, now_ms, fields, level, format, arguments);
    va_end(arguments);
}

uint64_t log_left_out(void)
{
    return atomic_load_explicit(&left_out_total, memory_order_relaxed);
}
