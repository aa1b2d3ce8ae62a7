/*
 * metrics, log-level, reload, drain: what an operator asks of a daemon, and tells it, on the admin socket.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/commands.h"
#include "client/ctl/control.h"
#include "client/ctl/keys.h"
#include "client/ctl/report.h"
#include "client/ctl/table.h"
#include "proto/methods.h"
#include "proto/shape.h"

#define ANSWER_MS 10000
/* The daemon waits so long before it says again what is left. */
#define DRAIN_STEP_MS 500

static enum ctl_exit open_admin(const struct options *options, struct control **control)
{
    return control_open(options->admin_socket_path, false, options->deadline_ms > 0 ? options->deadline_ms : ANSWER_MS,
                        control);
}

/* Memory that the daemon sealed: it has its size, and reading it cannot wait. */
static enum ctl_exit print_memory(int fd, json_int_t bytes)
{
    char buffer[16384];
    off_t at = 0;

    while (at < bytes) {
        ssize_t length = pread(fd, buffer, sizeof(buffer), at);
        if (length <= 0) {
            report("metrics: the daemon's answer cannot be read: %s", length < 0 ? strerror(errno) : "it is too short");
            return CTL_PROTOCOL;
        }
        fwrite(buffer, 1, (size_t)length, stdout);
        at += length;
    }
    return CTL_OK;
}

enum ctl_exit command_metrics(const struct options *options)
{
    struct control *control;
    json_t *result = NULL;
    int fd = -1;
    enum ctl_exit status = open_admin(options, &control);

    if (status != CTL_OK) {
        return status;
    }
    status = control_call_fd(control, proto_methods[PROTO_METHOD_ADMIN_METRICS].name, NULL, &result, &fd);
    if (status == CTL_OK && fd < 0) {
        report("metrics: the daemon's answer cannot be understood");
        status = CTL_PROTOCOL;
    } else if (status == CTL_OK) {
        status = print_memory(fd, json_integer_value(json_object_get(result, "bytes")));
    }
    if (fd >= 0) {
        close(fd);
    }
    json_decref(result);
    control_close(control);
    return status;
}

/* One question and its answer, which is shown as JSON where that is wanted. */
static enum ctl_exit ask(const struct options *options, enum proto_method_id method, json_t *params, json_t **result)
{
    struct control *control;
    enum ctl_exit status = open_admin(options, &control);

    if (status == CTL_OK) {
        status = control_call(control, proto_methods[method].name, params, result);
        control_close(control);
    }
    return status;
}

/* A word that the protocol does not know is a mistake of whoever typed it. */
static enum ctl_exit check_params(enum proto_method_id method, json_t *params)
{
    const struct proto_shape *shape = proto_methods[method].params;
    union proto_any_params decoded;
    char why[PROTO_WHY_BYTES];

    if (proto_shape_decode(shape, params, true, &decoded, why) != 0) {
        return options_misuse("%s", why);
    }
    proto_shape_free(shape, &decoded);
    return CTL_OK;
}

enum ctl_exit command_log_level(const struct options *options)
{
    json_t *params = options->word_count > 0 ? need_memory(json_pack("{s:s}", "level", options->words[0])) : NULL;
    json_t *result = NULL;
    enum ctl_exit status = check_params(PROTO_METHOD_ADMIN_LOG_LEVEL, params);
    const char *level;

    if (status == CTL_OK) {
        status = ask(options, PROTO_METHOD_ADMIN_LOG_LEVEL, params, &result);
    }
    level = json_string_value(json_object_get(result, "level"));

    if (status == CTL_OK && options->json) {
        print_json(json_incref(result));
    } else if (status == CTL_OK) {
        printf("%s\n", level != NULL ? level : "unknown");
    }
    json_decref(params);
    json_decref(result);
    return status;
}

static void print_names(const char *before, json_t *names)
{
    size_t index;
    json_t *name;

    json_array_foreach(names, index, name) {
        char *text = table_cell(CELL_TEXT, name);
        printf("%s%s", index == 0 ? before : ", ", text);
        free(text);
    }
    if (json_array_size(names) > 0) {
        printf("\n");
    }
}

enum ctl_exit command_reload(const struct options *options)
{
    json_t *result = NULL;
    enum ctl_exit status = ask(options, PROTO_METHOD_ADMIN_RELOAD, NULL, &result);

    if (status != CTL_OK) {
        return status;
    }
    status = json_is_true(json_object_get(result, "reloaded")) ? CTL_OK : CTL_CONFIG;
    if (status != CTL_OK) {
        const char *why = json_string_value(json_object_get(result, "why"));
        report("not reloaded, the configuration stays as it was: %s", why != NULL ? why : "the daemon does not say why");
    }
    if (options->json) {
        print_json(json_incref(result));
    } else {
        print_names("changed: ", json_object_get(result, "changed"));
        print_names("needs a restart: ", json_object_get(result, "needs_restart"));
    }
    json_decref(result);
    return status;
}

static json_int_t number(json_t *object, const char *member)
{
    return json_integer_value(json_object_get(object, member));
}

/* Asks again and again, so that what is left can be shown meanwhile: for --deadline, else for as long as the daemon's end
 * would wait. */
static enum ctl_exit drain_and_watch(struct control *control, const struct options *options, json_t **result)
{
    json_int_t waited = 0, last = -1, step;
    json_t *params = need_memory(json_pack("{s:i}", "wait_ms", 0));
    enum ctl_exit status;

    do {
        json_decref(*result);
        *result = NULL;
        status = control_call(control, proto_methods[PROTO_METHOD_ADMIN_DRAIN].name, params, result);
        json_int_t left = number(*result, "transfers");
        if (status != CTL_OK || left == 0) {
            break;
        }
        if (left != last && !options->quiet && !options->json) {
            report("%lld transfers left", (long long)left);
        }
        waited += number(params, "wait_ms");
        last = left;
        step = (options->deadline_ms > 0 ? (json_int_t)options->deadline_ms : number(*result, "drain_ms")) - waited;
        step = step < DRAIN_STEP_MS ? step : DRAIN_STEP_MS;
        json_object_set_new(params, "wait_ms", need_memory(json_integer(step)));
    } while (step > 0);
    json_decref(params);
    return status;
}

static enum ctl_exit undo_drain(struct control *control, json_t **result)
{
    json_t *params = need_memory(json_pack("{s:b}", "undo", 1));
    enum ctl_exit status = control_call(control, proto_methods[PROTO_METHOD_ADMIN_DRAIN].name, params, result);

    json_decref(params);
    return status;
}

static void print_drained(const struct options *options, json_t *result)
{
    if (options->json) {
        print_json(json_incref(result));
    } else if (!options->quiet && options->undo) {
        printf("new transfers are taken again\n");
    } else if (!options->quiet) {
        printf("drained: %lld transfers, %lld regions and %lld sessions left\n", (long long)number(result, "transfers"),
               (long long)number(result, "regions"), (long long)number(result, "sessions"));
    }
}

enum ctl_exit command_drain(const struct options *options)
{
    struct control *control;
    json_t *result = NULL;
    enum ctl_exit status = control_open(options->admin_socket_path, false, ANSWER_MS, &control);

    if (status != CTL_OK) {
        return status;
    }
    status = options->undo ? undo_drain(control, &result) : drain_and_watch(control, options, &result);
    if (status == CTL_OK) {
        print_drained(options, result);
        status = options->undo || number(result, "transfers") == 0 ? CTL_OK : CTL_AGAIN;
    }
    json_decref(result);
    control_close(control);
    return status;
}
