/*
 * What the daemon knows of each libfabric provider that it serves: the one place for it outside the object that calls
 * libfabric, which has a table of its own for what the library wants to hear. Constant; thread safe.
 */
#ifndef GRD_FABRIC_PROVIDER_H
#define GRD_FABRIC_PROVIDER_H

#include <stdbool.h>

#define FABRIC_PROVIDER_DEFAULT "efa-direct"
#define FABRIC_PROVIDER_NAMES "efa-direct, tcp, verbs"

struct provider_facts {
    const char *name;           /* in the configuration */
    bool domain_per_lane;       /* registrations belong to one lane (docs/architecture.md, "Lanes") */
    bool revokes_registrations; /* destroying a lane closes those that its command named as well ([fabric] revoke) */
    bool own_address;           /* endpoints have one that nobody chooses: [fabric] bind would do nothing */
    bool pins;                  /* registered pages are pinned, and count against RLIMIT_MEMLOCK */
};

/* NULL: the default provider. NULL for a name that is none of FABRIC_PROVIDER_NAMES. */
const struct provider_facts *provider_facts(const char *name);

#endif
