#include "tests/rig/fake_bytes.h"

#include <string.h>

#include "tests/rig/fake_object.h"

static const struct fake_object *find_endpoint(const uint8_t *address)
{
    for (const struct fake_object *object = fake_objects; object != NULL; object = object->next) {
        if (object->kind == KIND_ENDPOINT && memcmp(object->address, address, FAKE_ADDRESS_BYTES) == 0) {
            return object;
        }
    }
    return NULL;
}

static const struct fake_object *find_mr(uint64_t key)
{
    for (const struct fake_object *object = fake_objects; object != NULL; object = object->next) {
        if (object->kind == KIND_MR && object->key == key) {
            return object;
        }
    }
    return NULL;
}

static bool endpoint_moves(const struct fake_object *endpoint)
{
    return !endpoint->closed || endpoint->close_failed;
}

/* Whether a registration lets a message of an endpoint begin. */
static bool mr_admits(const struct fake_object *mr)
{
    return !mr->closed || mr->close_failed || fake_surroundings.provider == FAKE_VERBS_WITH_CACHE;
}

bool fake_message_begin(struct fake_message *message, const struct fake_target *target)
{
    const struct fake_object *endpoint = find_endpoint(target->endpoint), *mr = find_mr(target->key);
    unsigned wanted = target->writes ? FABRIC_REMOTE_WRITE : FABRIC_REMOTE_READ;
    uint64_t offset, end;

    if (endpoint == NULL || mr == NULL || endpoint->domain != mr->domain || !endpoint_moves(endpoint) ||
        !mr_admits(mr) || (mr->access & wanted) == 0) {
        return false;
    }
    offset = target->address - (fake_virtual_addresses() ? (uint64_t)(uintptr_t)mr->base : 0);
    if (__builtin_add_overflow(offset, target->length, &end) || end > mr->length) {
        return false;
    }
    *message = (struct fake_message){.endpoint = endpoint, .mr = mr, .offset = offset, .length = target->length};
    return true;
}

bool fake_message_admitted(const struct fake_target *target)
{
    struct fake_message message;

    return fake_message_begin(&message, target);
}

bool fake_message_goes_on(const struct fake_message *message)
{
    return endpoint_moves(message->endpoint) &&
           (fake_surroundings.provider == FAKE_TCP || mr_admits(message->mr));
}

const uint8_t *fake_message_at(const struct fake_message *message, uint64_t done)
{
    return message->mr->base + message->offset + done;
}

const uint8_t *fake_key_base(uint64_t key)
{
    const struct fake_object *mr = find_mr(key);

    return mr != NULL ? mr->base : NULL;
}

bool fake_endpoint_failed(const uint8_t *address)
{
    const struct fake_object *endpoint = find_endpoint(address);

    return endpoint != NULL && endpoint->close_failed;
}

bool fake_registered(const uint8_t *base, uint64_t length)
{
    for (const struct fake_object *object = fake_objects; object != NULL; object = object->next) {
        if (object->kind == KIND_MR && !object->closed && object->base < base + length &&
            base < object->base + object->length) {
            return true;
        }
    }
    return false;
}

/* With its lane, where the registration is the lane's: lane_destroy says then that all its windows are in doubt. */
void fake_in_doubt(const struct fake_object *object)
{
    bool whole = object->kind == KIND_ENDPOINT || fake_surroundings.provider != FAKE_VERBS_WITH_CACHE;

    if (object->kind == KIND_ENDPOINT && fake_surroundings.endpoint_failed != NULL) {
        fake_surroundings.endpoint_failed(object->address);
    }
    if (fake_surroundings.in_doubt == NULL) {
        return;
    }
    if (object->kind == KIND_MR) {
        fake_surroundings.in_doubt(object->base, true);
    }
    for (const struct fake_object *mr = fake_objects; whole && mr != NULL; mr = mr->next) {
        if (mr->kind == KIND_MR && mr != object && mr->domain == object->domain) {
            fake_surroundings.in_doubt(mr->base, false);
        }
    }
}
