/* The outcome table: its rows keep the rules, and PROTOCOL.md shows the same rows. */
#include <stdio.h>
#include <string.h>

#include "daemon/transfer/outcome.h"
#include "tests/unit/unit_main.h"

START_TEST(what_was_sent_and_not_proved_destroys_the_lane)
{
    static const enum transfer_outcome unproved[] = {
        OUTCOME_LIVE,        OUTCOME_LOST,         OUTCOME_UNSENT,          OUTCOME_DEADLINE_RUNNING,
        OUTCOME_GONE_RUNNING, OUTCOME_CANCELLED_RUNNING, OUTCOME_STOPPING_RUNNING, OUTCOME_MEMORY,
    };
    unsigned destroyed = 0;
    for (size_t i = 0; i < sizeof unproved / sizeof unproved[0]; i++)
        ck_assert_msg(outcome_table[unproved[i]].lane_destroyed, "%s", outcome_table[unproved[i]].name);
    for (int i = 0; i < OUTCOME_COUNT; i++)
        destroyed += outcome_table[i].lane_destroyed;
    ck_assert_uint_eq(destroyed, sizeof unproved / sizeof unproved[0]);
}
END_TEST

START_TEST(only_proved_success_is_a_result)
{
    for (int i = 0; i < OUTCOME_COUNT; i++)
        ck_assert_msg((outcome_table[i].code == PROTO_OK) == (i == OUTCOME_DONE || i == OUTCOME_MISSING), "%s",
                      outcome_table[i].name);
}
END_TEST

START_TEST(an_unknown_class_is_live)
{
    struct blob_reply reply = {.class = (enum blob_class)99};
    ck_assert_int_eq(outcome_of_reply(&reply), OUTCOME_LIVE);
}
END_TEST

START_TEST(the_servers_words_narrow_the_code)
{
    struct blob_reply reply = {.class = BLOB_REPLY_REFUSED, .wrong_type = true};
    ck_assert_int_eq(outcome_code(OUTCOME_REFUSED, &reply), PROTO_ERR_WRONG_TYPE);
    reply = (struct blob_reply){.class = BLOB_REPLY_REFUSED, .too_small = true, .need = 9};
    ck_assert_int_eq(outcome_code(OUTCOME_REFUSED, &reply), PROTO_ERR_NEED_LARGER_WINDOW);
    reply = (struct blob_reply){.class = BLOB_REPLY_REFUSED, .text = "ERR max object size exceeded"};
    ck_assert_int_eq(outcome_code(OUTCOME_REFUSED, &reply), PROTO_ERR_TOO_LARGE);
    reply = (struct blob_reply){.class = BLOB_REPLY_FINISHED, .crc_mismatch = true};
    ck_assert_int_eq(outcome_code(OUTCOME_FINISHED, &reply), PROTO_ERR_CHECKSUM);
    reply = (struct blob_reply){.class = BLOB_REPLY_REFUSED, .text = "ERR Protocol error: invalid bulk length"};
    ck_assert_int_eq(outcome_code(OUTCOME_REFUSED, &reply), PROTO_ERR_TOO_LARGE);
    reply = (struct blob_reply){.class = BLOB_REPLY_FINISHED, .crc_mismatch = true};
    /* never for a row that the words cannot have decided */
    ck_assert_int_eq(outcome_code(OUTCOME_LOST, &reply), PROTO_ERR_LOST);
}
END_TEST

START_TEST(a_failed_read_was_not_stored)
{
    struct blob_reply reply = {.class = BLOB_REPLY_LIVE, .text = "ERR RDMA read failed"};
    ck_assert(!outcome_may_have_run(OUTCOME_LIVE, &reply));
    reply.text[0] = 'e';
    ck_assert(outcome_may_have_run(OUTCOME_LIVE, &reply));
    ck_assert(outcome_may_have_run(OUTCOME_LOST, NULL));
    ck_assert(!outcome_may_have_run(OUTCOME_UNSENT, NULL));
}
END_TEST

START_TEST(a_value_that_was_stored_all_the_same_is_told)
{
    struct blob_reply reply = {.class = BLOB_REPLY_FINISHED, .crc_mismatch = true};
    ck_assert(!outcome_may_have_run(OUTCOME_FINISHED, &reply));
    reply.stored = true;
    ck_assert(outcome_may_have_run(OUTCOME_FINISHED, &reply));
    ck_assert(!outcome_runs_again(OUTCOME_FINISHED, &reply, true));
}
END_TEST

START_TEST(memory_that_cannot_be_had_ends_a_transfer)
{
    struct blob_reply reply = {.class = BLOB_REPLY_MEMORY, .error = -14};
    ck_assert_int_eq(outcome_of_reply(&reply), OUTCOME_MEMORY);
    ck_assert_int_eq(outcome_code(OUTCOME_MEMORY, &reply), PROTO_ERR_SYSTEM);
}
END_TEST

/* Rule 2, of the table and of the exception to it. */
START_TEST(a_set_that_may_have_run_is_not_run_again)
{
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        ck_assert(outcome_runs_again(i, NULL, true) == (i == OUTCOME_UNSENT));
        ck_assert(outcome_runs_again(i, NULL, false) ==
                  (i == OUTCOME_UNSENT || i == OUTCOME_LOST || i == OUTCOME_LIVE));
        ck_assert(!outcome_table[i].may_have_run || outcome_table[i].again != OUTCOME_AGAIN_ANY);
    }
    struct blob_reply reply = {.class = BLOB_REPLY_LIVE, .text = "ERR RDMA read failed"};
    ck_assert(outcome_runs_again(OUTCOME_LIVE, &reply, true));
    ck_assert(!outcome_runs_again(OUTCOME_DEADLINE_RUNNING, &reply, true));
    strcpy(reply.text, "ERR RDMA read failed twice");
    ck_assert(!outcome_runs_again(OUTCOME_LIVE, &reply, true));
}
END_TEST

START_TEST(what_was_refused_for_want_of_a_login_is_run_again)
{
    static const char *const texts[] = {"NOAUTH", "NOAUTH Authentication required.",
                                        "ERR Protocol error: unauthenticated bulk length",
                                        "ERR Protocol error: unauthenticated multibulk length"};
    struct blob_reply reply = {.class = BLOB_REPLY_REFUSED, .reconnect = true};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        strcpy(reply.text, texts[i]);
        ck_assert(outcome_runs_again(OUTCOME_REFUSED, &reply, true));
        ck_assert(!outcome_runs_again(OUTCOME_LIVE, &reply, true));
    }
    strcpy(reply.text, "NOAUTHS");
    ck_assert(!outcome_runs_again(OUTCOME_REFUSED, &reply, true));
}
END_TEST

static bool document_has(const char *row)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(SOURCE_ROOT "/proto/PROTOCOL.md", "r");
    ck_assert_ptr_nonnull(file);
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, row, strlen(row)) == 0;
    fclose(file);
    return found;
}

static const char *const again_names[] = {
    [OUTCOME_AGAIN_NEVER] = "never", [OUTCOME_AGAIN_GET] = "get", [OUTCOME_AGAIN_ANY] = "any"};

START_TEST(the_protocol_shows_the_same_rows)
{
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        const struct outcome_row *row = &outcome_table[i];
        char answer[64] = "result", text[512];
        if (row->code != PROTO_OK)
            snprintf(answer, sizeof answer, "`%s`", proto_error_name(row->code));
        snprintf(text, sizeof text, "| %s | %s | %s | %s | %s | %s |", row->name, row->lane_destroyed ? "yes" : "no",
                 again_names[row->again], answer, row->may_have_run ? "yes" : "no", row->meaning);
        ck_assert_msg(document_has(text), "missing: %s", text);
    }
}
END_TEST

UNIT_MAIN("outcome", what_was_sent_and_not_proved_destroys_the_lane, only_proved_success_is_a_result,
          an_unknown_class_is_live, the_servers_words_narrow_the_code, a_failed_read_was_not_stored,
          a_value_that_was_stored_all_the_same_is_told, memory_that_cannot_be_had_ends_a_transfer,
          a_set_that_may_have_run_is_not_run_again, what_was_refused_for_want_of_a_login_is_run_again,
          the_protocol_shows_the_same_rows)
