#include "daemon/valkey/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/valkey/reach.h"
#include "daemon/valkey/resp.h"

const char *dial_rdma_forbidden(const struct valkey_config *config)
{
    if (config->tls_settings.enabled || config->tls != NULL) {
        return "[valkey] tls = yes, but there is no TLS over RDMA: everything would cross the network in clear. Reach "
               "the servers over TCP, or set tls = no where everybody on that network may be trusted";
    }
    if (config->password_file != NULL && !config->rdma_auth_in_clear) {
        return "[valkey] password_file is set, and RDMA would carry the password in clear, as there is no TLS over "
               "RDMA. Set rdma_auth_in_clear = yes where everybody on that network may be trusted, or reach the "
               "servers over TCP";
    }
    return NULL;
}

/* 1: over RDMA, and `rdma` is where. */
static int find_rdma(const struct valkey_config *config, const struct transport_address *address,
                     struct transport_address *rdma)
{
    struct topology_endpoint at;
    char text[TOPOLOGY_TEXT_BYTES], url[TOPOLOGY_TEXT_BYTES + 8], why[TRANSPORT_WHY_BYTES];
    int status;

    if (!reach_over_rdma(config->reach, address, &at)) {
        return 0;
    }
    topology_endpoint_text(&at, text);
    snprintf(url, sizeof(url), "rdma://%s", text);
    status = transport_address_parse(url, rdma, why);
    return status == 0 ? 1 : status;
}

int dial_init(struct dial *dial, const struct valkey_config *config, const struct transport_address *address)
{
    int status;

    *dial = (struct dial){.config = config, .address = address, .plain = *address, .again_ms = DIAL_AGAIN_MS};
    if (dial->plain.kind != TRANSPORT_UNIX) {
        dial->plain.kind = TRANSPORT_TCP;
    }
    status = find_rdma(config, address, &dial->rdma);
    return status < 0 ? status : 0;
}

void dial_end(struct dial *dial)
{
    transport_address_free(&dial->rdma);
}

static bool over_rdma(const struct dial *dial)
{
    return dial->rdma.text != NULL && !dial->on_tcp;
}

static void choose(const struct dial *dial, struct dial_attempt *attempt, bool rdma)
{
    attempt->rdma = rdma;
    attempt->address = rdma ? &dial->rdma : &dial->plain;
    attempt->class = transport_class_for(attempt->address, dial->config->tls);
}

int dial_first(const struct dial *dial, struct dial_attempt *attempt, char why[TRANSPORT_WHY_BYTES])
{
    const char *forbidden = over_rdma(dial) ? dial_rdma_forbidden(dial->config) : NULL;

    attempt->rdma_why[0] = '\0';
    choose(dial, attempt, over_rdma(dial));
    if (forbidden != NULL) {
        snprintf(why, TRANSPORT_WHY_BYTES, "%s", forbidden);
        return -EPERM;
    }
    return 0;
}

bool dial_next(const struct dial *dial, struct dial_attempt *attempt, char why[TRANSPORT_WHY_BYTES])
{
    char over_tcp[TRANSPORT_WHY_BYTES];

    if (attempt->rdma && dial->config->rdma_fallback && !dial->only_rdma) {
        memcpy(attempt->rdma_why, why, sizeof(attempt->rdma_why));
        choose(dial, attempt, false);
        return true;
    }
    if (attempt->rdma_why[0] != '\0') {
        snprintf(over_tcp, sizeof(over_tcp), "%s", why);
        snprintf(why, TRANSPORT_WHY_BYTES, "RDMA: %.250s; TCP: %.240s", attempt->rdma_why, over_tcp);
    }
    return false;
}

/* Longer, when RDMA lasted for less than the pause before. */
static void choose_pause(struct dial *dial, uint64_t now)
{
    bool flaps = dial->back_at != 0 && now - dial->back_at < dial->again_ms;
    uint64_t longer = 2 * dial->again_ms;

    dial->again_ms = !flaps ? DIAL_AGAIN_MS : longer < DIAL_AGAIN_LIMIT_MS ? longer : DIAL_AGAIN_LIMIT_MS;
    dial->again_at = now + dial->again_ms;
}

void dial_connected(struct dial *dial, const struct dial_attempt *attempt, uint64_t now)
{
    if (attempt->rdma && dial->why[0] != '\0') {
        dial_back_on_rdma(dial, now);
    }
    if (attempt->rdma_why[0] == '\0' || dial->on_tcp) {
        return;
    }
    dial->on_tcp = true;
    choose_pause(dial, now);
    if (strcmp(dial->why, attempt->rdma_why) != 0) {
        memcpy(dial->why, attempt->rdma_why, sizeof(dial->why));
        log_warn("valkey %s: connected over TCP ([valkey] rdma_fallback = tcp), because RDMA failed: %s",
                 dial->address->text, dial->why);
    }
}

void dial_ask_again(struct dial *dial)
{
    dial->on_tcp = false;
}

bool dial_is_due(const struct dial *dial, uint64_t now)
{
    return dial->on_tcp && now >= dial->again_at;
}

void dial_probe_failed(struct dial *dial, const char *why, uint64_t now)
{
    dial->again_at = now + dial->again_ms;
    snprintf(dial->why, sizeof(dial->why), "%s", why);
}

void dial_back_on_rdma(struct dial *dial, uint64_t now)
{
    dial->on_tcp = false;
    dial->back_at = now;
    dial->why[0] = '\0';
    log_notice("valkey %s: RDMA works again", dial->address->text);
}

const char *dial_transport(const struct dial *dial)
{
    struct dial_attempt attempt;

    choose(dial, &attempt, over_rdma(dial));
    return attempt.class->name;
}
