/* The inside of the fake fabric, shared by fake_fabric.c and fake_bytes.c. */
#ifndef GRD_TESTS_RIG_FAKE_OBJECT_H
#define GRD_TESTS_RIG_FAKE_OBJECT_H

#include "tests/rig/fake_bytes.h"

enum { KIND_DOMAIN, KIND_ENDPOINT, KIND_MR };

/* All objects are of one form and live until fake_reset, so that a use after the close is seen and not crashed on. */
struct fake_object {
    struct fake_object *next, *domain;
    int kind, wait_fd;
    uint8_t address[FAKE_ADDRESS_BYTES]; /* of an endpoint */
    unsigned children; /* endpoints and registrations of a domain */
    unsigned endpoints; /* of a domain, ever */
    bool closed, freed, busy;
    bool close_failed; /* closed and freed all the same, but what it did may go on */
    uint64_t key, length; /* of a registration, with the three below */
    unsigned access;
    uint8_t *base;
};

extern struct fake_object *fake_objects;

/* A close failed: says of which memory nothing is certain any more. */
void fake_in_doubt(const struct fake_object *object);

#endif
