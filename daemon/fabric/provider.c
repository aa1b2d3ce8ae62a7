#include "daemon/fabric/provider.h"

#include <stddef.h>
#include <string.h>

static const struct provider_facts known[] = {
    {.name = FABRIC_PROVIDER_DEFAULT, .revokes_registrations = true, .own_address = true, .pins = true},
    {.name = "tcp", .domain_per_lane = true},
    {.name = "verbs", .pins = true},
};

const struct provider_facts *provider_facts(const char *name)
{
    const char *wanted = name != NULL ? name : FABRIC_PROVIDER_DEFAULT;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, wanted) == 0) {
            return &known[i];
        }
    }
    return NULL;
}
