#include "daemon/valkey/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/regular_file.h"
#include "daemon/valkey/secret.h"

#define WHY_BYTES 256

struct auth_read {
    struct offload_job job;
    char *user, *path;
    auth_read_done done; /* NULL: cancelled */
    void *context;
    char password[AUTH_PASSWORD_BYTES];
    size_t length;
    char why[WHY_BYTES];
};

static void auth_read_free(struct auth_read *read)
{
    free(read->user);
    free(read->path);
    secret_free(read, sizeof(*read));
}

/* The first line, as far as it fits: the number of bytes in the buffer, or negative errno. */
static ssize_t fill(int fd, char *buffer, size_t capacity)
{
    size_t used = 0;

    while (used < capacity && memchr(buffer, '\n', used) == NULL) {
        ssize_t got = read(fd, buffer + used, capacity - used);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -errno;
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
    }
    return (ssize_t)used;
}

static void take_first_line(struct auth_read *job, size_t used)
{
    const char *end = memchr(job->password, '\n', used);

    if (end == NULL && used == sizeof(job->password)) {
        snprintf(job->why, sizeof(job->why), "the first line of password_file %.150s is longer than %d bytes",
                 job->path, AUTH_PASSWORD_BYTES - 1);
        return;
    }
    job->length = end != NULL ? (size_t)(end - job->password) : used;
    if (job->length > 0 && job->password[job->length - 1] == '\r') {
        job->length--;
    }
    if (job->length == 0) {
        snprintf(job->why, sizeof(job->why), "the first line of password_file %.150s is empty", job->path);
    }
}

static void run_read(struct offload_job *offload_job)
{
    struct auth_read *job = (struct auth_read *)offload_job;
    int fd = regular_file_open(AT_FDCWD, job->path, NULL);
    ssize_t used = fd >= 0 ? fill(fd, job->password, sizeof(job->password)) : fd;

    if (fd >= 0) {
        close(fd);
    }
    if (used < 0) {
        snprintf(job->why, sizeof(job->why), "cannot read password_file %.150s: %s", job->path,
                 regular_file_error((int)used));
        return;
    }
    take_first_line(job, (size_t)used);
}

/* What stands before the password. */
static int print_head(const struct auth_read *job, char *text, size_t size)
{
    if (job->user == NULL) {
        return snprintf(text, size, "*2\r\n$4\r\nAUTH\r\n$%zu\r\n", job->length);
    }
    return snprintf(text, size, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(job->user), job->user,
                    job->length);
}

/* By hand, and not by hiredis, so that the password is in no memory but that of secrets. */
static char *format_auth(const struct auth_read *job, size_t *length)
{
    size_t head = (size_t)print_head(job, NULL, 0);
    char *command;

    *length = head + job->length + strlen("\r\n");
    command = secret_alloc(*length);
    if (command != NULL) {
        print_head(job, command, head + 1);
        memcpy(command + head, job->password, job->length);
        memcpy(command + head + job->length, "\r\n", strlen("\r\n"));
    }
    return command;
}

static void read_done(struct offload_job *offload_job)
{
    struct auth_read *job = (struct auth_read *)offload_job;
    auth_read_done done = job->done;
    void *context = job->context;
    char why[WHY_BYTES];
    size_t length = 0;
    char *command = NULL;

    if (done != NULL && job->why[0] == '\0') {
        command = format_auth(job, &length);
        if (command == NULL) {
            snprintf(job->why, sizeof(job->why), "out of memory");
        }
    }
    memcpy(why, job->why, sizeof(why));
    auth_read_free(job);
    if (done != NULL) {
        done(context, command, length, why);
    }
}

struct auth_read *auth_read_start(struct offload *offload, const char *user, const char *path, auth_read_done done,
                                  void *context)
{
    struct auth_read *job = secret_alloc(sizeof(*job));

    if (job == NULL) {
        return NULL;
    }
    job->user = user != NULL ? strdup(user) : NULL;
    job->path = strdup(path);
    job->done = done;
    job->context = context;
    if (job->path == NULL || (user != NULL && job->user == NULL)) {
        auth_read_free(job);
        return NULL;
    }
    offload_submit(offload, &job->job, run_read, read_done);
    return job;
}

void auth_read_cancel(struct auth_read *read)
{
    read->done = NULL;
}

void auth_wipe(char *command, size_t length)
{
    secret_free(command, length);
}
