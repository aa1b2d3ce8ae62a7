/*
 * Bytes on the fake fabric: what a peer's reads and writes reach, with the weakness of one provider or another. For
 * programs with one thread: nothing here takes the fake's lock.
 *
 * A peer sends messages: each names an endpoint's address, a key, and a range of the registration. Whether a message
 * may begin, and whether one that has begun may go on, is what providers differ in:
 *
 *   tcp         the key is looked at when a message begins; one that has begun goes on until its endpoint is closed
 *   verbs       with libfabric's cache of registrations: a registration that was closed stays usable
 *   efa-direct  nothing goes on once the registration is closed
 *
 * With all of them nothing goes on once the endpoint is closed, unless closing it failed.
 */
#ifndef GRD_TESTS_RIG_FAKE_BYTES_H
#define GRD_TESTS_RIG_FAKE_BYTES_H

#include "tests/rig/fake_fabric.h"

#define FAKE_ADDRESS_BYTES 16

enum fake_provider { FAKE_TCP, FAKE_VERBS_WITH_CACHE, FAKE_EFA_DIRECT };

/* Emptied by fake_reset. */
struct fake_surroundings {
    enum fake_provider provider;
    bool one_endpoint; /* a second endpoint in a domain is refused and noted */
    /* Called before a close takes effect: what peers do in that moment. May be NULL. */
    void (*calling)(enum fake_op op);
    /* A close failed: this memory may be reached for ever; `certain`: it was its own registration that did not close,
     * not just an endpoint that could use it. May be NULL. */
    void (*in_doubt)(const uint8_t *base, bool certain);
    /* Closing the endpoint with this address failed. May be NULL. */
    void (*endpoint_failed)(const uint8_t *address);
};

extern struct fake_surroundings fake_surroundings;

struct fake_object;

struct fake_message {
    const struct fake_object *endpoint, *mr;
    uint64_t offset; /* in the registration */
    uint64_t length;
};

/* What the peer names, before a message begins. */
struct fake_target {
    uint8_t endpoint[FAKE_ADDRESS_BYTES];
    uint64_t key, address, length;
    bool writes;
};

/* False: the provider refuses it. */
bool fake_message_begin(struct fake_message *message, const struct fake_target *target);
/* Whether such a message could begin now. */
bool fake_message_admitted(const struct fake_target *target);
/* Whether a message that has begun could still move a byte. */
bool fake_message_goes_on(const struct fake_message *message);
/* Where the byte `done` of a message lies, in the memory that was registered. */
const uint8_t *fake_message_at(const struct fake_message *message, uint64_t done);

/* The registration of a key, closed or not: where it begins; NULL: there never was one. */
const uint8_t *fake_key_base(uint64_t key);
/* Whether closing this endpoint failed, so that nothing is known of it. */
bool fake_endpoint_failed(const uint8_t *address);
/* Whether a registration in [base, base + length) is open. */
bool fake_registered(const uint8_t *base, uint64_t length);

#endif
