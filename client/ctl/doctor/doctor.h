/*
 * glide-rdmactl doctor: a list of checks, each of which finds one thing out and says what to do about it.
 *
 * Concepts. A check fills a finding. What one has found, such as the daemon's status, stays in struct doctor for those
 * behind it, which skip themselves where it is missing. Checks run one after the other in the main thread; what they
 * made (client, region, keys) is given back by doctor_clean().
 */
#ifndef GRD_CTL_DOCTOR_DOCTOR_H
#define GRD_CTL_DOCTOR_DOCTOR_H

#include <glide-rdmad.h>
#include <jansson.h>

#include "client/ctl/options.h"

#define DOCTOR_TEXT_BYTES 2048
#define DOCTOR_KEY_BYTES (OPTIONS_KEY_PREFIX_BYTES + 64)
#define DOCTOR_PROVIDER_BYTES 32
#define DOCTOR_ANSWER_MS 10000 /* for whatever is asked, without --deadline */

enum verdict { VERDICT_OK, VERDICT_WARNING, VERDICT_FAILED, VERDICT_SKIPPED, VERDICTS };

struct finding {
    enum verdict verdict;
    char text[DOCTOR_TEXT_BYTES];   /* what was found; for skipped ones why */
    char advice[DOCTOR_TEXT_BYTES]; /* what to do; "" where nothing is */
};

struct doctor {
    const struct options *options;
    grd_client *client;                   /* NULL: no daemon */
    json_t *status;                       /* of the client socket; NULL: not known */
    char provider[DOCTOR_PROVIDER_BYTES]; /* the configured one; "": not known */
    grd_region *region;                   /* DOCTOR_REGION_BYTES; NULL: could not be made */
    bool server;                          /* it answers */
    bool module;                          /* it has a module for large objects */
    bool session;                         /* transfers work */
    bool stored;                          /* something may stand under `key` */
    char key[DOCTOR_KEY_BYTES];           /* of everything that is stored: a random one behind the prefix */
};

/* The region holds what is stored and what is fetched. */
#define DOCTOR_ROUND_TRIP_BYTES (UINT64_C(1) << 20)
#define DOCTOR_REGION_BYTES (2 * DOCTOR_ROUND_TRIP_BYTES)

/* What a key that could not be deleted lives on. */
#define DOCTOR_TTL_MS 600000

typedef void doctor_check(struct doctor *doctor, struct finding *finding);

/* Of the sockets and the daemon (daemon_checks.c). */
doctor_check check_client_socket, check_admin_socket, check_daemon;
/* Of the host (host_checks.c). */
doctor_check check_configuration, check_fabric, check_devices, check_memlock, check_huge_pages, check_device_limits;
/* Of the way to the server (transfer_checks.c, rdma_check.c, revocation.c). */
doctor_check check_valkey, check_valkey_rdma, check_module, check_region, check_session, check_round_trip, check_revocation;

/* Deletes the key, and gives region, client and status back. False: the key may still be there. */
bool doctor_clean(struct doctor *doctor);

/* --- for the checks */

void found(struct finding *finding, enum verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void advise(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Failed with what the library says. */
void found_error(struct finding *finding, const char *what, const struct grd_error *error);

uint64_t doctor_answer_ms(const struct doctor *doctor);

/* Asks for the status again; the old one stays where there is no answer, and false is returned with a reason. */
bool doctor_ask_status(struct doctor *doctor, char why[DOCTOR_TEXT_BYTES]);

/*
 * Asks with "keys.exists", "keys.info" or "keys.delete" about the key. *entry, the caller's, is the answer for it.
 * False: there is none, within doctor_answer_ms() (the library would wait for a server that hangs), and `why` says why.
 */
bool doctor_ask_key(const struct doctor *doctor, const char *method, json_t **entry, char why[DOCTOR_TEXT_BYTES]);

/* The member of the status' object, or NULL. */
json_t *doctor_status(const struct doctor *doctor, const char *object, const char *member);

#endif
