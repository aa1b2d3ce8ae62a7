#include "queue_stage.h"

#include <check.h>
#include <poll.h>
#include <stdlib.h>

#include "proto/errors.h"

enum state { STARTING, BY_HAND, SERVING };

static void cancel_one(struct stage *stage, int64_t id)
{
    for (size_t i = 0; i < stage->open_count; i++) {
        if (stage->open[i] == id) {
            stage->open[i] = stage->open[--stage->open_count];
            stage_refuse_cancelled(stage, (uint64_t)id, false);
            return;
        }
    }
}

static void serve(struct stage *stage, struct fake_request *request)
{
    struct fake *fake = &stage->fake;
    int64_t id = request->parsed.id;

    if (fake_is(request, PROTO_METHOD_TRANSFER_CANCEL)) {
        fake_answer(fake, id, json_pack("{s:b}", "cancelled", 1));
        cancel_one(stage, fake_number(request, "id"));
    } else if (fake_is(request, PROTO_METHOD_REGION_CLOSE)) {
        while (stage->open_count > 0 && json_is_true(json_object_get(request->parsed.params, "force"))) {
            cancel_one(stage, stage->open[0]);
        }
        fake_answer(fake, id, json_pack("{s:b}", "memory_released", 1));
    } else if (fake_is(request, PROTO_METHOD_KEYS_EXISTS)) {
        fake_answer(fake, id, json_pack("{s:[{s:b}]}", "keys", "exists", 1));
    } else if (fake_is(request, PROTO_METHOD_TRANSFER_SET)) {
        stage_answer_set(stage, (uint64_t)id);
    } else {
        stage_answer_missing(stage, (uint64_t)id);
    }
}

static void script(struct fake *fake)
{
    struct stage *stage = fake->argument;
    struct fake_request request = {0};

    fake->requests = stage->requests;
    fake_greet(fake);
    fake_expect(fake, &request, PROTO_METHOD_REGION_REGISTER);
    fake_register(fake, &request);
    stage->state = BY_HAND;
    while (stage->state != SERVING) {
        fake_sleep_ms(1);
    }
    while (fake->peer >= 0 && fake_receive(fake, &request)) {
        serve(stage, &request);
    }
    fake_release(&request);
}

void stage_start(struct stage *stage, int requests)
{
    struct grd_error error;

    stage->requests = requests;
    stage->state = STARTING;
    fake_start(&stage->fake, script, stage);
    stage->client = fake_connect(&stage->fake);
    stage->region = fake_region(stage->client, STAGE_SLOTS * STAGE_SLOT);
    while (stage->state != BY_HAND) {
        fake_sleep_ms(1);
    }
    ck_assert_msg(grd_queue_create(stage->client, &stage->queue, &error) == 0, "%s", error.message);
}

void stage_serve(struct stage *stage)
{
    fake_release(&stage->request);
    stage->state = SERVING;
}

void stage_stop(struct stage *stage)
{
    stage_serve(stage);
    grd_queue_close(stage->queue);
    if (stage->region != NULL) {
        ck_assert_int_eq(grd_region_close(stage->region, NULL, NULL), 0);
    }
    grd_close(stage->client);
    fake_stop(&stage->fake);
}

struct grd_transfer stage_transfer(struct stage *stage, enum grd_operation operation, unsigned slot)
{
    return (struct grd_transfer){
        .struct_size = sizeof(struct grd_transfer),
        .operation = operation,
        .key = "key",
        .key_length = 3,
        .window = {.region = stage->region, .offset = slot * STAGE_SLOT, .length = STAGE_SLOT},
        .user_data = slot + 100,
    };
}

uint64_t stage_submit(struct stage *stage, enum grd_operation operation, unsigned slot)
{
    struct grd_transfer transfer = stage_transfer(stage, operation, slot);
    struct grd_error error;

    ck_assert_msg(grd_submit(stage->queue, &transfer, 1, NULL, &error) == 0, "%s", error.message);
    ck_assert_uint_gt(transfer.ticket, 0);
    return transfer.ticket;
}

void stage_expect(struct stage *stage, enum proto_method_id method, uint64_t ticket)
{
    fake_expect(&stage->fake, &stage->request, method);
    ck_assert_uint_eq((uint64_t)stage->request.parsed.id, ticket);
}

void stage_expect_unanswered(struct stage *stage, enum proto_method_id method, uint64_t ticket)
{
    stage_expect(stage, method, ticket);
    ck_assert_uint_lt(stage->open_count, STAGE_OPEN);
    stage->open[stage->open_count++] = (int64_t)ticket;
}

void stage_answer_set(struct stage *stage, uint64_t ticket)
{
    fake_answer(&stage->fake, (int64_t)ticket, json_pack("{s:s}", "path", "rdma"));
}

void stage_answer_missing(struct stage *stage, uint64_t ticket)
{
    fake_answer(&stage->fake, (int64_t)ticket, json_pack("{s:b, s:i}", "found", 0, "length", 0));
}

void stage_refuse_cancelled(struct stage *stage, uint64_t ticket, bool may_have_run)
{
    fake_refuse(&stage->fake, (int64_t)ticket, PROTO_ERR_CANCELLED, "cancelled",
                json_pack("{s:b}", "may_have_run", may_have_run));
}

bool stage_readable(grd_queue *queue, int timeout_ms)
{
    struct pollfd entry = {.fd = grd_queue_fd(queue), .events = POLLIN};

    return poll(&entry, 1, timeout_ms) == 1 && (entry.revents & POLLIN) != 0;
}

struct grd_completion stage_reap(struct stage *stage)
{
    struct grd_completion completion;
    struct grd_error error;
    size_t count;

    ck_assert_msg(grd_reap(stage->queue, &completion, 1, FAKE_PATIENCE_MS, &count, &error) == 0, "%s", error.message);
    ck_assert_uint_eq(count, 1);
    return completion;
}

void stage_reap_nothing(grd_queue *queue)
{
    struct grd_completion completion;
    struct grd_error error;
    size_t count = 1;

    ck_assert_msg(grd_reap(queue, &completion, 1, 0, &count, &error) == 0, "%s", error.message);
    ck_assert_uint_eq(count, 0);
}
