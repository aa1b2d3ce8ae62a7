#include "tests/unit/node_rig.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"

struct node_rig rig;

static void answer(struct stub_peer *peer, const char *text)
{
    if (text != NULL) {
        stub_say(peer, text);
    }
}

static void script(struct stub_peer *peer, const redisReply *words)
{
    if (stub_is(words, "BLOB.RDMA_HELLO")) {
        rig.hello_twice += peer->commands > 1 ? 1 : 0;
        answer(peer, rig.hello);
    } else if (stub_is(words, "BLOB.RDMA_GET") || stub_is(words, "BLOB.RDMA_SET")) {
        answer(peer, rig.transfer);
    } else {
        answer(peer, rig.other);
    }
}

static void on_idle(void *context)
{
    rig.idle++;
}

static void on_unavailable(void *context, int code, bool later, const char *why)
{
    ck_assert(!rig.inside);
    rig.unavailable++;
    rig.code = code;
    rig.later = later;
    snprintf(rig.why, sizeof(rig.why), "%s", why);
}

static const struct node_events events = {.carrier_idle = on_idle, .unavailable = on_unavailable};

void rig_prepare(const char *unix_path)
{
    log_set_level(LOG_LEVEL_ERROR);
    memset(&rig, 0, sizeof(rig));
    bench_start(&rig.bench);
    stub_start(&rig.stub, &rig.bench, unix_path);
    rig.stub.command = script;
    rig.hello = "*2\r\n$16\r\n02001F907f000001\r\n$16\r\n02001f917f000001\r\n";
    rig.transfer = "*2\r\n:5\r\n:77\r\n";
    rig.other = ":1\r\n";
    rig.config.connections = 4;
    rig.config.connect_timeout_ms = 20000;
    rig.fabric_config.lanes_max = 16;
    rig.fabric.loop = &rig.bench.loop;
    rig.fabric.workers = rig.bench.workers;
    rig.fabric.config = &rig.fabric_config;
    rig.fabric.usable = true;
    rig.fabric.nic_count = 1;
    places_init(&rig.places, &rig.fabric);
}

void rig_node(void)
{
    char why[TRANSPORT_WHY_BYTES];

    ck_assert_int_eq(transport_address_parse(rig.stub.address, &rig.address, why), 0);
    rig.inside = true;
    rig.node = node_start(&rig.bench.loop, rig.bench.workers, &rig.fabric, &rig.places, &rig.config, &rig.address,
                          &events, &rig);
    rig.inside = false;
    ck_assert_ptr_nonnull(rig.node);
}

static void on_stopped(void *context, int status)
{
    ck_assert(!rig.inside);
    rig.stopped++;
    rig.stop_status = status;
}

void rig_stop_node(void)
{
    rig.inside = true;
    node_stop(rig.node, on_stopped, NULL);
    rig.inside = false;
    rig.node = NULL;
}

void rig_end(void)
{
    if (rig.deployment != NULL) {
        deployment_stop(rig.deployment, on_stopped, NULL);
        rig.deployment = NULL;
    } else if (rig.node != NULL) {
        rig_stop_node();
    }
    WAIT(&rig.bench, rig.stopped == 1);
    bench_idle(&rig.bench, 5);
    ck_assert_int_eq(rig.stopped, 1);
    ck_assert_uint_eq(rig.fabric.lanes, 0);
    WAIT(&rig.bench, rig.stub.open == 0);
    stub_stop(&rig.stub);
    transport_address_free(&rig.address);
    bench_stop(&rig.bench);
}

struct carrier *rig_acquire(unsigned waiting)
{
    rig.inside = true;
    struct carrier *carrier = node_acquire(rig.node, LANE_ANY_NIC, waiting);
    rig.inside = false;
    return carrier;
}

struct carrier *rig_carrier(void)
{
    struct carrier *carrier;

    WAIT(&rig.bench, (carrier = rig_acquire(1)) != NULL);
    return carrier;
}

static void on_done(struct carrier_request *request, const struct blob_reply *reply, bool may_have_run, const char *why)
{
    struct transfer_probe *probe = (struct transfer_probe *)request;

    ck_assert(!rig.inside);
    probe->calls++;
    probe->has_reply = reply != NULL;
    probe->may_have_run = may_have_run;
    if (reply != NULL) {
        probe->reply = *reply;
    }
    snprintf(probe->why, sizeof(probe->why), "%s", why);
    if (probe->revoke_inside) {
        carrier_revoke(probe->carrier, NULL, NULL);
    }
    if (probe->release_inside) {
        carrier_release(probe->carrier);
    }
}

void rig_get(struct transfer_probe *probe, struct carrier *carrier)
{
    const struct slice_triple triple = {1, 2, 4096};

    probe->carrier = carrier;
    probe->request = (struct carrier_request){.done = on_done};
    rig.inside = true;
    ck_assert_int_eq(carrier_get(carrier, &probe->request, "key", 3, 4096, &triple, 1), 0);
    rig.inside = false;
}

void rig_set(struct transfer_probe *probe, struct carrier *carrier, uint64_t ttl_ms)
{
    const struct slice_triple triple = {1, 2, 4096};

    probe->carrier = carrier;
    probe->request = (struct carrier_request){.done = on_done, .ttl_ms = ttl_ms};
    rig.inside = true;
    ck_assert_int_eq(carrier_set(carrier, &probe->request, "key", 3, 4096, false, 0, &triple, 1), 0);
    rig.inside = false;
}

static void on_reply(struct resp_request *request, const redisReply *reply)
{
    struct command_probe *probe = (struct command_probe *)request;

    probe->replies++;
    if (reply->str != NULL) {
        snprintf(probe->text, sizeof(probe->text), "%.200s", reply->str);
    }
}

static void on_lost(struct resp_request *request, bool may_have_run, const char *why)
{
    struct command_probe *probe = (struct command_probe *)request;

    probe->losses++;
    probe->may_have_run = may_have_run;
    snprintf(probe->text, sizeof(probe->text), "%s", why);
}

int rig_command(struct command_probe *probe, const char *word)
{
    const char *words[] = {word};
    size_t lengths[] = {strlen(word)};

    memset(probe, 0, sizeof(*probe));
    probe->request.reply = on_reply;
    probe->request.lost = on_lost;
    return node_command(rig.node, &probe->request, 1, words, lengths);
}

void rig_on_gone(void *count, int status)
{
    ck_assert(!rig.inside);
    *(int *)count += status == 0 ? 1 : 100;
}

struct node_health rig_health(void)
{
    struct node_health health;

    node_health(rig.node, &health);
    return health;
}
