/*
 * The fake fabric as an object that the daemon loads (GLIDE_RDMAD_FABRIC_OBJECT), with its faults in the environment:
 *
 *   FAKE_FABRIC="nics=2 registrations=3 mr_open=12 mr_close=16"
 *
 * `nics`, and the registrations that each states; the errno with which every registration is refused, and every close
 * of one fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/fake_fabric.h"

__attribute__((visibility("default"))) const struct fabric_ops *glide_rdmad_fabric_ops(void);

static void take(const char *word)
{
    unsigned value;

    if (sscanf(word, "nics=%u", &value) == 1) {
        fake_set_nics(value, true, false);
    } else if (sscanf(word, "registrations=%u", &value) == 1) {
        fake_set_registrations(value);
    } else if (sscanf(word, "mr_open=%u", &value) == 1) {
        fake_fail_randomly(FAKE_MR_OPEN, 100, -(int)value);
    } else if (sscanf(word, "mr_close=%u", &value) == 1) {
        fake_fail_randomly(FAKE_MR_CLOSE, 100, -(int)value);
    } else {
        fprintf(stderr, "FAKE_FABRIC: %s\n", word);
        abort();
    }
}

const struct fabric_ops *glide_rdmad_fabric_ops(void)
{
    const char *script = getenv("FAKE_FABRIC");
    char words[256], *word, *at = words;

    fake_reset();
    fake_set_nics(1, true, false);
    snprintf(words, sizeof(words), "%s", script != NULL ? script : "");
    while ((word = strsep(&at, " ")) != NULL) {
        if (word[0] != '\0') {
            take(word);
        }
    }
    return &fake_ops;
}
