/*
 * The way to the server, from the simplest to a whole value.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/doctor/doctor.h"

static bool without_client(const struct doctor *doctor, struct finding *finding)
{
    if (doctor->client == NULL) {
        found(finding, VERDICT_SKIPPED, "needs the daemon");
        return true;
    }
    return false;
}

static bool without_region(const struct doctor *doctor, struct finding *finding)
{
    if (without_client(doctor, finding)) {
        return true;
    }
    if (doctor->region == NULL) {
        found(finding, VERDICT_SKIPPED, "needs the region");
        return true;
    }
    return false;
}

static const char *node_text(const struct doctor *doctor, const char *member)
{
    json_t *node = json_array_get(json_object_get(doctor->status, "nodes"), 0);
    const char *text = json_string_value(json_object_get(node, member));

    return text != NULL ? text : "?";
}

/* Of a cluster the first node that is not up. */
static json_t *node_not_up(const struct doctor *doctor)
{
    json_t *nodes = json_object_get(doctor->status, "nodes"), *node;
    size_t at;

    json_array_foreach(nodes, at, node) {
        const char *state = json_string_value(json_object_get(node, "state"));

        if (state != NULL && strcmp(state, "down") == 0) {
            return node;
        }
    }
    return NULL;
}

static const char *text_of(json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));

    return text != NULL ? text : "?";
}

static size_t node_count(const struct doctor *doctor)
{
    return json_array_size(json_object_get(doctor->status, "nodes"));
}

/* Nodes that have no RDMA, while the operator lets values move over TCP then. */
static size_t nodes_over_tcp(const struct doctor *doctor)
{
    json_t *node;
    size_t at, count = 0;

    json_array_foreach(json_object_get(doctor->status, "nodes"), at, node) {
        count += strcmp(text_of(node, "path"), "tcp") == 0;
    }
    return count;
}

/* A command on keys of any type: it needs no module. */
void check_valkey(struct doctor *doctor, struct finding *finding)
{
    char why[DOCTOR_TEXT_BYTES];
    json_t *entry = NULL, *down;

    if (without_client(doctor, finding)) {
        return;
    }
    if (!doctor_ask_key(doctor, "keys.exists", &entry, why)) {
        found(finding, VERDICT_FAILED, "%s: %s", node_text(doctor, "address"), why);
        advise(finding, "does the server run, and can this host reach it? See [valkey] address, tls, user and "
                        "password_file of the configuration");
        return;
    }
    doctor->server = true;
    json_decref(entry);
    down = node_not_up(doctor);
    if (down != NULL && node_count(doctor) > 1) {
        found(finding, VERDICT_WARNING, "of %zu nodes %s is down: %s", node_count(doctor), text_of(down, "address"),
              text_of(down, "why"));
        advise(finding, "keys of its slots cannot be reached until it is back, or a replica has taken over");
        return;
    }
    if (node_count(doctor) > 1) {
        found(finding, VERDICT_OK, "%zu nodes, transport %s", node_count(doctor), node_text(doctor, "transport"));
    } else {
        found(finding, VERDICT_OK, "%s answers, transport %s", node_text(doctor, "address"),
              node_text(doctor, "transport"));
    }
}

/* The verbs carry no version: that BLOB.INFO, here, and HELLO, GET and SET, later, answer in the known form is it. */
void check_module(struct doctor *doctor, struct finding *finding)
{
    char why[DOCTOR_TEXT_BYTES];
    json_t *entry = NULL;

    if (without_client(doctor, finding)) {
        return;
    }
    if (!doctor->server) {
        found(finding, VERDICT_SKIPPED, "needs the server");
    } else if (doctor_ask_key(doctor, "keys.info", &entry, why)) {
        doctor->module = true;
        found(finding, VERDICT_OK, "BLOB.INFO answers in the known form");
    } else {
        found(finding, VERDICT_FAILED, "%s", why);
        advise(finding, "load the module for large objects into the server (loadmodule), of a version with "
                        "BLOB.RDMA_*; where the server's ACL forbids the commands, allow them to the daemon's user");
    }
    json_decref(entry);
}

void check_region(struct doctor *doctor, struct finding *finding)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .label = "glide-rdmactl doctor"};
    struct grd_error error;

    if (without_client(doctor, finding)) {
        return;
    }
    if (json_is_true(doctor_status(doctor, "daemon", "draining"))) {
        found(finding, VERDICT_SKIPPED, "the daemon takes no transfers now");
        return;
    }
    if (grd_region_create(doctor->client, DOCTOR_REGION_BYTES, &options, &doctor->region, &error) == 0) {
        found(finding, VERDICT_OK, "%llu bytes of memory registered", (unsigned long long)DOCTOR_REGION_BYTES);
        return;
    }
    found_error(finding, "2 MiB of memory cannot be registered", &error);
    switch (error.code) {
    case GRD_ERR_OVER_QUOTA:
        advise(finding, "close regions of this user, or raise the quota in the [policy] section that holds for it");
        break;
    case GRD_ERR_OVER_BUDGET:
        advise(finding, "close regions (glide-rdmactl regions lists them), or raise [memory] pinned_limit or "
                        "device_limit");
        break;
    case GRD_ERR_NOT_USABLE:
        advise(finding, "see what was found about the fabric");
        break;
    default:
        advise(finding, "see what the daemon logged: journalctl -u glide-rdmad");
    }
}

/* The first transfer opens a lane and a session. A key that does not exist moves no byte. */
static int get_nothing(struct doctor *doctor, size_t number, struct grd_error *error)
{
    struct grd_get_options options = {.struct_size = sizeof(options), .deadline_ms = doctor_answer_ms(doctor)};
    struct grd_receipt receipt;
    char key[DOCTOR_KEY_BYTES + 24];

    snprintf(key, sizeof(key), "%s:%zu", doctor->key, number);
    return grd_get(key, strlen(key), (struct grd_window){doctor->region, 0, 4096}, &options, &receipt, error);
}

static void advise_session(const struct doctor *doctor, const struct grd_error *error, struct finding *finding)
{
    if (error->code == GRD_ERR_NOT_USABLE && !json_is_true(doctor_status(doctor, "fabric", "usable"))) {
        advise(finding, "see what was found about the fabric");
    } else if (error->code == GRD_ERR_SERVER_DOWN) {
        advise(finding, "see what was found about the server");
    } else if (doctor->module) {
        advise(finding, "the module answers BLOB.INFO; is it of a version with BLOB.RDMA_HELLO, BLOB.RDMA_SET and "
                        "BLOB.RDMA_GET, and has it a fabric of the daemon's kind? The server's NIC must reach the "
                        "addresses of this host (on EC2: a security group that allows all traffic from itself)");
    } else {
        advise(finding, "see what was found about the module");
    }
}

/* Which node has a key is the cluster's business: so many keys, and each node will most probably have one. */
#define KEYS_OF_A_NODE 8

void check_session(struct doctor *doctor, struct finding *finding)
{
    size_t nodes = node_count(doctor), keys = nodes > 1 ? KEYS_OF_A_NODE * nodes : 1, over_tcp = nodes_over_tcp(doctor);
    const char *everywhere = nodes > 1 ? ", also for keys all over the cluster" : "";
    struct grd_error error = {0};

    if (without_region(doctor, finding)) {
        return;
    }
    for (size_t i = 0; i < keys && error.code == 0; i++) {
        get_nothing(doctor, i, &error);
    }
    if (error.code != 0) {
        found_error(finding, "no session with the server's module", &error);
        advise_session(doctor, &error, finding);
        return;
    }
    doctor->session = true;
    if (over_tcp > 0) {
        found(finding, VERDICT_OK, "a get is answered%s; without RDMA, over TCP, by %zu of %zu nodes", everywhere,
              over_tcp, nodes);
    } else {
        found(finding, VERDICT_OK, "BLOB.RDMA_HELLO and BLOB.RDMA_GET answer%s", everywhere);
    }
}

/* --- a value there and back -------------------------------------------------------------------------------------- */

/* Bytes that no other run has. */
static void fill(unsigned char *bytes, uint64_t length, const char *seed)
{
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);

    for (const char *at = seed; *at != '\0'; at++) {
        state = (state ^ (unsigned char)*at) * UINT64_C(0x100000001B3);
    }
    for (uint64_t i = 0; i + sizeof(state) <= length; i += sizeof(state)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(bytes + i, &state, sizeof(state));
    }
}

static bool store(struct doctor *doctor, struct finding *finding)
{
    struct grd_set_options options = {.struct_size = sizeof(options), .checksum = GRD_CHECKSUM_COMPUTE,
                                      .deadline_ms = doctor_answer_ms(doctor), .ttl_ms = DOCTOR_TTL_MS};
    struct grd_receipt receipt;
    struct grd_error error;

    doctor->stored = true;
    if (grd_set(doctor->key, strlen(doctor->key), (struct grd_window){doctor->region, 0, DOCTOR_ROUND_TRIP_BYTES},
                &options, &receipt, &error) == 0) {
        return true;
    }
    found_error(finding, "1 MiB cannot be stored", &error);
    if (error.code == GRD_ERR_CHECKSUM) {
        advise(finding, "the bytes changed on their way: do not use this path before its hardware and drivers were "
                        "looked at");
    } else {
        advise(finding, "the server must reach this host's memory: see the fabric, and the log of the server");
    }
    return false;
}

static bool fetch(struct doctor *doctor, struct finding *finding)
{
    const unsigned char *bytes = grd_region_data(doctor->region);
    struct grd_get_options options = {.struct_size = sizeof(options), .deadline_ms = doctor_answer_ms(doctor)};
    struct grd_receipt receipt;
    struct grd_error error;

    if (grd_get(doctor->key, strlen(doctor->key),
                (struct grd_window){doctor->region, DOCTOR_ROUND_TRIP_BYTES, DOCTOR_ROUND_TRIP_BYTES}, &options,
                &receipt, &error) != 0) {
        found_error(finding, "1 MiB was stored, but cannot be fetched", &error);
        advise(finding, error.code == GRD_ERR_CHECKSUM
                            ? "the bytes changed on their way: do not use this path before its hardware and drivers "
                              "were looked at"
                            : "the server must reach this host's memory: see the fabric, and the log of the server");
        return false;
    }
    if (!receipt.found || receipt.length != DOCTOR_ROUND_TRIP_BYTES ||
        memcmp(bytes, bytes + DOCTOR_ROUND_TRIP_BYTES, DOCTOR_ROUND_TRIP_BYTES) != 0) {
        found(finding, VERDICT_FAILED, "what came back is not what was stored");
        advise(finding, "do not use this path before the server, its hardware and drivers were looked at");
        return false;
    }
    found(finding, VERDICT_OK, "1 MiB stored with its checksum and fetched, path %s, checksum %s; its key is deleted",
          receipt.path == GRD_PATH_RDMA ? "rdma" : "tcp", receipt.verified ? "compared" : "not stated by the server");
    return true;
}

static void delete(struct doctor *doctor, struct finding *finding)
{
    char why[DOCTOR_TEXT_BYTES];
    json_t *entry = NULL;

    if (doctor_ask_key(doctor, "keys.delete", &entry, why)) {
        doctor->stored = false;
    } else if (finding->verdict == VERDICT_OK) {
        found(finding, VERDICT_FAILED, "1 MiB went there and back, but its key cannot be deleted: %s", why);
        advise(finding, "the daemon's user needs the right to DEL; the key ends by itself");
    }
    json_decref(entry);
}

void check_round_trip(struct doctor *doctor, struct finding *finding)
{
    if (without_region(doctor, finding)) {
        return;
    }
    if (!doctor->session) {
        found(finding, VERDICT_SKIPPED, "needs a session with the server's module");
        return;
    }
    fill(grd_region_data(doctor->region), DOCTOR_ROUND_TRIP_BYTES, doctor->key);
    if (store(doctor, finding)) {
        fetch(doctor, finding);
        delete(doctor, finding);
    }
}
