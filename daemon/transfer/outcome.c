#include "daemon/transfer/outcome.h"

#include <string.h>

const struct outcome_row outcome_table[OUTCOME_COUNT] = {
#define OUTCOME_ROW(symbol, name, lane, again, code, ran, meaning)                                                    \
    {name, lane, OUTCOME_AGAIN_##again, code, ran, meaning},
    TRANSFER_OUTCOMES(OUTCOME_ROW)
#undef OUTCOME_ROW
};

enum transfer_outcome outcome_of_reply(const struct blob_reply *reply)
{
    switch (reply->class) {
    case BLOB_REPLY_DONE:
        return OUTCOME_DONE;
    case BLOB_REPLY_MISSING:
        return OUTCOME_MISSING;
    case BLOB_REPLY_REFUSED:
        return OUTCOME_REFUSED;
    case BLOB_REPLY_FINISHED:
        return OUTCOME_FINISHED;
    case BLOB_REPLY_MEMORY:
        return OUTCOME_MEMORY;
    case BLOB_REPLY_LIVE:
        break;
    }
    return OUTCOME_LIVE;
}

int outcome_code(enum transfer_outcome outcome, const struct blob_reply *reply)
{
    int code = outcome_table[outcome].code;
    if (reply == NULL || (outcome != OUTCOME_REFUSED && outcome != OUTCOME_FINISHED))
        return code;
    if (reply->wrong_type)
        return PROTO_ERR_WRONG_TYPE;
    if (reply->too_small)
        return PROTO_ERR_NEED_LARGER_WINDOW;
    if (reply->crc_mismatch)
        return PROTO_ERR_CHECKSUM;
    if (strcmp(reply->text, "ERR max object size exceeded") == 0 ||
        strcmp(reply->text, "ERR Protocol error: invalid bulk length") == 0) /* proto-max-bulk-len, of BLOB.TCP_SET */
        return PROTO_ERR_TOO_LARGE;
    return code;
}

bool outcome_may_have_run(enum transfer_outcome outcome, const struct blob_reply *reply)
{
    /* The server says itself that it did not keep the value, although its reads may go on for a while. */
    if (outcome == OUTCOME_LIVE && reply != NULL && strcmp(reply->text, "ERR RDMA read failed") == 0)
        return false;
    if (outcome == OUTCOME_FINISHED && reply != NULL && reply->stored)
        return true;
    return outcome_table[outcome].may_have_run;
}

/* The password was changed, or the user: the next connection reads the file again. Without one that helps, it gets no
 * session, and the transfer is answered "unavailable". */
static bool lost_its_login(enum transfer_outcome outcome, const struct blob_reply *reply)
{
    return outcome == OUTCOME_REFUSED && reply != NULL && reply->reconnect &&
           redirect_wants_login(reply->text, strlen(reply->text));
}

bool outcome_runs_again(enum transfer_outcome outcome, const struct blob_reply *reply, bool set)
{
    enum outcome_again again = outcome_table[outcome].again;
    if (lost_its_login(outcome, reply))
        return true;
    return again == OUTCOME_AGAIN_ANY ||
           (again == OUTCOME_AGAIN_GET && (!set || !outcome_may_have_run(outcome, reply)));
}
