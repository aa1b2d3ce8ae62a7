#include "client/ctl/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/report.h"

static enum ctl_exit cannot_read(const struct source *source)
{
    /* read() stores into memory that the host may not have. */
    if (errno == EFAULT || errno == ENOMEM) {
        report("the host or the cgroup has no memory left for %s", source->name);
        return CTL_SYSTEM;
    }
    report("cannot read %s: %s", source->name, strerror(errno));
    return CTL_INPUT;
}

static enum ctl_exit refuse_kind(const struct source *source, mode_t mode)
{
    report("%s is %s, not a regular file; to store what can be read from it, pass it as standard input and - as FILE",
           source->name,
           S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device");
    return CTL_INPUT;
}

/* Files of /proc say 0 and hold more: how much shows when they are read. */
static void measure(struct source *source, const struct stat *status)
{
    off_t at = S_ISREG(status->st_mode) ? lseek(source->fd, 0, SEEK_CUR) : -1;

    source->known = at >= 0 && status->st_size > at;
    source->size = source->known ? (uint64_t)(status->st_size - at) : 0;
}

static enum ctl_exit open_file(struct source *source, const char *path, struct stat *status)
{
    /* Opening a pipe could block, or wake its writer. */
    if (stat(path, status) != 0) {
        return cannot_read(source);
    }
    if (!S_ISREG(status->st_mode)) {
        return refuse_kind(source, status->st_mode);
    }
    source->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (source->fd < 0 || fstat(source->fd, status) != 0) {
        return cannot_read(source);
    }
    return S_ISREG(status->st_mode) ? CTL_OK : refuse_kind(source, status->st_mode);
}

enum ctl_exit source_open(struct source *source, const char *path)
{
    struct stat status;
    enum ctl_exit result = CTL_OK;

    *source = (struct source){.fd = -1, .name = path};
    if (strcmp(path, "-") == 0) {
        source->name = "standard input";
        source->fd = STDIN_FILENO;
        result = fstat(source->fd, &status) == 0 ? CTL_OK : cannot_read(source);
    } else {
        result = open_file(source, path, &status);
    }
    if (result == CTL_OK) {
        measure(source, &status);
    }
    return result;
}

enum ctl_exit source_read(struct source *source, unsigned char *bytes, uint64_t length, uint64_t *got)
{
    *got = 0;
    while (*got < length) {
        ssize_t count = read(source->fd, bytes + *got, length - *got);

        if (count == 0) {
            break;
        }
        if (count > 0) {
            *got += (uint64_t)count;
        } else if (errno == EAGAIN) {
            struct pollfd entry = {.fd = source->fd, .events = POLLIN};

            poll(&entry, 1, -1);
        } else if (errno != EINTR) {
            return cannot_read(source);
        }
    }
    return CTL_OK;
}

void source_close(struct source *source)
{
    if (source->fd > STDIN_FILENO) {
        close(source->fd);
    }
    source->fd = -1;
}
