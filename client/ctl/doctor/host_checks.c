/*
 * What the daemon needs from the host: its configuration, libfabric, devices and memory. The first two work without a
 * daemon: the program glide-rdmad is asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/doctor/doctor.h"
#include "client/ctl/doctor/host.h"
#include "client/ctl/doctor/program.h"
#include "client/ctl/text.h"

#define DAEMON_USER "glide-rdmad"
#define NEARLY_FULL 0.9

/* How glide-rdmad --check-config begins to say what is wrong. */
#define CONFIGURATION_ERROR "configuration: "

/* The union of what argv wants and what we have. */
static char *mutable(const char *word)
{
    union {
        const char *in;
        char *out;
    } either = {.in = word};

    return either.out;
}

/* Asks the program glide-rdmad; as program_run(). */
static int ask_program(const struct doctor *doctor, const char *question, char *output, size_t size)
{
    const struct options *options = doctor->options;
    const char *program = options->daemon_program;
    char *argv[5] = {0};

    if (program == NULL) {
        program = access(GRD_DAEMON_PROGRAM, X_OK) == 0 ? GRD_DAEMON_PROGRAM : "glide-rdmad";
    }
    argv[0] = mutable(program);
    argv[1] = mutable(question);
    if (options->config_path != NULL) {
        argv[2] = mutable("--config");
        argv[3] = mutable(options->config_path);
    }
    return program_run(argv, doctor_answer_ms(doctor), output, size);
}

/* Did the program glide-rdmad answer? Then its output has one of the words. Otherwise the check is skipped. */
static bool answered(int rc, const char *output, const char *word, const char *other, struct finding *finding)
{
    if (rc == -ETIMEDOUT) {
        found(finding, VERDICT_SKIPPED, "the program glide-rdmad did not answer in time");
        return false;
    }
    if (rc < 0) {
        found(finding, VERDICT_SKIPPED, "the program glide-rdmad cannot be asked: %s; name it with --daemon-program",
              strerror(-rc));
        return false;
    }
    if (strstr(output, word) == NULL && strstr(output, other) == NULL) {
        found(finding, VERDICT_SKIPPED, "what was asked is no glide-rdmad; name it with --daemon-program");
        return false;
    }
    return true;
}

static void trim(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && text[length - 1] == '\n') {
        text[--length] = '\0';
    }
}

void check_configuration(struct doctor *doctor, struct finding *finding)
{
    char output[DOCTOR_TEXT_BYTES];
    int rc = ask_program(doctor, "--check-config", output, sizeof(output));
    const char *why;

    if (!answered(rc, output, ": good", CONFIGURATION_ERROR, finding)) {
        return;
    }
    trim(output);
    why = strstr(output, CONFIGURATION_ERROR);
    why = why != NULL ? why + strlen(CONFIGURATION_ERROR) : output;
    if (rc == 0) {
        found(finding, VERDICT_OK, "%s", output);
    } else if (geteuid() != 0 && strstr(output, strerror(EACCES)) != NULL) {
        found(finding, VERDICT_SKIPPED, "not for this user: %s", why);
    } else {
        found(finding, VERDICT_FAILED, "%s", why);
        advise(finding, "mend the file; glide-rdmad.conf(5) explains each key. Another file is named with --config");
    }
}

/* --- fabric ------------------------------------------------------------------------------------------------------ */

static const char *fabric_advice(const char *provider)
{
    return strcmp(provider, "tcp") == 0
               ? "install libfabric 2.0 or newer, or name it with [fabric] library; [fabric] bind must be an address "
                 "of this host"
               : "install libfabric 2.0 or newer with this provider and the drivers of the device (on EC2: the EFA "
                 "installer), or name the library with [fabric] library";
}

static void judge_status(const struct doctor *doctor, struct finding *finding)
{
    const char *version = json_string_value(doctor_status(doctor, "fabric", "libfabric"));
    const char *providers = json_string_value(doctor_status(doctor, "fabric", "providers"));
    const char *why = json_string_value(doctor_status(doctor, "fabric", "why"));

    if (json_is_true(doctor_status(doctor, "fabric", "usable"))) {
        found(finding, VERDICT_OK, "libfabric %s, configured provider %s is usable; providers: %s",
              version != NULL ? version : "?", doctor->provider, providers != NULL ? providers : "?");
        return;
    }
    found(finding, VERDICT_FAILED, "configured provider %s: %s", doctor->provider, why != NULL ? why : "not usable");
    advise(finding, "%s; then restart the daemon", fabric_advice(doctor->provider));
}

/* The line that begins so, without its beginning, cut to `size`; "" where there is none. */
static void line_after(const char *text, const char *begin, char *out, size_t size)
{
    const char *line = strstr(text, begin);
    size_t length;

    out[0] = '\0';
    if (line != NULL) {
        line += strlen(begin);
        length = strcspn(line, "\n");
        snprintf(out, size, "%.*s", (int)(length < size ? length : size), line);
    }
}

/* What glide-rdmad --version prints. */
static void judge_version(struct doctor *doctor, const char *output, struct finding *finding)
{
    char version[128], providers[512], configured[DOCTOR_TEXT_BYTES / 2];
    char *colon;

    line_after(output, "\nlibfabric ", version, sizeof(version));
    line_after(output, "\nproviders: ", providers, sizeof(providers));
    line_after(output, "\nconfigured provider: ", configured, sizeof(configured));
    colon = strchr(configured, ':');
    if (colon != NULL) {
        snprintf(doctor->provider, sizeof(doctor->provider), "%.*s", (int)(colon - configured), configured);
    }
    if (version[0] == '\0') {
        line_after(output, "\nlibfabric: ", version, sizeof(version));
        found(finding, VERDICT_FAILED, "libfabric: %s", version);
        advise(finding, "%s", fabric_advice(doctor->provider));
    } else if (colon == NULL) {
        found(finding, VERDICT_WARNING, "libfabric %s, providers: %s; the configured one is not known, because the "
              "configuration cannot be read", version, providers);
    } else if (strcmp(colon, ": usable") != 0) {
        found(finding, VERDICT_FAILED, "libfabric %s, configured provider %s", version, configured);
        advise(finding, "%s", fabric_advice(doctor->provider));
    } else {
        found(finding, VERDICT_OK, "libfabric %s, configured provider %s is usable; providers: %s", version,
              doctor->provider, providers);
    }
}

void check_fabric(struct doctor *doctor, struct finding *finding)
{
    char output[DOCTOR_TEXT_BYTES];
    int rc;

    if (doctor->status != NULL) {
        judge_status(doctor, finding);
        return;
    }
    rc = ask_program(doctor, "--version", output, sizeof(output));
    if (answered(rc, output, "\nlibfabric ", "\nlibfabric: ", finding)) {
        judge_version(doctor, output, finding);
    }
}

/* --- devices and memory ------------------------------------------------------------------------------------------ */

void check_devices(struct doctor *doctor, struct finding *finding)
{
    const struct passwd *user = getpwnam(DAEMON_USER);

    host_devices("", doctor->provider, user != NULL ? user->pw_uid : geteuid(),
                 user != NULL ? user->pw_gid : getegid(), finding);
}

void check_huge_pages(struct doctor *doctor, struct finding *finding)
{
    host_huge_pages("", doctor->provider, finding);
}

static bool without_status(const struct doctor *doctor, struct finding *finding)
{
    if (doctor->status == NULL) {
        found(finding, VERDICT_SKIPPED, "needs the daemon");
        return true;
    }
    return false;
}

static uint64_t number(json_t *object, const char *member)
{
    return (uint64_t)json_integer_value(json_object_get(object, member));
}

void check_memlock(struct doctor *doctor, struct finding *finding)
{
    json_t *memlock = doctor_status(doctor, "memory", "memlock");
    const char *source = json_string_value(json_object_get(memlock, "source"));
    char limit[TEXT_NUMBER_BYTES], rlimit[TEXT_NUMBER_BYTES];
    json_t *pins = json_object_get(memlock, "pins");

    if (without_status(doctor, finding)) {
        return;
    }
    text_bytes(limit, number(memlock, "limit"));
    text_bytes(rlimit, number(memlock, "rlimit"));
    if (source == NULL) {
        found(finding, VERDICT_SKIPPED, "the daemon does not tell its budget");
    } else if (strcmp(source, "RLIMIT_MEMLOCK") == 0) {
        found(finding, VERDICT_WARNING, "no more than %s can be registered, because RLIMIT_MEMLOCK of the daemon is %s",
              limit, rlimit);
        advise(finding, "set LimitMEMLOCK=infinity in its unit (systemctl edit glide-rdmad) and restart it");
    } else if (json_is_false(pins)) {
        found(finding, VERDICT_OK, "budget %s (%s); provider %s pins nothing, so RLIMIT_MEMLOCK does not count", limit,
              source, doctor->provider);
    } else {
        found(finding, VERDICT_OK, "budget %s (%s); RLIMIT_MEMLOCK of the daemon: %s", limit, source,
              pins == NULL ? "not told" : number(memlock, "rlimit") > 0 ? rlimit : "does not bind it");
    }
}

static bool nearly_full(json_t *object, const char *used, const char *limit)
{
    uint64_t most = number(object, limit);

    return most > 0 && (double)number(object, used) > NEARLY_FULL * (double)most;
}

/* One NIC, behind those before it. */
static void describe_device(json_t *device, struct finding *finding)
{
    size_t length = strlen(finding->text);
    const char *name = json_string_value(json_object_get(device, "nic"));
    char used[TEXT_NUMBER_BYTES], limit[TEXT_NUMBER_BYTES], registrations[32] = "no stated limit";

    if (number(device, "registrations_limit") > 0) {
        snprintf(registrations, sizeof(registrations), "of %" PRIu64, number(device, "registrations_limit"));
    }
    text_bytes(used, number(device, "used"));
    text_bytes(limit, number(device, "limit"));
    snprintf(finding->text + length, sizeof(finding->text) - length, "%s%s: %s registered, limit %s; %" PRIu64
             " registrations, %s", length > 0 ? "; " : "", name != NULL ? name : "?", used,
             number(device, "limit") > 0 ? limit : "none", number(device, "registrations"), registrations);
    if (nearly_full(device, "used", "limit") || nearly_full(device, "registrations", "registrations_limit")) {
        finding->verdict = VERDICT_WARNING;
        advise(finding, "a device is nearly full: close regions that are not needed, share memory files, or make "
                        "regions larger and fewer");
    }
}

void check_device_limits(struct doctor *doctor, struct finding *finding)
{
    json_t *devices = doctor_status(doctor, "memory", "devices"), *device;
    uint64_t quarantined = (uint64_t)json_integer_value(doctor_status(doctor, "memory", "quarantined_bytes"));
    size_t at;

    if (without_status(doctor, finding)) {
        return;
    }
    if (json_array_size(devices) == 0) {
        found(finding, VERDICT_SKIPPED, "the daemon has no device");
        return;
    }
    finding->verdict = VERDICT_OK;
    json_array_foreach(devices, at, device) {
        describe_device(device, finding);
    }
    if (quarantined > 0) {
        size_t length = strlen(finding->text);

        finding->verdict = VERDICT_WARNING;
        snprintf(finding->text + length, sizeof(finding->text) - length, "; %" PRIu64 " bytes are quarantined",
                 quarantined);
        advise(finding, "devices did not let go of memory, which is safe, but lost until the daemon is restarted");
    }
}
