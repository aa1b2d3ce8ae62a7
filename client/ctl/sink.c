#include "client/ctl/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/interrupt.h"
#include "client/ctl/progress.h"
#include "client/ctl/report.h"

#define PIECE ((uint64_t)4 << 20)
#define TEMPORARY ".glide-rdmactl.XXXXXX"
#define LINKS_MAX 40 /* as the kernel follows */

static enum ctl_exit cannot_create(const struct sink *sink)
{
    report("cannot create %s: %s", sink->name, strerror(errno));
    return CTL_CREATE;
}

static enum ctl_exit cannot_write(const struct sink *sink)
{
    if (errno != EPIPE) {
        report("cannot write %s: %s", sink->name, strerror(errno));
    }
    return CTL_IO;
}

/* As open() would make it. */
static mode_t default_mode(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return 0666 & ~mask;
}

static enum ctl_exit open_temporary(struct sink *sink)
{
    const char *slash = strrchr(sink->path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - sink->path) + 1 : 0;
    sigset_t signals;

    sink->temporary = need_memory(malloc(folder + sizeof(TEMPORARY)));
    memcpy(sink->temporary, sink->path, folder);
    memcpy(sink->temporary + folder, TEMPORARY, sizeof(TEMPORARY));
    interrupt_hold(&signals);
    sink->fd = mkostemp(sink->temporary, O_CLOEXEC);
    if (sink->fd >= 0) {
        interrupt_remove(sink->temporary);
    }
    interrupt_release(&signals);
    if (sink->fd < 0) {
        enum ctl_exit status = cannot_create(sink);

        free(sink->temporary);
        sink->temporary = NULL;
        return status;
    }
    return CTL_OK;
}

/* What a link points to that need not exist: its target is made, as open() would. NULL and errno where it cannot be. */
static char *follow_dangling(const char *path)
{
    char target[PATH_MAX];
    char *resolved = need_memory(strdup(path));

    for (unsigned links = 0; links <= LINKS_MAX; links++) {
        const char *slash = strrchr(resolved, '/');
        size_t folder = slash != NULL ? (size_t)(slash - resolved) + 1 : 0;
        ssize_t length = readlink(resolved, target, sizeof(target) - 1);
        char *next;

        if (length < 0) {
            return resolved;
        }
        target[length] = '\0';
        next = need_memory(malloc(folder + (size_t)length + 1));
        memcpy(next, resolved, folder);
        memcpy(next + (target[0] == '/' ? 0 : folder), target, (size_t)length + 1);
        free(resolved);
        resolved = next;
    }
    free(resolved);
    errno = ELOOP;
    return NULL;
}

/*
 * What is replaced keeps owner, group and permissions. Where this user may not give it to the group, the permissions of
 * the group would be another group's: they are left out.
 */
static enum ctl_exit keep_access(struct sink *sink, const struct stat *before)
{
    struct stat now;
    mode_t mode = before->st_mode & 0777;

    if (fchown(sink->fd, before->st_uid, before->st_gid) != 0) {
        (void)!fchown(sink->fd, (uid_t)-1, before->st_gid); /* a member of the group may do that much */
    }
    if (fstat(sink->fd, &now) != 0) {
        return cannot_create(sink);
    }
    mode &= now.st_gid == before->st_gid ? 0777 : 0707;
    return fchmod(sink->fd, mode) == 0 ? CTL_OK : cannot_create(sink);
}

static enum ctl_exit open_new(struct sink *sink, const char *path)
{
    enum ctl_exit result;

    sink->path = follow_dangling(path);
    if (sink->path == NULL) {
        return cannot_create(sink);
    }
    result = open_temporary(sink);
    if (result == CTL_OK && fchmod(sink->fd, default_mode()) != 0) {
        result = cannot_create(sink);
    }
    return result;
}

/* What a symbolic link points to is replaced, not the link; a file that may not be written is not replaced. */
static enum ctl_exit open_replacing(struct sink *sink, const char *path, const struct stat *before)
{
    enum ctl_exit result;

    sink->path = realpath(path, NULL);
    if (sink->path == NULL || faccessat(AT_FDCWD, sink->path, W_OK, AT_EACCESS) != 0) {
        return cannot_create(sink);
    }
    result = open_temporary(sink);
    return result == CTL_OK ? keep_access(sink, before) : result;
}

bool sink_is_output(const char *path)
{
    struct stat file, output;

    if (strcmp(path, "-") == 0) {
        return true;
    }
    return stat(path, &file) == 0 && (S_ISREG(file.st_mode) || S_ISFIFO(file.st_mode)) &&
           fstat(STDOUT_FILENO, &output) == 0 && output.st_dev == file.st_dev && output.st_ino == file.st_ino;
}

enum ctl_exit sink_open(struct sink *sink, const char *path)
{
    struct stat status;
    bool there;

    *sink = (struct sink){.fd = -1, .name = path};
    if (sink_is_output(path)) {
        sink->name = "standard output";
        sink->fd = STDOUT_FILENO;
        return CTL_OK;
    }
    there = stat(path, &status) == 0;
    if (!there && errno != ENOENT) {
        return cannot_create(sink);
    }
    if (there && !S_ISREG(status.st_mode)) {
        sink->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return sink->fd >= 0 ? CTL_OK : cannot_create(sink);
    }
    return there ? open_replacing(sink, path, &status) : open_new(sink, path);
}

/* Everything or an errno. Descriptors that somebody else made non-blocking are waited for. */
static int write_all(int fd, const unsigned char *bytes, uint64_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);

        if (written >= 0) {
            bytes += written;
            length -= (uint64_t)written;
        } else if (errno == EAGAIN) {
            struct pollfd entry = {.fd = fd, .events = POLLOUT};

            poll(&entry, 1, -1);
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

enum ctl_exit sink_write(struct sink *sink, const unsigned char *bytes, uint64_t length)
{
    for (uint64_t at = 0; at < length; at += PIECE) {
        uint64_t piece = length - at < PIECE ? length - at : PIECE;

        if (write_all(sink->fd, bytes + at, piece) != 0) {
            return cannot_write(sink);
        }
        progress_add(piece);
    }
    return CTL_OK;
}

static int close_file(struct sink *sink)
{
    int fd = sink->fd;

    sink->fd = -1;
    return fd >= 0 && fd != STDOUT_FILENO ? close(fd) : 0;
}

enum ctl_exit sink_commit(struct sink *sink)
{
    sigset_t signals;
    int rc;

    if (sink->path == NULL) {
        return close_file(sink) == 0 ? CTL_OK : cannot_write(sink);
    }
    if (fsync(sink->fd) != 0 || close_file(sink) != 0) {
        return cannot_write(sink);
    }
    interrupt_hold(&signals);
    rc = rename(sink->temporary, sink->path);
    if (rc == 0) {
        interrupt_remove(NULL);
        free(sink->temporary);
        sink->temporary = NULL;
    }
    interrupt_release(&signals);
    return rc == 0 ? CTL_OK : cannot_create(sink);
}

void sink_discard(struct sink *sink)
{
    sigset_t signals;

    close_file(sink);
    interrupt_hold(&signals);
    if (sink->temporary != NULL) {
        unlink(sink->temporary);
    }
    interrupt_remove(NULL);
    interrupt_release(&signals);
    free(sink->temporary);
    free(sink->path);
    sink->temporary = sink->path = NULL;
}
