/*
 * The sockets and who listens there.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/control.h"
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/report.h"

static bool may_connect(const char *path)
{
    return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

/* "mode 0660, owner root, group glide-rdmad" */
static void describe(const struct stat *status, char *text, size_t size)
{
    const struct passwd *user = getpwuid(status->st_uid);
    const struct group *group = getgrgid(status->st_gid);
    int length = snprintf(text, size, "mode %04o, ", (unsigned)status->st_mode & 07777);

    length += user != NULL ? snprintf(text + length, size - (size_t)length, "owner %.64s, ", user->pw_name)
                           : snprintf(text + length, size - (size_t)length, "owner %u, ", (unsigned)status->st_uid);
    if (group != NULL) {
        snprintf(text + length, size - (size_t)length, "group %.64s", group->gr_name);
    } else {
        snprintf(text + length, size - (size_t)length, "group %u", (unsigned)status->st_gid);
    }
}

/* Is it a socket that this user may connect to? Otherwise the finding says what it is. */
static bool look_at_socket(const char *path, enum verdict missing, enum verdict closed, struct finding *finding)
{
    char modes[256];
    struct stat status;

    if (stat(path, &status) != 0) {
        enum verdict verdict = errno == EACCES ? closed : missing;

        found(finding, verdict, "%s: %s", path, strerror(errno));
        return false;
    }
    describe(&status, modes, sizeof(modes));
    if (!S_ISSOCK(status.st_mode)) {
        found(finding, VERDICT_FAILED, "%s is no socket", path);
        return false;
    }
    if (!may_connect(path)) {
        found(finding, closed, "this user may not connect to %s: %s", path, modes);
        return false;
    }
    found(finding, VERDICT_OK, "%s: %s; this user may connect", path, modes);
    return true;
}

void check_client_socket(struct doctor *doctor, struct finding *finding)
{
    const char *path = doctor->options->socket_path;
    struct stat status;

    if (look_at_socket(path, VERDICT_FAILED, VERDICT_FAILED, finding)) {
        return;
    }
    if (stat(path, &status) != 0 && errno == EACCES) {
        advise(finding, "a directory on the way does not admit this user; members of the socket's group should pass");
    } else if (stat(path, &status) == 0 && S_ISSOCK(status.st_mode)) {
        report_collect(finding->advice, sizeof(finding->advice));
        report_no_access(path);
        report_collect(NULL, 0);
    } else {
        advise(finding, "start the daemon (systemctl enable --now glide-rdmad.socket glide-rdmad.service), or name its "
                        "socket with --socket");
    }
}

/* What only operators see must answer too. */
void check_admin_socket(struct doctor *doctor, struct finding *finding)
{
    const char *path = doctor->options->admin_socket_path;
    char why[DOCTOR_TEXT_BYTES];
    struct control *control;
    json_t *nodes = NULL;
    enum ctl_exit status;

    if (!look_at_socket(path, VERDICT_SKIPPED, VERDICT_SKIPPED, finding)) {
        if (finding->verdict == VERDICT_FAILED) {
            advise(finding, "name the admin socket with --admin-socket");
        }
        return;
    }
    report_collect(why, sizeof(why));
    status = control_open(path, false, doctor_answer_ms(doctor), &control);
    if (status == CTL_OK) {
        status = control_call(control, "nodes", NULL, &nodes);
        control_close(control);
    }
    report_collect(NULL, 0);
    json_decref(nodes);
    if (status != CTL_OK) {
        found(finding, VERDICT_FAILED, "%s", why);
        advise(finding, "see what the daemon logged: journalctl -u glide-rdmad");
    }
}

static void remember_provider(struct doctor *doctor)
{
    const char *provider = json_string_value(doctor_status(doctor, "fabric", "provider"));

    if (provider != NULL) {
        snprintf(doctor->provider, sizeof(doctor->provider), "%s", provider);
    }
}

/* A daemon that has just started may still be connecting to its server: a command on keys waits for that. */
static bool ask_settled_status(struct doctor *doctor, char why[DOCTOR_TEXT_BYTES])
{
    char ignored[DOCTOR_TEXT_BYTES];
    json_t *entry = NULL;

    if (!doctor_ask_status(doctor, why) || json_is_true(doctor_status(doctor, "daemon", "usable"))) {
        return doctor->status != NULL;
    }
    doctor_ask_key(doctor, "keys.exists", &entry, ignored);
    json_decref(entry);
    return doctor_ask_status(doctor, why);
}

/* Connected: what does it say of itself? */
static void judge(struct doctor *doctor, struct finding *finding)
{
    struct grd_client_info info = {.struct_size = sizeof(info)};
    char why[DOCTOR_TEXT_BYTES];

    grd_client_info(doctor->client, &info, NULL);
    if (!ask_settled_status(doctor, why)) {
        found(finding, VERDICT_FAILED, "status: %s", why);
        /* Nor could anything else be asked, and what is stored be deleted. */
        grd_close(doctor->client);
        doctor->client = NULL;
        advise(finding, "see what the daemon logged: journalctl -u glide-rdmad. The doctor needs two sessions at once: "
                        "does a quota leave this user fewer?");
        return;
    }
    remember_provider(doctor);
    if (json_is_true(doctor_status(doctor, "daemon", "draining"))) {
        found(finding, VERDICT_WARNING, "%s takes no new transfers: it is stopping, or was drained", info.server);
        advise(finding, "end the drain with glide-rdmactl drain --undo, or start the daemon again");
        return;
    }
    if (!json_is_true(doctor_status(doctor, "daemon", "usable"))) {
        const char *reason = json_string_value(doctor_status(doctor, "daemon", "why"));

        found(finding, VERDICT_FAILED, "%s cannot carry values now: %s", info.server, reason != NULL ? reason : "?");
        advise(finding, "the checks behind this one tell which part is missing");
        return;
    }
    found(finding, VERDICT_OK, "%s, protocol %llu, usable", info.server, (unsigned long long)info.protocol);
}

void check_daemon(struct doctor *doctor, struct finding *finding)
{
    struct grd_connect_options connect = {
        .struct_size = sizeof(connect),
        .socket_path = doctor->options->socket_path,
        .name = "glide-rdmactl doctor",
        .timeout_ms = doctor_answer_ms(doctor),
        .flags = GRD_CLIENT_NO_RECONNECT,
    };
    struct grd_error error;

    if (grd_connect(&connect, &doctor->client, &error) == 0) {
        judge(doctor, finding);
        return;
    }
    found_error(finding, "no connection", &error);
    advise(finding, error.code == GRD_ERR_NO_DAEMON
                        ? "is it running? systemctl status glide-rdmad.socket glide-rdmad.service"
                        : "the message tells what does not admit this user; journalctl -u glide-rdmad tells more");
}
