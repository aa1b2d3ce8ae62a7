#include "daemon/fabric/domain.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/fabric/nics.h"
#include "daemon/fabric/provider.h"

struct fabric_settings fabric_settings(const struct fabric *fabric)
{
    const struct fabric_config *config = fabric->config;

    return (struct fabric_settings){
        .provider = config->provider != NULL ? config->provider : FABRIC_PROVIDER_DEFAULT,
        .bind = config->bind,
        .interfaces = config->interfaces,
    };
}

struct fabric_settings fabric_nic_settings(const struct fabric *fabric, unsigned nic, const char *local)
{
    struct fabric_settings settings = fabric_settings(fabric);

    settings.nic = fabric->host_nic ? NULL : fabric->nics[nic].name;
    settings.near = local;
    if (fabric->host_nic && settings.bind == NULL) {
        settings.bind = local;
    }
    return settings;
}

/* A free index; negative when out of memory. */
static int take_index(struct fabric *fabric, struct domain *domain)
{
    unsigned slots = fabric->domain_slots, grown = slots == 0 ? 8 : 2 * slots;
    struct domain **domains;

    for (unsigned i = 0; i < slots; i++) {
        if (fabric->domains[i] == NULL) {
            fabric->domains[i] = domain;
            return (int)i;
        }
    }
    domains = reallocarray(fabric->domains, grown, sizeof(struct domain *));
    if (domains == NULL) {
        return -1;
    }
    for (unsigned i = slots; i < grown; i++) {
        domains[i] = NULL;
    }
    fabric->domains = domains;
    fabric->domain_slots = grown;
    domains[slots] = domain;
    return (int)slots;
}

struct domain *domain_new(struct fabric *fabric, unsigned nic)
{
    struct domain *domain = calloc(1, sizeof(*domain));
    int index;

    if (domain == NULL) {
        return NULL;
    }
    index = take_index(fabric, domain);
    if (index < 0) {
        free(domain);
        return NULL;
    }
    domain->fabric = fabric;
    domain->nic = nic;
    domain->index = (unsigned)index;
    LIST_INIT(&domain->mrs);
    TAILQ_INIT(&domain->made_waiters);
    TAILQ_INIT(&domain->waiters);
    worker_owner_init(&domain->owner);
    return domain;
}

void domain_free(struct domain *domain)
{
    assert(LIST_EMPTY(&domain->mrs) && TAILQ_EMPTY(&domain->made_waiters) && TAILQ_EMPTY(&domain->waiters));
    domain->fabric->domains[domain->index] = NULL;
    free(domain);
}

struct domain *domain_home(struct fabric *fabric, unsigned nic)
{
    if (fabric->homes[nic] == NULL) {
        fabric->homes[nic] = domain_new(fabric, nic);
    }
    return fabric->homes[nic];
}

static void open_run(struct worker_job *job)
{
    struct domain *domain = (struct domain *)((char *)job - offsetof(struct domain, job));
    struct fabric_settings settings = fabric_nic_settings(domain->fabric, domain->nic, NULL);

    domain->status = domain->fabric->ops->domain_open(&settings, &domain->handle, domain->why);
}

static void open_done(struct worker_job *job)
{
    struct domain *domain = (struct domain *)((char *)job - offsetof(struct domain, job));
    TAILQ_HEAD(, domain_waiter) waiters = TAILQ_HEAD_INITIALIZER(waiters);
    struct domain_waiter *waiter;
    char why[FABRIC_WHY_BYTES];
    int status = domain->status;

    /* copies: who is told may ask for the domain again, and a failure is tried again then */
    snprintf(why, sizeof(why), "%s", status < 0 ? domain->why : "");
    if (status < 0) {
        nics_failed(domain->fabric, domain->nic, why);
    }
    domain->state = status < 0 ? DOMAIN_ABSENT : DOMAIN_OPEN;
    TAILQ_CONCAT(&waiters, &domain->waiters, link);
    while ((waiter = TAILQ_FIRST(&waiters)) != NULL) {
        TAILQ_REMOVE(&waiters, waiter, link);
        waiter->ready(waiter, status, why);
    }
}

bool domain_want(struct domain *domain, struct domain_waiter *waiter)
{
    if (domain->state == DOMAIN_OPEN) {
        return true;
    }
    TAILQ_INSERT_TAIL(&domain->waiters, waiter, link);
    if (domain->state == DOMAIN_ABSENT) {
        domain->state = DOMAIN_OPENING;
        workers_submit(domain->fabric->workers, &domain->owner, &domain->job, open_run, open_done);
    }
    return false;
}

void domain_tell_made(struct domain *domain)
{
    struct made_waiters waiters = TAILQ_HEAD_INITIALIZER(waiters);
    struct made_waiter *waiter;

    TAILQ_CONCAT(&waiters, &domain->made_waiters, link);
    while ((waiter = TAILQ_FIRST(&waiters)) != NULL) {
        TAILQ_REMOVE(&waiters, waiter, link);
        waiter->made(waiter);
    }
}
