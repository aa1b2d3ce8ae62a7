/* The log: one line and one write a message, in the form that its reader needs. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "tests/unit/unit_main.h"

static int reader;
static char packet[8192];

/* Standard error becomes a packet socket: a packet is a write. */
static void set_up(void)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    dup2(pair[1], STDERR_FILENO);
    close(pair[1]);
    reader = pair[0];
    unsetenv("JOURNAL_STREAM");
}

static const char *next(void)
{
    ssize_t n = recv(reader, packet, sizeof(packet) - 1, 0);

    packet[n > 0 ? n : 0] = '\0';
    return packet;
}

START_TEST(plain)
{
    set_up();
    errno = EPERM;
    log_warn("%s has %d", "it", 3);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_str_eq(next(), "level=warn it has 3\n");
    ck_assert_str_eq(next(), "");
}
END_TEST

START_TEST(levels)
{
    enum log_level level;

    set_up();
    ck_assert_int_eq(log_get_level(), LOG_LEVEL_NOTICE);
    log_info("dropped");
    log_notice("kept");
    ck_assert_str_eq(next(), "level=notice kept\n");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("now");
    ck_assert_str_eq(next(), "level=debug now\n");
    ck_assert_int_eq(log_level_parse("error", &level), 0);
    ck_assert_int_eq(level, LOG_LEVEL_ERROR);
    ck_assert_int_eq(log_level_parse("loud", &level), -EINVAL);
    ck_assert_str_eq(log_level_name(LOG_LEVEL_INFO), "info");
}
END_TEST

/* Standard error is the journal's stream; its socket is played at `path`. */
static void set_up_journal(const char *path)
{
    struct stat st;
    char stream[64];

    set_up();
    fstat(STDERR_FILENO, &st);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    setenv("GLIDE_RDMAD_TEST_JOURNAL", path, 1);
}

START_TEST(without_a_journal)
{
    set_up_journal("/nowhere/socket");
    log_error("lost");
    ck_assert_str_eq(next(), "<3>lost\n");
    log_about(&(struct log_fields){.session = 7}, LOG_LEVEL_WARN, "it");
    ck_assert_str_eq(next(), "<4>it session=7\n");
}
END_TEST

static int listen_as_journal(char path[108])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    snprintf(path, 108, "/tmp/grd-journal-%d", (int)getpid());
    memcpy(address.sun_path, path, strlen(path) + 1);
    unlink(path); /* of a process that had our number, and crashed */
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Field by field: the journal takes each line as one. */
START_TEST(journal)
{
    char path[108];
    int fd = listen_as_journal(path);
    struct log_fields fields = {.event = LOG_EVENT_NODE_DOWN, .session = 1, .request = 2, .region = 3, .transfer = 4,
                                .node = "a\nPRIORITY=0", .has_uid = true, .uid = 0};

    set_up_journal(path);
    log_about(&fields, LOG_LEVEL_WARN, "is %s", "down\nFORGED=1");
    ck_assert_str_eq(next(), "");
    packet[recv(fd, packet, sizeof(packet) - 1, 0)] = '\0';
    ck_assert_str_eq(packet, "PRIORITY=4\nSYSLOG_IDENTIFIER=glide-rdmad\nSESSION=1\nREQUEST=2\nREGION=3\nTRANSFER=4\n"
                             "NODE=a?PRIORITY=0\nUID=0\nMESSAGE_ID=f94ef0529e014dc09d8ca4ec1211085c\n"
                             "MESSAGE=is down?FORGED=1\n");
    log_notice("plain");
    packet[recv(fd, packet, sizeof(packet) - 1, 0)] = '\0';
    ck_assert_str_eq(packet, "PRIORITY=5\nSYSLOG_IDENTIFIER=glide-rdmad\nMESSAGE=plain\n");
    unlink(path);
}
END_TEST

/* One that does not read: what has no room is counted, nobody waits, and it goes on when there is room. */
START_TEST(full_journal)
{
    char path[108];
    int fd = listen_as_journal(path), taken = 0;
    uint64_t lines = 5000;

    set_up_journal(path);
    for (uint64_t i = 0; i < lines; i++) {
        log_notice("line");
    }
    while (recv(fd, packet, sizeof(packet), 0) > 0) {
        taken++;
    }
    ck_assert_int_gt(taken, 0);
    ck_assert_uint_eq(log_left_out(), lines - (uint64_t)taken);
    ck_assert_uint_gt(log_left_out(), 0);
    log_notice("again");
    ck_assert_int_gt(recv(fd, packet, sizeof(packet), 0), 0);
    ck_assert_str_eq(next(), "");
    unlink(path);
}
END_TEST

START_TEST(fields)
{
    struct log_fields all = {.event = LOG_EVENT_QUARANTINE, .session = 1, .request = 2, .region = 3, .transfer = 4,
                             .node = "h:1", .has_uid = true, .uid = 5};

    set_up();
    log_about(&all, LOG_LEVEL_ERROR, "kept");
    ck_assert_str_eq(next(), "level=error kept session=1 request=2 region=3 transfer=4 node=h:1 uid=5 event=quarantine\n");
    log_about(LOG_EVENT(READY), LOG_LEVEL_NOTICE, "ready");
    ck_assert_str_eq(next(), "level=notice ready event=ready\n");
}
END_TEST

/* The variable of a parent whose stream this is not. */
START_TEST(other_journal)
{
    set_up();
    setenv("JOURNAL_STREAM", "1:2", 1);
    log_error("lost");
    ck_assert_str_eq(next(), "level=error lost\n");
}
END_TEST

START_TEST(hostile_text)
{
    char text[5000];

    set_up();
    log_warn("user %s", "a\nlevel=error forged\x1b[2J\tb");
    ck_assert_str_eq(next(), "level=warn user a?level=error forged?[2J b\n");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    log_warn("%s", text);
    ck_assert_uint_lt(strlen(next()), 2100);
    ck_assert_int_eq(packet[strlen(packet) - 1], '\n');
}
END_TEST

START_TEST(limited)
{
    struct log_limit limit = {0}, other = {0};

    set_up();
    log_limited(&limit, 999, LOG_LEVEL_WARN, "uid %d", 1);
    ck_assert_str_eq(next(), "level=warn uid 1\n");
    log_limited(&limit, 0, LOG_LEVEL_WARN, "uid %d", 2);
    log_limited(&limit, 999, LOG_LEVEL_WARN, "uid %d", 3);
    ck_assert_str_eq(next(), "");
    log_limited(&other, 999, LOG_LEVEL_WARN, "another");
    ck_assert_str_eq(next(), "level=warn another\n");
    log_limited(&limit, 1000, LOG_LEVEL_WARN, "uid %d", 4);
    ck_assert_str_eq(next(), "level=warn uid 4 (and 2 times more since the last such line)\n");
    log_limited(&limit, 2000, LOG_LEVEL_WARN, "uid %d", 5);
    ck_assert_str_eq(next(), "level=warn uid 5\n");
    log_limited(&limit, 3000, LOG_LEVEL_DEBUG, "not of this level");
    log_limited(&limit, 3000, LOG_LEVEL_WARN, "uid %d", 6);
    ck_assert_str_eq(next(), "level=warn uid 6\n");
}
END_TEST

static void *shout(void *argument)
{
    for (int i = 0; i < 20; i++) {
        log_warn("%0100d", 7);
    }
    return NULL;
}

/* Standard error is a pipe that nobody reads, which is not non-blocking. */
START_TEST(full_pipe)
{
    int ends[2];
    uint64_t before = log_left_out();

    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
    for (unsigned i = 0; log_left_out() == before; i++) {
        ck_assert_uint_lt(i, 100000);
        log_notice("line %u", i);
    }
    log_notice("left out as well");
    ck_assert_uint_eq(log_left_out(), before + 2);
    ck_assert_int_gt(read(ends[0], packet, 2 * 4096), 4096); /* room again */
    log_notice("written");
    ck_assert_uint_eq(log_left_out(), before + 2);
}
END_TEST

START_TEST(threads)
{
    pthread_t all[4];
    int lines = 0;

    set_up();
    for (int i = 0; i < 4; i++) {
        pthread_create(&all[i], NULL, shout, NULL);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(all[i], NULL);
    }
    while (next()[0] != '\0') {
        ck_assert_uint_eq(strlen(packet), strlen("level=warn ") + 101);
        lines++;
    }
    ck_assert_int_gt(lines, 10); /* the socket may be full */
}
END_TEST

UNIT_MAIN("log", plain, levels, fields, without_a_journal, journal, full_journal, other_journal, hostile_text, limited, full_pipe,
          threads)
