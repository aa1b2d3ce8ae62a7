/*
 * A scripted daemon for the client library's tests: a thread that listens on a real socket, speaks through proto/ and
 * does what the test's script says, so that a test can force an order of events that a real daemon shows once in a
 * thousand runs. Its "process", whose pidfd `hello` hands over, is a child that the script can kill when it likes.
 */
#ifndef GRD_TESTS_CLIENT_FAKE_H
#define GRD_TESTS_CLIENT_FAKE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "glide-rdmad.h"
#include "proto/envelope.h"
#include "proto/methods.h"

/* A limit for what comes at once, unless the machine has very much to do. */
#define FAKE_PATIENCE_MS 20000

struct fake;
typedef void fake_script(struct fake *fake);

struct fake {
    char directory[64], path[108];
    int listener, peer;
    pid_t process; /* whose death the client may see */
    pthread_t thread;
    fake_script *script;
    void *argument;     /* the test's */
    int last_fd;        /* descriptor of the last request, or -1; fake_receive closes the one before */
    int64_t next_region;
    int requests;       /* limits.requests of the greeting; 0: none is stated. Set by a script */
};

/* A request as the script sees it; released by the next fake_receive into it, or fake_release. */
struct fake_request {
    struct proto_request parsed;
    char text[PROTO_MESSAGE_BYTES];
};

/* Starts the script in a thread; fake_stop waits for its end, and cleans up. */
void fake_start(struct fake *fake, fake_script *script, void *argument);
void fake_stop(struct fake *fake);

/* --- for scripts ------------------------------------------------------------------------------------------------- */

void fake_accept(struct fake *fake);

/* Waits for the next request. False: the client ended its stream. */
bool fake_receive(struct fake *fake, struct fake_request *request);
void fake_release(struct fake_request *request);
bool fake_is(const struct fake_request *request, enum proto_method_id method);
json_int_t fake_number(const struct fake_request *request, const char *name);
const char *fake_text(const struct fake_request *request, const char *name);

/* Each takes over the JSON value. */
void fake_answer(struct fake *fake, int64_t id, json_t *result);
void fake_refuse(struct fake *fake, int64_t id, int code, const char *message, json_t *data);
void fake_notify(struct fake *fake, const char *method, json_t *params);
void fake_send_text(struct fake *fake, const char *text);

/* Accepts, and answers `hello` with a pidfd. */
void fake_greet(struct fake *fake);
json_t *fake_hello_result(void);
void fake_answer_hello(struct fake *fake, int64_t id, bool with_pidfd);

/* Answers region.register. */
void fake_register(struct fake *fake, const struct fake_request *request);

/* Receives one request of the method: anything else fails the test. */
void fake_expect(struct fake *fake, struct fake_request *request, enum proto_method_id method);

/* Says session.closed. */
void fake_farewell(struct fake *fake, int code, const char *reason);
void fake_close(struct fake *fake);
/* Kills the process that the pidfd names. */
void fake_kill(struct fake *fake);

/* Once more: a daemon after fake_kill(). fake_restart(): does both, and greets the client that connects. */
void fake_revive(struct fake *fake);
void fake_restart(struct fake *fake);

/* The socket's file goes, or comes back. */
void fake_unlisten(struct fake *fake);
void fake_listen(struct fake *fake);

/* Does somebody connect within so many ms? */
bool fake_is_asked(struct fake *fake, int timeout_ms);

/* Answers everything with success, gets with "missing", until the client ends its stream. */
void fake_serve(struct fake *fake);
void fake_serve_one(struct fake *fake, const struct fake_request *request);

/* --- for tests --------------------------------------------------------------------------------------------------- */

/* A client that stays without a daemon where this one ends; test_client_reconnect.c has the other kind. */
grd_client *fake_connect(struct fake *fake);
/* One that reconnects, for at most so many ms; 0: the standard. */
grd_client *fake_connect_lasting(struct fake *fake, uint64_t reconnect_ms);
grd_region *fake_region(grd_client *client, uint64_t size);
/* Returns when grd_close() has begun. For scripts too; the client must still be there. */
void fake_await_closing(grd_client *client);
void fake_sleep_ms(unsigned ms);
uint64_t fake_now_ms(void);

#endif
