#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/private.h"
#include "proto/errors.h"

const char *grd_strerror(int code)
{
    return code == GRD_OK ? "success" : proto_error_text(code);
}

const char *grd_version(void)
{
    return GRD_VERSION_STRING;
}

void error_clear(struct grd_error *error)
{
    if (error != NULL) {
        memset(error, 0, sizeof(*error));
    }
}

/* Cuts a text that does not fit; never inside a UTF-8 character. */
static void copy_text(char *to, size_t capacity, const char *from)
{
    size_t length = strnlen(from, capacity);

    if (length == capacity) {
        length--;
        while (length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80) {
            length--;
        }
    }
    memcpy(to, from, length);
    to[length] = '\0';
}

static void start(struct grd_error *error, int code)
{
    error_clear(error);
    error->code = code;
    copy_text(error->name, sizeof(error->name), proto_error_name(code));
}

int error_set(struct grd_error *error, int code, const char *format, ...)
{
    va_list arguments;

    if (error == NULL) {
        return code;
    }
    start(error, code);
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return code;
}

int error_system(struct grd_error *error, int code, int os_errno, const char *format, ...)
{
    char buffer[128], text[384];
    va_list arguments;

    if (error == NULL) {
        return code;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    start(error, code);
    error->os_errno = os_errno;
    snprintf(error->message, sizeof(error->message), "%s: %s (errno %d)", text,
             strerror_r(os_errno, buffer, sizeof(buffer)), os_errno);
    return code;
}

static uint64_t number(json_t *data, const char *name)
{
    json_t *value = json_object_get(data, name);

    return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

int error_from_answer(const struct proto_answer *answer, struct grd_error *error)
{
    const char *name, *budget;

    if (answer->code >= 0) {
        return error_set(error, GRD_ERR_PROTOCOL, "the daemon answered an error with code %d", answer->code);
    }
    start(error, answer->code);
    name = json_string_value(json_object_get(answer->data, "name"));
    budget = json_string_value(json_object_get(answer->data, "budget"));
    if (budget == NULL) {
        budget = json_string_value(json_object_get(answer->data, "quota"));
    }
    if (name != NULL) {
        copy_text(error->name, sizeof(error->name), name);
    }
    if (budget != NULL) {
        copy_text(error->budget, sizeof(error->budget), budget);
    }
    copy_text(error->message, sizeof(error->message),
              answer->message != NULL ? answer->message : grd_strerror(answer->code));
    error->may_have_run = json_is_true(json_object_get(answer->data, "may_have_run"));
    error->memory_kept = json_is_false(json_object_get(answer->data, "memory_released"));
    error->os_errno = (int)number(answer->data, "errno");
    error->need = number(answer->data, "need");
    error->used = number(answer->data, "used");
    error->limit = number(answer->data, "limit");
    error->asked = number(answer->data, "asked");
    return error->code;
}
