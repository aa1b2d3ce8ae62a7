#include "proto/errors.h"

#include <stddef.h>
#include <string.h>

struct error_entry {
    int code;
    const char *name;
    const char *text;
};

static const struct error_entry error_list[] = {
#define ERROR_ENTRY(symbol, code, name, text) {(code), (name), (text)},
    PROTO_ERRORS(ERROR_ENTRY)
#undef ERROR_ENTRY
};


int proto_error_index(int code)
{
    for (int i = 0; i < PROTO_ERROR_COUNT; i++) {
        if (error_list[i].code == code) {
            return i;
        }
    }
    return -1;
}

int proto_error_at(int index)
{
    return index >= 0 && index < PROTO_ERROR_COUNT ? error_list[index].code : 0;
}

static const struct error_entry *entry_of(int code)
{
    int index = proto_error_index(code);
    return index >= 0 ? &error_list[index] : NULL;
}

const char *proto_error_name(int code)
{
    const struct error_entry *entry = entry_of(code);
    return entry != NULL ? entry->name : "unknown";
}

const char *proto_error_text(int code)
{
    const struct error_entry *entry = entry_of(code);
    return entry != NULL ? entry->text : "unknown";
}

int proto_error_by_name(const char *name)
{
    if (name == NULL) {
        return 0;
    }
    for (int i = 0; i < PROTO_ERROR_COUNT; i++) {
        if (strcmp(error_list[i].name, name) == 0) {
            return error_list[i].code;
        }
    }
    return 0;
}
