#include "client/ctl/report.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/progress.h"
#include "client/ctl/text.h"
#include "proto/errors.h"

#define NAME_BYTES 96

static char *collected;
static size_t collected_size;

void report_collect(char *line, size_t size)
{
    collected = line;
    collected_size = size;
    if (line != NULL) {
        line[0] = '\0';
    }
}

void report(const char *format, ...)
{
    char line[4096];
    char *safe;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (collected != NULL) {
        snprintf(collected, collected_size, "%s", line);
        return;
    }
    progress_end();
    safe = text_safe(line, strlen(line));
    fprintf(stderr, "glide-rdmactl: %s\n", safe);
    free(safe);
}

void *need_memory(void *memory)
{
    if (memory == NULL) {
        progress_end();
        fputs("glide-rdmactl: out of memory\n", stderr);
        exit(CTL_SYSTEM);
    }
    return memory;
}

enum ctl_exit report_status(int code)
{
    switch (code) {
    case PROTO_OK:
        return CTL_OK;
    case PROTO_ERR_BUSY:
    case PROTO_ERR_OVERLAP:
    case PROTO_ERR_OVER_BUDGET:
    case PROTO_ERR_OVER_QUOTA:
    case PROTO_ERR_CANCELLED:
    case PROTO_ERR_DEADLINE:
    case PROTO_ERR_DRAINING:
        return CTL_AGAIN;
    case PROTO_ERR_NO_DAEMON:
    case PROTO_ERR_NOT_USABLE:
    case PROTO_ERR_SERVER_DOWN:
    case PROTO_ERR_LOST:
    case PROTO_ERR_INTERRUPTED:
        return CTL_UNAVAILABLE;
    case PROTO_ERR_OVER_LIMIT:
    case PROTO_ERR_TOO_LARGE:
    case PROTO_ERR_WRONG_TYPE:
    case PROTO_ERR_CHECKSUM:
        return CTL_DATA;
    case PROTO_ERR_PROTOCOL:
    case PROTO_ERR_PARSE:
    case PROTO_ERR_INVALID_REQUEST:
    case PROTO_ERR_NO_METHOD:
    case PROTO_ERR_INVALID_PARAMS:
        return CTL_PROTOCOL;
    case PROTO_ERR_NO_ACCESS:
    case PROTO_ERR_DENIED:
        return CTL_NO_ACCESS;
    case PROTO_ERR_SYSTEM:
    case PROTO_ERR_NO_MEMORY:
        return CTL_SYSTEM;
    case PROTO_ERR_INVALID_ARGUMENT:
        return CTL_USAGE;
    default:
        return CTL_INTERNAL;
    }
}

enum ctl_exit report_error(const char *what, const struct grd_error *error)
{
    report("%s: %s (%s)%s", what, error->message, error->name,
           error->may_have_run ? "; it may have been executed" : "");
    return report_status(error->code);
}

enum ctl_exit report_connect_status(int code)
{
    return code == PROTO_ERR_OVER_LIMIT ? CTL_AGAIN : report_status(code);
}

/* --- who may connect --------------------------------------------------------------------------------------------- */

static const char *group_name(gid_t gid, char name[NAME_BYTES])
{
    const struct group *group = getgrgid(gid);

    if (group != NULL) {
        snprintf(name, NAME_BYTES, "\"%s\"", group->gr_name);
    } else {
        snprintf(name, NAME_BYTES, "%u", (unsigned)gid);
    }
    return name;
}

static const char *user_name(uid_t uid, char name[NAME_BYTES])
{
    const struct passwd *user = getpwuid(uid);

    if (user != NULL) {
        snprintf(name, NAME_BYTES, "%s", user->pw_name);
    } else {
        snprintf(name, NAME_BYTES, "uid %u", (unsigned)uid);
    }
    return name;
}

/* Was the user made a member after this login? */
static bool listed_as_member(gid_t gid)
{
    const struct passwd *user = getpwuid(geteuid());
    char name[NAME_BYTES];
    const struct group *group;

    if (user == NULL) {
        return false;
    }
    snprintf(name, sizeof(name), "%s", user->pw_name);
    group = getgrgid(gid);
    for (char **member = group != NULL ? group->gr_mem : NULL; member != NULL && *member != NULL; member++) {
        if (strcmp(*member, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool in_group(gid_t gid)
{
    gid_t groups[NGROUPS_MAX > 1024 ? 1024 : NGROUPS_MAX];
    int count = getgroups((int)(sizeof(groups) / sizeof(groups[0])), groups);

    for (int i = 0; i < count; i++) {
        if (groups[i] == gid) {
            return true;
        }
    }
    return getegid() == gid;
}

/* `needed`: the permission bit of a group that would admit this user. */
static void explain(const char *path, const struct stat *status, mode_t needed)
{
    char user[NAME_BYTES], owner[NAME_BYTES], group[NAME_BYTES];

    user_name(geteuid(), user);
    group_name(status->st_gid, group);
    if ((status->st_mode & needed) == 0) {
        report("%s may not use %s: only its owner may, %s", user, path, user_name(status->st_uid, owner));
    } else if (in_group(status->st_gid)) {
        report("%s may not use %s, although the group %s may, and is one of this process's groups", user, path, group);
    } else if (listed_as_member(status->st_gid)) {
        report("%s may not use %s: the group %s is needed. %s is a member of it, but this process was started before: "
               "log in again", user, path, group, user);
    } else {
        report("%s may not use %s: the group %s is needed (as root: usermod -aG %.*s %s; then log in again)", user,
               path, group, (int)(strlen(group) - (group[0] == '"' ? 2 : 0)), group + (group[0] == '"'), user);
    }
}

/* The first folder of the path that this user may not enter. */
static bool explain_folder(const char *path)
{
    char *folder = need_memory(strdup(path));
    struct stat status;
    bool found = false;

    for (char *slash = strchr(folder + 1, '/'); slash != NULL && !found; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (stat(folder, &status) == 0 && faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) != 0 && errno == EACCES) {
            explain(folder, &status, S_IXGRP);
            found = true;
        }
        *slash = '/';
    }
    free(folder);
    return found;
}

enum ctl_exit report_no_access(const char *socket_path)
{
    struct stat status;

    if (stat(socket_path, &status) == 0) {
        explain(socket_path, &status, S_IWGRP);
    } else if (!explain_folder(socket_path)) {
        report("%s does not admit this user", socket_path);
    }
    return CTL_NO_ACCESS;
}
