#include "daemon/valkey/renewal.h"

#include "daemon/valkey/node_private.h"

/* Renewed before this part of the age is left, for the way to the server and back, and for a transfer to end. */
#define SPARE 10

static uint64_t due_age(const struct node *node)
{
    return node->config->auth_max_age_ms - node->config->auth_max_age_ms / SPARE;
}

/* When it is due next; one that is due begins, and is looked at again after a whole age. */
static uint64_t look_at(const struct node *node, struct resp_connection *resp, bool among_requests)
{
    uint64_t now = uv_now(node->loop), due;

    if (resp == NULL || resp_authenticated_at(resp) == 0) {
        return UINT64_MAX;
    }
    due = resp_authenticated_at(resp) + due_age(node);
    if (due > now) {
        return due;
    }
    resp_renew(resp, among_requests);
    return now + due_age(node);
}

static uint64_t look_at_list(const struct node *node, struct carrier_list *list)
{
    uint64_t earliest = UINT64_MAX;
    struct carrier *carrier;

    TAILQ_FOREACH(carrier, list, link)
    {
        uint64_t due = look_at(node, carrier->resp, false);
        earliest = due < earliest ? due : earliest;
    }
    return earliest;
}

static void on_timer(uv_timer_t *timer)
{
    struct node *node = timer->data;
    uint64_t due[] = {look_at(node, node->control.resp, true), look_at_list(node, &node->idle),
                      look_at_list(node, &node->busy), look_at_list(node, &node->making)};
    uint64_t earliest = UINT64_MAX;

    for (size_t i = 0; i < sizeof(due) / sizeof(due[0]); i++) {
        earliest = due[i] < earliest ? due[i] : earliest;
    }
    if (earliest != UINT64_MAX) {
        uv_timer_start(timer, on_timer, earliest - uv_now(node->loop), 0);
    }
}

void renewal_start(struct node *node)
{
    uv_timer_init(node->loop, &node->renewal);
    node->renewal.data = node;
}

static void on_closed(uv_handle_t *handle)
{
    struct node *node = handle->data;

    node->handles--;
    node_part_gone(node, 0);
}

void renewal_stop(struct node *node)
{
    node->handles++;
    uv_close((uv_handle_t *)&node->renewal, on_closed);
}

/* One that runs already comes earlier, and looks at all. */
void renewal_note(struct node *node)
{
    if (node->config->auth_max_age_ms > 0 && !node->stopping && !uv_is_active((uv_handle_t *)&node->renewal)) {
        uv_timer_start(&node->renewal, on_timer, due_age(node), 0);
    }
}

static void renew_list(struct carrier_list *list)
{
    struct carrier *carrier;

    TAILQ_FOREACH(carrier, list, link)
    {
        if (carrier->resp != NULL) {
            resp_renew(carrier->resp, false);
        }
    }
}

void renewal_now(struct node *node)
{
    if (node->stopping) {
        return;
    }
    if (node->control.resp != NULL) {
        resp_renew(node->control.resp, true);
    }
    renew_list(&node->idle);
    renew_list(&node->busy);
    renew_list(&node->making);
    uv_timer_stop(&node->renewal); /* it may have been of another age, or of none any more */
    renewal_note(node);
}
