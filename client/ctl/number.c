#include "client/ctl/number.h"

#include <string.h>

#define WORD_BYTES 32

uint64_t number_parse(const char *text, uint64_t most)
{
    uint64_t value = 0;

    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || value > most / 10) {
            return 0;
        }
        value = value * 10 + (uint64_t)(*at - '0');
    }
    return value <= most ? value : 0;
}

static unsigned shift_of(char unit)
{
    return unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
}

uint64_t number_parse_bytes(const char *text, uint64_t most)
{
    char digits[WORD_BYTES];
    size_t length = strlen(text);
    unsigned shift;

    if (length == 0 || length >= sizeof(digits)) {
        return 0;
    }
    shift = shift_of(text[length - 1]);
    length -= shift > 0 ? 1 : 0;
    memcpy(digits, text, length);
    digits[length] = '\0';
    return number_parse(digits, most >> shift) << shift;
}

bool number_list_parse(const char *text, uint64_t most, struct number_list *list)
{
    list->count = 0;
    for (const char *at = text;; at++) {
        char word[WORD_BYTES];
        size_t length = strcspn(at, ",");
        uint64_t value;

        if (length >= sizeof(word) || list->count == NUMBER_LIST) {
            return false;
        }
        memcpy(word, at, length);
        word[length] = '\0';
        value = number_parse_bytes(word, most);
        if (value == 0) {
            return false;
        }
        list->values[list->count++] = value;
        at += length;
        if (*at == '\0') {
            return true;
        }
    }
}
