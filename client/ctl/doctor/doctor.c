#include "client/ctl/doctor/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/ctl/commands.h"
#include "client/ctl/control.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/keys.h"
#include "client/ctl/progress.h"
#include "client/ctl/report.h"
#include "client/ctl/text.h"
#include "proto/shape.h"

static const char *const verdict_names[VERDICTS] = {"ok", "warning", "failed", "skipped"};

static const struct {
    const char *name;
    doctor_check *run;
} checks[] = {
    {"client_socket", check_client_socket},
    {"admin_socket", check_admin_socket},
    {"daemon", check_daemon},
    {"configuration", check_configuration},
    {"fabric", check_fabric},
    {"devices", check_devices},
    {"memlock", check_memlock},
    {"huge_pages", check_huge_pages},
    {"device_limits", check_device_limits},
    {"valkey", check_valkey},
    {"valkey_rdma", check_valkey_rdma},
    {"module", check_module},
    {"region", check_region},
    {"session", check_session},
    {"round_trip", check_round_trip},
    {"revocation", check_revocation},
};

#define CHECKS (sizeof(checks) / sizeof(checks[0]))

static uint64_t now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* --- for the checks ---------------------------------------------------------------------------------------------- */

static const char *text_member(json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));

    return text != NULL ? text : "the answer cannot be understood";
}

uint64_t doctor_answer_ms(const struct doctor *doctor)
{
    return doctor->options->deadline_ms > 0 ? doctor->options->deadline_ms : DOCTOR_ANSWER_MS;
}

/* One request on a session of its own; `params` is taken over, the result the caller's. */
static bool ask(const struct doctor *doctor, const char *method, json_t *params, json_t **result,
                char why[DOCTOR_TEXT_BYTES])
{
    struct control *control;
    enum ctl_exit status;

    report_collect(why, DOCTOR_TEXT_BYTES);
    status = control_open(doctor->options->socket_path, true, doctor_answer_ms(doctor), &control);
    if (status == CTL_OK) {
        status = control_call(control, method, params, result);
        control_close(control);
    }
    report_collect(NULL, 0);
    json_decref(params);
    return status == CTL_OK;
}

bool doctor_ask_status(struct doctor *doctor, char why[DOCTOR_TEXT_BYTES])
{
    json_t *result = NULL;

    if (!ask(doctor, "status", NULL, &result, why)) {
        return false;
    }
    json_decref(doctor->status);
    doctor->status = result;
    return true;
}

/* A list of keys holds texts, and objects for those that are none. */
static json_t *key_list(const struct doctor *doctor)
{
    struct grd_key key = {doctor->key, strlen(doctor->key)};
    json_t *object = key_json(&key), *text = json_object_get(object, "key");
    json_t *params = need_memory(json_pack("{s:[O]}", "keys", text != NULL ? text : object));

    json_decref(object);
    return params;
}

bool doctor_ask_key(const struct doctor *doctor, const char *method, json_t **entry, char why[DOCTOR_TEXT_BYTES])
{
    json_t *result = NULL, *error;

    if (!ask(doctor, method, key_list(doctor), &result, why)) {
        return false;
    }
    *entry = json_incref(json_array_get(json_object_get(result, "keys"), 0));
    json_decref(result);
    error = json_object_get(*entry, "error");
    if (json_is_object(*entry) && error == NULL) {
        return true;
    }
    snprintf(why, DOCTOR_TEXT_BYTES, "%s: %s (%s)", method, text_member(error, "message"), text_member(error, "name"));
    json_decref(*entry);
    *entry = NULL;
    return false;
}

json_t *doctor_status(const struct doctor *doctor, const char *object, const char *member)
{
    return json_object_get(json_object_get(doctor->status, object), member);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* A key that nobody else has. */
static void choose_key(struct doctor *doctor)
{
    uint64_t random = now_us();

    if (getrandom(&random, sizeof(random), 0) < 0) {
        random ^= (uint64_t)time(NULL) << 20; /* no more than a key */
    }
    snprintf(doctor->key, sizeof(doctor->key), "%sdoctor:%016" PRIx64, doctor->options->key_prefix, random);
}

bool doctor_clean(struct doctor *doctor)
{
    char why[DOCTOR_TEXT_BYTES];
    json_t *entry = NULL;
    bool deleted = !doctor->stored || doctor_ask_key(doctor, "keys.delete", &entry, why);

    json_decref(entry);
    grd_region_close(doctor->region, NULL, NULL);
    grd_close(doctor->client);
    json_decref(doctor->status);
    return deleted;
}

/* --- telling ----------------------------------------------------------------------------------------------------- */

static void print_safe(const char *before, const char *text)
{
    char *safe = text_safe(text, strlen(text));

    printf("%s%s\n", before, safe);
    free(safe);
}

static void print_finding(const char *name, const struct finding *finding, uint64_t microseconds)
{
    char spent[TEXT_NUMBER_BYTES];

    printf("%-8s %-14s %9s  ", verdict_names[finding->verdict], name, text_duration(spent, microseconds));
    print_safe("", finding->text);
    if (finding->advice[0] != '\0') {
        print_safe("         -> ", finding->advice);
    }
    fflush(stdout);
}

static json_t *finding_json(const char *name, const struct finding *finding, uint64_t microseconds)
{
    json_t *text = proto_text_json(finding->text, strlen(finding->text));
    json_t *entry = need_memory(json_pack("{s:s,s:s,s:I,s:o}", "name", name, "verdict", verdict_names[finding->verdict],
                                          "microseconds", (json_int_t)microseconds, "text", text));

    if (finding->advice[0] != '\0') {
        json_object_set_new(entry, "advice", proto_text_json(finding->advice, strlen(finding->advice)));
    }
    return entry;
}

static void print_summary(const struct options *options, json_t *entries, const unsigned counts[VERDICTS])
{
    json_t *summary;

    if (!options->json) {
        json_decref(entries);
        printf("%u ok, %u warnings, %u failed, %u skipped\n", counts[VERDICT_OK], counts[VERDICT_WARNING],
               counts[VERDICT_FAILED], counts[VERDICT_SKIPPED]);
        return;
    }
    summary = need_memory(json_object());
    for (int i = 0; i < VERDICTS; i++) {
        json_object_set_new(summary, verdict_names[i], json_integer(counts[i]));
    }
    print_json(need_memory(json_pack("{s:o,s:o,s:b}", "checks", entries, "summary", summary, "healthy",
                                     counts[VERDICT_FAILED] == 0)));
}

enum ctl_exit command_doctor(const struct options *options)
{
    struct doctor doctor = {.options = options};
    unsigned counts[VERDICTS] = {0};
    json_t *entries = need_memory(json_array());

    choose_key(&doctor);
    interrupt_defer();
    for (size_t i = 0; i < CHECKS && !interrupt_seen(); i++) {
        struct finding finding = {.verdict = VERDICT_SKIPPED};
        uint64_t began = now_us(), spent;

        checks[i].run(&doctor, &finding);
        spent = now_us() - began;
        progress_end();
        counts[finding.verdict]++;
        if (options->json) {
            json_array_append_new(entries, finding_json(checks[i].name, &finding, spent));
        } else {
            print_finding(checks[i].name, &finding, spent);
        }
    }
    if (!doctor_clean(&doctor)) {
        report("the key %s could not be deleted; it ends by itself within %d minutes", doctor.key,
               DOCTOR_TTL_MS / 60000);
    }
    interrupt_obey();
    print_summary(options, entries, counts);
    return counts[VERDICT_FAILED] == 0 ? CTL_OK : CTL_FALSE;
}
