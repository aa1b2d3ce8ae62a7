#include "daemon/heartbeat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/notify.h"

static struct heartbeat_facts facts_of(const struct service *service)
{
    char why[NODE_WHY_BYTES + 128];
    struct heartbeat_facts facts;
    const struct member *member = NULL;

    memset(&facts, 0, sizeof(facts)); /* padding is compared too */
    facts.regions = service->memory.regions;
    facts.pinned_bytes = service->memory.budget.memlock.used;
    facts.draining = service->draining;
    facts.usable = service_usable(service, why, sizeof(why));
    while ((member = deployment_next(service->deployment, member)) != NULL) {
        struct node_health health;
        node_health(member->node, &health);
        facts.nodes++;
        facts.nodes_up += strcmp(health.state, "up") == 0;
    }
    return facts;
}

void heartbeat_status(const struct service *service, char text[STATUS_BYTES])
{
    struct heartbeat_facts facts = facts_of(service);
    char why[NODE_WHY_BYTES + 128];

    service_usable(service, why, sizeof(why));
    snprintf(text, STATUS_BYTES, "%s: %u of %u nodes up, %u regions, %" PRIu64 " bytes registered%s%s%s",
             facts.draining ? "draining" : facts.usable ? "ready" : "not usable", facts.nodes_up, facts.nodes,
             facts.regions,
             facts.pinned_bytes, facts.usable ? "" : " (", why, facts.usable ? "" : ")");
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '\n') { /* would begin another assignment */
            *at = ' ';
        }
    }
}

static void tell(struct heartbeat *heartbeat)
{
    char text[STATUS_BYTES], message[STATUS_BYTES + sizeof("STATUS=")];

    heartbeat_status(heartbeat->service, text);
    snprintf(message, sizeof(message), "STATUS=%s", text);
    notify_send(message);
    heartbeat->told = facts_of(heartbeat->service);
    heartbeat->told_at = uv_now(heartbeat->service->loop);
}

static bool is_news(const struct heartbeat *heartbeat)
{
    struct heartbeat_facts facts = facts_of(heartbeat->service);

    return memcmp(&facts, &heartbeat->told, sizeof(facts)) != 0;
}

static void may_tell(uv_timer_t *timer)
{
    struct heartbeat *heartbeat = timer->data;

    if (!heartbeat->service->stopping && is_news(heartbeat)) {
        tell(heartbeat);
    }
}

/* A change that comes too soon after the last one is told when the time is over, as it is then. */
static void look(uv_check_t *check)
{
    struct heartbeat *heartbeat = check->data;
    uint64_t now = uv_now(heartbeat->service->loop), next = heartbeat->told_at + STATUS_MS;

    if (heartbeat->service->stopping || !is_news(heartbeat)) {
        uv_timer_stop(&heartbeat->status); /* it is as it was told after all */
    } else if (now >= next) {
        tell(heartbeat);
    } else if (!uv_is_active((uv_handle_t *)&heartbeat->status)) {
        uv_timer_start(&heartbeat->status, may_tell, next - now, 0);
    }
}

static void beat(uv_timer_t *timer)
{
    (void)timer;
    notify_send("WATCHDOG=1");
}

/* Milliseconds; 0: nobody watches this process. */
static uint64_t watchdog_interval(void)
{
    const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t half_ms;

    if (interval == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid())) {
        return 0;
    }
    half_ms = strtoull(interval, NULL, 10) / 2000;
    return half_ms > 0 ? half_ms : 1;
}

void heartbeat_start(struct heartbeat *heartbeat, struct service *service)
{
    uint64_t interval = watchdog_interval();

    heartbeat->service = service;
    uv_timer_init(service->loop, &heartbeat->watchdog);
    uv_timer_init(service->loop, &heartbeat->status);
    uv_check_init(service->loop, &heartbeat->look);
    heartbeat->status.data = heartbeat->look.data = heartbeat;
    heartbeat->told = facts_of(service);
    heartbeat->told_at = uv_now(service->loop);
    if (interval > 0) {
        uv_timer_start(&heartbeat->watchdog, beat, interval, interval);
    }
    if (getenv("NOTIFY_SOCKET") != NULL) {
        uv_check_start(&heartbeat->look, look);
    }
}

void heartbeat_stop(struct heartbeat *heartbeat)
{
    uv_close((uv_handle_t *)&heartbeat->watchdog, NULL);
    uv_close((uv_handle_t *)&heartbeat->status, NULL);
    uv_close((uv_handle_t *)&heartbeat->look, NULL);
}
