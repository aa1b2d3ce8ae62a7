#include "daemon/config/method_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/text.h"

#define BIT(method) (UINT64_C(1) << (method))

_Static_assert(PROTO_METHOD_COUNT <= 64, "a set of methods has 64 bits");

static const uint64_t transfers = BIT(PROTO_METHOD_TRANSFER_GET) | BIT(PROTO_METHOD_TRANSFER_SET);

bool method_changes_values(int method)
{
    return method == PROTO_METHOD_TRANSFER_SET || method == PROTO_METHOD_KEYS_DELETE ||
           method == PROTO_METHOD_KEYS_EXPIRE;
}

/* The methods of one entry: a name, or a group such as "keys.*". 0: there are none. */
static uint64_t methods_of(const char *entry, size_t length)
{
    bool group = length > 2 && memcmp(entry + length - 2, ".*", 2) == 0;
    size_t compared = group ? length - 1 : length;
    uint64_t found = 0;

    for (int i = 0; i < PROTO_METHOD_COUNT; i++) {
        const char *name = proto_methods[i].name;

        if ((proto_methods[i].sockets & PROTO_ON_CLIENT) != 0 && strncmp(name, entry, compared) == 0 &&
            (group || name[length] == '\0')) {
            found |= BIT(i);
        }
    }
    return found;
}

int method_list_parse(const char *text, uint64_t *methods, char why[METHOD_LIST_WHY_BYTES])
{
    uint64_t all = *methods | METHODS_ALWAYS;
    char quoted[48];

    text += strspn(text, " \t");
    if (strcmp(text, "*") == 0) {
        *methods = METHODS_ALL;
        return 0;
    }
    while (*text != '\0') {
        size_t length, shown;
        uint64_t found;

        length = shown = strcspn(text, ",");
        while (shown > 0 && (text[shown - 1] == ' ' || text[shown - 1] == '\t')) {
            shown--;
        }
        found = methods_of(text, shown);
        if (found == 0) {
            snprintf(why, METHOD_LIST_WHY_BYTES,
                     "\"%s\" is no method of the client socket, no group such as keys.*, and not * alone",
                     proto_text_quote(quoted, sizeof(quoted), text, shown));
            return -EINVAL;
        }
        all |= found;
        text += length;
        text += *text == ',';
        text += strspn(text, " \t");
    }
    if ((all & transfers) != 0) {
        all |= BIT(PROTO_METHOD_REGION_REGISTER);
    }
    *methods = all;
    return 0;
}
