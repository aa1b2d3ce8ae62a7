/*
 * Queues, step by step: what goes over the wire, completions in any order, windows, refusals, room, cancelling.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/private.h"
#include "proto/errors.h"
#include "queue_stage.h"
#include "unit_main.h"

START_TEST(completions_in_any_order)
{
    struct stage stage = {0};
    struct grd_transfer transfers[4];
    struct grd_completion completions[4];
    struct grd_error error;
    size_t accepted, count;

    stage_start(&stage, 0);
    memset(grd_region_data(stage.region), 'x', STAGE_SLOT);
    for (unsigned i = 0; i < 4; i++) {
        transfers[i] = stage_transfer(&stage, i < 2 ? GRD_OPERATION_SET : GRD_OPERATION_GET, i);
    }
    transfers[0].checksum = GRD_CHECKSUM_COMPUTE;
    transfers[1].deadline_ms = 1234;
    transfers[2].no_retry = true;
    transfers[3].key = "\xff";
    transfers[3].key_length = 1;
    ck_assert_int_eq(grd_submit(stage.queue, transfers, 4, &accepted, &error), 0);
    ck_assert_uint_eq(accepted, 4);
    ck_assert_uint_eq(grd_queue_pending(stage.queue), 4);

    stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, transfers[0].ticket);
    ck_assert_int_eq(fake_number(&stage.request, "crc32c"),
                     (json_int_t)grd_checksum(grd_region_data(stage.region), STAGE_SLOT));
    ck_assert_str_eq(fake_text(&stage.request, "key"), "key");
    stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, transfers[1].ticket);
    ck_assert_int_eq(fake_number(&stage.request, "deadline_ms"), 1234);
    ck_assert_ptr_null(json_object_get(stage.request.parsed.params, "ttl_ms"));
    ck_assert_int_eq(fake_number(&stage.request, "offset"), (json_int_t)STAGE_SLOT);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, transfers[2].ticket);
    ck_assert(json_is_false(json_object_get(stage.request.parsed.params, "retry")));
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, transfers[3].ticket);
    ck_assert(json_is_true(json_object_get(stage.request.parsed.params, "retry")));
    ck_assert_str_eq(fake_text(&stage.request, "key_b64"), "/w==");

    stage_answer_missing(&stage, transfers[3].ticket);
    fake_answer(&stage.fake, (int64_t)transfers[2].ticket,
                json_pack("{s:b, s:i, s:s}", "found", 1, "length", 77, "path", "rdma"));
    fake_refuse(&stage.fake, (int64_t)transfers[1].ticket, PROTO_ERR_LOST, "lost",
                json_pack("{s:b}", "may_have_run", 1));
    stage_answer_set(&stage, transfers[0].ticket);
    ck_assert_int_eq(grd_reap(stage.queue, completions, 3, -1, &count, &error), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(grd_reap(stage.queue, completions + 3, 4, -1, &count, &error), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(grd_queue_pending(stage.queue), 0);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_eq(completions[i].ticket, transfers[3 - i].ticket);
        ck_assert_uint_eq(completions[i].user_data, 103 - i);
        ck_assert_int_eq(completions[i].operation, transfers[3 - i].operation);
        ck_assert_int_eq(completions[i].error.code, completions[i].code);
    }
    ck_assert(completions[0].code == 0 && !completions[0].receipt.found);
    ck_assert(completions[1].code == 0 && completions[1].receipt.length == 77);
    ck_assert(completions[2].code == GRD_ERR_LOST && completions[2].error.may_have_run);
    ck_assert(!completions[2].receipt.found);
    ck_assert(completions[3].code == 0 && completions[3].receipt.verified);
    ck_assert_int_eq(completions[3].receipt.path, GRD_PATH_RDMA);
    stage_stop(&stage);
}
END_TEST

START_TEST(time_to_live)
{
    static const char *const results[] = {"{s:s, s:b}", "{s:s, s:b}", "{s:s, s:s}", "{s:s}"};
    static const enum grd_ttl expected[] = {GRD_TTL_APPLIED, GRD_TTL_NOT_APPLIED, GRD_TTL_UNKNOWN, GRD_TTL_UNKNOWN};
    struct stage stage = {0};

    stage_start(&stage, 0);
    for (unsigned i = 0; i < 4; i++) {
        struct grd_transfer transfer = stage_transfer(&stage, GRD_OPERATION_SET, 0);
        json_t *result;

        transfer.ttl_ms = 60000;
        ck_assert_int_eq(grd_submit(stage.queue, &transfer, 1, NULL, NULL), 0);
        stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, transfer.ticket);
        ck_assert_int_eq(fake_number(&stage.request, "ttl_ms"), 60000);
        result = i == 2 ? json_pack(results[i], "path", "rdma", "ttl_applied", "unknown")
                        : json_pack(results[i], "path", "rdma", "ttl_applied", i == 0);
        fake_answer(&stage.fake, (int64_t)transfer.ticket, result);
        ck_assert_int_eq(stage_reap(&stage).receipt.ttl, expected[i]);
    }
    uint64_t plain = stage_submit(&stage, GRD_OPERATION_SET, 0);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, plain);
    stage_answer_set(&stage, plain);
    ck_assert_int_eq(stage_reap(&stage).receipt.ttl, GRD_TTL_NOT_ASKED);
    stage_stop(&stage);
}
END_TEST

/* The memory is written as a NIC would; the window stays locked until the bytes were compared. */
START_TEST(windows_are_locked_until_reaped)
{
    struct stage stage = {0};
    struct grd_transfer overlapping;
    struct grd_window window = {.length = 1};
    struct grd_completion completion;
    struct grd_error error;
    const char value[] = "what the server sent";

    stage_start(&stage, 0);
    window.region = stage.region;
    overlapping = stage_transfer(&stage, GRD_OPERATION_SET, 0);
    for (int wrong = 0; wrong < 2; wrong++) {
        uint64_t ticket = stage_submit(&stage, GRD_OPERATION_GET, 0);

        stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, ticket);
        ck_assert_int_eq(pwrite(stage.fake.last_fd >= 0 ? stage.fake.last_fd : grd_region_fd(stage.region), value,
                                sizeof(value), 0), sizeof(value));
        fake_answer(&stage.fake, (int64_t)ticket,
                    json_pack("{s:b, s:i, s:I, s:s}", "found", 1, "length", (int)sizeof(value), "crc32c",
                              (json_int_t)(grd_checksum(value, sizeof(value)) ^ (unsigned)wrong), "path", "rdma"));
        ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
        ck_assert_int_eq(grd_submit(stage.queue, &overlapping, 1, NULL, &error), GRD_ERR_OVERLAP);
        ck_assert_int_eq(grd_set("k", 1, window, NULL, NULL, &error), GRD_ERR_OVERLAP);
        ck_assert_int_eq(grd_region_close(stage.region, NULL, &error), GRD_ERR_BUSY);
        completion = stage_reap(&stage);
        ck_assert_int_eq(completion.code, wrong ? GRD_ERR_CHECKSUM : 0);
        ck_assert(completion.receipt.verified == !wrong);
        ck_assert_int_eq(memcmp(grd_region_data(stage.region), value, sizeof(value)), 0);
    }
    stage_stop(&stage);
}
END_TEST

static void check_refused(struct stage *stage, struct grd_transfer transfer, int code)
{
    struct grd_error error;

    transfer.ticket = 5;
    ck_assert_int_eq(grd_submit(stage->queue, &transfer, 1, NULL, &error), code);
    ck_assert_int_eq(error.code, code);
    ck_assert_int_eq(grd_submit(stage->queue, &transfer, 1, NULL, NULL), code);
    ck_assert_uint_eq(grd_queue_pending(stage->queue), 0);
}

/* Nothing of these reaches the daemon, and what stands before them does. */
START_TEST(what_is_refused)
{
    static char key[GRD_KEY_BYTES_MAX + 1];
    struct stage stage = {0}, other = {0};
    struct grd_transfer good, bad, three[3];
    struct grd_completion completion;
    struct grd_error error;
    size_t accepted = 9, count;
    grd_queue *none;

    stage_start(&stage, 0);
    stage_start(&other, 0);
    good = stage_transfer(&stage, GRD_OPERATION_GET, 0);
    check_refused(&stage, (bad = good, bad.operation = 3, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad = good, bad.struct_size = 8, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad = good, bad.key_length = 0, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad = good, bad.key = key, bad.key_length = sizeof(key), bad), GRD_ERR_TOO_LARGE);
    check_refused(&stage, (bad = good, bad.window.length = UINT64_MAX, bad), GRD_ERR_OUT_OF_RANGE);
    check_refused(&stage, (bad = good, bad.window.region = NULL, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad = good, bad.window.region = other.region, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad = good, bad.deadline_ms = UINT64_MAX, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad = good, bad.ttl_ms = 1, bad), GRD_ERR_INVALID_ARGUMENT);
    bad = stage_transfer(&stage, GRD_OPERATION_SET, 0);
    check_refused(&stage, (bad.ttl_ms = UINT64_MAX, bad), GRD_ERR_INVALID_ARGUMENT);
    check_refused(&stage, (bad.ttl_ms = 0, bad.checksum = 7, bad), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_submit(NULL, &good, 1, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_submit(stage.queue, NULL, 1, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_submit(stage.queue, &good, 2, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_submit(stage.queue, NULL, 0, &accepted, &error), 0);
    ck_assert_uint_eq(accepted, 0);
    ck_assert_int_eq(grd_reap(stage.queue, &completion, 0, 0, &count, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_reap(stage.queue, NULL, 1, 0, &count, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_reap(NULL, &completion, 1, 0, &count, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_reap(stage.queue, &completion, 1, -2, &count, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_queue_create(NULL, &none, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_queue_create(stage.client, NULL, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_cancel(stage.queue, 0, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_cancel(stage.queue, 4711, &error), GRD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(grd_queue_fd(NULL), -1);

    three[0] = three[1] = three[2] = good;
    three[2].window.offset = STAGE_SLOT; /* fine, but behind one that overlaps */
    ck_assert_int_eq(grd_submit(stage.queue, three, 3, &accepted, &error), GRD_ERR_OVERLAP);
    ck_assert_uint_eq(accepted, 1);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, three[0].ticket);
    stage_answer_missing(&stage, three[0].ticket);
    ck_assert_uint_eq(stage_reap(&stage).ticket, three[0].ticket);
    stage_stop(&stage);
    stage_stop(&other);
}
END_TEST

/* --- room --------------------------------------------------------------------------------------------------------- */

START_TEST(busy_at_the_limit_of_requests)
{
    struct stage stage = {0};
    struct grd_transfer transfers[6];
    struct grd_error error;
    grd_queue *other;
    size_t accepted;

    stage_start(&stage, 4);
    ck_assert_int_eq(grd_queue_create(stage.client, &other, NULL), 0);
    for (unsigned i = 0; i < 6; i++) {
        transfers[i] = stage_transfer(&stage, GRD_OPERATION_GET, i);
    }
    ck_assert_int_eq(grd_submit(stage.queue, transfers, 6, &accepted, &error), GRD_ERR_BUSY);
    ck_assert_uint_eq(accepted, 4);
    ck_assert(error.limit == 4 && error.used == 4 && error.asked == 1);
    /* A queue with nothing of its own is told as well when there is room, once. */
    ck_assert_int_eq(grd_submit(other, &transfers[4], 1, NULL, &error), GRD_ERR_BUSY);
    ck_assert(!stage_readable(stage.queue, 0) && !stage_readable(other, 0));
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, transfers[0].ticket);
    stage_answer_missing(&stage, transfers[0].ticket);
    ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
    ck_assert_uint_eq(stage_reap(&stage).ticket, transfers[0].ticket);
    ck_assert(!stage_readable(stage.queue, 0));
    ck_assert(stage_readable(other, 0));
    stage_reap_nothing(other);
    ck_assert(!stage_readable(other, 0));
    ck_assert_int_eq(grd_submit(other, &transfers[4], 2, &accepted, &error), GRD_ERR_BUSY);
    ck_assert_uint_eq(accepted, 1);
    for (unsigned i = 1; i < 5; i++) {
        stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, transfers[i].ticket);
        stage_answer_missing(&stage, transfers[i].ticket);
    }
    for (unsigned i = 1; i < 4; i++) {
        ck_assert_uint_eq(stage_reap(&stage).ticket, transfers[i].ticket);
    }
    ck_assert_uint_eq(grd_queue_pending(other), 1);
    grd_queue_close(other);
    stage_stop(&stage);
}
END_TEST

/* The daemon reads nothing: the socket fills up in the middle of a batch. */
START_TEST(full_socket)
{
    static char key[GRD_KEY_BYTES_MAX];
    struct stage stage = {0};
    struct grd_transfer transfers[STAGE_SLOTS], *at = transfers;
    struct grd_error error;
    size_t accepted, left = STAGE_SLOTS, first, completed = 0;

    stage_start(&stage, 0);
    memset(key, '\xff', sizeof(key));
    for (unsigned i = 0; i < STAGE_SLOTS; i++) {
        transfers[i] = stage_transfer(&stage, GRD_OPERATION_GET, i);
        transfers[i].key = key;
        transfers[i].key_length = sizeof(key);
    }
    ck_assert_int_eq(grd_submit(stage.queue, transfers, left, &accepted, &error), GRD_ERR_BUSY);
    ck_assert_int_eq(error.os_errno, EAGAIN);
    ck_assert(accepted > 0 && accepted < STAGE_SLOTS && accepted % 32 != 0);
    ck_assert_uint_eq(grd_queue_pending(stage.queue), accepted);
    ck_assert_uint_eq(transfers[accepted].ticket, 0);
    ck_assert_int_eq(grd_cancel(stage.queue, transfers[0].ticket, &error), GRD_ERR_BUSY);
    ck_assert_int_eq(error.os_errno, EAGAIN);
    ck_assert(!stage_readable(stage.queue, 0));
    first = accepted;
    for (;;) {
        for (size_t i = 0; i < accepted; i++) {
            stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, at[i].ticket);
            stage_answer_missing(&stage, at[i].ticket);
        }
        at += accepted;
        left -= accepted;
        for (size_t i = 0; i < accepted; i++, completed++) {
            ck_assert(stage_readable(stage.queue, FAKE_PATIENCE_MS));
            ck_assert_int_eq(stage_reap(&stage).code, 0);
        }
        if (left == 0) {
            break;
        }
        /* The window and the id of what was refused are free again. */
        grd_submit(stage.queue, at, left, &accepted, &error);
        ck_assert_uint_gt(accepted, 0);
    }
    ck_assert_uint_gt(first, 1);
    ck_assert_uint_eq(completed, STAGE_SLOTS);
    stage_stop(&stage);
}
END_TEST

/* --- cancelling --------------------------------------------------------------------------------------------------- */

static void expect_cancel(struct stage *stage, uint64_t ticket)
{
    fake_expect(&stage->fake, &stage->request, PROTO_METHOD_TRANSFER_CANCEL);
    ck_assert_uint_eq((uint64_t)fake_number(&stage->request, "id"), ticket);
}

static void answer_cancel(struct stage *stage, bool cancelled)
{
    fake_answer(&stage->fake, stage->request.parsed.id, json_pack("{s:b}", "cancelled", cancelled));
}

START_TEST(cancel_in_each_state)
{
    struct stage stage = {0};
    struct grd_completion completion;
    struct grd_error error;
    uint64_t ticket;

    stage_start(&stage, 0);
    /* Open; its answer before and behind the one to transfer.cancel. */
    for (int behind = 0; behind < 2; behind++) {
        ticket = stage_submit(&stage, GRD_OPERATION_SET, 0);
        stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, ticket);
        ck_assert_int_eq(grd_cancel(stage.queue, ticket, &error), 0);
        ck_assert_int_eq(grd_cancel(stage.queue, ticket, &error), 0); /* sends nothing */
        expect_cancel(&stage, ticket);
        if (behind) {
            answer_cancel(&stage, true);
            stage_readable(stage.queue, FAKE_PATIENCE_MS);
            stage_reap_nothing(stage.queue);
            ck_assert_uint_eq(grd_queue_pending(stage.queue), 1);
        }
        stage_refuse_cancelled(&stage, ticket, true);
        completion = stage_reap(&stage);
        ck_assert(completion.code == GRD_ERR_CANCELLED && completion.error.may_have_run);
        if (!behind) {
            answer_cancel(&stage, true);
            stage_readable(stage.queue, FAKE_PATIENCE_MS);
            stage_reap_nothing(stage.queue);
        }
        ck_assert(!stage_readable(stage.queue, 0));
    }
    /* The real result was faster. */
    ticket = stage_submit(&stage, GRD_OPERATION_SET, 0);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_SET, ticket);
    stage_answer_set(&stage, ticket);
    ck_assert_int_eq(grd_cancel(stage.queue, ticket, &error), 0); /* it is in the socket, unread */
    expect_cancel(&stage, ticket);
    answer_cancel(&stage, false);
    ck_assert_int_eq(stage_reap(&stage).code, 0);
    /* Reaped: nothing is sent. Then another, whose request must be the next. */
    ck_assert_int_eq(grd_cancel(stage.queue, ticket, &error), 0);
    ticket = stage_submit(&stage, GRD_OPERATION_GET, 0);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, ticket);
    /* Answered and read (by a look at another queue), but not reaped. */
    stage_answer_missing(&stage, ticket);
    grd_queue *other;
    ck_assert_int_eq(grd_queue_create(stage.client, &other, &error), 0);
    ck_assert_int_eq(grd_cancel(other, ticket, &error), GRD_ERR_INVALID_ARGUMENT);
    stage_readable(other, FAKE_PATIENCE_MS);
    stage_reap_nothing(other);
    ck_assert_int_eq(grd_cancel(stage.queue, ticket, &error), 0);
    grd_queue_close(other);
    ck_assert_int_eq(stage_reap(&stage).code, 0);
    ticket = stage_submit(&stage, GRD_OPERATION_GET, 0);
    stage_expect(&stage, PROTO_METHOD_TRANSFER_GET, ticket);
    /* A daemon that does not know it: the transfer goes on. */
    ck_assert_int_eq(grd_cancel(stage.queue, ticket, &error), 0);
    expect_cancel(&stage, ticket);
    fake_refuse(&stage.fake, stage.request.parsed.id, PROTO_ERR_NO_METHOD, "no such method", NULL);
    stage_answer_missing(&stage, ticket);
    ck_assert_int_eq(stage_reap(&stage).code, 0);
    stage_stop(&stage);
}
END_TEST

UNIT_MAIN("client_queue", completions_in_any_order, time_to_live, windows_are_locked_until_reaped, what_is_refused,
          busy_at_the_limit_of_requests, full_socket, cancel_in_each_state)
