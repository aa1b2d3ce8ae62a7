/*
 * The daemon of tests/rig as the clients of a test see it: raw packets on sockets, workers that a test lets run or hang,
 * a clock that stands still. A test that fails ends the process.
 */
#ifndef GRD_TESTS_UNIT_SESSIONS_RIG_H
#define GRD_TESTS_UNIT_SESSIONS_RIG_H

#include "tests/rig/daemon.h"

#define SESSIONS_UID 1000

/* Between them the test may change rig_config. */
void sessions_prepare(void);
void sessions_begin(void);
/* Hanging workers go on, all clients leave, and nothing of them may be left. */
void sessions_finish(void);

/* Readable when the process of the clients that come next has ended; stays the caller's. -1: nobody knows their process. */
extern int sessions_life;
/* The next clients leave before the daemon takes them. */
extern bool sessions_leaves;
/* The next clients send a packet with this descriptor before that; -1: none. */
extern int sessions_gives;
/* What became of the last one. */
extern enum session_taken sessions_taken;

/* A new client's end of its connection. */
int sessions_connect(uid_t uid);
/* The same, and it has said hello. */
int sessions_greet(uid_t uid);

/* Tries again to take the last one, which was held. */
void sessions_again(void);
/* Closes it. Those that are left are closed at the end. */
void sessions_drop(int client);

/* Sends a packet, with a descriptor unless that is below 0; it stays the caller's. False: the socket takes no more. */
bool sessions_send(int client, const char *text, int fd);
/* The same packet so many times, and the socket takes them all. */
void sessions_send_all(int client, const char *text, unsigned count);
/* The next packet of the daemon that is there; "": none, or the end. Good until the next call. */
const char *sessions_receive(int client);
/* Of that packet: this is in it. */
void sessions_expect(int client, const char *part);
/* Packets that are there, thrown away. */
unsigned sessions_forget(int client);

/* A sealed memory file with all its pages, and a descriptor of nothing. */
int sessions_memory(size_t bytes);
int sessions_descriptor(void);

/* Lets the user of a client wait for as many closings of descriptors as may run at once. */
void sessions_hang(int client);

/* The only user, or the one with that uid. NULL: there is none. */
const struct user *sessions_user(uid_t uid);
/* Open descriptors of this process. */
unsigned sessions_descriptors(void);

#endif
