/*
 * The daemon of one input, in the surroundings of tests/rig. What must hold is checked as it happens and at the end.
 */
#ifndef GRD_TESTS_FUZZ_SESSION_RIG_H
#define GRD_TESTS_FUZZ_SESSION_RIG_H

#include "tests/rig/daemon.h"

#define RIG_CLIENTS 8

void session_rig_start(const struct rig_options *options);
/* Everybody leaves, everything ends; nothing may be left. */
void session_rig_stop(void);

/* --- clients (session_client.c) ----------------------------------------------------------------------------------- */

void client_open(unsigned number, unsigned user, bool admin);
/* `kind`: README.md. */
void client_send(unsigned number, char kind, const char *bytes, size_t length);
void client_toggle_reading(unsigned number);
void client_close(unsigned number);
void client_shut_writing(unsigned number);
void client_shut_reading(unsigned number);
/* Its process ends, though somebody else still holds the socket. */
void client_die(unsigned number);

void clients_init(void);
void clients_start(void);
/* All read from now on. */
void clients_listen(void);
/* Requests of living clients that have no answer yet. */
unsigned clients_unanswered(void);
void clients_leave(void);
void clients_stop(void);

/* A packet reached the dispatch of a session. */
void clients_dispatched(const struct session *session, const char *text, const struct channel_packet *packet);

#endif
