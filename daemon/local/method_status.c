#include "daemon/admin/status.h"
#include "daemon/local/methods.h"

/* Entries of a page, so that it fits a packet whatever the labels are. */
#define PAGE_ENTRIES 128

static uint64_t page_limit(const struct call *call)
{
    uint64_t limit = call->params.page.limit;
    return limit < PAGE_ENTRIES ? limit : PAGE_ENTRIES;
}

void method_status(struct call *call)
{
    const struct session *session = call->session;
    json_t *status = session->admin ? status_daemon(session->service) : status_session(session);
    session_reply(call->session, (int64_t)call->id, status, -1);
}

void method_admin_regions(struct call *call)
{
    session_reply(call->session, (int64_t)call->id,
                  status_regions(call->session->service, call->params.page.after, page_limit(call)), -1);
}

void method_admin_transfers(struct call *call)
{
    session_reply(call->session, (int64_t)call->id,
                  status_transfers(call->session->service, call->params.page.after, page_limit(call)), -1);
}

void method_admin_clients(struct call *call)
{
    session_reply(call->session, (int64_t)call->id,
                  status_clients(call->session->service, call->params.page.after, page_limit(call)), -1);
}

void method_admin_users(struct call *call)
{
    session_reply(call->session, (int64_t)call->id,
                  status_users(call->session->service, call->params.page.after, page_limit(call)), -1);
}

void method_admin_nodes(struct call *call)
{
    session_reply(call->session, (int64_t)call->id,
                  status_nodes(call->session->service, call->params.page.after, page_limit(call)), -1);
}
