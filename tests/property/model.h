/*
 * What the property test knows of a round: requests, regions, the runs of the server, the bytes of the memory files.
 *
 * Everything is seen at the edges: the clients' sockets, the server's connections, the fabric's table of operations,
 * and mmap and munmap of the daemon. Sizes and offsets are bytes; offsets are those of the memory file. One thread; all
 * of it is static and made anew for each round.
 */
#ifndef GRD_TESTS_PROPERTY_MODEL_H
#define GRD_TESTS_PROPERTY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/rig/check.h"
#include "tests/rig/fake_bytes.h"

#define CLIENTS 4
#define USERS 2
#define FILES 5 /* two of each user, and one that both register and nobody transfers */
#define COMMON_FILE 4
#define FILE_BYTES 32768
#define REQUESTS 512 /* of a round; no more are made */
#define REGIONS 64

/* --- random numbers, the same for the same seed (main.c) ---------------------------------------------------------- */

void random_seed(uint64_t seed);
uint32_t random_next(void);
/* From 0 to limit - 1. */
uint32_t random_below(uint32_t limit);
bool random_percent(unsigned percent);

/* Notes what the step at hand does, for the report of a failure. */
void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What rounds must have met, so that what they say means something. X(SYMBOL, "words") */
#define SIGHTS(X)                                                                                                     \
    X(VALUE_COMPARED, "values of gets compared in their windows")                                                     \
    X(SET_STORED, "sets stored and compared")                                                                         \
    X(REFUSED_LATE, "transfers that the fabric stopped before their end")                                             \
    X(RUN_AGAIN, "gets sent again")                                                                                   \
    X(OVERLAP, "windows refused because they overlap one at work")                                                    \
    X(SHARED, "regions that share an arena")                                                                          \
    X(ABANDONED, "transfers whose client went")                                                                       \
    X(REGION_CLOSED, "regions closed and released")                                                                   \
    X(HUNG, "jobs of workers that hang")                                                                              \
    X(LANE_IN_DOUBT, "windows whose lane could not be closed")                                                        \
    X(QUARANTINED, "rounds that end with quarantined memory")

enum sight {
#define SIGHT_ENUM(symbol, words) SIGHT_##symbol,
    SIGHTS(SIGHT_ENUM)
#undef SIGHT_ENUM
        SIGHT_COUNT
};

void saw(enum sight sight);

/* --- memory files, and what of them is mapped (files.c) ----------------------------------------------------------- */

struct place {
    unsigned file;
    uint64_t at;
};

void files_init(void);
void files_reset(void);
int file_fd(unsigned file);
const uint8_t *file_bytes(unsigned file);

/* The client gives a window away: what it holds is not known until it is filled again. */
void file_yield(unsigned file, uint64_t start, uint64_t end);
/* The client writes to memory that is its own: nobody may change it from now on. */
void file_fill(unsigned file, uint64_t start, uint64_t end, uint8_t first, uint8_t step);

/* Where the registered memory lies; false where nothing of a memory file is mapped there. */
bool place_of(const uint8_t *registered, struct place *place);
/* The server writes, by the NIC: not through the daemon's mapping. */
void file_land(struct place place, const uint8_t *bytes, uint64_t length, const char *who);

/* No byte that a client owns has changed. */
void files_check(const char *when);

/* Bytes that are mapped now. */
uint64_t mapped_bytes(void);
/* What a failed close leaves in doubt: see fake_surroundings.in_doubt. */
void mapping_in_doubt(const uint8_t *base, bool certain);
/* At the end of a round: nothing is mapped but what a failed close may have left; that is unmapped. Returns
 * its bytes. */
uint64_t mappings_settle(void);
bool mapping_holds(const uint8_t *base, uint64_t length, const uint8_t *address);

/* --- regions and requests (clients.c) ----------------------------------------------------------------------------- */

enum region_state { REGION_ASKED, REGION_OPEN, REGION_CLOSING, REGION_GONE };

struct model_region {
    enum region_state state;
    int64_t id;
    unsigned client, user, file;
    uint64_t session; /* serial number of the client's connection */
    uint64_t start, size;
    bool writable;
};

struct model_request {
    int64_t id;
    int method;
    uint64_t number; /* in the round: names the key */
    unsigned client;
    uint64_t session;
    struct model_region *region;
    uint64_t start, end; /* of the window */
    uint8_t *expected;   /* of a set: the bytes of the window; NULL: they are not known */
    bool answered;
    bool abandoned;   /* its client has gone */
    bool tainted;     /* the lane could not be closed: the window is lost */
    bool denied;      /* a set of which the client was told that it did not run */
    unsigned commands, stored;
};

#define IS_TRANSFER(request)                                                                                          \
    ((request)->method == PROTO_METHOD_TRANSFER_GET || (request)->method == PROTO_METHOD_TRANSFER_SET)

void clients_init(void);
void clients_start(void);
/* All connections that are left are closed, and everything the round holds is freed. */
void clients_end(void);

/* A transfer by the number in its key; NULL: there is none. */
struct model_request *request_numbered(uint64_t number);
/* Whether a window overlaps one that a request may be at work on, other than `except`. */
bool window_busy(unsigned file, uint64_t start, uint64_t end, const struct model_request *except);

/* Everybody who listens has had all its answers, or session.closed. */
void clients_check_end(void);
unsigned clients_unanswered(void);

/* Steps: each takes its choices from the random numbers. */
void client_step_open(void);
void client_step_register(void);
void client_step_transfer(bool set);
void client_step_cancel(void);
void client_step_close_region(void);
void client_step_close(void);
void client_step_die(void);
void client_step_half_close(void);
/* Connects and registers, so that most rounds get somewhere. */
void clients_prepare(unsigned count);

/* --- the server (server.c) ---------------------------------------------------------------------------------------- */

void server_start(void);
void server_end(void);

/* Bytes of one transfer that runs move; up to `bytes`. False: none runs. */
bool server_step_move(uint64_t bytes);
/* All that run go on, to their ends. */
void server_move_all(void);
void server_step_answer(void);
/* HELLO, AUTH, CONFIG. False: nobody waits. */
bool server_step_answer_session(void);
void server_step_hang_up(void);

/* The window of a request goes back to its client. */
void server_check_handed_back(struct model_request *request, const char *how);
/* The value with which a get was answered; NULL: no run of it delivered one under this checksum. */
const uint8_t *server_value(const struct model_request *request, uint32_t checksum, uint64_t *length);
/* An endpoint could not be closed: the memory of what ran there without a proof of its end must stay mapped. */
void server_endpoint_failed(const uint8_t *address);
/* Memory is about to be unmapped. */
void server_check_unmapped(const uint8_t *base, uint64_t length);

/* --- steps (steps.c) ---------------------------------------------------------------------------------------------- */

#define STEPS 200

struct step {
    uint32_t kind, seed;
};

/* The provider of all rounds: "tcp", "verbs" or "efa-direct". False: there is none of that name. */
bool round_choose_provider(const char *name);

/* Whether some close of the round may have failed. */
bool round_close_failed(void);

/* A round from its seed, without the steps that `skip` marks (may be NULL). */
void round_run(uint64_t seed, const bool skip[STEPS]);

/* Told to main.c: which step runs now; STEPS is the end of the round. */
void step_begins(unsigned number);

#endif
